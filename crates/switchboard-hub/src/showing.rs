//! Which adapter shows a message to its reader.
//!
//! A model can be reached by several at once: the result of a tool, a tool that waits, a hook of its client, a
//! notice in its terminal. Whoever is about to show a message holds it first, and nobody else shows it meanwhile. A
//! delivery that was made waits in no queue, so its lease columns are free for this: `owner` is who holds it, `due_at`
//! until when. What was shown is `seen` and can be held by nobody.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, MessageId};
use switchboard_sys::owner::Owner;

use crate::error::HubError;
use crate::maintenance;
use crate::store::rows;
use crate::store::writer::Work;

/// The owner of what its reader was only told of: how long it is, and where to read it.
const TOLD: &str = "told";

/// How long nobody tells of it again by themselves. A model that has not looked by then is told once more.
const TOLD_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Longer than the slowest program takes to answer.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// How a message comes before its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplayMode {
    /// The reader asked for it.
    Pull,
    /// It is put before the reader unasked. What the reader was told of a short while ago is left alone.
    Push,
}

/// Holds those of these messages that an agent has not seen and that nobody else is about to show; returns them.
pub(crate) fn hold(
    tx: &mut Work<'_>,
    agent: &AgentId,
    ids: &[MessageId],
    how: DisplayMode,
    token: &str,
    lease: SignedDuration,
) -> Result<Vec<MessageId>, HubError> {
    let mut held = Vec::new();
    let until = tx.now.saturating_add(lease.min(LONGEST)).unwrap_or(tx.now);
    for id in ids {
        let Some((delivery, owner, due)) = unseen(tx, agent, *id)? else { continue };
        if owner.is_some_and(|owner| !is_free(&owner, due, tx.now, how)) {
            continue;
        }
        tx.db
            .prepare_cached("UPDATE deliveries SET owner = ?2, due_at = ?3 WHERE id = ?1")?
            .execute(params![delivery, token, until.as_microsecond()])?;
        held.push(*id);
    }
    Ok(held)
}

/// Whether what somebody holds may be taken over.
fn is_free(owner: &str, due: Timestamp, now: Timestamp, how: DisplayMode) -> bool {
    // Longer than anybody holds anything: the clock was set back.
    let is_lost = now.saturating_add(LONGEST).is_ok_and(|latest| due > latest);
    if owner == TOLD {
        return how == DisplayMode::Pull || due <= now || is_lost;
    }
    let process = owner.split_once(' ').map_or(owner, |(process, _)| process);
    due <= now || is_lost || process.parse::<Owner>().map_or(true, |process| process.is_gone())
}

/// Notes what became of held messages: shown, or only told of. All others are let go. Returns what was shown for
/// the first time.
pub(crate) fn finish(
    tx: &mut Work<'_>,
    agent: &AgentId,
    held: &[MessageId],
    shown: &[MessageId],
    told: &[MessageId],
    token: &str,
) -> Result<Vec<Delivery>, HubError> {
    let seen = maintenance::advance(tx, agent, shown, DeliveryState::Seen, None)?;
    let until = tx.now.saturating_add(TOLD_FOR).unwrap_or(tx.now);
    for id in held.iter().filter(|id| !shown.contains(id)) {
        let Some((delivery, _, _)) = unseen(tx, agent, *id)? else { continue };
        let (owner, due) = if told.contains(id) { (Some(TOLD), until) } else { (None, tx.now) };
        tx.db
            .prepare_cached("UPDATE deliveries SET owner = ?3, due_at = ?4 WHERE id = ?1 AND owner = ?2")?
            .execute(params![delivery, token, owner, due.as_microsecond()])?;
    }
    Ok(seen)
}

/// The number, the holder and the end of the lease of a delivery that its reader has not seen.
fn unseen(
    tx: &Work<'_>,
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
            Ok((row.get(0)?, row.get(1)?, switchboard_sys::clock::from_micros(row.get(2)?)))
        })
        .optional()?;
    Ok(found)
}

#[cfg(test)]
#[path = "showing_tests.rs"]
mod tests;
