//! Global claims: task claims among all linked hubs.
//!
//! The claiming process queues a request in the database, and the process that runs the link answers it, as it does for
//! messages. Every process of the hub can therefore claim, and without a running link no claim is granted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use switchboard_core::{AgentId, TaskName};
use switchboard_sys::clock::timestamp_from_micros;

use super::{TaskClaim, bounded, check, grant, in_force, next_fence, release, renew};
use crate::error::HubError;
use crate::store::rows;
use crate::store::writer::Transaction;

/// Timeout for an answer of the link. A later answer is discarded.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Action on a claim that the link carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimAction {
    /// Claims the task.
    Claim,
    /// Renews the lease.
    Renew,
    /// Releases the task.
    Release,
}

/// Request to the link for an action on a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// The action.
    pub act: ClaimAction,
    /// The task.
    pub task: String,
    /// The claiming agent.
    pub agent: String,
    /// Fencing token of the claim; for a new claim, the lowest acceptable token.
    pub fence: i64,
    /// End of the lease, in microseconds since 1970.
    pub until: i64,
    /// Note of the agent.
    pub note: Option<String>,
}

/// Response to a [`ClaimRequest`] from the process that runs the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimAnswer {
    /// The action was done under this fencing token.
    Done {
        /// Fencing token of the claim.
        fence: i64,
    },
    /// Another agent holds the task.
    Held {
        /// The holder.
        holder: String,
        /// End of the lease, in microseconds since 1970.
        until: i64,
    },
    /// The claim is no longer in force.
    Stale {
        /// The current holder.
        holder: Option<String>,
    },
}

/// Queues a request to the link, unless this hub can refuse the request itself.
pub(crate) fn enqueue_request(
    tx: &mut Transaction<'_>,
    act: ClaimAction,
    task: &TaskName,
    agent: &AgentId,
    (fence, lease, note): (i64, SignedDuration, Option<String>),
) -> Result<i64, HubError> {
    let agent = tx.directory.value.canonical(agent);
    let fence = match act {
        ClaimAction::Claim => {
            check_unclaimed(tx, task, &agent)?;
            next_fence(tx, task)?
        }
        ClaimAction::Renew | ClaimAction::Release => check(tx, task, &agent, fence)?.fence,
    };
    let until = tx.now.saturating_add(bounded(lease)).unwrap_or(tx.now).as_microsecond();
    let request = ClaimRequest { act, task: task.to_string(), agent: agent.to_string(), fence, until, note };
    // Deletes requests that have timed out.
    tx.db.execute(
        "DELETE FROM claim_asks WHERE at < ?1 OR at > ?2",
        [oldest_live(tx.now), tx.now.as_microsecond()],
    )?;
    tx.db
        .prepare_cached("INSERT INTO claim_asks (ask, at) VALUES (?1, ?2)")?
        .execute(params![rows::json(&request), tx.now.as_microsecond()])?;
    Ok(tx.db.last_insert_rowid())
}

/// Lists unanswered requests to the link, in order.
pub(crate) fn pending_requests(
    db: &Connection,
    now: Timestamp,
) -> Result<Vec<(i64, ClaimRequest)>, HubError> {
    let mut statement =
        db.prepare_cached("SELECT id, ask FROM claim_asks WHERE answer IS NULL AND at >= ?1 ORDER BY id")?;
    let rows = statement.query_map([oldest_live(now)], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let mut requests = Vec::new();
    for row in rows {
        let (id, request) = row?;
        requests.extend(serde_json::from_str(&request).ok().map(|request| (id, request)));
    }
    Ok(requests)
}

/// Applies an answer of the link to the claims of this hub.
///
/// Returns false if the request has timed out, or if another agent of this hub claimed the task in the meantime. The
/// link then has to undo its part.
pub(crate) fn apply_answer(
    tx: &mut Transaction<'_>,
    id: i64,
    answer: &ClaimAnswer,
) -> Result<bool, HubError> {
    let found: Option<String> = tx
        .db
        .query_row("SELECT ask FROM claim_asks WHERE id = ?1 AND answer IS NULL", [id], |row| row.get(0))
        .optional()?;
    let Some(request) = found.and_then(|request| serde_json::from_str::<ClaimRequest>(&request).ok()) else {
        return Ok(false);
    };
    let (Ok(task), Ok(agent)) = (request.task.parse::<TaskName>(), request.agent.parse::<AgentId>()) else {
        return Ok(false);
    };
    let (mut answer, mut is_done) = (answer.clone(), true);
    match (request.act, &answer) {
        (ClaimAction::Claim, ClaimAnswer::Done { fence }) => match in_force(tx, &task)? {
            None => {
                let (holder, note, until) = (agent, request.note, timestamp_from_micros(request.until));
                grant(tx, TaskClaim { task, holder, fence: *fence, note, claimed_at: tx.now, until }, true)?;
            }
            Some(held) => {
                let until = held.until.as_microsecond();
                answer = ClaimAnswer::Held { holder: held.holder.to_string(), until };
                is_done = false;
            }
        },
        // There is nothing to do if this hub's claim has ended in the meantime.
        (ClaimAction::Renew, ClaimAnswer::Done { fence }) => {
            let lease = SignedDuration::from_micros(request.until.saturating_sub(tx.now.as_microsecond()));
            if check(tx, &task, &agent, *fence).is_ok() {
                renew(tx, &task, &agent, *fence, lease)?;
            }
        }
        (ClaimAction::Release, ClaimAnswer::Done { .. }) | (_, ClaimAnswer::Stale { .. }) => {
            if check(tx, &task, &agent, request.fence).is_ok() {
                release(tx, &task, &agent, request.fence)?;
            }
        }
        (_, ClaimAnswer::Held { .. }) => {}
    }
    tx.db
        .prepare_cached("UPDATE claim_asks SET answer = ?2 WHERE id = ?1")?
        .execute(params![id, rows::json(&answer)])?;
    Ok(is_done)
}

/// Returns the answer to a request, if it has arrived.
pub(crate) fn find_answer(db: &Connection, id: i64) -> Result<Option<ClaimAnswer>, HubError> {
    let answer: Option<Option<String>> = db
        .prepare_cached("SELECT answer FROM claim_asks WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    Ok(answer.flatten().and_then(|answer| serde_json::from_str(&answer).ok()))
}

/// Withdraws a request; returns its answer, if it has arrived after all.
pub(crate) fn withdraw(tx: &mut Transaction<'_>, id: i64) -> Result<Option<ClaimAnswer>, HubError> {
    let answer = find_answer(tx.db, id)?;
    tx.db.prepare_cached("DELETE FROM claim_asks WHERE id = ?1")?.execute([id])?;
    Ok(answer)
}

/// Returns the time before which requests have timed out.
fn oldest_live(now: Timestamp) -> i64 {
    now.saturating_sub(SignedDuration::try_from(ANSWER_TIMEOUT).unwrap_or_default())
        .unwrap_or(now)
        .as_microsecond()
}

pub(super) fn check_unclaimed(
    tx: &Transaction<'_>,
    task: &TaskName,
    agent: &AgentId,
) -> Result<(), HubError> {
    match in_force(tx, task)? {
        None => Ok(()),
        Some(TaskClaim { task, holder, until, fence, .. }) => {
            let own = (holder == *agent).then_some(fence);
            Err(HubError::ClaimHeld { task, holder, until, own })
        }
    }
}
