//! Deliveries that are gone although their message is in the journal: a part of the database was damaged, or somebody
//! else has written to it.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use switchboard_core::{AgentId, DeliveryState, Directory, MessageId, Planned, Route, plan};

use crate::error::HubError;
use crate::reads;
use crate::store::rows::{self, MESSAGE_COLUMNS, SPREAD, Stored};
use crate::submit::READ_BACK;

/// A message that has lost deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDeliveries {
    /// The message.
    pub stored: Stored,
    /// Who should have one, as far as that can be said today.
    pub agents: Vec<AgentId>,
}

/// The messages after a place in the journal that have lost deliveries. Of one to a group that still has some, as many are missed as numbers are missing
/// between them: who else was meant is not known.
///
/// A post lies in its channel for whoever reads there, and may never have had any.
pub(crate) fn find(
    db: &Connection,
    directory: &Directory,
    after: i64,
) -> Result<Vec<MissingDeliveries>, HubError> {
    let mut found = Vec::new();
    for stored in with_gaps(db, after)? {
        if matches!(stored.message.origin.route, Some(Route::Channel { .. })) {
            continue;
        }
        let left = left(db, stored.seq)?;
        let agents: Vec<_> = missing(&stored, &left, directory).into_iter().map(|one| one.agent).collect();
        if !agents.is_empty() || left.is_empty() {
            found.push(MissingDeliveries { stored, agents });
        }
    }
    Ok(found)
}

/// Makes the deliveries of a message anew that are gone; says how many. `had` tells how far some have got; the others begin
/// again, and their recipients may get the message a second time, which is better than never.
pub(crate) fn restore(
    db: &Connection,
    directory: &Directory,
    id: MessageId,
    had: &[(AgentId, DeliveryState)],
) -> Result<usize, HubError> {
    let Some(stored) = reads::message(db, id)? else { return Ok(0) };
    queue_again(db, directory, &stored, had)
}

/// The same for everything in a database of which some was lost, as its files say nothing yet.
pub(crate) fn restore_all(db: &Connection, directory: &Directory) -> Result<(), HubError> {
    for stored in with_gaps(db, 0)? {
        queue_again(db, directory, &stored, &[])?;
    }
    Ok(())
}

/// The messages without deliveries, or with numbers missing between those that they have.
fn with_gaps(db: &Connection, after: i64) -> Result<Vec<Stored>, HubError> {
    let own = format!("FROM deliveries d WHERE d.id >= m.seq * {SPREAD} AND d.id < (m.seq + 1) * {SPREAD}");
    let mut statement = db.prepare(&format!(
        "SELECT {MESSAGE_COLUMNS} FROM messages m \
         WHERE m.seq > ?1 AND (SELECT count(*) {own}) <> (SELECT coalesce(max(d.id) - m.seq * {SPREAD} + 1, 1) {own}) ORDER BY m.seq"
    ))?;
    let mut rows = statement.query([after])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        // A damaged row is told of by itself.
        found.extend(Stored::read(row));
    }
    Ok(found)
}

/// The deliveries that a message has: their numbers, and whose they are.
fn left(db: &Connection, seq: i64) -> Result<BTreeMap<i64, Option<AgentId>>, HubError> {
    let mut statement = db.prepare_cached("SELECT id, agent FROM deliveries WHERE id >= ?1 AND id < ?2")?;
    let rows = statement.query_map(rows::delivery_ids(seq), |row| {
        let agent = row.get::<_, String>(1).ok().and_then(|agent| agent.parse().ok());
        Ok((row.get::<_, i64>(0)? % SPREAD, agent))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What would be planned today and is not there.
fn missing(stored: &Stored, left: &BTreeMap<i64, Option<AgentId>>, directory: &Directory) -> Vec<Planned> {
    let Ok(plan) = plan(&stored.message, directory, true) else { return Vec::new() };
    let has_one = |agent: &AgentId| left.values().flatten().any(|had| had == agent);
    let mut missing: Vec<_> = plan.deliveries.into_iter().filter(|one| !has_one(&one.agent)).collect();
    if let Some((last, _)) = left.last_key_value() {
        let gaps = usize::try_from(last + 1).unwrap_or_default().saturating_sub(left.len());
        // Whoever is here longest was rather there then.
        missing.sort_by_key(|one| directory.agent(&one.agent).map(|record| record.registered_at));
        missing.truncate(gaps);
    }
    missing
}

fn queue_again(
    db: &Connection,
    directory: &Directory,
    stored: &Stored,
    had: &[(AgentId, DeliveryState)],
) -> Result<usize, HubError> {
    let left = left(db, stored.seq)?;
    let missing = missing(stored, &left, directory);
    let stop: Option<String> = db
        .prepare_cached("SELECT reason FROM stops WHERE seq = ?1 LIMIT 1")?
        .query_row([stored.seq], |row| row.get(0))
        .optional()?;
    let free = (0..SPREAD).filter(|number| !left.contains_key(number));
    let count = missing.len();
    for (number, planned) in free.zip(missing) {
        let (state, note) = match had.iter().find(|(agent, _)| *agent == planned.agent) {
            Some((_, state)) => (*state, READ_BACK),
            None if planned.in_place => (DeliveryState::Delivered, LOST),
            None => match &stop {
                Some(reason) => (DeliveryState::Refused, reason.as_str()),
                None => (DeliveryState::Queued, LOST),
            },
        };
        put(db, stored, number, &planned, state, note)?;
    }
    Ok(count)
}

/// What is noted of a delivery that begins again.
const LOST: &str = "what became of it was lost";

/// Writes a delivery as it would stand there had all of it happened at once.
fn put(
    db: &Connection,
    stored: &Stored,
    number: i64,
    planned: &Planned,
    state: DeliveryState,
    note: &str,
) -> Result<(), HubError> {
    use DeliveryState::{Acknowledged, Delivered, Expired, Refused, Seen};
    let accepted = stored.accepted_at.as_microsecond();
    let at = |states: &[DeliveryState]| states.contains(&state).then_some(accepted);
    db.prepare_cached(
        "INSERT INTO deliveries (id, agent, door, route, state, due_at, expires_at, note, queued_at, \
         delivered_at, seen_at, acknowledged_at, ended_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?6, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        stored.seq * SPREAD + number,
        planned.agent.to_string(),
        planned.route.door().as_str(),
        rows::json(&planned.route),
        rows::state_number(state),
        accepted,
        stored.message.expires_at.map(jiff::Timestamp::as_microsecond),
        note,
        at(&[Delivered, Seen, Acknowledged]),
        at(&[Seen]),
        at(&[Acknowledged]),
        at(&[Refused, Expired]),
    ])?;
    Ok(())
}

#[cfg(test)]
#[path = "lost_tests.rs"]
mod tests;
