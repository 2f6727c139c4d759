//! Claims among all linked hubs.
//!
//! Whoever claims writes down what is asked, and the process that has the link answers, as it does for messages. So
//! every process of the hub can ask, and where no link runs nobody is given anything.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use switchboard_core::{AgentId, TaskName};
use switchboard_sys::clock::from_micros;

use super::{TaskClaim, bounded, check, give, in_force, next_fence, release, renew};
use crate::error::HubError;
use crate::store::rows;
use crate::store::writer::Work;

/// How long somebody waits for the link. What is asked is answered within that time, or not at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What is to be done with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimAction {
    /// The task is taken on.
    Claim,
    /// The lease begins anew.
    Renew,
    /// The task is given back.
    Release,
}

/// What the link is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// What is to be done.
    pub act: ClaimAction,
    /// With which task.
    pub task: String,
    /// For whom.
    pub agent: String,
    /// The number of the claim; for a new one, what it must be at least.
    pub fence: i64,
    /// Until when, in microseconds since 1970.
    pub until: i64,
    /// What the agent says of it.
    pub note: Option<String>,
}

/// What the link answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimAnswer {
    /// It is done, under this number.
    Done {
        /// The number of the claim.
        fence: i64,
    },
    /// Somebody has the task.
    Held {
        /// Who.
        holder: String,
        /// Until when, in microseconds since 1970.
        until: i64,
    },
    /// The claim is not in force any more.
    Stale {
        /// Who has the task now.
        holder: Option<String>,
    },
}

/// Writes down what the link is to do, as far as this hub has nothing against it.
pub(crate) fn ask(
    tx: &mut Work<'_>,
    act: ClaimAction,
    task: &TaskName,
    agent: &AgentId,
    (fence, lease, note): (i64, SignedDuration, Option<String>),
) -> Result<i64, HubError> {
    let agent = tx.directory.value.canonical(agent);
    let fence = match act {
        ClaimAction::Claim => {
            not_held(tx, task, &agent)?;
            next_fence(tx, task)?
        }
        ClaimAction::Renew | ClaimAction::Release => check(tx, task, &agent, fence)?.fence,
    };
    let until = tx.now.saturating_add(bounded(lease)).unwrap_or(tx.now).as_microsecond();
    let ask = ClaimRequest { act, task: task.to_string(), agent: agent.to_string(), fence, until, note };
    // What nobody waits for any more.
    tx.db.execute(
        "DELETE FROM claim_asks WHERE at < ?1 OR at > ?2",
        [oldest(tx.now), tx.now.as_microsecond()],
    )?;
    tx.db
        .prepare_cached("INSERT INTO claim_asks (ask, at) VALUES (?1, ?2)")?
        .execute(params![rows::json(&ask), tx.now.as_microsecond()])?;
    Ok(tx.db.last_insert_rowid())
}

/// What the link is asked now, in order.
pub(crate) fn asks(db: &Connection, now: Timestamp) -> Result<Vec<(i64, ClaimRequest)>, HubError> {
    let mut statement =
        db.prepare_cached("SELECT id, ask FROM claim_asks WHERE answer IS NULL AND at >= ?1 ORDER BY id")?;
    let rows = statement.query_map([oldest(now)], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let mut asks = Vec::new();
    for row in rows {
        let (id, ask) = row?;
        asks.extend(serde_json::from_str(&ask).ok().map(|ask| (id, ask)));
    }
    Ok(asks)
}

/// Takes the link's answer and does here what it stands for. False where nobody waits for it any more, or where
/// somebody of this hub has been quicker: then the link is to take back what it did.
pub(crate) fn answer(tx: &mut Work<'_>, id: i64, answer: &ClaimAnswer) -> Result<bool, HubError> {
    let found: Option<String> = tx
        .db
        .query_row("SELECT ask FROM claim_asks WHERE id = ?1 AND answer IS NULL", [id], |row| row.get(0))
        .optional()?;
    let Some(ask) = found.and_then(|ask| serde_json::from_str::<ClaimRequest>(&ask).ok()) else {
        return Ok(false);
    };
    let (Ok(task), Ok(agent)) = (ask.task.parse::<TaskName>(), ask.agent.parse::<AgentId>()) else {
        return Ok(false);
    };
    let (mut answer, mut is_done) = (answer.clone(), true);
    match (ask.act, &answer) {
        (ClaimAction::Claim, ClaimAnswer::Done { fence }) => match in_force(tx, &task)? {
            None => {
                let (holder, note, until) = (agent, ask.note, from_micros(ask.until));
                give(tx, TaskClaim { task, holder, fence: *fence, note, claimed_at: tx.now, until }, true)?;
            }
            Some(held) => {
                let until = held.until.as_microsecond();
                answer = ClaimAnswer::Held { holder: held.holder.to_string(), until };
                is_done = false;
            }
        },
        // Where the claim has ended here in the meantime, there is nothing left to do.
        (ClaimAction::Renew, ClaimAnswer::Done { fence }) => {
            let lease = SignedDuration::from_micros(ask.until.saturating_sub(tx.now.as_microsecond()));
            if check(tx, &task, &agent, *fence).is_ok() {
                renew(tx, &task, &agent, *fence, lease)?;
            }
        }
        (ClaimAction::Release, ClaimAnswer::Done { .. }) | (_, ClaimAnswer::Stale { .. }) => {
            if check(tx, &task, &agent, ask.fence).is_ok() {
                release(tx, &task, &agent, ask.fence)?;
            }
        }
        (_, ClaimAnswer::Held { .. }) => {}
    }
    tx.db
        .prepare_cached("UPDATE claim_asks SET answer = ?2 WHERE id = ?1")?
        .execute(params![id, rows::json(&answer)])?;
    Ok(is_done)
}

/// The answer to what was asked, where it has come.
pub(crate) fn answer_of(db: &Connection, id: i64) -> Result<Option<ClaimAnswer>, HubError> {
    let answer: Option<Option<String>> = db
        .prepare_cached("SELECT answer FROM claim_asks WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    Ok(answer.flatten().and_then(|answer| serde_json::from_str(&answer).ok()))
}

/// Asks no longer; returns the answer, where it has come after all.
pub(crate) fn withdraw(tx: &mut Work<'_>, id: i64) -> Result<Option<ClaimAnswer>, HubError> {
    let answer = answer_of(tx.db, id)?;
    tx.db.prepare_cached("DELETE FROM claim_asks WHERE id = ?1")?.execute([id])?;
    Ok(answer)
}

/// Whoever asked before that does not wait any more.
fn oldest(now: Timestamp) -> i64 {
    now.saturating_sub(SignedDuration::try_from(PATIENCE).unwrap_or_default()).unwrap_or(now).as_microsecond()
}

pub(super) fn not_held(tx: &Work<'_>, task: &TaskName, agent: &AgentId) -> Result<(), HubError> {
    match in_force(tx, task)? {
        None => Ok(()),
        Some(TaskClaim { task, holder, until, fence, .. }) => {
            let own = (holder == *agent).then_some(fence);
            Err(HubError::ClaimHeld { task, holder, until, own })
        }
    }
}
