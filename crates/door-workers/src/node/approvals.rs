//! Questions of an agent: told to clients, answered by one of them, or with no.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::{Node, Running};
use crate::wire::command::{Approvals as Policy, Decision};
use crate::wire::event::{ApprovalRequired, ApprovalResolved, Ask, EventBody};
use crate::wire::stamp;
use crate::worker::{Order, Report};

/// The questions of one turn: the worker's key, our id, and until when there is an answer other than no.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    open: BTreeMap<u64, (String, Instant)>,
}

impl Approvals {
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|(_, due)| *due).min()
    }
}

impl Node {
    /// Tells of a question. One that a client is to answer is noted before: should the router die, the next one
    /// tells that it is over.
    pub(super) async fn ask(&mut self, key: u64, ask: Ask) {
        // Whoever asks about a prompt has it, and has begun.
        self.tell(Report::Started);
        let policy = self.job.launch.approvals;
        let limit = self.job.launch.limits.approval_seconds.unwrap_or(600);
        let Some(running) = &mut self.running else {
            self.order(Order::Decide { key, decision: Decision::Cancel });
            return;
        };
        let at = running.turn.at().clone();
        let approval_id = format!("{}-{key}", at.injection_id);
        running
            .approvals
            .open
            .insert(key, (approval_id.clone(), Instant::now() + Duration::from_secs(limit.into())));
        let now = self.router.hub().now();
        let expires = now.saturating_add(SignedDuration::from_secs(limit.into())).unwrap_or(now);
        let required =
            ApprovalRequired { at, approval_id: approval_id.clone(), ask, expires_at: stamp(expires) };
        if policy == Policy::Ask {
            self.job.record.lock().approvals.insert(approval_id.clone(), required.clone());
            self.router.save(&self.job).await;
        }
        self.router.log().append(&EventBody::ApprovalRequired(required));
        match policy {
            Policy::Ask => {}
            Policy::Deny => drop(self.decide(&approval_id, Decision::Decline, "policy", None)),
            Policy::Allow => drop(self.decide(&approval_id, Decision::Accept, "policy", None)),
        }
    }

    /// Answers a question; false where it is not open any more.
    pub(super) fn decide(
        &mut self,
        approval: &str,
        decision: Decision,
        by: &str,
        request_id: Option<String>,
    ) -> bool {
        let Some(running) = &mut self.running else { return false };
        let found = running.approvals.open.iter().find(|(_, (id, _))| id == approval).map(|(key, _)| *key);
        let Some(key) = found else { return false };
        running.approvals.open.remove(&key);
        let at = running.turn.at().clone();
        self.job.forget_approval(approval);
        self.router.log().say(&EventBody::ApprovalResolved(ApprovalResolved {
            request_id,
            at,
            approval_id: approval.to_owned(),
            decision,
            by: by.to_owned(),
        }));
        self.order(Order::Decide { key, decision });
        true
    }

    /// The agent does not want to know any more.
    pub(super) fn ask_gone(&mut self, key: u64) {
        let Some(running) = &mut self.running else { return };
        if let Some((approval_id, _)) = running.approvals.open.remove(&key) {
            let at = running.turn.at().clone();
            self.job.forget_approval(&approval_id);
            self.router.log().append(&EventBody::ApprovalResolved(ApprovalResolved {
                request_id: None,
                at,
                approval_id,
                decision: Decision::Cancel,
                by: "turn".to_owned(),
            }));
        }
    }

    /// Says no to what nobody has answered in time.
    pub(super) fn deny_overdue(&mut self, now: Instant) {
        let Some(running) = &self.running else { return };
        let overdue: Vec<String> = running
            .approvals
            .open
            .values()
            .filter(|(_, due)| *due <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for approval in overdue {
            self.decide(&approval, Decision::Decline, "timeout", None);
        }
    }

    /// Ends the questions of a turn that is over.
    pub(super) fn drop_approvals(&self, running: &Running) {
        for (approval_id, _) in running.approvals.open.values() {
            self.job.forget_approval(approval_id);
            self.router.log().append(&EventBody::ApprovalResolved(ApprovalResolved {
                request_id: None,
                at: running.turn.at().clone(),
                approval_id: approval_id.clone(),
                decision: Decision::Cancel,
                by: "turn".to_owned(),
            }));
        }
    }
}
