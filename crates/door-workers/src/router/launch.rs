//! Launch and termination of jobs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use switchboard_core::{AgentId, Door, JobId, Name, NodeId, Route};
use switchboard_hub::Registration;
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, mpsc, oneshot};

use super::commands::terminated;
use super::{JOBS, Router};
use crate::error::RouterError;
use crate::intake::reject;
use crate::job::{Job, JobRecord, NodeShared, NodeView};
use crate::node::{Node, NodeOrder};
use crate::turn::Turn;
use crate::wire::command::{AgentKind, Folders, Input, Launch};
use crate::wire::event::{CommandRejected, EventBody, JobLaunched, RejectCode};
use crate::worker::{self, WorkerLog, is_log_file};

/// Maximum number of nodes per job.
const MAX_NODES: u32 = 64;

/// Capacity of a node's order queue; senders wait when the queue is full.
const ORDERS: usize = 16;

/// A job and the order receivers of its nodes.
pub(super) type NewJob = (Arc<Job>, Vec<mpsc::Receiver<NodeOrder>>);

impl Router {
    /// Launches a job and registers its nodes as agents of the hub.
    pub(crate) async fn launch(
        &self,
        launch: Launch,
        request_id: &str,
        client: &str,
        owner: &str,
    ) -> Result<Arc<Job>, CommandRejected> {
        let id = self.validate(&launch)?;
        let names = self.choose_names(&launch, &id).await?;
        let cwd = self.resolve_cwd(&launch)?;
        check_program(&launch, &cwd)?;
        let mut folders = Vec::new();
        for node in 0..launch.nodes {
            match self.node_folder(launch.folders, &cwd, &id, node).await {
                Ok(folder) => folders.push(folder),
                Err(rejected) => {
                    remove_worktrees(launch.folders, &folders).await;
                    self.remove_folder(&id);
                    return Err(rejected);
                }
            }
        }
        let record = JobRecord {
            launch,
            owner: owner.to_owned(),
            launched_at: self.hub().now(),
            terminated_at: None,
            total_tokens: 0,
            sessions: BTreeMap::new(),
            states: BTreeMap::new(),
            turns: BTreeMap::new(),
            approvals: BTreeMap::new(),
            names,
            folders,
        };
        let made = self.build_job(id.clone(), record).map_err(|error| reject_start(error.to_string()))?;
        let job = Arc::clone(&made.0);
        {
            let mut jobs = self.inner.jobs.lock();
            if jobs.contains_key(&id) {
                return Err(reject_taken_id(&id));
            }
            jobs.insert(id, Arc::clone(&job));
        }
        self.save(&job).await;
        for node in &job.nodes {
            let route = Route::Worker(node.id.clone());
            let role = Some(job.launch.agent.as_str().to_owned());
            let registration =
                Registration { name: node.name.clone(), role, team: None, routes: vec![route] };
            if let Err(error) = self.hub().agents().register(registration).await {
                self.roll_back(&job).await;
                return Err(reject_start(format!("the node cannot be registered: {error}")));
            }
        }
        self.log().publish(&EventBody::JobLaunched(JobLaunched {
            request_id: request_id.to_owned(),
            client: client.to_owned(),
            job: job.info(),
        }));
        self.start_nodes(made, Vec::new());
        Ok(job)
    }

    async fn roll_back(&self, job: &Job) {
        for node in &job.nodes {
            let _ = self.hub().agents().deregister(node.name.clone()).await;
        }
        self.inner.jobs.lock().remove(&job.id);
        let _ = self.hub().notes(Door::Workers).put(JOBS, job.id.to_string(), None).await;
    }

    fn validate(&self, launch: &Launch) -> Result<JobId, CommandRejected> {
        if !(1..=MAX_NODES).contains(&launch.nodes) {
            return Err(reject_field("nodes", format!("must be 1 to {MAX_NODES}, and is {}", launch.nodes)));
        }
        let needs = matches!(launch.agent, AgentKind::Acp | AgentKind::Command);
        if needs && launch.program.first().is_none_or(String::is_empty) {
            let agent = launch.agent.as_str();
            return Err(reject_field(
                "program",
                format!("agent '{agent}' needs the program to run and its arguments"),
            ));
        }
        if let Some((setting, problem)) = invalid_setting(launch) {
            return Err(reject_field(setting, problem.to_owned()));
        }
        if let Some(setting) = unsupported_setting(launch) {
            let agent = launch.agent.as_str();
            return Err(reject_field(setting, format!("agent '{agent}' has no such setting; remove it")));
        }
        let Some(wanted) = &launch.job_id else { return Ok(self.free_id()) };
        let id = JobId::parse(wanted).ok_or_else(|| {
            reject_field("job_id", "must have 1 to 64 letters, digits, '_' or '-'".to_owned())
        })?;
        if self.inner.jobs.lock().contains_key(&id) { Err(reject_taken_id(&id)) } else { Ok(id) }
    }

