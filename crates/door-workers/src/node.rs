//! Node: its queue, its worker and the running turn.
//!
//! A node runs one turn at a time, in order of acceptance. Agents differ in how they treat a second prompt during a
//! turn (one adds it to the turn, another aborts the turn), so a node never sends one.

mod approvals;
mod completion;
mod own_turn;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use switchboard_core::Outcome;
use switchboard_hub::Handoff;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::approvals::Approvals;
use self::own_turn::OwnTurn;
use crate::job::{Job, NodeShared, QueuedInjection};
use crate::router::Router;
use crate::turn::Turn;
use crate::wire::command::{AgentKind, Decision, Launch, Limits};
use crate::wire::event::{
    AgentError, EventBody, InjectionRef, NodeState, NodeStatus, TurnStatus, WorkerExited,
};
use crate::worker::{Order, PromptOutcome, Report, Worker, WorkerSpec};

/// Maximum number of worker reports per batch.
const BATCH: usize = 256;

/// Time limit for an agent to stop after an interrupt. After that, its process is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Order to a node. Injections are not orders; they arrive through the node's queue.
#[derive(Debug)]
pub(crate) enum NodeOrder {
    /// Interrupts the running turn.
    Interrupt {
        /// Receives the interrupted turn, or `None` if no turn runs.
        answer: oneshot::Sender<Option<InjectionRef>>,
    },
    /// Adds text to the running turn.
    Steer {
        /// The text to add.
        content: String,
        /// Receives the turn, or the reason why the text could not be added.
        answer: oneshot::Sender<Result<InjectionRef, String>>,
    },
    /// Answers an agent's question.
    Decide {
        /// The approval id.
        approval: String,
        /// The answer.
        decision: Decision,
        /// The name of the client that decides.
        by: String,
        /// The request id of that client.
        request_id: String,
        /// Receives true if the approval was still open.
        answer: oneshot::Sender<bool>,
    },
    /// Terminates the job.
    Terminate {
        /// Notified when all turns and processes have ended.
        done: oneshot::Sender<()>,
    },
}

/// A running turn with its prompt, handoff and deadlines.
pub(crate) struct Running {
    pub(crate) turn: Turn,
    pub(crate) content: String,
    pub(crate) handoff: Option<Handoff>,
    pub(crate) pin: u64,
    /// Deadline for the agent to accept the prompt.
    accept_by: Instant,
    /// Deadline for the turn to end.
    end_by: Instant,
    /// Status, reason and deadline of a stop that the node requested.
    stopping: Option<(TurnStatus, String, Instant)>,
}

/// Task that runs one node.
pub(crate) struct Node {
    router: Router,
    job: Arc<Job>,
    shared: Arc<NodeShared>,
    orders: mpsc::Receiver<NodeOrder>,
    worker: Option<Worker>,
    is_ready: bool,
    running: Option<Running>,
    /// A running turn that the agent started itself.
    own: Option<OwnTurn>,
    /// Open questions of the running turn and of the agent's own turn.
    approvals: Approvals,
    /// An injection for which it is unknown whether the agent received the prompt.
    unconfirmed: Option<Running>,
    session: Option<String>,
    /// Consecutive failures of the worker.
    failures: u32,
    /// Earliest time at which the worker may start.
    start_at: Option<Instant>,
    /// Deadline for a started worker to be ready.
    ready_by: Option<Instant>,
}

impl Node {
    pub(crate) fn new(
        router: Router,
        job: Arc<Job>,
        shared: Arc<NodeShared>,
        orders: mpsc::Receiver<NodeOrder>,
        unconfirmed: Option<Turn>,
    ) -> Self {
        let session = job.record.lock().sessions.get(&shared.id.node).cloned();
        let unconfirmed = unconfirmed.map(|turn| {
            let pin = router.log().newest();
            router.log().pin(pin);
            Running::new(turn, String::new(), None, pin, &job.launch)
        });
        let start_at = Some(Instant::now());
        Self {
            router,
            job,
            shared,
            orders,
            worker: None,
            is_ready: false,
            running: None,
            own: None,
            approvals: Approvals::default(),
            unconfirmed,
            session,
            failures: 0,
            start_at,
            ready_by: None,
        }
    }

