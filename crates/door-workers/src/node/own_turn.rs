//! Own turns: turns that an agent starts itself. They are logged separately and charged to no injection.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{Node, STOP_TIMEOUT, turn_limit};
use crate::turn::activity_event;
use crate::wire::event::{EventBody, InjectionRef, NodeState, OwnTurnComplete, Tokens, TurnStatus};
use crate::worker::{Order, OwnTurnReport};

/// A running turn that the agent started itself.
#[derive(Debug)]
pub(super) struct OwnTurn {
    at: InjectionRef,
    /// Deadline for the turn to end.
    end_by: Instant,
    /// Deadline for the agent to stop the turn after an interrupt.
    stop_by: Option<Instant>,
}

impl OwnTurn {
    pub(super) fn next_deadline(&self) -> Instant {
        self.stop_by.unwrap_or(self.end_by)
    }
}

impl Node {
    pub(super) async fn handle_own_report(&mut self, report: OwnTurnReport) {
        let at = self.start_own_turn();
        match report {
            OwnTurnReport::Started => {}
            OwnTurnReport::Activity(activity) => {
                self.router.log().append(&activity_event(activity, at));
            }
            OwnTurnReport::Question { key, question } => self.open_question_in(at, key, question).await,
            OwnTurnReport::Ended { status, error, answer, tokens } => {
                self.complete_own_turn(status, error, answer, tokens);
                if self.running.is_none() && self.shared.state.lock().queue.is_empty() {
                    self.publish_state(NodeState::Idle, None);
                }
            }
        }
    }

    /// Returns the running own turn, or starts one.
    fn start_own_turn(&mut self) -> InjectionRef {
        if let Some(own) = &self.own {
            return own.at.clone();
        }
        let node = self.shared.at();
        let injection_id = format!("own_{:016x}", fastrand::u64(..));
        let at = InjectionRef { job_id: node.job_id, node_id: node.node_id, injection_id };
        let end_by = Instant::now() + turn_limit(self.job.launch.limits);
        self.own = Some(OwnTurn { at: at.clone(), end_by, stop_by: None });
        self.router.log().append(&EventBody::OwnTurnStarted(at.clone()));
        if self.running.is_none() {
            self.publish_state(NodeState::Busy, Some("a turn that the agent started itself".to_owned()));
        }
        at
    }

    /// Asks the agent to stop its own turn; returns `None` if there is none.
    pub(super) fn interrupt_own_turn(&mut self) -> Option<InjectionRef> {
        let own = self.own.as_mut()?;
        let at = own.at.clone();
        if own.stop_by.is_none() {
            own.stop_by = Some(Instant::now() + STOP_TIMEOUT);
            self.order(Order::Interrupt);
        }
        Some(at)
    }

    /// Enforces the time limit of an own turn: interrupts the turn, then kills the worker if the turn does not stop.
    pub(super) async fn enforce_own_limit(&mut self, now: Instant) {
        let Some(own) = &self.own else { return };
        match own.stop_by {
            None => drop(self.interrupt_own_turn()),
            Some(stop_by) if stop_by <= now => {
                let reason = "a turn that the agent started itself did not stop".to_owned();
                self.kill_worker(TurnStatus::Interrupted, reason).await;
            }
            Some(_) => {}
        }
    }

    /// Ends the agent's own turn, if one runs, without an answer.
    pub(super) fn end_own_turn(&mut self, status: TurnStatus, error: Option<String>) {
        self.complete_own_turn(status, error, None, None);
    }

    fn complete_own_turn(
        &mut self,
        status: TurnStatus,
        error: Option<String>,
        content: Option<String>,
        usage: Option<Tokens>,
    ) {
        let Some(own) = self.own.take() else { return };
        self.close_approvals(&own.at);
        // A status and reason that this node set when it stopped the turn apply, unless the agent completed the turn
        // first.
        let (status, error) = match own.stop_by {
            Some(_) if status == TurnStatus::Failed => {
                (TurnStatus::Interrupted, Some("it was interrupted".to_owned()))
            }
            _ => (status, error),
        };
        if let Some(tokens) = usage {
            self.job.add_tokens(tokens.total_tokens);
        }
        let job_total_tokens = self.job.total_tokens.load(Ordering::Relaxed);
        let complete = OwnTurnComplete { at: own.at, status, error, content, usage, job_total_tokens };
        self.router.log().append(&EventBody::OwnTurnComplete(complete));
        self.router.log().flush();
        self.job.is_dirty.store(true, Ordering::Relaxed);
        self.router.check_budget(&self.job);
    }
}
