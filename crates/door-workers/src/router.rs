//! Router: jobs with their nodes, the event log, and the commands of clients.

mod commands;
mod launch;
mod recover;
mod replies;
mod slot;
mod steer;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_core::{AgentId, Door, JobId, Kind, NodeId, Outcome, Route};
use switchboard_hub::{Accepted, Draft, Handoff, Hub, HubError};
use switchboard_sys::files::Dir;
use switchboard_sys::reaper::ReaperClient;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::commands::{
    RequestContext, Requester, duplicate_ack, over_budget_reason, reject_stopped, reject_submission,
    terminated,
};
pub(crate) use self::recover::{Acked, History};
pub(crate) use self::slot::QueueSlot;
use self::steer::SteerResult;
pub(crate) use self::steer::is_steering;
use crate::config::Config;
use crate::delivery;
use crate::error::RouterError;
use crate::intake::reject;
use crate::job::{FinishedTurn, Job, NodeShared};
use crate::log::EventLog;
use crate::wire::event::{BudgetExceeded, CommandRejected, EventBody, RejectCode, TurnStatus};

/// Topic under which the hub's notes store the job records.
pub(crate) const JOBS: &str = "jobs";

/// Folder of the event log, below the hub's folder.
const LOG_FOLDER: &str = "router";
const WORKERS_FOLDER: &str = "workers";

/// Interval at which changed job records are saved.
const SAVE_EVERY: Duration = Duration::from_millis(500);

/// The running router. Cloning is shallow: clones are handles to the same router.
#[derive(Clone)]
pub struct Router {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Hub,
    config: Config,
    log: EventLog,
    workspace: PathBuf,
    workers: Dir,
    guard: Option<ReaperClient>,
    jobs: Mutex<BTreeMap<JobId, Arc<Job>>>,
    history: Mutex<History>,
    /// Injections that were submitted to the hub but not delivered yet, with their queue slots.
    submitted: Mutex<HashMap<String, QueueSlot>>,
    /// Steering messages in flight with their waiting requests; `None` once the agent was asked.
    steering: Mutex<HashMap<String, Option<oneshot::Sender<SteerResult>>>>,
    /// Redelivered handoffs of running injections, whose leases expired while the injections waited.
    held: Mutex<HashMap<String, Handoff>>,
    /// Handoffs of queued injections, held until the hub has closed.
    ///
    /// They are released after that, so that the next router receives them in order.
    deferred: Mutex<Vec<Handoff>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Router {
    /// Opens the router of a hub: resumes running jobs, and ends injections that cannot continue.
    ///
    /// Workers run in `workspace` unless their launch names a folder. The caller must hold the lease of the hub's
    /// service `router`, because only one router may run at a time.
    pub async fn open(
        hub: Hub,
        workspace: PathBuf,
        config: Config,
        guard: Option<ReaperClient>,
    ) -> Result<Self, RouterError> {
        let folder = hub.folder().ensure_subdir(LOG_FOLDER)?;
        let workers = hub.folder().ensure_subdir(WORKERS_FOLDER)?;
        let log = EventLog::open(folder, &config, hub.config().clock.clone())?;
        let records = hub.notes(Door::Workers).all(JOBS).await?;
        let inner = Inner {
            hub,
            config,
            log,
            workspace,
            workers,
            guard,
            jobs: Mutex::default(),
            history: Mutex::default(),
            submitted: Mutex::default(),
            steering: Mutex::default(),
            held: Mutex::default(),
            deferred: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        };
        let router = Self { inner: Arc::new(inner) };
        router.recover(records).await?;
        let saver = router.clone();
        router.spawn(async move { saver.save_periodically().await });
        Ok(router)
    }

    /// Returns true if no turn runs and no injection waits.
    pub fn is_idle(&self) -> bool {
        self.inner.submitted.lock().is_empty()
            && self.jobs().iter().all(|job| job.nodes.iter().all(|node| node.is_idle()))
    }

    /// Waits until no turn runs and no injection waits.
    pub async fn idle(&self) {
        let mut changes = self.log().subscribe();
        while !self.is_idle() {
            let _ = tokio::time::timeout(Duration::from_millis(250), changes.changed()).await;
        }
    }

    /// Stops the workers. Jobs continue with the next router; running turns end as interrupted.
    pub async fn close(&self) {
        self.inner.shutdown.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        for job in self.jobs() {
            if job.is_dirty.swap(false, Ordering::Relaxed) {
                self.save(&job).await;
            }
        }
        self.log().flush();
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    pub(crate) fn log(&self) -> &EventLog {
        &self.inner.log
    }

    pub(crate) fn guard(&self) -> Option<&ReaperClient> {
        self.inner.guard.as_ref()
    }

    pub(crate) fn history(&self) -> &Mutex<History> {
        &self.inner.history
    }

    pub(crate) fn workspace(&self) -> &Path {
        &self.inner.workspace
    }

    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.inner.shutdown
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(task);
    }

    /// Returns all jobs, oldest first.
    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        let mut jobs: Vec<_> = self.inner.jobs.lock().values().cloned().collect();
        jobs.sort_by_key(|job| job.record.lock().launched_at);
        jobs
    }

