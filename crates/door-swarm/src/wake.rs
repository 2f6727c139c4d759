//! §10.1: waking whoever answers. Ids only go out, never a text of a stranger; the woken one asks for the rest.

use std::process::Stdio;

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::json;
use switchboard_sys::lineage::LaunchKind;
use switchboard_sys::process::Spawn;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::config::Wake;
use crate::limits::Limit;
use crate::swarms::Swarms;

/// Most messages that one call names; the woken one finds the others.
const MOST: usize = 100;

/// A message that came in.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Arrival {
    /// For which of our agents.
    pub(crate) agent_id: PeerId,
    pub(crate) swarm_id: Uuid,
    pub(crate) sender_id: PeerId,
    pub(crate) message_id: String,
    /// Whether the sender has signed that it is urgent. Unsigned, it says nothing.
    pub(crate) is_urgent: bool,
}

/// Why nobody was woken.
#[derive(Debug, thiserror::Error)]
enum NotWoken {
    #[error(transparent)]
    Start(#[from] switchboard_sys::process::SpawnError),
    #[error("the program ended with {0}")]
    Exit(std::process::ExitStatus),
    #[error("the program cannot be waited for")]
    Wait(#[from] std::io::Error),
    #[error("the address could not be called")]
    Call(#[from] reqwest::Error),
    #[error("the address answered {0}")]
    Status(u16),
    #[error("it took longer than {} s", .0.as_secs())]
    TooSlow(std::time::Duration),
}

/// Wakes for what arrives, once for all that comes within the pause, and for no sender more often than it may.
pub(crate) async fn wake(swarms: &Swarms, mut arrivals: mpsc::Receiver<Arrival>) {
    // Where nobody is to be woken nothing arrives here, which is no reason to end.
    let Some(config) = swarms.config().wake.clone() else { return std::future::pending().await };
    let budget = Limit::new(config.per_sender, SignedDuration::from_hours(1));
    while let Some(first) = arrivals.recv().await {
        let mut waiting = gather(&config, first, &mut arrivals).await;
        let now = swarms.hub().now();
        let mut senders: Vec<(Uuid, PeerId)> =
            waiting.iter().map(|arrival| (arrival.swarm_id, arrival.sender_id.clone())).collect();
        senders.sort_unstable();
        senders.dedup();
        // A sender counts once for each call, however much it sent.
        senders.retain(|sender| budget.take(sender.clone(), now).is_ok());
        waiting.retain(|arrival| senders.contains(&(arrival.swarm_id, arrival.sender_id.clone())));
        // Each of our agents is woken by a call of its own, in the order in which their first messages came.
        while let Some(first) = waiting.first() {
            let agent = first.agent_id.clone();
            let (own, others): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|arrival| arrival.agent_id == agent);
            waiting = others;
            let called = tokio::time::timeout(config.timeout, call(&config, &own)).await;
            if let Err(error) = called.unwrap_or(Err(NotWoken::TooSlow(config.timeout))) {
                let error = crate::error::describe(&error);
                tracing::warn!(%agent, error, "nobody was woken; the messages wait");
            }
        }
    }
    std::future::pending::<()>().await;
}

/// What comes within the pause, or until something urgent does.
async fn gather(config: &Wake, first: Arrival, arrivals: &mut mpsc::Receiver<Arrival>) -> Vec<Arrival> {
    let mut waiting = vec![first];
    let until_urgent = async {
        while !waiting.last().is_some_and(|latest| latest.is_urgent)
            && let Some(more) = arrivals.recv().await
        {
            waiting.push(more);
        }
    };
    // Received is kept: nothing is lost when the pause is over.
    let _ = tokio::time::timeout(config.pause, until_urgent).await;
    while let Ok(more) = arrivals.try_recv() {
        waiting.push(more);
    }
    waiting
}

/// Wakes one agent, which all of these are for.
async fn call(config: &Wake, waiting: &[Arrival]) -> Result<(), NotWoken> {
    let Some(first) = waiting.first() else { return Ok(()) };
    let body = json!({
        "event": "swarm_message", "message_id": first.message_id, "swarm_id": first.swarm_id,
        "sender_id": first.sender_id, "agent_id": first.agent_id, "count": waiting.len(),
        "notification_level": if waiting.iter().any(|arrival| arrival.is_urgent) { "urgent" } else { "normal" },
        "messages": &waiting[..waiting.len().min(MOST)],
    });
    let body = body.to_string();
    if let Some((program, args)) = config.command.split_first() {
        let spawn = Spawn::new(program).args(args).stdin(Stdio::piped());
        let mut child = spawn.for_agent(LaunchKind::Wake, first.agent_id.as_str()).spawn()?;
        if let Some(mut stdin) = child.take_stdin() {
            // A program that does not read its input closes it, which is its right.
            let _ = stdin.write_all(body.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
        let status = child.wait().await?;
        if !status.success() {
            return Err(NotWoken::Exit(status));
        }
    }
    if let Some(url) = &config.url {
        let client =
            reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        let mut request = client.post(url.as_str()).header("content-type", "application/json").body(body);
        if let Some(secret) = &config.secret {
            request = request.header("x-wake-secret", secret.reveal());
        }
        let status = request.send().await?.status();
        if !status.is_success() {
            return Err(NotWoken::Status(status.as_u16()));
        }
    }
    Ok(())
}
