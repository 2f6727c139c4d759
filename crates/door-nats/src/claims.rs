//! Task claims among all linked hubs: one bucket entry per task, changed by compare-and-set.
//!
//! The server accepts an update only from a hub that has read the entry's latest revision, so exactly one of several
//! concurrent claims wins. Leases expire by the clocks of the hubs, so other hubs wait a little longer than the
//! holder's hub.

use std::convert::Infallible;
use std::fmt::Write as _;

use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use switchboard_core::error_chain;
use switchboard_hub::{ClaimAction, ClaimAnswer, ClaimRequest};

use crate::error::NatsError;
use crate::session::Session;

/// Clock skew that is tolerated between two hubs. Other hubs honour a claim for this long after it ends.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// Maximum number of attempts at a change while other hubs change the same entry.
///
/// In each round, one of the competing hubs succeeds.
const MAX_ATTEMPTS: usize = 64;

/// Entry of a task in the bucket.
///
/// The entry outlives its claim, because the fencing token must only rise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ClaimEntry {
    task: String,
    /// The holder as `agent@hub`; `None` after a release.
    holder: Option<String>,
    fence: i64,
    /// End of the lease in microseconds since 1970, by the clock of the holder's hub.
    until: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl ClaimEntry {
    fn is_in_force(&self, now: Timestamp, skew: SignedDuration) -> bool {
        let now = now.saturating_sub(skew).unwrap_or(now).as_microsecond();
        self.holder.is_some() && self.until > now
    }
}

/// Answers claim requests of this hub's processes until an error occurs.
pub(crate) async fn run(session: &Session) -> Result<Infallible, NatsError> {
    let mut changes = session.hub.changes();
    loop {
        for (id, request) in session.hub.claims().requests().await? {
            match answer_request(session, id, request).await {
                Err(NatsError::Hub(error)) => return Err(error.into()),
                // The request times out, while the other tasks of the session continue.
                Err(error) => tracing::warn!(reason = %error_chain(&error), "cannot decide a claim"),
                Ok(()) => {}
            }
        }
        changes.next().await;
    }
}

/// Decides a claim request and stores the answer.
async fn answer_request(session: &Session, id: i64, request: ClaimRequest) -> Result<(), NatsError> {
    let store = session.claims().await?;
    let answer = decide(session, &store, &request).await?;
    let is_kept = session.hub.claims().answer(id, answer.clone()).await?;
    if let (false, ClaimAction::Claim, ClaimAnswer::Done { fence }) = (is_kept, request.act, answer) {
        decide(session, &store, &ClaimRequest { act: ClaimAction::Release, fence, ..request }).await?;
    }
    Ok(())
}

/// Applies a request to the bucket, or returns why it is refused.
async fn decide(session: &Session, store: &Store, request: &ClaimRequest) -> Result<ClaimAnswer, NatsError> {
    let key = key(&request.task);
    let me = format!("{}@{}", request.agent, session.me);
    for _ in 0..MAX_ATTEMPTS {
        let entry = store.entry(key.as_str()).await.map_err(NatsError::server("read a claim"))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        let current =
            entry.as_ref().and_then(|entry| serde_json::from_slice::<ClaimEntry>(&entry.value).ok());
        let next_entry = match next_entry(request, current, &me, session.hub.now()) {
            Ok(next_entry) => next_entry,
            Err(answer) => return Ok(answer),
        };
        let fence = next_entry.fence;
        let bytes = serde_json::to_vec(&next_entry).unwrap_or_default().into();
        let is_changed = match entry {
            Some(entry) => match store.update(key.as_str(), bytes, entry.revision).await {
                Ok(_) => true,
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => false,
                Err(error) => return Err(NatsError::server("change a claim")(error)),
            },
            None => match store.create(key.as_str(), bytes).await {
                Ok(_) => true,
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => false,
                Err(error) => return Err(NatsError::server("create a claim")(error)),
            },
        };
        if is_changed {
            return Ok(ClaimAnswer::Done { fence });
        }
    }
    Ok(ClaimAnswer::Stale { holder: None })
}

/// Returns the next state of the entry, or the reason why the entry stays unchanged.
///
/// A new claim raises the fencing token.
fn next_entry(
    request: &ClaimRequest,
    current: Option<ClaimEntry>,
    me: &str,
    now: Timestamp,
) -> Result<ClaimEntry, ClaimAnswer> {
    let ours = current
        .as_ref()
        .filter(|current| current.holder.as_deref() == Some(me) && current.fence == request.fence);
    match request.act {
        ClaimAction::Claim => {
            if let Some(current) = current.as_ref().filter(|current| current.is_in_force(now, SKEW))
                && let Some(holder) = &current.holder
            {
                return Err(ClaimAnswer::Held { holder: holder.clone(), until: current.until });
            }
            let fence = current.map_or(0, |current| current.fence).saturating_add(1).max(request.fence);
            let (task, holder, note) = (request.task.clone(), Some(me.to_owned()), request.note.clone());
            Ok(ClaimEntry { task, holder, fence, until: request.until, note })
        }
        ClaimAction::Renew => match ours.filter(|current| current.is_in_force(now, SignedDuration::ZERO)) {
            Some(ours) => Ok(ClaimEntry { until: request.until, ..ours.clone() }),
            None => Err(stale(current, now)),
        },
        ClaimAction::Release => match ours {
            Some(ours) => Ok(ClaimEntry { holder: None, until: now.as_microsecond(), ..ours.clone() }),
            None => Err(stale(current, now)),
        },
    }
}

fn stale(current: Option<ClaimEntry>, now: Timestamp) -> ClaimAnswer {
    ClaimAnswer::Stale {
        holder: current.filter(|current| current.is_in_force(now, SKEW)).and_then(|current| current.holder),
    }
}

/// Encodes a task name as a bucket key.
///
/// Names that differ only in ASCII case share a key; all other names have different keys.
fn key(task: &str) -> String {
    let mut key = String::with_capacity(2 * task.len());
    for byte in task.to_ascii_lowercase().bytes() {
        // Writing to a String does not fail.
        let _ = write!(key, "{byte:02x}");
    }
    key
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
