//! Tasks that agents take on: one has each, for as long as its lease lasts.
//!
//! The database orders all who claim at once, in whichever process they are, so one of them wins. Every claim has a
//! number, its fence, that is higher than all before it for the same task. Whoever does something under a claim names
//! the number, and a holder who slept past the end of the lease is refused.

mod everywhere;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use switchboard_core::{AgentId, Message, TaskName};
use switchboard_sys::clock::from_micros;

pub use self::everywhere::{ClaimAction, ClaimAnswer, ClaimRequest};
pub(crate) use self::everywhere::{PATIENCE, answer, answer_of, ask, asks, withdraw};
use crate::activity;
use crate::error::HubError;
use crate::store::writer::Work;

/// The key of a message's metadata that names the claim it is written under.
pub(crate) const KEY: &str = "claim";

/// How long a claim lasts where nobody says.
pub const CLAIM_LEASE: SignedDuration = SignedDuration::from_mins(10);

/// How long a claim or a reservation lasts at most before it has to be renewed.
pub const LONGEST_LEASE: SignedDuration = SignedDuration::from_hours(24);

/// A task that somebody has taken on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskClaim {
    /// The task.
    pub task: TaskName,
    /// Who has it.
    pub holder: AgentId,
    /// The number of the claim.
    pub fence: i64,
    /// What the holder says of it.
    pub note: Option<String>,
    /// Since when.
    pub claimed_at: Timestamp,
    /// Until when, unless it is renewed.
    pub until: Timestamp,
}

const COLUMNS: &str = "task, holder, fence, note, claimed_at, until";

/// Gives a task to an agent, or says who has it.
pub(crate) fn claim(
    tx: &mut Work<'_>,
    task: TaskName,
    agent: &AgentId,
    lease: SignedDuration,
    note: Option<String>,
) -> Result<TaskClaim, HubError> {
    let holder = tx.directory.value.canonical(agent);
    everywhere::not_held(tx, &task, &holder)?;
    let fence = next_fence(tx, &task)?;
    let until = tx.now.saturating_add(bounded(lease)).unwrap_or(tx.now);
    give(tx, TaskClaim { task, holder, fence, note, claimed_at: tx.now, until }, false)
}

/// A number above all that the task's claims have had.
fn next_fence(tx: &Work<'_>, task: &TaskName) -> Result<i64, HubError> {
    let last: Option<i64> = tx
        .db
        .prepare_cached("SELECT fence FROM claims WHERE task = ?1")?
        .query_row([task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0) + 1)
}

/// Writes down who has a task from now on.
fn give(tx: &mut Work<'_>, claim: TaskClaim, everywhere: bool) -> Result<TaskClaim, HubError> {
    let TaskClaim { task, holder, fence, note, claimed_at, until } = &claim;
    tx.db
        .prepare_cached(
            "INSERT INTO claims (task, fence, holder, note, claimed_at, lease, until, everywhere) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (task) DO UPDATE SET fence = ?2, holder = ?3, note = ?4, \
             claimed_at = ?5, lease = ?6, until = ?7, everywhere = ?8",
        )?
        .execute(params![
            task.as_str(),
            fence,
            holder.to_string(),
            note,
            claimed_at.as_microsecond(),
            until.as_microsecond() - claimed_at.as_microsecond(),
            until.as_microsecond(),
            everywhere,
        ])?;
    tell(tx, holder, "claimed", task, *fence)?;
    Ok(claim)
}

