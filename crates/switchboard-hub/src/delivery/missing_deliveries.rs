//! Restores deliveries that are missing although their message is in the journal.
//!
//! They are missing because a part of the database was damaged, or because another program wrote to it.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use switchboard_core::{AgentId, DeliveryState, Directory, MessageId, PlanEntry, Route, plan};

use crate::error::HubError;
use crate::journal::reads;
use crate::journal::submit::READ_BACK;
use crate::store::rows::{self, MESSAGE_COLUMNS, SPREAD, Stored};

/// Message with missing deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDeliveries {
    /// The message.
    pub stored: Stored,
    /// Agents whose delivery is missing, according to the current directory.
    pub agents: Vec<AgentId>,
}

/// Finds messages after a journal number that have lost deliveries.
///
/// If a message to a group still has some deliveries, only as many are reported as there are gaps in their numbering,
/// because its original recipients are not known.
///
/// Channel posts are skipped: every reader reads the post in its channel, and a post may never have had a delivery.
pub(crate) fn find(
    db: &Connection,
    directory: &Directory,
    after: i64,
) -> Result<Vec<MissingDeliveries>, HubError> {
    let mut found = Vec::new();
    for stored in find_gaps(db, after)? {
        if matches!(stored.message.origin.route, Some(Route::Channel { .. })) {
            continue;
        }
        let existing = existing_deliveries(db, stored.seq)?;
        let agents: Vec<_> =
            plan_missing(&stored, &existing, directory).into_iter().map(|planned| planned.agent).collect();
        if !agents.is_empty() || existing.is_empty() {
            found.push(MissingDeliveries { stored, agents });
        }
    }
    Ok(found)
}

/// Restores the missing deliveries of a message; returns their number.
///
/// `known` has the states of some deliveries. The others are queued again: a duplicate is better than a lost message.
pub(crate) fn restore(
    db: &Connection,
    directory: &Directory,
    id: MessageId,
    known: &[(AgentId, DeliveryState)],
) -> Result<usize, HubError> {
    let Some(stored) = reads::message(db, id)? else { return Ok(0) };
    requeue(db, directory, &stored, known)
}

/// Restores all missing deliveries of a recovered database, before messages are read back from files.
pub(crate) fn restore_all(db: &Connection, directory: &Directory) -> Result<(), HubError> {
    for stored in find_gaps(db, 0)? {
        requeue(db, directory, &stored, &[])?;
    }
    Ok(())
}

/// Finds messages without deliveries, or with gaps in the numbering of their deliveries.
fn find_gaps(db: &Connection, after: i64) -> Result<Vec<Stored>, HubError> {
    let own = format!("FROM deliveries d WHERE d.id >= m.seq * {SPREAD} AND d.id < (m.seq + 1) * {SPREAD}");
    let mut statement = db.prepare(&format!(
        "SELECT {MESSAGE_COLUMNS} FROM messages m \
         WHERE m.seq > ?1 AND (SELECT count(*) {own}) <> (SELECT coalesce(max(d.id) - m.seq * {SPREAD} + 1, 1) {own}) ORDER BY m.seq"
    ))?;
    let mut rows = statement.query([after])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        // Damaged rows are reported separately.
        found.extend(Stored::read(row));
    }
    Ok(found)
}

/// Returns the existing deliveries of a message: their numbers and agents.
fn existing_deliveries(db: &Connection, seq: i64) -> Result<BTreeMap<i64, Option<AgentId>>, HubError> {
    let mut statement = db.prepare_cached("SELECT id, agent FROM deliveries WHERE id >= ?1 AND id < ?2")?;
    let rows = statement.query_map(rows::delivery_ids(seq), |row| {
        let agent = row.get::<_, String>(1).ok().and_then(|agent| agent.parse().ok());
        Ok((row.get::<_, i64>(0)? % SPREAD, agent))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Plans the message's deliveries with the current agent directory and returns the missing ones.
fn plan_missing(
    stored: &Stored,
    existing: &BTreeMap<i64, Option<AgentId>>,
    directory: &Directory,
) -> Vec<PlanEntry> {
    let Ok(plan) = plan(&stored.message, directory, true) else { return Vec::new() };
    let has_one = |agent: &AgentId| existing.values().flatten().any(|known| known == agent);
    let mut missing: Vec<_> =
        plan.deliveries.into_iter().filter(|planned| !has_one(&planned.agent)).collect();
    if let Some((last, _)) = existing.last_key_value() {
        let gaps = usize::try_from(last + 1).unwrap_or_default().saturating_sub(existing.len());
        // The agents that registered first were most likely members when the message was sent.
        missing.sort_by_key(|planned| directory.agent(&planned.agent).map(|record| record.registered_at));
        missing.truncate(gaps);
    }
    missing
}

fn requeue(
    db: &Connection,
    directory: &Directory,
    stored: &Stored,
    known: &[(AgentId, DeliveryState)],
) -> Result<usize, HubError> {
    let existing = existing_deliveries(db, stored.seq)?;
    let missing = plan_missing(stored, &existing, directory);
    let stop: Option<String> = db
        .prepare_cached("SELECT reason FROM stops WHERE seq = ?1 LIMIT 1")?
        .query_row([stored.seq], |row| row.get(0))
        .optional()?;
    let free = (0..SPREAD).filter(|number| !existing.contains_key(number));
    let count = missing.len();
    for (number, planned) in free.zip(missing) {
        let (state, note) = match known.iter().find(|(agent, _)| *agent == planned.agent) {
            Some((_, state)) => (*state, READ_BACK),
            None if planned.in_place => (DeliveryState::Delivered, LOST),
            None => match &stop {
                Some(reason) => (DeliveryState::Refused, reason.as_str()),
                None => (DeliveryState::Queued, LOST),
            },
        };
        insert(db, stored, number, &planned, state, note)?;
    }
    Ok(count)
}

/// Note on a restored delivery whose state is unknown.
const LOST: &str = "its state was lost";

/// Inserts a delivery in a given state, as if all transitions had happened at once.
fn insert(
    db: &Connection,
    stored: &Stored,
    number: i64,
    planned: &PlanEntry,
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
#[path = "missing_deliveries_tests.rs"]
mod tests;
