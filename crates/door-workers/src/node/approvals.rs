//! Approvals: an agent's questions, decided by a client, a policy or a timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::Node;
use crate::wire::command::{Approvals as Policy, Decision};
use crate::wire::event::{ApprovalRequired, ApprovalResolved, EventBody, InjectionRef, Question};
use crate::wire::format_timestamp;
use crate::worker::{Order, Report};

/// Open questions of a worker, by the worker's keys.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    open: BTreeMap<u64, Approval>,
}

/// One open question.
#[derive(Debug)]
struct Approval {
    /// Approval id of the question.
    id: String,
    /// The turn in which the agent asked.
    at: InjectionRef,
    /// Deadline after which the question is declined.
    due: Instant,
}

impl Approvals {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|approval| approval.due).min()
    }
}

impl Node {
    /// Publishes a question about the running injection.
    pub(super) async fn open_question(&mut self, key: u64, question: Question) {
        // An agent that asks a question about a prompt has received the prompt and started the turn.
        self.publish_report(Report::Started);
        let Some(running) = &self.running else {
            self.order(Order::Decide { key, decision: Decision::Cancel });
            return;
        };
        let at = running.turn.at().clone();
        self.open_question_in(at, key, question).await;
    }

    /// Publishes a question of a turn.
    ///
    /// If a client is to decide, the question is recorded first, so that the next router closes it after a crash.
    pub(super) async fn open_question_in(&mut self, at: InjectionRef, key: u64, question: Question) {
        let policy = self.job.launch.approvals;
        let limit = self.job.launch.limits.approval_seconds.unwrap_or(600);
        let approval_id = format!("{}-{key}", at.injection_id);
        let due = Instant::now() + Duration::from_secs(limit.into());
        self.approvals.open.insert(key, Approval { id: approval_id.clone(), at: at.clone(), due });
        let now = self.router.hub().now();
        let expires = now.saturating_add(SignedDuration::from_secs(limit.into())).unwrap_or(now);
        let (id, hash) = (approval_id.clone(), question.hash());
        let required =
            ApprovalRequired { at, approval_id: id, question, hash, expires_at: format_timestamp(expires) };
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

    /// Answers a question; returns false if the question is no longer open.
    pub(super) fn decide(
        &mut self,
        approval: &str,
        decision: Decision,
        by: &str,
        request_id: Option<String>,
    ) -> bool {
        let found = self.approvals.open.iter().find(|(_, open)| open.id == approval).map(|(key, _)| *key);
        let Some(key) = found else { return false };
        let Some(Approval { at, .. }) = self.approvals.open.remove(&key) else { return false };
        self.job.remove_approval(approval);
        self.router.log().publish(&EventBody::ApprovalResolved(ApprovalResolved {
            request_id,
            at,
            approval_id: approval.to_owned(),
            decision,
            by: by.to_owned(),
        }));
        self.order(Order::Decide { key, decision });
        true
    }

    /// Closes a question that the agent withdrew.
    pub(super) fn close_question(&mut self, key: u64) {
        if let Some(approval) = self.approvals.open.remove(&key) {
            self.close_approval(approval);
        }
    }

    /// Declines questions whose deadline has passed.
    pub(super) fn deny_expired(&mut self, now: Instant) {
        let overdue = self.approvals.open.values().filter(|approval| approval.due <= now);
        let overdue: Vec<String> = overdue.map(|approval| approval.id.clone()).collect();
        for approval in overdue {
            self.decide(&approval, Decision::Decline, "timeout", None);
        }
    }

    /// Closes the questions of a turn that has ended.
    pub(super) fn close_approvals(&mut self, turn: &InjectionRef) {
        let is_over = |approval: &Approval| approval.at == *turn;
        let over: Vec<Approval> = self
            .approvals
            .open
            .extract_if(.., |_, approval| is_over(approval))
            .map(|(_, over)| over)
            .collect();
        for approval in over {
            self.close_approval(approval);
        }
    }

    /// Publishes that a question no longer needs a decision.
    fn close_approval(&self, approval: Approval) {
        self.job.remove_approval(&approval.id);
        self.router.log().append(&EventBody::ApprovalResolved(ApprovalResolved {
            request_id: None,
            at: approval.at,
            approval_id: approval.id,
            decision: Decision::Cancel,
            by: "turn".to_owned(),
        }));
    }
}