/// Whether a task was last claimed among all linked hubs.
pub(crate) fn is_everywhere(db: &Connection, task: &TaskName) -> Result<bool, HubError> {
    let everywhere = db
        .prepare_cached("SELECT everywhere FROM claims WHERE task = ?1")?
        .query_row([task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(everywhere.unwrap_or(false))
}

/// How long the claim of a task was last given for.
pub(crate) fn lease_of(db: &Connection, task: &TaskName) -> Result<Option<SignedDuration>, HubError> {
    let lease = db
        .prepare_cached("SELECT lease FROM claims WHERE task = ?1")?
        .query_row([task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(lease.map(SignedDuration::from_micros))
}

/// Begins the lease of a claim anew.
pub(crate) fn renew(
    tx: &mut Work<'_>,
    task: &TaskName,
    agent: &AgentId,
    fence: i64,
    lease: SignedDuration,
) -> Result<TaskClaim, HubError> {
    let held = check(tx, task, agent, fence)?;
    let lease = bounded(lease);
    let until = tx.now.saturating_add(lease).unwrap_or(tx.now);
    tx.db.prepare_cached("UPDATE claims SET lease = ?2, until = ?3 WHERE task = ?1")?.execute(params![
        task.as_str(),
        micros(lease),
        until.as_microsecond()
    ])?;
    tell(tx, &held.holder, "renewed", task, fence)?;
    Ok(TaskClaim { until, ..held })
}

/// Gives a task back.
pub(crate) fn release(
    tx: &mut Work<'_>,
    task: &TaskName,
    agent: &AgentId,
    fence: i64,
) -> Result<TaskClaim, HubError> {
    let held = check(tx, task, agent, fence)?;
    tx.db
        .prepare_cached("UPDATE claims SET holder = NULL, until = ?2 WHERE task = ?1")?
        .execute(params![task.as_str(), tx.now.as_microsecond()])?;
    tell(tx, &held.holder, "released", task, fence)?;
    Ok(TaskClaim { until: tx.now, ..held })
}

/// The claim of this number, while it is in force and that agent's.
pub(crate) fn check(
    tx: &Work<'_>,
    task: &TaskName,
    agent: &AgentId,
    fence: i64,
) -> Result<TaskClaim, HubError> {
    let holder = tx.directory.value.canonical(agent);
    match in_force(tx, task)? {
        Some(held) if held.fence == fence && held.holder == holder => Ok(held),
        other => {
            let holder = other.map(|held| held.holder);
            let was_claimed = lease_of(tx.db, task)?.is_some();
            Err(HubError::StaleClaim { task: task.clone(), fence, holder, was_claimed })
        }
    }
}

/// Checks the claim that a message names, where it names one.
pub(crate) fn check_message(tx: &Work<'_>, message: &Message) -> Result<(), HubError> {
    let Some(Value::Object(named)) = message.metadata.get(KEY) else { return Ok(()) };
    // Somebody else's word, or somebody's word for something else.
    if message.from.realm.is_some() || !(named.contains_key("task") || named.contains_key("fence")) {
        return Ok(());
    }
    let read = || Some((named.get("task")?.as_str()?.parse().ok()?, named.get("fence")?.as_i64()?));
    let (task, fence): (TaskName, i64) = read().ok_or(HubError::BadClaim)?;
    check(tx, &task, &message.from, fence).map(|_| ())
}

/// Who has which task at a moment, by the name of the task.
pub(crate) fn list(db: &Connection, now: Timestamp) -> Result<Vec<TaskClaim>, HubError> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM claims WHERE holder IS NOT NULL AND until > ?1 AND until - lease <= ?1 ORDER BY task"
    ))?;
    let mut rows = statement.query([now.as_microsecond()])?;
    let mut claims = Vec::new();
    while let Some(row) = rows.next()? {
        claims.extend(read(row));
    }
    Ok(claims)
}

/// The claim of a task that is in force.
///
/// One that ends later than its lease allows was made before the clock was set back. It has ended: its holder is
/// refused then, which does no harm, while nobody must be kept waiting for years.
fn in_force(tx: &Work<'_>, task: &TaskName) -> Result<Option<TaskClaim>, HubError> {
    let found = tx
        .db
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM claims WHERE task = ?1 AND holder IS NOT NULL AND until > ?2 AND until - lease <= ?2"
        ))?
        .query_row(params![task.as_str(), tx.now.as_microsecond()], |row| Ok(read(row)))
        .optional()?
        .flatten();
    Ok(found.map(|held| TaskClaim { task: task.clone(), ..held }))
}

fn read(row: &Row<'_>) -> Option<TaskClaim> {
    Some(TaskClaim {
        task: row.get::<_, String>(0).ok()?.parse().ok()?,
        holder: row.get::<_, String>(1).ok()?.parse().ok()?,
        fence: row.get(2).ok()?,
        note: row.get(3).ok()?,
        claimed_at: from_micros(row.get(4).ok()?),
        until: from_micros(row.get(5).ok()?),
    })
}

/// Refuses a lease that is longer than any may last. A holder who is given less than asked for would overstay.
pub(crate) fn check_lease(lease: SignedDuration) -> Result<(), HubError> {
    if lease > LONGEST_LEASE { Err(HubError::LeaseTooLong { lease }) } else { Ok(()) }
}

/// A lease that is neither nothing nor for ever: what other hubs and older databases hold is bounded as well.
pub(crate) fn bounded(lease: SignedDuration) -> SignedDuration {
    lease.clamp(SignedDuration::from_secs(1), LONGEST_LEASE)
}

pub(crate) fn micros(lease: SignedDuration) -> i64 {
    i64::try_from(lease.as_micros()).unwrap_or(i64::MAX)
}

fn tell(tx: &mut Work<'_>, agent: &AgentId, what: &str, task: &TaskName, fence: i64) -> Result<(), HubError> {
    activity::note(tx, agent, what, task.as_str(), Some(&format!("claim {fence}")))
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
