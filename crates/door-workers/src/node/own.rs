//! Turns that an agent begins itself: told apart, and charged to no injection.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{Node, STOPPING, turn_limit};
use crate::turn::event_of;
use crate::wire::event::{At, EventBody, NodeState, OwnTurnComplete, Tokens, TurnStatus};
use crate::worker::{Order, OwnReport};

/// A running turn that the agent began itself.
#[derive(Debug)]
pub(super) struct OwnTurn {
    at: At,
    /// Until when it has to end.
    end_by: Instant,
    /// Until when the agent has to stop it, once it was asked to.
    stop_by: Option<Instant>,
}

impl OwnTurn {
    pub(super) fn next_due(&self) -> Instant {
        self.stop_by.unwrap_or(self.end_by)
    }
}

impl Node {
    pub(super) async fn hear_own(&mut self, report: OwnReport) {
        let at = self.begin_own();
        match report {
            OwnReport::Started => {}
            OwnReport::Happened(happening) => {
                self.router.log().append(&event_of(happening, at));
            }
            OwnReport::Ask { key, ask } => self.ask_in(at, key, ask).await,
            OwnReport::Ended { status, error, answer, tokens } => {
                self.complete_own(status, error, answer, tokens);
                if self.running.is_none() && self.shared.state.lock().queue.is_empty() {
                    self.tell_state(NodeState::Idle, None);
                }
            }
        }
    }

    /// The turn of its own that runs, or a new one.
    fn begin_own(&mut self) -> At {
        if let Some(own) = &self.own {
            return own.at.clone();
        }
        let node = self.shared.at();
        let injection_id = format!("own_{:016x}", fastrand::u64(..));
        let at = At { job_id: node.job_id, swarm_id: node.swarm_id, node_id: node.node_id, injection_id };
        let end_by = Instant::now() + turn_limit(self.job.launch.limits);
        self.own = Some(OwnTurn { at: at.clone(), end_by, stop_by: None });
        self.router.log().append(&EventBody::OwnTurnStarted(at.clone()));
        if self.running.is_none() {
            self.tell_state(NodeState::Busy, Some("a turn of its own".to_owned()));
        }
        at
    }

    /// Asks the agent to stop its own turn; nothing where none runs.
    pub(super) fn stop_own(&mut self) -> Option<At> {
        let own = self.own.as_mut()?;
        let at = own.at.clone();
        if own.stop_by.is_none() {
            own.stop_by = Some(Instant::now() + STOPPING);
            self.order(Order::Interrupt);
        }
        Some(at)
    }

    /// Stops an own turn that takes too long; ends the worker of one that does not stop.
    pub(super) async fn limit_own(&mut self, now: Instant) {
        let Some(own) = &self.own else { return };
        match own.stop_by {
            None => drop(self.stop_own()),
            Some(stop_by) if stop_by <= now => {
                let why = "a turn of the agent's own did not stop".to_owned();
                self.kill_worker(TurnStatus::Interrupted, why).await;
            }
            Some(_) => {}
        }
    }

    /// Ends the agent's own turn, if one runs, without its answer.
    pub(super) fn end_own(&mut self, status: TurnStatus, error: Option<String>) {
        self.complete_own(status, error, None, None);
    }

    fn complete_own(
        &mut self,
        status: TurnStatus,
        error: Option<String>,
        content: Option<String>,
        usage: Option<Tokens>,
    ) {
        let Some(own) = self.own.take() else { return };
        self.drop_approvals(&own.at);
        // What we asked for is told in our words, unless the agent was done before it heard.
        let (status, error) = match own.stop_by {
            Some(_) if status == TurnStatus::Failed => {
                (TurnStatus::Interrupted, Some("it was interrupted".to_owned()))
            }
            _ => (status, error),
        };
        if let Some(tokens) = usage {
            self.job.count(tokens.total_tokens);
        }
        let job_total_tokens = self.job.total_tokens.load(Ordering::Relaxed);
        let complete = OwnTurnComplete { at: own.at, status, error, content, usage, job_total_tokens };
        self.router.log().append(&EventBody::OwnTurnComplete(complete));
        self.router.log().flush();
        self.job.is_dirty.store(true, Ordering::Relaxed);
        self.router.check_budget(&self.job);
    }
}