    /// Returns a random id that no job has.
    pub(crate) fn free_id(&self) -> JobId {
        let known = self.inner.jobs.lock();
        loop {
            let id = random_id();
            if !known.contains_key(&id) {
                return id;
            }
        }
    }

    /// Chooses the agent names of the nodes; rejects names in use.
    async fn choose_names(&self, launch: &Launch, id: &JobId) -> Result<Vec<Name>, CommandRejected> {
        let base = launch.name.clone().unwrap_or_else(|| format!("job-{id}"));
        let is_alone = launch.nodes == 1 && launch.name.is_some();
        let directory = self.hub().directory().await.map_err(|error| reject_start(error.to_string()))?;
        let mut names = Vec::new();
        for node in 0..launch.nodes {
            let name = if is_alone { base.clone() } else { format!("{base}-{node}") };
            let name = Name::parse(&name).map_err(|error| reject_field("name", error.to_string()))?;
            if directory.agent(&AgentId::local(name.clone())).is_some() || name.is_human() {
                return Err(reject_field(
                    "name",
                    format!("the name '{name}' is in use by an agent; choose another"),
                ));
            }
            names.push(name);
        }
        Ok(names)
    }

    fn resolve_cwd(&self, launch: &Launch) -> Result<PathBuf, CommandRejected> {
        let folder = match &launch.cwd {
            None => self.workspace().to_owned(),
            Some(cwd) => self.workspace().join(cwd),
        };
        match folder.canonicalize() {
            Ok(folder) if folder.is_dir() => Ok(folder),
            _ => Err(reject_field("cwd", format!("the folder {} does not exist", folder.display()))),
        }
    }

    /// Returns the working folder of a node; creates it if the node has its own.
    async fn node_folder(
        &self,
        folders: Folders,
        cwd: &Path,
        job: &JobId,
        node: u32,
    ) -> Result<PathBuf, CommandRejected> {
        if folders == Folders::Shared {
            return Ok(cwd.to_owned());
        }
        let own = self
            .inner
            .workers
            .ensure_subdir(job.as_str())
            .map_err(|error| reject_start(error.to_string()))?;
        let name = format!("node-{node}");
        let path = own.path().join(&name);
        if folders == Folders::Worktree {
            let args = ["worktree", "add", "--detach", "--quiet"].map(OsString::from);
            git(cwd, args.into_iter().chain([path.clone().into_os_string()])).await.map_err(|error| {
                reject_field("folders", format!("git cannot make a worktree of {}: {error}", cwd.display()))
            })?;
        } else {
            own.ensure_subdir(&name).map_err(|error| reject_start(error.to_string()))?;
        }
        Ok(path)
    }

    /// Builds a job from its record.
    pub(super) fn build_job(&self, id: JobId, record: JobRecord) -> Result<NewJob, RouterError> {
        let mut receivers = Vec::new();
        let mut nodes = Vec::new();
        let logs = self.inner.workers.ensure_subdir(id.as_str())?;
        for (node, (name, cwd)) in (0..).zip(record.names.iter().zip(&record.folders)) {
            let (orders, receiver) = mpsc::channel(ORDERS);
            let view = NodeView::new(record.turns.get(&node).copied().unwrap_or_default());
            nodes.push(Arc::new(NodeShared {
                id: NodeId { job: id.clone(), node },
                name: name.clone(),
                cwd: cwd.clone(),
                log: Arc::new(WorkerLog::new(logs.clone(), node, self.hub().config().clock.clone())),
                orders,
                wake: Notify::new(),
                state: Mutex::new(view),
            }));
            receivers.push(receiver);
        }
        let limit = record.launch.limits.total_tokens;
        let job = Job {
            id,
            launch: Arc::new(record.launch.clone()),
            owner: record.owner.clone(),
            nodes,
            total_tokens: AtomicU64::new(record.total_tokens),
            is_over_budget: AtomicBool::new(limit.is_some_and(|limit| record.total_tokens >= limit)),
            is_dirty: AtomicBool::new(false),
            record: Mutex::new(record),
        };
        Ok((Arc::new(job), receivers))
    }

