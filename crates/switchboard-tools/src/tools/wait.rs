//! Tool that waits for messages.

use std::time::Duration;

use rmcp::model::ProgressNotificationParam;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use switchboard_actions as actions;
use switchboard_core::AgentId;
use switchboard_hub::Part;
use tokio_util::sync::CancellationToken;

use super::ToolContext;
use super::inbox::Listing;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const WAIT_FOR_MESSAGE: &str = "Wait for new mail and return it. Use it when you have nothing to do before the \
     next message.";

/// Default timeout of a wait.
///
/// It is shorter than the two minutes after which some clients move a call to the background.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(100);

/// Maximum timeout of a wait: even the most patient client gives up after half an hour.
const MAX_TIMEOUT: Duration = Duration::from_mins(30);

/// Interval of keepalive progress notifications. Clients give up after a minute of silence.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitForMessage {
    /// Seconds, at most 1800 [100].
    timeout: Option<f64>,
    /// Your own name; optional.
    agent: Option<String>,
}

pub(super) async fn wait_for_message(ctx: &ToolContext<'_>, input: WaitForMessage) -> Outcome {
    let me = ctx.require_self(input.agent.as_deref(), "agent")?;
    let limit = match input.timeout {
        None => DEFAULT_TIMEOUT,
        Some(seconds) => Duration::try_from_secs_f64(seconds)
            .map_err(|_| {
                ToolError::new(format!("{seconds} is not a number of seconds"))
                    .next("timeout is from 0 to 1800.")
            })?
            .min(MAX_TIMEOUT),
    };
    ctx.workspace.scan_mailbox(&me).await?;
    let response_closed = switchboard_mcp::response_closed(ctx.request);
    let keepalives = send_keepalives(ctx, limit);
    let request = actions::Wait { owner: me.clone(), after: 0, is_own: true };
    let arrived = tokio::select! {
        biased;
        () = response_closed.cancelled() => None,
        () = ctx.request.ct.cancelled() => None,
        arrived = actions::wait(ctx.workspace, request, async || {}) => Some(arrived.map_err(|error| ToolError::of("wait_for_message", error))?),
        () = tokio::time::sleep(limit) => None,
        () = keepalives => None,
    };
    let Some(actions::Arrival { messages, lease }) = arrived else {
        return Ok(no_message(&me, limit, &response_closed));
    };
    let listing = Listing::of(ctx, &me, &messages, true).await?;
    // Messages that were not shown stay unseen, so that the next call returns them.
    if response_closed.is_cancelled() {
        return Ok(no_message(&me, limit, &response_closed));
    }
    if let Some(lease) = lease {
        let seen = listing.seen.clone();
        ctx.workspace.finish_showing_if(lease, seen, ctx.session.connection_check()).await?;
    }
    ctx.workspace.record_heartbeat(&me).await;
    Ok(listing.answer(&me, Part::Unseen, None))
}

fn no_message(me: &AgentId, limit: Duration, response_closed: &CancellationToken) -> Answer {
    let timed_out = !response_closed.is_cancelled();
    let text = if timed_out {
        format!("No new message for {me} within {} s. Call again to go on waiting.", limit.as_secs())
    } else {
        "The connection was closed during the call. Call again to go on waiting.".to_owned()
    };
    Answer::new(text, json!({ "agent": me.to_string(), "messages": [], "timedOut": timed_out }))
}

/// Sends progress notifications as a keepalive, if the client asked for progress. Never returns.
async fn send_keepalives(ctx: &ToolContext<'_>, limit: Duration) {
    let Some(token) = ctx.request.meta.get_progress_token() else { return std::future::pending().await };
    let mut waited = Duration::ZERO;
    loop {
        tokio::time::sleep(KEEPALIVE_INTERVAL).await;
        waited += KEEPALIVE_INTERVAL;
        let progress = ProgressNotificationParam::new(token.clone(), waited.as_secs_f64())
            .with_total(limit.as_secs_f64())
            .with_message("waiting for mail");
        // Ignore the error: if the client has disconnected, the call is cancelled anyway.
        let _ = ctx.request.peer.notify_progress(progress).await;
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