    pub(crate) fn job(&self, id: &str) -> Option<Arc<Job>> {
        self.inner.jobs.lock().get(&JobId::parse(id)?).cloned()
    }

    /// Returns a node of a job that is not terminated.
    pub(crate) fn node(&self, id: &NodeId) -> Option<(Arc<Job>, Arc<NodeShared>)> {
        let job = self.inner.jobs.lock().get(&id.job).cloned()?;
        let node = job.nodes.get(usize::try_from(id.node).ok()?).cloned()?;
        (!job.is_terminated()).then_some((job, node))
    }

    /// Saves the record of a job.
    pub(crate) async fn save(&self, job: &Job) {
        let record = {
            let mut record = job.record.lock();
            record.total_tokens = job.total_tokens.load(Ordering::Relaxed);
            serde_json::to_string(&*record).ok()
        };
        let noted = self.hub().notes(Door::Workers).put(JOBS, job.id.to_string(), record).await;
        if let Err(error) = noted {
            tracing::error!(%error, job = %job.id, "the record of a job could not be saved");
            job.is_dirty.store(true, Ordering::Relaxed);
        }
    }

    async fn save_periodically(&self) {
        let mut beat = tokio::time::interval(SAVE_EVERY);
        // The interval is shorter than a lease and than the time after which an agent counts as stale.
        let mut renewal = tokio::time::interval(self.hub().config().lease / 3);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beat.tick() => {}
                _ = renewal.tick() => self.renew_leases(),
                () = self.inner.shutdown.cancelled() => return,
            }
            for job in self.jobs() {
                if job.is_dirty.swap(false, Ordering::Relaxed) {
                    self.save(&job).await;
                }
            }
        }
    }

    /// Announces the nodes as present, and renews the leases of queued injections.
    fn renew_leases(&self) {
        for job in self.jobs().iter().filter(|job| !job.is_terminated()) {
            for node in &job.nodes {
                node.announce(self.hub());
                node.state
                    .lock()
                    .queue
                    .iter()
                    .filter_map(|queued| queued.handoff.as_ref())
                    .for_each(Handoff::renew_lease);
            }
        }
    }

    /// Submits injections to the hub's journal, in the given order.
    pub(crate) async fn submit(&self, drafts: Vec<(Draft, QueueSlot)>) -> Vec<Result<Accepted, HubError>> {
        let ids: Vec<String> = drafts.iter().map(|(draft, _)| draft.id.to_string()).collect();
        let (drafts, slots): (Vec<_>, Vec<_>) = drafts.into_iter().unzip();
        self.inner.submitted.lock().extend(ids.iter().cloned().zip(slots));
        let mut submitting = SubmitGuard { router: self, ids };
        let answers = self.hub().submit_all(drafts).await;
        let will_arrive = |answer: &Result<Accepted, HubError>| matches!(answer, Ok(accepted) if !accepted.duplicate && accepted.stopped.is_none());
        let mut answered = answers.iter();
        submitting.ids.retain(|_| !answered.next().is_some_and(will_arrive));
        answers
    }

    /// Removes an injection from the submitted ones after the hub has delivered it.
    pub(crate) fn mark_arrived(&self, injection: &str) {
        self.inner.submitted.lock().remove(injection);
    }

    /// Reports the outcome of a delivery to the hub in the background.
    pub(crate) fn report_outcome(&self, injection: &str, handoff: Handoff, outcome: Outcome) {
        let held = self.inner.held.lock().remove(injection);
        let reports = [Some(handoff), held].into_iter().flatten().map(|handoff| (handoff, outcome.clone()));
        let reports: Vec<_> = reports.collect();
        self.spawn(async move {
            for reported in Handoff::report_all(reports).await {
                if let Err(error) = reported {
                    tracing::warn!(%error, "the outcome of an injection could not be reported");
                }
            }
        });
    }

    /// Holds the redelivered handoff of a running injection until that injection ends.
    pub(crate) fn hold_redelivery(&self, injection: String, handoff: Handoff) {
        self.inner.held.lock().insert(injection, handoff);
    }

    /// Holds the handoffs of queued injections until the hub has closed.
    pub(crate) fn defer_handoffs(&self, handoffs: impl IntoIterator<Item = Handoff>) {
        self.inner.deferred.lock().extend(handoffs);
    }

    /// Finishes an injection: sends the reply, checks the budget, and settles a redelivered handoff.
    pub(crate) fn finish_turn(&self, job: &Arc<Job>, node: &Arc<NodeShared>, ended: FinishedTurn) {
        self.inner.history.lock().finish(&ended.injection.at.injection_id);
        if let Some(held) = self.inner.held.lock().remove(&ended.injection.at.injection_id) {
            self.report_outcome(&ended.injection.at.injection_id, held, Outcome::Shown);
        }
        job.is_dirty.store(true, Ordering::Relaxed);
        self.check_budget(job);
        if delivery::wants_reply(&ended.injection) {
            let (router, node) = (self.clone(), Arc::clone(node));
            self.spawn(async move { delivery::reply(&router, &node, ended).await });
        }
    }

    /// Notifies clients and the user, once per job, that the job exceeds its budget.
    pub(crate) fn check_budget(&self, job: &Arc<Job>) {
        let Some(limit) = job.launch.limits.total_tokens else { return };
        let total_tokens = job.total_tokens.load(Ordering::Relaxed);
        if total_tokens < limit || job.is_over_budget.swap(true, Ordering::Relaxed) {
            return;
        }
        let job_id = job.id.to_string();
        self.log().publish(&EventBody::BudgetExceeded(BudgetExceeded { job_id, total_tokens, limit }));
        let Some(node) = job.nodes.first() else { return };
        let body = format!(
            "Job {} has used {total_tokens} of {limit} tokens. It accepts no further prompts; waiting ones still run.",
            job.id
        );
        let (from, to) = (AgentId::local(node.name.clone()), AgentId::human().into());
        let draft = Draft {
            verified: true,
            route: Some(Route::Worker(node.id.clone())),
            allow_unregistered: true,
            ..self.hub().draft(Door::Workers, from, to, Kind::status_update(), body)
        };
        let hub = self.hub().clone();
        self.spawn(async move {
            if let Err(error) = hub.submit(draft).await {
                tracing::warn!(%error, "the person could not be notified of an exceeded budget");
            }
        });
    }
}

