//! Questions of an agent: told to clients, answered by one of them, or with no.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::Node;
use crate::wire::command::{Approvals as Policy, Decision};
use crate::wire::event::{ApprovalRequired, ApprovalResolved, EventBody, InjectionRef, Question};
use crate::wire::format_timestamp;
use crate::worker::{Order, Report};

/// The open questions of a worker, by its keys.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    open: BTreeMap<u64, Approval>,
}

/// One open question.
#[derive(Debug)]
struct Approval {
    /// Our id for it.
    id: String,
    /// The turn that it belongs to.
    at: InjectionRef,
    /// Until when there is an answer other than no.
    due: Instant,
}

impl Approvals {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|approval| approval.due).min()
    }
}

impl Node {
    /// Tells of a question about the injection that runs.
    pub(super) async fn open_question(&mut self, key: u64, question: Question) {
        // Whoever asks about a prompt has it, and has begun.
        self.publish_report(Report::Started);
        let Some(running) = &self.running else {
            self.order(Order::Decide { key, decision: Decision::Cancel });
            return;
        };
        let at = running.turn.at().clone();
        self.open_question_in(at, key, question).await;
    }

    /// Tells of a question in a turn. One that a client is to answer is noted before: should the router die, the next
    /// one tells that it is over.
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

    /// Answers a question; false where it is not open any more.
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

    /// The agent does not want to know any more.
    pub(super) fn close_question(&mut self, key: u64) {
        if let Some(approval) = self.approvals.open.remove(&key) {
            self.close_approval(approval);
        }
    }

    /// Says no to what nobody has answered in time.
    pub(super) fn deny_expired(&mut self, now: Instant) {
        let overdue = self.approvals.open.values().filter(|approval| approval.due <= now);
        let overdue: Vec<String> = overdue.map(|approval| approval.id.clone()).collect();
        for approval in overdue {
            self.decide(&approval, Decision::Decline, "timeout", None);
        }
    }

    /// Ends the questions of a turn that is over.
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

    /// Tells that a question needs no answer any more.
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
