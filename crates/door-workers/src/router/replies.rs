//! Pending replies: answers that a killed router did not send although the log has the end of their turns.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, JobId};

use super::Router;
use crate::delivery::{self, REPLY_SCOPE};
use crate::job::FinishedTurn;

/// Maximum age of a turn whose reply may be missing, relative to the last turn in the log.
///
/// Replies are sent right after their turn. An older reply may have been sent and then removed from the journal, so it
/// would be sent twice.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// The most recent turns in the log whose senders want a reply, oldest first.
#[derive(Default)]
pub(super) struct PendingReplies(VecDeque<(Timestamp, FinishedTurn)>);

impl PendingReplies {
    /// Adds a turn that ended at this time.
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
    /// Sends the pending replies that are not in the journal yet.
    pub(super) async fn send_pending_replies(&self, answers: PendingReplies) {
        for (_, ended) in answers.0 {
            let at = &ended.injection.at;
            let job = JobId::parse(&at.job_id).and_then(|id| self.inner.jobs.lock().get(&id).cloned());
            let node = job.and_then(|job| job.nodes.get(usize::try_from(at.node_id).ok()?).cloned());
            let Some(node) = node else { continue };
            let known = self.hub().native_ids().find(Some(Door::Workers), &at.injection_id).await;
            match known {
                Ok(known) if known.iter().any(|(scope, _)| scope == REPLY_SCOPE) => {}
                Ok(_) => delivery::reply(self, &node, ended).await,
                Err(error) => {
                    tracing::warn!(%error, node = %node.id, "cannot send a reply; it may be missing");
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
