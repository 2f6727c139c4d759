//! Display leases: at most one adapter displays a message to its reader.
//!
//! Several adapters can reach a model at once: a tool result, a waiting tool call, a hook of its client, a notice in
//! its terminal. An adapter leases a message before it displays it, and no other adapter displays it meanwhile. A
//! completed delivery waits in no queue, so its lease columns are reused: `owner` is the holder, and `due_at` is the
//! end of the lease. A displayed message is `seen` and cannot be leased again.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, MessageId};
use switchboard_sys::process_identity::ProcessIdentity;

use crate::error::HubError;
use crate::journal::maintenance;
use crate::store::rows;
use crate::store::writer::Transaction;

/// Lease owner that marks a message as announced.
///
/// The reader was told only the message's length and where to read it.
const ANNOUNCED: &str = "told";

/// Time before an announced message may be announced again unasked.
///
/// A model that has not read the message by then gets one more announcement.
const ANNOUNCE_INTERVAL: SignedDuration = SignedDuration::from_mins(10);

/// Maximum display lease, longer than the slowest program takes to answer.
const MAX_LEASE: SignedDuration = SignedDuration::from_hours(24);

/// Trigger of a display: the reader's request (pull) or the hub (push).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplayMode {
    /// The reader requested the message.
    Pull,
    /// The message is displayed unasked. A recently announced message is skipped.
    Push,
}

/// Leases the messages that the agent has not seen and no other adapter has leased.
///
/// Returns the ids of the messages that were leased.
pub(crate) fn acquire(
    tx: &mut Transaction<'_>,
    agent: &AgentId,
    ids: &[MessageId],
    mode: DisplayMode,
    token: &str,
    lease: SignedDuration,
) -> Result<Vec<MessageId>, HubError> {
    let mut held = Vec::new();
    let until = tx.now.saturating_add(lease.min(MAX_LEASE)).unwrap_or(tx.now);
    for id in ids {
        let Some((delivery, owner, due)) = find_unseen(tx, agent, *id)? else { continue };
        if owner.is_some_and(|owner| !is_available(&owner, due, tx.now, mode)) {
            continue;
        }
        tx.db
            .prepare_cached("UPDATE deliveries SET owner = ?2, due_at = ?3 WHERE id = ?1")?
            .execute(params![delivery, token, until.as_microsecond()])?;
        held.push(*id);
    }
    Ok(held)
}

/// Returns true if the lease on a message may be taken over.
fn is_available(owner: &str, due: Timestamp, now: Timestamp, mode: DisplayMode) -> bool {
    // The end is later than any lease allows, so the clock was set back.
    let is_lost = now.saturating_add(MAX_LEASE).is_ok_and(|latest| due > latest);
    if owner == ANNOUNCED {
        return mode == DisplayMode::Pull || due <= now || is_lost;
    }
    let process = owner.split_once(' ').map_or(owner, |(process, _)| process);
    due <= now || is_lost || process.parse::<ProcessIdentity>().map_or(true, |process| process.has_exited())
}

/// Ends a lease: marks messages as seen or announced, and releases the rest.
///
/// Returns the deliveries that became seen.
pub(crate) fn release(
    tx: &mut Transaction<'_>,
    agent: &AgentId,
    held: &[MessageId],
    shown: &[MessageId],
    announced: &[MessageId],
    token: &str,
) -> Result<Vec<Delivery>, HubError> {
    let seen = maintenance::advance_deliveries(tx, agent, shown, DeliveryState::Seen, None)?;
    let until = tx.now.saturating_add(ANNOUNCE_INTERVAL).unwrap_or(tx.now);
    for id in held.iter().filter(|id| !shown.contains(id)) {
        let Some((delivery, _, _)) = find_unseen(tx, agent, *id)? else { continue };
        let (owner, due) = if announced.contains(id) { (Some(ANNOUNCED), until) } else { (None, tx.now) };
        tx.db
            .prepare_cached("UPDATE deliveries SET owner = ?3, due_at = ?4 WHERE id = ?1 AND owner = ?2")?
            .execute(params![delivery, token, owner, due.as_microsecond()])?;
    }
    Ok(seen)
}

/// Returns the number, holder and lease end of a delivery that its reader has not seen.
fn find_unseen(
    tx: &Transaction<'_>,
    agent: &AgentId,
    id: MessageId,
) -> Result<Option<(i64, Option<String>, Timestamp)>, HubError> {
    let seq: Option<i64> = tx
        .db
        .prepare_cached("SELECT seq FROM messages WHERE id = ?1")?
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?;
    let Some(seq) = seq else { return Ok(None) };
    let [first, end] = rows::delivery_ids(seq);
    let found = tx
        .db
        .prepare_cached(
            "SELECT id, owner, due_at FROM deliveries WHERE id >= ?1 AND id < ?2 AND agent = ?3 AND state = 2",
        )?
        .query_row(params![first, end, agent.to_string()], |row| {
            Ok((row.get(0)?, row.get(1)?, switchboard_sys::clock::timestamp_from_micros(row.get(2)?)))
        })
        .optional()?;
    Ok(found)
}

#[cfg(test)]
#[path = "display_lease_tests.rs"]
mod tests;
