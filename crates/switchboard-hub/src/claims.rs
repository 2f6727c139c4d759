//! Task claims: exclusive leases on tasks, with fencing tokens.
//!
//! The database orders concurrent claims of all processes, so exactly one of them wins. Every claim has a fencing token
//! (its fence), a number higher than all earlier fences of the same task. An action under a claim names the fence, so a
//! holder that slept past the end of the lease is refused.

mod global;
pub(crate) mod reservations;
pub(crate) mod work_tree;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use switchboard_core::{AgentId, Message, TaskName};
use switchboard_sys::clock::timestamp_from_micros;

pub(crate) use self::global::{
    ANSWER_TIMEOUT, apply_answer, enqueue_request, find_answer, pending_requests, withdraw,
};
pub use self::global::{ClaimAction, ClaimAnswer, ClaimRequest};
use crate::activity;
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Metadata key with which a message names the claim under which it is written.
pub(crate) const KEY: &str = "claim";

/// Default lease duration of a claim.
pub const CLAIM_LEASE: SignedDuration = SignedDuration::from_mins(10);

/// Maximum lease of a claim or reservation before it has to be renewed.
///
/// A holder that disappears therefore blocks others for a day at most.
pub const MAX_LEASE_DURATION: SignedDuration = SignedDuration::from_hours(24);

/// Claim of an agent on a task: a lease with a fencing token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskClaim {
    /// The task.
    pub task: TaskName,
    /// The agent that holds the claim.
    pub holder: AgentId,
    /// Fencing token: the number of the claim.
    pub fence: i64,
    /// Note of the holder.
    pub note: Option<String>,
    /// Time of the claim.
    pub claimed_at: Timestamp,
    /// End of the lease, unless it is renewed.
    pub until: Timestamp,
}

const COLUMNS: &str = "task, holder, fence, note, claimed_at, until";

/// Claims a task for an agent; if another agent holds it, fails with that holder.
pub(crate) fn claim(
    tx: &mut Transaction<'_>,
    task: TaskName,
    agent: &AgentId,
    lease: SignedDuration,
    note: Option<String>,
) -> Result<TaskClaim, HubError> {
    let holder = tx.directory.value.canonical(agent);
    global::check_unclaimed(tx, &task, &holder)?;
    let fence = next_fence(tx, &task)?;
    let until = tx.now.saturating_add(bounded(lease)).unwrap_or(tx.now);
    grant(tx, TaskClaim { task, holder, fence, note, claimed_at: tx.now, until }, false)
}

/// Returns a fencing token that is higher than all earlier ones of the task.
fn next_fence(tx: &Transaction<'_>, task: &TaskName) -> Result<i64, HubError> {
    let last: Option<i64> = tx
        .db
        .prepare_cached("SELECT fence FROM claims WHERE task = ?1")?
        .query_row([task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0) + 1)
}

/// Writes a granted claim to the database.
fn grant(tx: &mut Transaction<'_>, claim: TaskClaim, global: bool) -> Result<TaskClaim, HubError> {
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
            global,
        ])?;
    log_activity(tx, holder, "claimed", task, *fence)?;
    Ok(claim)
}

/// Returns true if the latest claim of the task was among all linked hubs.
pub(crate) fn is_global(db: &Connection, task: &TaskName) -> Result<bool, HubError> {
    let global = db
        .prepare_cached("SELECT everywhere FROM claims WHERE task = ?1")?
        .query_row([task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(global.unwrap_or(false))
}

/// Returns the lease duration that the latest claim of a task requested.
pub(crate) fn lease_of(db: &Connection, task: &TaskName) -> Result<Option<SignedDuration>, HubError> {
    let lease = db
        .prepare_cached("SELECT lease FROM claims WHERE task = ?1")?
        .query_row([task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(lease.map(SignedDuration::from_micros))
}

/// Renews the lease of a claim.
pub(crate) fn renew(
    tx: &mut Transaction<'_>,
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
    log_activity(tx, &held.holder, "renewed", task, fence)?;
    Ok(TaskClaim { until, ..held })
}

/// Releases a claim.
pub(crate) fn release(
    tx: &mut Transaction<'_>,
    task: &TaskName,
    agent: &AgentId,
    fence: i64,
) -> Result<TaskClaim, HubError> {
    let held = check(tx, task, agent, fence)?;
    tx.db
        .prepare_cached("UPDATE claims SET holder = NULL, until = ?2 WHERE task = ?1")?
        .execute(params![task.as_str(), tx.now.as_microsecond()])?;
    log_activity(tx, &held.holder, "released", task, fence)?;
    Ok(TaskClaim { until: tx.now, ..held })
}

/// Returns the claim with this fencing token if this agent holds it.
///
/// Fails if the claim is no longer in force.
pub(crate) fn check(
    tx: &Transaction<'_>,
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

/// Checks the fence of the claim that a message names, if it names one.
pub(crate) fn check_message(tx: &Transaction<'_>, message: &Message) -> Result<(), HubError> {
    let Some(Value::Object(named)) = message.metadata.get(KEY) else { return Ok(()) };
    // Not a claim of this hub: the sender belongs to another owner, or the metadata key has another meaning.
    if message.from.realm.is_some() || !(named.contains_key("task") || named.contains_key("fence")) {
        return Ok(());
    }
    let read = || Some((named.get("task")?.as_str()?.parse().ok()?, named.get("fence")?.as_i64()?));
    let (task, fence): (TaskName, i64) = read().ok_or(HubError::BadClaim)?;
    check(tx, &task, &message.from, fence).map(|_| ())
}

/// Lists the claims that are in force at a moment, sorted by task name.
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

/// Returns the claim of a task that is in force.
///
/// A claim whose end lies further ahead than its lease allows was made before the clock was set back. It counts as
/// ended: refusing its holder does no harm, and no other agent has to wait for years.
fn in_force(tx: &Transaction<'_>, task: &TaskName) -> Result<Option<TaskClaim>, HubError> {
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
        claimed_at: timestamp_from_micros(row.get(4).ok()?),
        until: timestamp_from_micros(row.get(5).ok()?),
    })
}

/// Refuses a lease that is longer than the maximum.
///
/// A holder that silently got a shorter lease than it requested would overstay it.
pub(crate) fn check_lease(lease: SignedDuration) -> Result<(), HubError> {
    if lease > MAX_LEASE_DURATION { Err(HubError::LeaseTooLong { lease }) } else { Ok(()) }
}

/// Clamps a lease to between one second and the maximum.
///
/// Leases from other hubs and from older databases are clamped as well.
pub(crate) fn bounded(lease: SignedDuration) -> SignedDuration {
    lease.clamp(SignedDuration::from_secs(1), MAX_LEASE_DURATION)
}

pub(crate) fn micros(lease: SignedDuration) -> i64 {
    i64::try_from(lease.as_micros()).unwrap_or(i64::MAX)
}

fn log_activity(
    tx: &mut Transaction<'_>,
    agent: &AgentId,
    what: &str,
    task: &TaskName,
    fence: i64,
) -> Result<(), HubError> {
    activity::note(tx, agent, what, task.as_str(), Some(&format!("claim {fence}")))
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