    /// Runs until the job or the router ends.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        if self.unconfirmed.is_some() && !self.can_reconcile() {
            self.reconcile_unconfirmed(PromptOutcome::Unknown);
        }
        let mut reports = Vec::with_capacity(BATCH);
        loop {
            self.advance();
            let due = self.next_deadline();
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(NodeOrder::Terminate { done }) => {
                        self.terminate("the job was terminated").await;
                        let _ = done.send(());
                        return;
                    }
                    Some(order) => self.handle_order(order),
                    None => break,
                },
                count = next_reports(self.worker.as_mut(), &mut reports) => match count {
                    0 => self.handle_worker_exit().await,
                    _ => self.handle_reports(&mut reports).await,
                },
                () = self.shared.wake.notified() => {}
                () = sleep_until(due) => self.handle_timeouts().await,
                () = shutdown.cancelled() => break,
            }
        }
        self.shut_down().await;
    }

    /// Returns true if the agent's session can report later which prompts it received.
    fn can_reconcile(&self) -> bool {
        self.job.launch.agent == AgentKind::Codex && self.session.is_some()
    }

    /// Starts the worker or the next turn, whichever is due.
    fn advance(&mut self) {
        if self.worker.is_none() {
            let is_time = self.start_at.is_some_and(|at| at <= Instant::now());
            let is_wanted = !self.shared.state.lock().queue.is_empty();
            if is_time || (is_wanted && self.start_at.is_none()) {
                self.start_worker();
            }
            return;
        }
        // An agent would merge a prompt into its own turn and answer both together.
        if !self.is_ready || self.running.is_some() || self.own.is_some() || self.unconfirmed.is_some() {
            return;
        }
        let waiting = {
            let mut view = self.shared.state.lock();
            let Some(waiting) = view.queue.pop_front() else { return };
            // This is set while the lock is held, so that an injection is always seen as queued or running.
            view.injection = Some(waiting.injection.at.injection_id.clone());
            waiting
        };
        self.start_turn(waiting);
    }

    fn start_worker(&mut self) {
        self.start_at = None;
        self.is_ready = false;
        self.ready_by = Some(Instant::now() + accept_limit(self.job.launch.limits));
        self.publish_state(NodeState::Starting, None);
        self.worker = Some(Worker::start(WorkerSpec {
            launch: Arc::clone(&self.job.launch),
            name: self.shared.name.clone(),
            workspace: self.router.workspace().to_owned(),
            cwd: self.shared.cwd.clone(),
            log: Arc::clone(&self.shared.log),
            guard: self.router.guard().cloned(),
            grace: self.router.config().grace,
            session: self.session.clone(),
            unconfirmed: self
                .unconfirmed
                .as_ref()
                .map(|unconfirmed| unconfirmed.turn.at().injection_id.clone()),
        }));
    }

    /// Sends a prompt to the agent.
    ///
    /// The log records the intent first, so that after a crash no prompt is sent again before the agent's session was
    /// asked.
    fn start_turn(&mut self, waiting: QueuedInjection) {
        let QueuedInjection { injection, content, handoff, pin } = waiting;
        let id = injection.at.injection_id.clone();
        let turn = Turn::new(injection);
        self.running = Some(Running::new(turn, content.clone(), handoff, pin, &self.job.launch));
        self.publish_state(NodeState::Busy, None);
        self.order(Order::Turn { injection: id, content });
    }

    /// Sends an order to the worker. A worker that does not respond is ended by its timeout.
    fn order(&mut self, order: Order) {
        if let Some(worker) = &self.worker
            && let Err(error) = worker.orders.try_send(order)
        {
            tracing::warn!(node = %self.shared.id, %error, "a worker accepts no orders");
        }
    }

    async fn handle_reports(&mut self, reports: &mut Vec<Report>) {
        for report in reports.drain(..) {
            match report {
                Report::Ready { pid, session } => self.handle_ready(pid, session).await,
                Report::Reconciled(outcome) => self.reconcile_unconfirmed(outcome),
                Report::Question { key, question } => self.open_question(key, question).await,
                Report::QuestionClosed { key } => self.close_question(key),
                Report::Error { error, will_retry } => self.agent_error(error, will_retry),
                Report::Ended { status, error } => self.handle_turn_end(status, error),
                Report::OwnTurn(report) => self.handle_own_report(report).await,
                report => {
                    self.publish_report(report);
                    self.check_budget();
                }
            }
        }
        self.router.log().flush();
    }

    /// Publishes the events that follow from a report about the running turn.
    fn publish_report(&mut self, report: Report) {
        let Some(running) = &mut self.running else { return };
        for event in &running.turn.apply(report) {
            self.router.log().append(event);
        }
        if running.turn.is_delivered()
            && let Some(handoff) = running.handoff.take()
        {
            self.router.report_outcome(&running.turn.at().injection_id, handoff, Outcome::Shown);
        }
    }

    async fn handle_ready(&mut self, pid: Option<u32>, session: Option<String>) {
        self.is_ready = true;
        self.ready_by = None;
        self.shared.state.lock().pid = pid;
        if session.is_some() && session != self.session {
            self.session.clone_from(&session);
            let node = self.shared.id.node;
            self.job.record.lock().sessions.extend(session.map(|session| (node, session)));
            // The session is saved before the first prompt, because reconciliation after a crash needs it.
            self.router.save(&self.job).await;
        }
        // The worker did not report the outcome, because only an existing session can be queried.
        if self.unconfirmed.is_some() {
            self.reconcile_unconfirmed(PromptOutcome::Unknown);
        }
        self.publish_state(NodeState::Idle, None);
    }

    fn agent_error(&mut self, error: String, will_retry: bool) {
        let injection_id = self.running.as_ref().map(|running| running.turn.at().injection_id.clone());
        let node = self.shared.at();
        self.router.log().append(&EventBody::AgentError(AgentError {
            node,
            injection_id,
            error,
            will_retry,
        }));
    }

    /// Handles the exit of the worker: the running turn is lost, and the worker restarts after a backoff.
    async fn handle_worker_exit(&mut self) {
        if let Some(worker) = self.worker.take() {
            let reason = worker.wait_exit().await;
            self.record_worker_exit(reason);
        }
    }

    /// Logs the exit, schedules the restart, and ends or keeps the running turn.
    fn record_worker_exit(&mut self, reason: String) {
        let was_ready = std::mem::take(&mut self.is_ready);
        self.ready_by = None;
        self.failures += 1;
        let last_line = self.shared.log.drain_last_line();
        let is_last = self.failures > self.router.config().restarts;
        let is_wanted = self.running.is_some() || !self.shared.is_idle() || self.unconfirmed.is_some();
        // A worker that was ready and has nothing to do restarts only with the next injection.
        let pause = self.router.config().restart * 2_u32.saturating_pow(self.failures.min(7) - 1);
        let restart = (!is_last && (is_wanted || !was_ready)).then_some(pause);
        self.start_at = restart.map(|pause| Instant::now() + pause);
        self.router.log().append(&EventBody::WorkerExited(WorkerExited {
            node: self.shared.at(),
            reason: reason.clone(),
            said: last_line.clone(),
            restart_in_ms: restart.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        }));
        self.shared.state.lock().pid = None;
        self.end_own_turn(TurnStatus::WorkerLost, Some(reason.clone()));
        let detail = match last_line {
            Some(last_line) => format!("the worker ended: {reason}; it said: {last_line}"),
            None => format!("the worker ended: {reason}"),
        };
        if let Some(running) = self.running.take() {
            self.close_approvals(running.turn.at());
            match &running.stopping {
                // The agent may not have read the prompt; reconciliation with the next session shows whether it did.
                None if !running.turn.is_delivered() && self.can_reconcile() && !is_last => {
                    self.unconfirmed = Some(running);
                }
                None => self.finish_injection(running, TurnStatus::WorkerLost, Some(detail.clone())),
                Some((status, error, _)) => {
                    let (status, error) = (*status, error.clone());
                    self.finish_injection(running, status, Some(error));
                }
            }
        }
        if is_last {
            self.fail_queue(&detail);
        } else {
            self.publish_state(NodeState::Down, Some(reason));
        }
    }

    fn handle_order(&mut self, order: NodeOrder) {
        match order {
            NodeOrder::Interrupt { answer } => {
                let at = self.running.as_ref().map(|running| running.turn.at().clone());
                if at.is_some() {
                    self.stop_turn(TurnStatus::Interrupted, "it was interrupted".to_owned());
                }
                let _ = answer.send(at.or_else(|| self.interrupt_own_turn()));
            }
            NodeOrder::Steer { content, answer } => {
                let at = self.running.as_ref().map(|running| running.turn.at().clone());
                let Some(at) = at else {
                    let _ = answer.send(Err("no turn runs".to_owned()));
                    return;
                };
                let (steered, confirmation) = oneshot::channel();
                self.order(Order::Steer { content, answer: steered });
                self.router.spawn(async move {
                    let reply = confirmation.await.unwrap_or_else(|_| Err("the worker ended".to_owned()));
                    let _ = answer.send(reply.map(|()| at));
                });
            }
            NodeOrder::Decide { approval, decision, by, request_id, answer } => {
                let _ = answer.send(self.decide(&approval, decision, &by, Some(request_id)));
            }
            // The caller handles this order, because it ends the task.
            NodeOrder::Terminate { .. } => {}
        }
    }

    /// Asks the agent to stop the running turn. Does nothing if a stop was already requested.
    fn stop_turn(&mut self, status: TurnStatus, reason: String) {
        let Some(running) = &mut self.running else { return };
        if running.stopping.is_none() {
            running.stopping = Some((status, reason, Instant::now() + STOP_TIMEOUT));
            self.order(Order::Interrupt);
        }
    }

    /// Returns the earliest deadline of the running turn, the own turn and the open questions.
    fn next_deadline(&self) -> Option<Instant> {
        let mut due = if self.worker.is_none() { self.start_at } else { self.ready_by };
        if let Some(running) = &self.running {
            let ends = match &running.stopping {
                Some((.., until)) => *until,
                None if running.turn.is_delivered() => running.end_by,
                None => running.accept_by.min(running.end_by),
            };
            due = Some(due.map_or(ends, |due| due.min(ends)));
        }
        // While an injection runs, its limits apply instead of the limits of the own turn.
        let own = self.own.as_ref().filter(|_| self.running.is_none()).map(OwnTurn::next_deadline);
        [self.approvals.next_deadline(), own, due].into_iter().flatten().min()
    }

    async fn handle_timeouts(&mut self) {
        let now = Instant::now();
        if self.ready_by.is_some_and(|by| by <= now)
            && let Some(worker) = self.worker.take()
        {
            self.ready_by = None;
            worker.stop().await;
            self.record_worker_exit("it was not ready in time and was killed".to_owned());
        }
        self.deny_expired(now);
        if self.own.as_ref().is_some_and(|own| own.next_deadline() <= now) && self.running.is_none() {
            self.enforce_own_limit(now).await;
        }
        let Some(running) = &mut self.running else { return };
        match &running.stopping {
            Some((status, reason, until)) if *until <= now => {
                let (status, reason) = (*status, reason.clone());
                self.kill_worker(status, reason).await;
            }
            None if !running.turn.is_delivered() && running.accept_by <= now => {
                let reason = "the agent did not accept the prompt in time".to_owned();
                self.kill_worker(TurnStatus::Timeout, reason).await;
            }
            None if running.end_by <= now => {
                let limit = turn_limit(self.job.launch.limits);
                self.stop_turn(TurnStatus::Timeout, format!("it took longer than {} s", limit.as_secs()));
            }
            Some(_) | None => {}
        }
    }

    /// Kills a worker that does not respond, and ends its turn.
    async fn kill_worker(&mut self, status: TurnStatus, reason: String) {
        self.end_own_turn(status, Some(reason.clone()));
        if let Some(running) = self.running.take() {
            self.close_approvals(running.turn.at());
            self.finish_injection(running, status, Some(reason));
        }
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
        self.is_ready = false;
        self.start_at = Some(Instant::now());
        self.shared.state.lock().pid = None;
        self.publish_state(NodeState::Down, Some("its worker was ended".to_owned()));
    }

    fn check_budget(&mut self) {
        let limits = self.job.launch.limits;
        let (Some(limit), Some(running)) = (limits.total_tokens, &self.running) else { return };
        let used = self.job.total_tokens.load(Ordering::Relaxed);
        let now = used.saturating_add(running.turn.tokens().map_or(0, |tokens| tokens.total_tokens));
        if now > limit && limits.interrupt_over_budget {
            self.stop_turn(TurnStatus::Interrupted, format!("the job has used {now} of {limit} tokens"));
        }
    }

    /// Publishes the state of the node and records it.
    fn publish_state(&mut self, state: NodeState, detail: Option<String>) {
        let injection_id = self.running.as_ref().map(|running| running.turn.at().injection_id.clone());
        let queued = {
            let mut view = self.shared.state.lock();
            view.state = state;
            view.injection.clone_from(&injection_id);
            view.detail.clone_from(&detail);
            view.queue.len()
        };
        self.job.record.lock().states.insert(self.shared.id.node, state);
        self.job.is_dirty.store(true, Ordering::Relaxed);
        self.shared.announce(self.router.hub());
        let node = self.shared.at();
        self.router.log().publish(&EventBody::NodeStatus(NodeStatus {
            node,
            status: state,
            injection_id,
            queued,
            detail,
        }));
    }
}

