//! Answers that a router did not get to send: it was killed when the ends of their turns were in the log already.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, JobId};

use super::Router;
use crate::delivery::{self, REPLY_SCOPE};
use crate::job::FinishedTurn;

/// How long before the last turn of the log another may have ended that is still to be answered: answers follow at
/// once. What is older may have been answered and removed from the journal since, and would be answered again.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// The turns of the log that ended last and whose senders want an answer as a message, the oldest first.
#[derive(Default)]
pub(super) struct PendingReplies(VecDeque<(Timestamp, FinishedTurn)>);

impl PendingReplies {
    /// A turn was over at a moment.
    pub(super) fn push(&mut self, at: Timestamp, ended: FinishedTurn) {
        if !delivery::wants_reply(&ended.injection) {
            return;
        }
        self.0.push_back((at, ended));
        while self.0.front().is_some_and(|(first, _)| at.duration_since(*first) > RECENT) {
            self.0.pop_front();
        }
    }
}

impl Router {
    /// Sends those of these answers that are not in the journal.
    pub(super) async fn send_pending_replies(&self, answers: PendingReplies) {
        for (_, ended) in answers.0 {
            let at = &ended.injection.at;
            let job = JobId::parse(&at.job_id).and_then(|id| self.inner.jobs.lock().get(&id).cloned());
            let node = job.and_then(|job| job.nodes.get(usize::try_from(at.node_id).ok()?).cloned());
            let Some(node) = node else { continue };
            let known = self.hub().find_by_native(Some(Door::Workers), &at.injection_id).await;
            match known {
                Ok(known) if known.iter().any(|(scope, _)| scope == REPLY_SCOPE) => {}
                Ok(_) => delivery::reply(self, &node, ended).await,
                Err(error) => tracing::warn!(%error, node = %node.id, "an answer may not have been sent"),
            }
        }
    }
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
