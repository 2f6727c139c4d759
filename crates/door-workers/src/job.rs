//! Jobs: what was launched, by whom, and its nodes.

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

/// How much of a prompt stands in a list.
const TITLE: usize = 80;

/// What is written down of a job, so that it outlives the router.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) launch: Launch,
    pub(crate) owner: String,
    pub(crate) launched_at: Timestamp,
    #[serde(default)]
    pub(crate) terminated_at: Option<Timestamp>,
    /// Whether it was launched in the older router's words.
    #[serde(default)]
    pub(crate) dialect: bool,
    #[serde(default)]
    pub(crate) total_tokens: u64,
    /// What each node's agent calls its conversation.
    #[serde(default)]
    pub(crate) sessions: BTreeMap<u32, String>,
    /// What each node was last seen doing.
    #[serde(default)]
    pub(crate) states: BTreeMap<u32, NodeState>,
    /// How many turns each node has ended.
    #[serde(default)]
    pub(crate) turns: BTreeMap<u32, u64>,
    /// What nodes have asked and nobody has answered.
    #[serde(default)]
    pub(crate) approvals: BTreeMap<String, ApprovalRequired>,
    /// The nodes' names as agents of the hub.
    pub(crate) names: Vec<Name>,
    /// Where the nodes work.
    pub(crate) folders: Vec<PathBuf>,
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) launch: Arc<Launch>,
    pub(crate) owner: String,
    pub(crate) nodes: Vec<Arc<NodeShared>>,
    pub(crate) record: Mutex<JobRecord>,
    pub(crate) total_tokens: AtomicU64,
    pub(crate) is_over_budget: AtomicBool,
    /// Whether something is to be written down.
    pub(crate) is_dirty: AtomicBool,
}

/// What a node's task and the others share.
#[derive(Debug)]
pub(crate) struct NodeShared {
    pub(crate) id: NodeId,
    pub(crate) swarm: Option<String>,
    pub(crate) name: Name,
    pub(crate) cwd: PathBuf,
    pub(crate) log: Arc<WorkerLog>,
    pub(crate) orders: mpsc::Sender<NodeOrder>,
    /// Rung when something was put into the queue.
    pub(crate) wake: Notify,
    pub(crate) state: Mutex<NodeView>,
}

/// A node as others see it.
#[derive(Debug)]
pub(crate) struct NodeView {
    pub(crate) state: NodeState,
    pub(crate) injection: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) turns: u64,
    /// Why it is as it is, where there is more to say.
    pub(crate) detail: Option<String>,
    /// What waits, in the order of acceptance. Bounded by `Config::queue`: what comes after is rejected.
    pub(crate) queue: VecDeque<QueuedInjection>,
    /// How many places of the queue are kept for injections that are on their way through the hub.
    pub(crate) reserved: usize,
    /// Whether the job is over, so that nobody looks into the queue any more.
    pub(crate) is_closed: bool,
}

impl NodeView {
    /// A node that has not begun, after this many turns in earlier routers.
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

/// An injection that waits for its turn.
#[derive(Debug)]
pub(crate) struct QueuedInjection {
    pub(crate) injection: Injection,
    pub(crate) content: String,
    /// The hub's claim; without one where the report was made before the router was restarted.
    pub(crate) handoff: Option<Handoff>,
    /// Its first event in the log.
    pub(crate) pin: u64,
}

impl Job {
    pub(crate) fn swarm(&self) -> Option<String> {
        self.record.lock().dialect.then(|| self.id.to_string())
    }

    pub(crate) fn is_terminated(&self) -> bool {
        self.record.lock().terminated_at.is_some()
    }

    /// The node that asked this question, while it waits for the answer.
    pub(crate) fn approval_node(&self, approval: &str) -> Option<Arc<NodeShared>> {
        let node = self.record.lock().approvals.get(approval)?.at.node_id;
        self.nodes.get(usize::try_from(node).ok()?).cloned()
    }

    /// Counts what a turn has used. What an agent says of that may be too much for any number.
    pub(crate) fn add_tokens(&self, tokens: u64) {
        let add = |used: u64| Some(used.saturating_add(tokens));
        let _ = self.total_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// A question has its answer. That is noted a moment later; the log tells it meanwhile.
    pub(crate) fn remove_approval(&self, approval: &str) {
        if self.record.lock().approvals.remove(approval).is_some() {
            self.is_dirty.store(true, Ordering::Relaxed);
        }
    }

    /// The job as it is told of.
    pub(crate) fn info(&self) -> JobInfo {
        let (launched_at, is_over) = {
            let record = self.record.lock();
            (record.launched_at, record.terminated_at.is_some())
        };
        JobInfo {
            job_id: self.id.to_string(),
            swarm_id: self.swarm(),
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
        EventNode { job_id: self.id.job.to_string(), swarm_id: self.swarm.clone(), node_id: self.id.node }
    }

    /// Gives a sign of life of the agent that the node is.
    pub(crate) fn announce(&self, hub: &Hub) {
        let status = match self.state.lock().state {
            NodeState::Terminated => OFFLINE,
            state => state.as_str(),
        };
        hub.announce(AgentId::local(self.name.clone()), status, None);
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

    /// What waits, in the order in which it will run.
    pub(crate) fn queued(&self) -> Vec<Queued> {
        let title = |content: &str| content.lines().next().unwrap_or_default().chars().take(TITLE).collect();
        let view = self.state.lock();
        let queued = |waiting: &QueuedInjection| Queued {
            injection: waiting.injection.clone(),
            title: title(&waiting.content),
        };
        view.queue.iter().map(queued).collect()
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let view = self.state.lock();
        view.injection.is_none() && view.queue.is_empty()
    }
}

/// How an injection that ran or waited came to its end, for whoever has to be told.
#[derive(Debug)]
pub(crate) struct FinishedTurn {
    pub(crate) injection: Injection,
    pub(crate) status: TurnStatus,
    pub(crate) error: Option<String>,
    pub(crate) answer: Option<String>,
}