/// Drop guard that removes submitted injections from the router's table.
///
/// Dropping the guard covers injections that the hub rejected or deduplicated, and those of a client that disconnected
/// meanwhile.
struct SubmitGuard<'r> {
    router: &'r Router,
    ids: Vec<String>,
}

impl Drop for SubmitGuard<'_> {
    fn drop(&mut self) {
        let mut submitted = self.router.inner.submitted.lock();
        let slots: Vec<_> = self.ids.iter().filter_map(|id| submitted.remove(id)).collect();
        drop(submitted);
        drop(slots);
    }
}

/// Rejects a command for an unknown job, with a suggestion.
pub(crate) fn reject_unknown_job(id: &str, known: &[Arc<Job>]) -> CommandRejected {
    let known: Vec<&str> = known.iter().map(|job| job.id.as_str()).collect();
    let near = switchboard_core::suggest_similar(id, known);
    let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
    let id = id.escape_debug();
    reject(RejectCode::UnknownJob, Some("payload.job_id"), format!("payload.job_id: no job '{id}'{hint}"))
}

/// Returns a sentence that tells a person or an agent how a turn ended.
pub(crate) fn describe_status(status: TurnStatus) -> &'static str {
    match status {
        TurnStatus::Completed => "It was completed",
        TurnStatus::Failed => "It failed",
        TurnStatus::Interrupted => "It was interrupted",
        TurnStatus::Timeout => "It took too long",
        TurnStatus::WorkerLost => "Its worker was lost",
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
