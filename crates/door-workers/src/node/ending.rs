//! How injections end, in every way they can.

use std::sync::atomic::Ordering;

use switchboard_core::Outcome;

use super::{Node, Running};
use crate::job::{Ended, Waiting};
use crate::turn::Turn;
use crate::wire::event::{NodeState, TurnStatus};
use crate::worker::{Fate, Report};

impl Node {
    /// The agent says that its turn is over.
    pub(super) fn ended(&mut self, status: TurnStatus, error: Option<String>) {
        let Some(running) = self.running.take() else { return };
        self.drop_approvals(running.turn.at());
        // What we asked for is told in our words, unless the agent was done before it heard.
        let (status, error) = match &running.stopping {
            Some((wanted, why, _)) if status != TurnStatus::Completed => (*wanted, Some(why.clone())),
            _ => (status, error),
        };
        if status == TurnStatus::Completed {
            self.failures = 0;
        }
        self.finish(running, status, error);
        if self.shared.state.lock().queue.is_empty() {
            self.tell_state(NodeState::Idle, None);
        }
    }

    /// Tells of the end of an injection, once, and of everything that follows from it.
    pub(super) fn finish(&mut self, running: Running, status: TurnStatus, error: Option<String>) {
        let Running { mut turn, handoff, pin, .. } = running;
        let used = self.job.total_tokens.load(Ordering::Relaxed);
        let was_delivered = turn.is_delivered();
        for event in turn.end(status, error.clone(), used) {
            self.router.log().append(&event);
        }
        self.router.log().flush();
        self.router.log().unpin(pin);
        if let Some(tokens) = turn.tokens() {
            self.job.count(tokens.total_tokens);
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
            self.router.settle(&turn.at().injection_id, handoff, outcome);
        }
        let answer = turn.answer().map(str::to_owned);
        let ended = Ended { injection: turn.injection().clone(), status, error, answer };
        self.router.turn_ended(&self.job, &self.shared, ended);
    }

    /// It is known now what became of the injection that was in doubt.
    pub(super) fn settle_doubt(&mut self, fate: Fate) {
        let Some(mut doubt) = self.doubt.take() else { return };
        self.join_queued(&mut doubt);
        match fate {
            Fate::NotReceived => {
                // From a crash of the router, it comes back through the hub by itself.
                if doubt.handoff.is_some() || !doubt.content.is_empty() {
                    let Running { turn, content, handoff, pin, .. } = doubt;
                    let injection = turn.injection().clone();
                    let waiting = Waiting { injection, content, handoff, pin };
                    self.shared.state.lock().queue.push_front(waiting);
                } else {
                    self.router.log().unpin(doubt.pin);
                }
            }
            Fate::Answered { answer } => {
                let reports = [Report::Accepted, Report::Started];
                for report in reports.into_iter().chain(answer.map(Report::Answer)) {
                    for event in doubt.turn.take(report) {
                        self.router.log().append(&event);
                    }
                }
                self.finish(doubt, TurnStatus::Completed, None);
            }
            Fate::CutShort => {
                for event in doubt.turn.take(Report::Accepted) {
                    self.router.log().append(&event);
                }
                let why = "the router or the worker was killed while the turn ran".to_owned();
                self.finish(doubt, TurnStatus::WorkerLost, Some(why));
            }
            Fate::Unknown => {
                let why = if doubt.turn.is_delivered() {
                    "the router or the worker was killed while the turn ran"
                } else {
                    "the router was killed, and it is not known whether the agent had got it"
                };
                self.finish(doubt, TurnStatus::WorkerLost, Some(why.to_owned()));
            }
        }
    }

    /// After a crash of the router, the hub may have handed it over again meanwhile.
    fn join_queued(&self, doubt: &mut Running) {
        let mut view = self.shared.state.lock();
        let id = &doubt.turn.at().injection_id;
        let place = view.queue.iter().position(|waiting| waiting.injection.at.injection_id == *id);
        if let Some(waiting) = place.and_then(|place| view.queue.remove(place)) {
            self.router.log().unpin(waiting.pin);
            doubt.content = waiting.content;
            doubt.handoff = waiting.handoff.or(doubt.handoff.take());
        }
    }

    /// Ends everything that waits: the worker cannot be had.
    pub(super) fn give_up(&mut self, why: &str) {
        self.settle_doubt(Fate::Unknown);
        self.end_queue(TurnStatus::Failed, why);
        // The next injection is one more try.
        self.failures = self.router.config().restarts;
        self.tell_state(NodeState::Failed, Some(why.to_owned()));
    }

    fn end_queue(&mut self, status: TurnStatus, why: &str) {
        loop {
            let Some(waiting) = self.shared.state.lock().queue.pop_front() else { return };
            let Waiting { injection, content, handoff, pin } = waiting;
            let turn = Turn::new(injection);
            let running = Running::new(turn, content, handoff, pin, &self.job.launch);
            self.finish(running, status, Some(why.to_owned()));
        }
    }

    /// The job is over.
    pub(super) async fn terminate(&mut self, why: &str) {
        self.end_own(TurnStatus::Interrupted, Some(why.to_owned()));
        if let Some(running) = self.running.take() {
            self.drop_approvals(running.turn.at());
            self.finish(running, TurnStatus::Interrupted, Some(why.to_owned()));
        }
        self.settle_doubt(Fate::Unknown);
        // What is handed over from here on is refused where it arrives.
        self.shared.state.lock().is_closed = true;
        self.end_queue(TurnStatus::Interrupted, why);
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
        self.shared.state.lock().pid = None;
        self.tell_state(NodeState::Terminated, None);
    }

    /// The router ends and the job does not: the turn that runs ends, what waits goes on waiting in the hub.
    pub(super) async fn shut_down(mut self) {
        self.end_own(TurnStatus::Interrupted, Some("the router was stopped".to_owned()));
        if let Some(running) = self.running.take() {
            self.drop_approvals(running.turn.at());
            self.finish(running, TurnStatus::Interrupted, Some("the router was stopped".to_owned()));
        }
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
        let left = std::mem::take(&mut self.shared.state.lock().queue);
        self.router.leave(left.into_iter().filter_map(|waiting| waiting.handoff));
        self.router.leave(self.doubt.take().and_then(|doubt| doubt.handoff));
    }
}