impl Running {
    fn new(turn: Turn, content: String, handoff: Option<Handoff>, pin: u64, launch: &Launch) -> Self {
        let now = Instant::now();
        let limits = launch.limits;
        // The Agent Client Protocol signals no acceptance before the first text of the answer.
        let is_mute = matches!(
            launch.agent,
            AgentKind::Acp | AgentKind::Gemini | AgentKind::Opencode | AgentKind::Goose
        );
        let accept = match limits.delivery_seconds {
            None if is_mute => turn_limit(limits),
            _ => accept_limit(limits),
        };
        Self {
            turn,
            content,
            handoff,
            pin,
            accept_by: now + accept,
            end_by: now + turn_limit(limits),
            stopping: None,
        }
    }
}

/// Returns the time limit for an agent to be ready, and to accept a prompt.
fn accept_limit(limits: Limits) -> Duration {
    Duration::from_secs(limits.delivery_seconds.unwrap_or(60).into())
}

fn turn_limit(limits: Limits) -> Duration {
    Duration::from_secs(limits.turn_seconds.unwrap_or(1800).into())
}

/// Receives the next reports; returns 0 after the worker has ended. Without a worker, waits forever.
async fn next_reports(worker: Option<&mut Worker>, reports: &mut Vec<Report>) -> usize {
    match worker {
        Some(worker) => worker.reports.recv_many(reports, BATCH).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
