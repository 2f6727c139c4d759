//! Claims among all linked hubs: one entry per task in a bucket, changed only by whoever saw its last revision.
//!
//! Of all hubs that want a task at once, the server takes the change of one. Leases end by the clocks of the hubs, so
//! others wait a little longer than the holder's hub does.

use std::convert::Infallible;
use std::fmt::Write as _;

use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use switchboard_hub::{ClaimAction, ClaimAnswer, ClaimRequest};

use crate::error::{NatsError, describe};
use crate::link::Link;

/// By how much the clocks of two hubs may differ. A claim counts for others until so long after its end.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// How often a change is tried when others change the same entry. One of them succeeds each time.
const TRIES: usize = 64;

/// A task in the bucket. It stays when its claim ends, because its number must only rise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    task: String,
    /// The agent and its hub; nobody, once it was given back.
    holder: Option<String>,
    fence: i64,
    /// In microseconds since 1970, by the clock of the holder's hub.
    until: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Held {
    fn is_in_force(&self, now: Timestamp, skew: SignedDuration) -> bool {
        let now = now.saturating_sub(skew).unwrap_or(now).as_microsecond();
        self.holder.is_some() && self.until > now
    }
}

/// Answers what processes of this hub ask, until something fails.
pub(crate) async fn run(link: &Link) -> Result<Infallible, NatsError> {
    let mut changes = link.hub.changes();
    loop {
        for (id, ask) in link.hub.claim_requests().await? {
            match settle(link, id, ask).await {
                Err(NatsError::Hub(error)) => return Err(error.into()),
                // Whoever asked is told that nobody answers; the other work of the link goes on.
                Err(error) => tracing::warn!(reason = %describe(&error), "a claim was not decided"),
                Ok(()) => {}
            }
        }
        changes.next().await;
    }
}

/// Decides on one claim and tells whoever asked.
async fn settle(link: &Link, id: i64, ask: ClaimRequest) -> Result<(), NatsError> {
    let store = link.claims().await?;
    let answer = decide(link, &store, &ask).await?;
    let is_kept = link.hub.answer_claim(id, answer.clone()).await?;
    if let (false, ClaimAction::Claim, ClaimAnswer::Done { fence }) = (is_kept, ask.act, answer) {
        decide(link, &store, &ClaimRequest { act: ClaimAction::Release, fence, ..ask }).await?;
    }
    Ok(())
}

/// Does in the bucket what is asked, or says why not.
async fn decide(link: &Link, store: &Store, ask: &ClaimRequest) -> Result<ClaimAnswer, NatsError> {
    let key = key(&ask.task);
    let me = format!("{}@{}", ask.agent, link.me);
    for _ in 0..TRIES {
        let entry = store.entry(key.as_str()).await.map_err(NatsError::server("read a claim"))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        let held = entry.as_ref().and_then(|entry| serde_json::from_slice::<Held>(&entry.value).ok());
        let next = match next(ask, held, &me, link.hub.now()) {
            Ok(next) => next,
            Err(answer) => return Ok(answer),
        };
        let fence = next.fence;
        let bytes = serde_json::to_vec(&next).unwrap_or_default().into();
        let is_changed = match entry {
            Some(entry) => match store.update(key.as_str(), bytes, entry.revision).await {
                Ok(_) => true,
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => false,
                Err(error) => return Err(NatsError::server("change a claim")(error)),
            },
            None => match store.create(key.as_str(), bytes).await {
                Ok(_) => true,
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => false,
                Err(error) => return Err(NatsError::server("make a claim")(error)),
            },
        };
        if is_changed {
            return Ok(ClaimAnswer::Done { fence });
        }
    }
    Ok(ClaimAnswer::Stale { holder: None })
}

/// What the entry becomes, or why it stays as it is.
fn next(ask: &ClaimRequest, held: Option<Held>, me: &str, now: Timestamp) -> Result<Held, ClaimAnswer> {
    let ours = held.as_ref().filter(|held| held.holder.as_deref() == Some(me) && held.fence == ask.fence);
    match ask.act {
        ClaimAction::Claim => {
            if let Some(held) = held.as_ref().filter(|held| held.is_in_force(now, SKEW))
                && let Some(holder) = &held.holder
            {
                return Err(ClaimAnswer::Held { holder: holder.clone(), until: held.until });
            }
            let fence = held.map_or(0, |held| held.fence).saturating_add(1).max(ask.fence);
            let (task, holder, note) = (ask.task.clone(), Some(me.to_owned()), ask.note.clone());
            Ok(Held { task, holder, fence, until: ask.until, note })
        }
        ClaimAction::Renew => match ours.filter(|held| held.is_in_force(now, SignedDuration::ZERO)) {
            Some(ours) => Ok(Held { until: ask.until, ..ours.clone() }),
            None => Err(stale(held, now)),
        },
        ClaimAction::Release => match ours {
            Some(ours) => Ok(Held { holder: None, until: now.as_microsecond(), ..ours.clone() }),
            None => Err(stale(held, now)),
        },
    }
}

fn stale(held: Option<Held>, now: Timestamp) -> ClaimAnswer {
    ClaimAnswer::Stale {
        holder: held.filter(|held| held.is_in_force(now, SKEW)).and_then(|held| held.holder),
    }
}

/// A task's name as a key. No two tasks share one.
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
