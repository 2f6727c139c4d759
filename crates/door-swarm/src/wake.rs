//! Wake-up calls (§10.1): run a program or call a URL when messages arrive.
//!
//! The call contains only ids and no text of another owner; the agent reads the messages itself.

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
use crate::rate_limit::RateLimit;
use crate::swarms::Swarms;

/// Maximum number of messages that one call lists. The agent finds further messages itself.
const MAX_LISTED: usize = 100;

/// An incoming message.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Arrival {
    /// The recipient.
    pub(crate) agent_id: PeerId,
    pub(crate) swarm_id: Uuid,
    pub(crate) sender_id: PeerId,
    pub(crate) message_id: String,
    /// True if the sender has signed that the message is urgent. An unsigned priority does not count.
    pub(crate) is_urgent: bool,
}

/// Reason why a wake-up call failed.
#[derive(Debug, thiserror::Error)]
enum WakeError {
    #[error(transparent)]
    Start(#[from] switchboard_sys::process::SpawnError),
    #[error("the program ended with {0}")]
    Exit(std::process::ExitStatus),
    #[error("the program's exit status is unknown")]
    Wait(#[from] std::io::Error),
    #[error("the URL could not be called")]
    Call(#[from] reqwest::Error),
    #[error("the URL answered {0}")]
    Status(u16),
    #[error("it took longer than {} s", .0.as_secs())]
    TooSlow(std::time::Duration),
}

/// Makes wake-up calls for arrivals, debounced by the pause and rate-limited per sender.
pub(crate) async fn wake(swarms: &Swarms, mut arrivals: mpsc::Receiver<Arrival>) {
    // Without a wake-up call there are no arrivals; this must not end the door.
    let Some(config) = swarms.config().wake.clone() else { return std::future::pending().await };
    let budget = RateLimit::new(config.per_sender, SignedDuration::from_hours(1));
    while let Some(first) = arrivals.recv().await {
        let mut waiting = collect_batch(&config, first, &mut arrivals).await;
        let now = swarms.hub().now();
        let mut senders: Vec<(Uuid, PeerId)> =
            waiting.iter().map(|arrival| (arrival.swarm_id, arrival.sender_id.clone())).collect();
        senders.sort_unstable();
        senders.dedup();
        // A sender counts once per call, however many messages it sent.
        senders.retain(|sender| budget.acquire(sender.clone(), now).is_ok());
        waiting.retain(|arrival| senders.contains(&(arrival.swarm_id, arrival.sender_id.clone())));
        // Each of our agents gets its own call, in the order of the agents' first messages.
        while let Some(first) = waiting.first() {
            let agent = first.agent_id.clone();
            let (own, others): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|arrival| arrival.agent_id == agent);
            waiting = others;
            let called = tokio::time::timeout(config.timeout, wake_agent(&config, &own)).await;
            if let Err(error) = called.unwrap_or(Err(WakeError::TooSlow(config.timeout))) {
                let error = switchboard_core::error_chain(&error);
                tracing::warn!(%agent, error, "the wake-up call failed; the messages stay in the mailbox");
            }
        }
    }
    std::future::pending::<()>().await;
}

/// Collects a batch: the arrivals within the pause, or up to the first urgent one.
async fn collect_batch(
    config: &Wake,
    first: Arrival,
    arrivals: &mut mpsc::Receiver<Arrival>,
) -> Vec<Arrival> {
    let mut waiting = vec![first];
    let until_urgent = async {
        while !waiting.last().is_some_and(|latest| latest.is_urgent)
            && let Some(more) = arrivals.recv().await
        {
            waiting.push(more);
        }
    };
    // Arrivals that were already received stay in the batch when the pause ends.
    let _ = tokio::time::timeout(config.pause, until_urgent).await;
    while let Ok(more) = arrivals.try_recv() {
        waiting.push(more);
    }
    waiting
}

/// Wakes the agent that is the recipient of all these arrivals.
async fn wake_agent(config: &Wake, waiting: &[Arrival]) -> Result<(), WakeError> {
    let Some(first) = waiting.first() else { return Ok(()) };
    let body = json!({
        "event": "swarm_message", "message_id": first.message_id, "swarm_id": first.swarm_id,
        "sender_id": first.sender_id, "agent_id": first.agent_id, "count": waiting.len(),
        "notification_level": if waiting.iter().any(|arrival| arrival.is_urgent) { "urgent" } else { "normal" },
        "messages": &waiting[..waiting.len().min(MAX_LISTED)],
    });
    let body = body.to_string();
    if let Some((program, args)) = config.command.split_first() {
        let spawn = Spawn::new(program).args(args).stdin(Stdio::piped());
        let mut child = spawn.for_agent(LaunchKind::Wake, first.agent_id.as_str()).spawn()?;
        if let Some(mut stdin) = child.stdin_writer() {
            // A program that does not read its input may close stdin, so a failed write is ignored.
            let _ = stdin.write_all(body.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
        let status = child.wait().await?;
        if !status.success() {
            return Err(WakeError::Exit(status));
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
            return Err(WakeError::Status(status.as_u16()));
        }
    }
    Ok(())
}
