//! Waiting for the reply to a message.

use std::collections::BTreeSet;
use std::time::Duration;

use door_workspace::Workspace;
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, MessageId, Receipt};
use switchboard_hub::{DisplayMode, Hub, Stored, is_notice};

use super::undeliverable;
use crate::commands::wait::Alive;
use crate::context::{Context, Open};
use crate::failure::{Exit, Failure};
use crate::show;

/// Maximum number of replies to one message that are read.
const MOST: usize = 100;

/// Rejects a sender that cannot receive a reply.
pub(super) async fn check_sender(workspace: &Workspace, from: &AgentId) -> Result<(), Failure> {
    if from.is_human() || workspace.hub().directory().await?.agent(from).is_some() {
        return Ok(());
    }
    Err(Failure::new(
        "unknown_sender",
        Exit::NotFound,
        format!("'{from}' is not registered and cannot receive a reply"),
    )
    .hint(format!("register it with `switchboard agents register \"{from}\"`, or do not wait")))
}

/// Waits for the reply and prints it.
///
/// A notice of the hub, such as that the message is still unread, is printed but does not count as a reply. The wait
/// ends when no recipient can receive or answer the message any more.
pub(super) async fn wait(
    context: &Context,
    open: &Open,
    from: &AgentId,
    id: MessageId,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let hub = open.workspace.hub();
    let mut changes = hub.changes();
    let me = hub.directory().await?.canonical(from);
    let mut alive = Alive::new(&open.workspace, Some(&me));
    let mut printed = BTreeSet::new();
    let answer = async {
        loop {
            alive.note().await;
            // Read the receipt before the replies: a watcher posts its reply first and acknowledges afterwards.
            let receipt = hub.journal().receipt(id).await?.map(|(_, receipt)| receipt);
            let mut is_answered = false;
            for stored in replies_to(hub, &me, id).await? {
                let is_answer = !is_notice(&stored.message);
                is_answered |= is_answer;
                if !has_arrived(hub, &me, stored.message.id).await? {
                    continue;
                }
                if is_answer {
                    return Ok::<_, Failure>(stored);
                }
                if printed.insert(stored.message.id) {
                    print_notice(context, open, &me, &stored).await?;
                }
            }
            let failure = receipt.and_then(|receipt| {
                undeliverable(&receipt).or_else(|| unanswerable(&receipt).filter(|_| !is_answered))
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
            changes.next().await;
        }
    };
    let stored = match timeout {
        None => answer.await?,
        Some(timeout) => tokio::time::timeout(timeout, answer).await.map_err(|_| {
            Failure::temporary("timeout", format!("no answer within {} s", timeout.as_secs_f64()))
                .hint(format!("it may still come: `switchboard thread {}`", door_workspace::to_native(id)))
        })??,
    };
    let shown = vec![stored.message.id];
    let hold = hub.mailboxes().lease_display(me.clone(), shown.clone(), DisplayMode::Pull).await?;
    if context.printer.is_json() {
        context.printer.object(&show::MessageLine::new(&stored, "seen"));
    } else {
        context.printer.line(show::message_text(&stored, "seen", hub.now(), false, context.reader()?));
    }
    open.workspace.finish_showing(hold, shown, Vec::new()).await?;
    Ok(())
}

/// Returns a failure once every delivery has ended and a recipient cannot answer.
fn unanswerable(receipt: &Receipt) -> Option<Failure> {
    let is_over = |d: &Delivery| {
        matches!(d.state, DeliveryState::Refused | DeliveryState::Expired) || d.no_answer_reason().is_some()
    };
    if !receipt.deliveries.iter().all(is_over) {
        return None;
    }
    let (agent, reason) = receipt.deliveries.iter().find_map(|d| Some((&d.agent, d.no_answer_reason()?)))?;
    let id = door_workspace::to_native(receipt.id);
    let message = show::plain(&format!("{agent} does not answer: {reason}"));
    Some(Failure::temporary("no_answer", message).hint(format!(
        "`switchboard receipt {id}` shows its delivery status; send it again when that is fixed"
    )))
}

/// Lists the replies to a message that are addressed to the agent or to a group.
async fn replies_to(hub: &Hub, me: &AgentId, id: MessageId) -> Result<Vec<Stored>, Failure> {
    let mut replies = hub.journal().replies(id, MOST).await?.items;
    replies.retain(|stored| stored.message.to.as_agent().is_none_or(|to| to == me));
    Ok(replies)
}

/// Prints a notice of the hub and marks it as seen. With `--json` it is not printed and stays in the mailbox.
async fn print_notice(context: &Context, open: &Open, me: &AgentId, notice: &Stored) -> Result<(), Failure> {
    if context.printer.is_json() {
        return Ok(());
    }
    let shown = vec![notice.message.id];
    let hold =
        open.workspace.hub().mailboxes().lease_display(me.clone(), shown.clone(), DisplayMode::Pull).await?;
    if hold.is_empty() {
        return Ok(());
    }
    context.printer.note(format_args!("note: {}", show::plain(&notice.message.body)));
    open.workspace.finish_showing(hold, shown, Vec::new()).await?;
    Ok(())
}

/// Returns true if no delivery of a message to the agent's mailbox is pending.
///
/// Before that, the message cannot be marked as seen, and the agent would be shown it again. A worker that waits here
/// receives nothing through its own door meanwhile.
async fn has_arrived(hub: &Hub, agent: &AgentId, id: MessageId) -> Result<bool, Failure> {
    let Some((_, receipt)) = hub.journal().receipt(id).await? else { return Ok(false) };
    let is_coming = |delivery: &Delivery| {
        delivery.agent == *agent
            && delivery.route.door() == Door::Workspace
            && matches!(delivery.state, DeliveryState::Queued | DeliveryState::InFlight)
    };
    Ok(!receipt.deliveries.iter().any(is_coming))
}