    /// Starts the tasks of a job's nodes; `unconfirmed` has the turns that were running on the nodes.
    pub(super) fn start_nodes(&self, (job, receivers): NewJob, unconfirmed: Vec<Option<Turn>>) {
        let mut unconfirmed = unconfirmed.into_iter();
        for (shared, receiver) in job.nodes.iter().zip(receivers) {
            let unconfirmed = unconfirmed.next().flatten();
            let node = Node::new(self.clone(), Arc::clone(&job), Arc::clone(shared), receiver, unconfirmed);
            self.spawn(node.run(self.shutdown().clone()));
        }
    }

    /// Terminates a job with its turns, processes and agents. Returns false if the job was already terminated.
    pub(crate) async fn terminate(&self, job: &Arc<Job>, request_id: &str) -> bool {
        {
            let mut record = job.record.lock();
            if record.terminated_at.is_some() {
                return false;
            }
            record.terminated_at = Some(self.hub().now());
        }
        let mut waiting = Vec::new();
        for node in &job.nodes {
            let (done, over) = oneshot::channel();
            if node.orders.send(NodeOrder::Terminate { done }).await.is_ok() {
                waiting.push(over);
            }
        }
        for over in waiting {
            let _ = over.await;
        }
        for node in &job.nodes {
            if let Err(error) = self.hub().agents().deregister(node.name.clone()).await {
                tracing::warn!(%error, agent = %node.name, "the agent of a node cannot be removed");
            }
        }
        self.save(job).await;
        let folders: Vec<_> = job.nodes.iter().map(|node| node.cwd.clone()).collect();
        remove_worktrees(job.launch.folders, &folders).await;
        self.log().publish(&EventBody::JobTerminated(terminated(job, request_id.to_owned())));
        self.forget_old_jobs().await;
        true
    }

    /// Removes the oldest terminated jobs beyond the history limit.
    pub(super) async fn forget_old_jobs(&self) {
        let over: Vec<_> = self.jobs().into_iter().filter(|job| job.is_terminated()).collect();
        let many = over.len().saturating_sub(self.config().history);
        for job in over.into_iter().take(many) {
            self.inner.jobs.lock().remove(&job.id);
            if let Err(error) = self.hub().notes(Door::Workers).put(JOBS, job.id.to_string(), None).await {
                tracing::warn!(%error, "the record of an old job could not be removed");
            }
            self.remove_folder(&job.id);
        }
    }

