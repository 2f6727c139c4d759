//! Completion of injections in all ways in which one can end.

use std::sync::atomic::Ordering;

use switchboard_core::Outcome;

use super::{Node, Running};
use crate::job::{FinishedTurn, QueuedInjection};
use crate::turn::Turn;
use crate::wire::event::{NodeState, TurnStatus};
use crate::worker::{PromptOutcome, Report};

impl Node {
    /// Handles the agent's report that its turn has ended.
    pub(super) fn handle_turn_end(&mut self, status: TurnStatus, error: Option<String>) {
        let Some(running) = self.running.take() else { return };
        self.close_approvals(running.turn.at());
        // A status and reason that this node set when it stopped the turn apply, unless the agent completed the turn
        // first.
        let (status, error) = match &running.stopping {
            Some((wanted, why, _)) if status != TurnStatus::Completed => (*wanted, Some(why.clone())),
            _ => (status, error),
        };
        if status == TurnStatus::Completed {
            self.failures = 0;
        }
        self.finish_injection(running, status, error);
        if self.shared.state.lock().queue.is_empty() {
            self.publish_state(NodeState::Idle, None);
        }
    }

    /// Publishes the end of an injection, once, and settles its handoff, tokens and reply.
    pub(super) fn finish_injection(&mut self, running: Running, status: TurnStatus, error: Option<String>) {
        let Running { mut turn, handoff, pin, .. } = running;
        let used = self.job.total_tokens.load(Ordering::Relaxed);
        let was_delivered = turn.is_delivered();
        for event in turn.end(status, error.clone(), used) {
            self.router.log().append(&event);
        }
        self.router.log().flush();
        self.router.log().unpin(pin);
        if let Some(tokens) = turn.tokens() {
            self.job.add_tokens(tokens.total_tokens);
        }
        let turns = {
            let mut view = self.shared.state.lock();
            view.injection = None;
            view.turns += 1;
            view.turns
        };
        self.job.record.lock().turns.insert(self.shared.id.node, turns);
        if let Some(handoff) = handoff {
            let outcome = match status {
                _ if was_delivered || status == TurnStatus::Completed => Outcome::Shown,
                _ => Outcome::Refused { reason: error.clone().unwrap_or_else(|| status.as_str().to_owned()) },
            };
            self.router.report_outcome(&turn.at().injection_id, handoff, outcome);
        }
        let answer = turn.answer().map(str::to_owned);
        let finished = FinishedTurn { injection: turn.injection().clone(), status, error, answer };
        self.router.finish_turn(&self.job, &self.shared, finished);
    }

    /// Reconciles the unconfirmed injection: ends, requeues or completes it once its outcome is known.
    pub(super) fn reconcile_unconfirmed(&mut self, outcome: PromptOutcome) {
        let Some(mut unconfirmed) = self.unconfirmed.take() else { return };
        self.merge_redelivered(&mut unconfirmed);
        match outcome {
            PromptOutcome::NotReceived => {
                // After a crash of the router, an injection without content is redelivered by the hub.
                if unconfirmed.handoff.is_some() || !unconfirmed.content.is_empty() {
                    let Running { turn, content, handoff, pin, .. } = unconfirmed;
                    let injection = turn.injection().clone();
                    let waiting = QueuedInjection { injection, content, handoff, pin };
                    self.shared.state.lock().queue.push_front(waiting);
                } else {
                    self.router.log().unpin(unconfirmed.pin);
                }
            }
            PromptOutcome::Answered { answer } => {
                let reports = [Report::Accepted, Report::Started];
                for report in reports.into_iter().chain(answer.map(Report::Answer)) {
                    for event in unconfirmed.turn.apply(report) {
                        self.router.log().append(&event);
                    }
                }
                self.finish_injection(unconfirmed, TurnStatus::Completed, None);
            }
            PromptOutcome::Incomplete => {
                for event in unconfirmed.turn.apply(Report::Accepted) {
                    self.router.log().append(&event);
                }
                let reason = "the router or the worker was killed while the turn ran".to_owned();
                self.finish_injection(unconfirmed, TurnStatus::WorkerLost, Some(reason));
            }
            PromptOutcome::Unknown => {
                let reason = if unconfirmed.turn.is_delivered() {
                    "the router or the worker was killed while the turn ran"
                } else {
                    "the router was killed; whether the agent received the prompt is unknown"
                };
                self.finish_injection(unconfirmed, TurnStatus::WorkerLost, Some(reason.to_owned()));
            }
        }
    }

    /// Merges the redelivered copy of an unconfirmed injection after a crash of the router.
    fn merge_redelivered(&self, unconfirmed: &mut Running) {
        let mut view = self.shared.state.lock();
        let id = &unconfirmed.turn.at().injection_id;
        let place = view.queue.iter().position(|waiting| waiting.injection.at.injection_id == *id);
        if let Some(waiting) = place.and_then(|place| view.queue.remove(place)) {
            self.router.log().unpin(waiting.pin);
            unconfirmed.content = waiting.content;
            unconfirmed.handoff = waiting.handoff.or(unconfirmed.handoff.take());
        }
    }

    /// Fails the unconfirmed and all queued injections, because the worker cannot start.
    pub(super) fn fail_queue(&mut self, reason: &str) {
        self.reconcile_unconfirmed(PromptOutcome::Unknown);
        self.drain_queue(TurnStatus::Failed, reason);
        // The next injection gets one more start attempt.
        self.failures = self.router.config().restarts;
        self.publish_state(NodeState::Failed, Some(reason.to_owned()));
    }

    fn drain_queue(&mut self, status: TurnStatus, reason: &str) {
        loop {
            let Some(waiting) = self.shared.state.lock().queue.pop_front() else { return };
            let QueuedInjection { injection, content, handoff, pin } = waiting;
            let turn = Turn::new(injection);
            let running = Running::new(turn, content, handoff, pin, &self.job.launch);
            self.finish_injection(running, status, Some(reason.to_owned()));
        }
    }

    /// Terminates the node with its job.
    pub(super) async fn terminate(&mut self, reason: &str) {
        self.end_own_turn(TurnStatus::Interrupted, Some(reason.to_owned()));
        if let Some(running) = self.running.take() {
            self.close_approvals(running.turn.at());
            self.finish_injection(running, TurnStatus::Interrupted, Some(reason.to_owned()));
        }
        self.reconcile_unconfirmed(PromptOutcome::Unknown);
        // From now on, the router refuses handoffs for this node on arrival.
        self.shared.state.lock().is_closed = true;
        self.drain_queue(TurnStatus::Interrupted, reason);
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
        self.shared.state.lock().pid = None;
        self.publish_state(NodeState::Terminated, None);
    }

    /// Shuts the node down with the router: the running turn ends, and queued injections stay in the hub.
    pub(super) async fn shut_down(mut self) {
        self.end_own_turn(TurnStatus::Interrupted, Some("the router was stopped".to_owned()));
        if let Some(running) = self.running.take() {
            self.close_approvals(running.turn.at());
            self.finish_injection(
                running,
                TurnStatus::Interrupted,
                Some("the router was stopped".to_owned()),
            );
        }
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
        let left = std::mem::take(&mut self.shared.state.lock().queue);
        self.router.defer_handoffs(left.into_iter().filter_map(|waiting| waiting.handoff));
        self.router.defer_handoffs(self.unconfirmed.take().and_then(|unconfirmed| unconfirmed.handoff));
    }
}
