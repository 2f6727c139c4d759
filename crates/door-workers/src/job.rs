//! Jobs and their nodes: launch parameters, owner and shared state.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use switchboard_core::{AgentId, JobId, Name, NodeId, OFFLINE};
use switchboard_hub::{Handoff, Hub};
use tokio::sync::{Notify, mpsc};

use crate::node::NodeOrder;
use crate::wire::command::Launch;
use crate::wire::event::{
    ApprovalRequired, EventNode, Injection, JobInfo, NodeInfo, NodeState, Queued, TurnStatus,
};
use crate::wire::format_timestamp;
use crate::worker::WorkerLog;

/// Maximum length of a prompt's title in a list.
const TITLE: usize = 80;

/// Persistent record of a job; survives a restart of the router.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) launch: Launch,
    pub(crate) owner: String,
    pub(crate) launched_at: Timestamp,
    #[serde(default)]
    pub(crate) terminated_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) total_tokens: u64,
    /// The session id of each node's agent.
    #[serde(default)]
    pub(crate) sessions: BTreeMap<u32, String>,
    /// The last known state of each node.
    #[serde(default)]
    pub(crate) states: BTreeMap<u32, NodeState>,
    /// The number of finished turns of each node.
    #[serde(default)]
    pub(crate) turns: BTreeMap<u32, u64>,
    /// Approvals that wait for a decision.
    #[serde(default)]
    pub(crate) approvals: BTreeMap<String, ApprovalRequired>,
    /// The nodes' names as agents of the hub.
    pub(crate) names: Vec<Name>,
    /// The working folders of the nodes.
    pub(crate) folders: Vec<PathBuf>,
}

/// A job: its persistent record and the nodes that run it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) launch: Arc<Launch>,
    pub(crate) owner: String,
    pub(crate) nodes: Vec<Arc<NodeShared>>,
    pub(crate) record: Mutex<JobRecord>,
    pub(crate) total_tokens: AtomicU64,
    pub(crate) is_over_budget: AtomicBool,
    /// True if the record has unsaved changes.
    pub(crate) is_dirty: AtomicBool,
}

/// State shared between a node's task and the router.
#[derive(Debug)]
pub(crate) struct NodeShared {
    pub(crate) id: NodeId,
    pub(crate) name: Name,
    pub(crate) cwd: PathBuf,
    pub(crate) log: Arc<WorkerLog>,
    pub(crate) orders: mpsc::Sender<NodeOrder>,
    /// Notified when an injection was enqueued.
    pub(crate) wake: Notify,
    pub(crate) state: Mutex<NodeView>,
}

/// Visible state of a node.
#[derive(Debug)]
pub(crate) struct NodeView {
    pub(crate) state: NodeState,
    pub(crate) injection: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) turns: u64,
    /// Human-readable detail of the state.
    pub(crate) detail: Option<String>,
    /// Queued injections in order of acceptance. `Config::queue` is the maximum; the router rejects further ones.
    pub(crate) queue: VecDeque<QueuedInjection>,
    /// Number of queue slots reserved for injections that the hub has not delivered yet.
    pub(crate) reserved: usize,
    /// True once the job has ended and the node no longer reads its queue.
    pub(crate) is_closed: bool,
}

impl NodeView {
    /// Creates the view of a node that has not started; `turns` is the number of turns under earlier routers.
    pub(crate) fn new(turns: u64) -> Self {
        Self {
            state: NodeState::Starting,
            injection: None,
            pid: None,
            turns,
            detail: None,
            queue: VecDeque::new(),
            reserved: 0,
            is_closed: false,
        }
    }
}

/// An injection that waits for its turn on a node.
#[derive(Debug)]
pub(crate) struct QueuedInjection {
    pub(crate) injection: Injection,
    pub(crate) content: String,
    /// The hub's handoff; `None` if the outcome was reported before the router restarted.
    pub(crate) handoff: Option<Handoff>,
    /// The first event of the injection; it is pinned in the log.
    pub(crate) pin: u64,
}

impl Job {
    pub(crate) fn is_terminated(&self) -> bool {
        self.record.lock().terminated_at.is_some()
    }

    /// Returns the node that asked for this approval, while the approval is open.
    pub(crate) fn approval_node(&self, approval: &str) -> Option<Arc<NodeShared>> {
        let node = self.record.lock().approvals.get(approval)?.at.node_id;
        self.nodes.get(usize::try_from(node).ok()?).cloned()
    }

    /// Adds the tokens of a turn. Saturates, because an agent may report any number.
    pub(crate) fn add_tokens(&self, tokens: u64) {
        let add = |used: u64| Some(used.saturating_add(tokens));
        let _ = self.total_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Removes a decided approval from the record.
    ///
    /// The record is saved later; until then, the log has the decision.
    pub(crate) fn remove_approval(&self, approval: &str) {
        if self.record.lock().approvals.remove(approval).is_some() {
            self.is_dirty.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the job as clients see it.
    pub(crate) fn info(&self) -> JobInfo {
        let (launched_at, is_over) = {
            let record = self.record.lock();
            (record.launched_at, record.terminated_at.is_some())
        };
        JobInfo {
            job_id: self.id.to_string(),
            agent: self.launch.agent.as_str().to_owned(),
            owner: self.owner.clone(),
            status: if is_over { "terminated" } else { "running" }.to_owned(),
            launched_at: format_timestamp(launched_at),
            total_tokens: self.total_tokens.load(Ordering::Relaxed),
            nodes: self.nodes.iter().map(|node| node.info(is_over)).collect(),
        }
    }
}

impl NodeShared {
    pub(crate) fn at(&self) -> EventNode {
        EventNode { job_id: self.id.job.to_string(), node_id: self.id.node }
    }

    /// Announces the node's agent to the hub as present.
    pub(crate) fn announce(&self, hub: &Hub) {
        let status = match self.state.lock().state {
            NodeState::Terminated => OFFLINE,
            state => state.as_str(),
        };
        hub.agents().announce(AgentId::local(self.name.clone()), status, None);
    }

    fn info(&self, is_over: bool) -> NodeInfo {
        let view = self.state.lock();
        NodeInfo {
            node_id: self.id.node,
            agent_name: self.name.to_string(),
            status: if is_over { NodeState::Terminated } else { view.state },
            detail: view.detail.clone().filter(|_| !is_over),
            queued: view.queue.len(),
            injection_id: view.injection.clone(),
            pid: view.pid,
            cwd: self.cwd.display().to_string(),
            turns: view.turns,
        }
    }

    /// Lists the queued injections in the order in which they will run.
    pub(crate) fn queued(&self) -> Vec<Queued> {
        let title = |content: &str| content.lines().next().unwrap_or_default().chars().take(TITLE).collect();
        let view = self.state.lock();
        let queued = |waiting: &QueuedInjection| Queued {
            injection: waiting.injection.clone(),
            title: title(&waiting.content),
        };
        view.queue.iter().map(queued).collect()
    }

    /// Returns true if no turn runs and no injection waits.
    pub(crate) fn is_idle(&self) -> bool {
        let view = self.state.lock();
        view.injection.is_none() && view.queue.is_empty()
    }
}

/// Result of an injection that ran or was still queued, reported to its sender.
#[derive(Debug)]
pub(crate) struct FinishedTurn {
    pub(crate) injection: Injection,
    pub(crate) status: TurnStatus,
    pub(crate) error: Option<String>,
    pub(crate) answer: Option<String>,
}