    /// Removes the logs of a forgotten job, and its folder if the folder is then empty.
    ///
    /// Other files are the work of agents and stay.
    fn remove_folder(&self, id: &JobId) {
        let workers = &self.inner.workers;
        let removed = workers.subdir(id.as_str()).and_then(|folder| {
            let Some(folder) = folder else { return Ok(()) };
            for name in folder.names()?.iter().filter(|name| is_log_file(name)) {
                folder.remove(name)?;
            }
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!(%error, job = %id, "the logs of an old job cannot be removed");
        }
        // `remove_dir` removes empty folders only.
        let folder = workers.path().join(id.as_str());
        let inner = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        for folder in inner.chain([folder.clone()]) {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Removes unchanged worktrees.
///
/// Worktrees with changes, or with commits that are on no branch, contain work and stay.
async fn remove_worktrees(folders: Folders, paths: &[PathBuf]) {
    if folders != Folders::Worktree {
        return;
    }
    for path in paths {
        let only_here = ["rev-list", "--max-count=1", "HEAD", "--not", "--branches", "--tags", "--remotes"];
        let removed = match git(path, only_here.map(OsString::from)).await {
            Ok(commits) if commits.trim().is_empty() => {
                let args = ["worktree", "remove"].map(OsString::from);
                git(path, args.into_iter().chain([path.clone().into_os_string()])).await
            }
            Ok(_) => Err("a commit in it is on no branch".to_owned()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::info!(folder = %path.display(), error, "a worktree was kept");
        }
    }
}

/// Returns the name of a setting that the agent does not support.
///
/// An ignored setting would look as if it had taken effect.
fn unsupported_setting(launch: &Launch) -> Option<&'static str> {
    let known: &[&str] = match launch.agent {
        AgentKind::Codex => &["model", "sandbox", "approval_policy", "instructions"],
        AgentKind::CodexExec => &["model", "sandbox"],
        AgentKind::Claude => &["model", "approval_policy", "instructions"],
        AgentKind::Acp | AgentKind::Gemini | AgentKind::Opencode | AgentKind::Goose => &["approval_policy"],
        AgentKind::Command => &["input"],
        AgentKind::Echo => &[],
    };
    let settings = [
        ("model", launch.model.is_some()),
        ("sandbox", launch.sandbox.is_some()),
        ("approval_policy", launch.approval_policy.is_some()),
        ("instructions", launch.instructions.is_some()),
        ("input", launch.input != Input::default()),
    ];
    let foreign = settings.into_iter().find(|(name, is_given)| *is_given && !known.contains(name));
    foreign.map(|(name, _)| name)
}

/// Returns an invalid setting, with which no program could start or no turn could end, and the problem with it.
fn invalid_setting(launch: &Launch) -> Option<(&'static str, &'static str)> {
    let has_nul = |text: &String| text.contains('\0');
    let is_no_name = |name: &String| name.is_empty() || name.contains(['=', '\0']);
    let limits = launch.limits;
    if launch.program.iter().any(has_nul) {
        return Some(("program", "must not contain a NUL character"));
    }
    if launch.args.iter().any(has_nul) {
        return Some(("args", "must not contain a NUL character"));
    }
    if launch.env.keys().any(is_no_name) {
        return Some(("env", "a name must not be empty or contain '=' or a NUL character"));
    }
    if launch.env.values().any(has_nul) {
        return Some(("env", "a value must not contain a NUL character"));
    }
    if limits.turn_seconds == Some(0) {
        return Some(("limits.turn_seconds", "must be at least 1"));
    }
    (limits.delivery_seconds == Some(0)).then_some(("limits.delivery_seconds", "must be at least 1"))
}

/// Rejects a launch whose program does not exist, as far as this can be checked before the start.
fn check_program(launch: &Launch, cwd: &Path) -> Result<(), CommandRejected> {
    let usual = worker::default_program(launch.agent).first().copied();
    let Some(program) = launch.program.first().map(String::as_str).or(usual) else { return Ok(()) };
    if launch.agent == AgentKind::Echo {
        return Ok(());
    }
    let is_there = if program.contains('/') {
        // A relative program may exist only in the node's own folder, which is created later.
        launch.folders != Folders::Shared && !program.starts_with('/') || is_program(&cwd.join(program))
    } else {
        let path = launch.env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
        let path = path.unwrap_or_default();
        std::env::split_paths(&path).any(|folder| is_program(&cwd.join(folder).join(program)))
    };
    if is_there {
        return Ok(());
    }
    let reason = format!(
        "payload.program: there is no program '{}'; install it, or give its path",
        program.escape_debug()
    );
    Err(reject(RejectCode::CannotStart, Some("payload.program"), reason))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs git in a folder; returns its stdout, or its stderr on failure.
async fn git(folder: &Path, args: impl IntoIterator<Item = OsString>) -> Result<String, String> {
    let mut child = switchboard_sys::git::command(folder)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let (mut printed, mut errors) = (String::new(), String::new());
    if let (Some(mut stdout), Some(mut stderr)) = (child.stdout_reader(), child.stderr_reader()) {
        let _ = tokio::join!(stdout.read_to_string(&mut printed), stderr.read_to_string(&mut errors));
    }
    match child.wait().await {
        Ok(status) if status.success() => Ok(printed),
        Ok(_) => Err(errors.trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a random job id that does not resemble a number or a word.
fn random_id() -> JobId {
    const LETTERS: &[u8] = b"23456789bcdfghjkmnpqrstvwxz";
    let mut id = String::from("j");
    id.extend(std::iter::repeat_with(|| char::from(LETTERS[fastrand::usize(..LETTERS.len())])).take(5));
    JobId::parse(&id).unwrap_or_else(random_id)
}

fn reject_taken_id(id: &JobId) -> CommandRejected {
    reject_field("job_id", format!("job '{id}' exists already"))
}

fn reject_field(field: &str, problem: String) -> CommandRejected {
    let field = format!("payload.{field}");
    reject(RejectCode::BadField, Some(&field), format!("{field}: {problem}"))
}

fn reject_start(reason: String) -> CommandRejected {
    reject(RejectCode::CannotStart, None, reason)
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
