//! Events, sections 3 to 6, and the ones that were added.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Decision;

/// What the router says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum EventBody {
    /// The answer to `hello`.
    Hello(HelloAnswer),
    /// A line was not understood, or what it asks for is not possible.
    CommandRejected(CommandRejected),
    /// An injection is in the journal, on disk.
    InjectAck(Injection),
    /// The agent has accepted an injection.
    InjectDelivered(Injection),
    /// The agent will not get an injection.
    InjectFailed(InjectFailed),
    /// A turn has begun.
    TurnStarted(At),
    /// A piece of the answer.
    AssistantDelta(Text),
    /// A piece of what the agent thinks.
    ReasoningDelta(Text),
    /// The whole answer.
    Assistant(Text),
    /// What the turn has used.
    Usage(Usage),
    /// The turn is over. Every injection that was acknowledged has exactly one.
    TurnComplete(TurnComplete),
    /// The agent runs a command.
    CommandStarted(CommandStarted),
    /// A command of the agent has ended.
    CommandCompleted(CommandCompleted),
    /// The agent has changed files, or is about to.
    FileChange(FileChange),
    /// The agent asks whether it may.
    ApprovalRequired(ApprovalRequired),
    /// The agent has its answer.
    ApprovalResolved(ApprovalResolved),
    /// Something went wrong in the agent; what that means for the turn is told by its end.
    AgentError(AgentError),
    /// How a node is.
    NodeStatus(NodeStatus),
    /// The process of a node has ended.
    WorkerExited(WorkerExited),
    /// A job has begun.
    JobLaunched(JobLaunched),
    /// A job has ended.
    JobTerminated(JobTerminated),
    /// A job has used more tokens than it may.
    BudgetExceeded(BudgetExceeded),
    /// The answer to `jobs_list`.
    JobsList(JobsList),
    /// The answer to `job_status`.
    JobStatus(JobStatusAnswer),
    /// The answer to `interrupt`: the agent was asked to stop.
    InterruptAck(NodeAnswer),
    /// The answer to `steer`: the agent has it.
    SteerAck(NodeAnswer),
    /// The answer to `approvals_list`.
    ApprovalsList(ApprovalsList),
    /// The answer to `queue_list`.
    QueueList(QueueList),
    /// The answer to `subscribe`.
    Subscribed(Subscribed),
    /// The router is there, though it has nothing to say.
    Heartbeat(Heartbeat),
    /// The last line before the router hangs up on a client.
    CutOff(CutOff),
    /// The answer to `swarm_launch`.
    SwarmLaunched(SwarmLaunched),
    /// The answer to `swarm_list`.
    SwarmList(SwarmList),
    /// The answer to `swarm_status`.
    SwarmStatus(SwarmStatus),
    /// The answer to `swarm_terminate`.
    SwarmTerminated(SwarmTerminated),
}

/// Where something happens: all runtime events have these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct At {
    /// The job.
    pub job_id: String,
    /// The job once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// The node.
    pub node_id: u32,
    /// The injection.
    pub injection_id: String,
}

/// Which job and node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeAt {
    /// The job.
    pub job_id: String,
    /// The job once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// The node.
    pub node_id: u32,
}

/// Data of `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HelloAnswer {
    /// As asked.
    pub request_id: String,
    /// The program.
    pub server: String,
    /// Its version.
    pub version: String,
    /// The protocols it speaks.
    pub protocols: Vec<String>,
    /// The commands it knows.
    pub commands: Vec<String>,
    /// The agents it can run.
    pub agents: Vec<String>,
    /// The longest line it takes, in bytes.
    pub max_line: usize,
    /// The oldest event that can still be had.
    pub oldest_seq: u64,
    /// The newest event.
    pub newest_seq: u64,
    /// The name that this client goes by.
    pub client: String,
}

/// Data of `command_rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRejected {
    /// As asked, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What is wrong, for people.
    pub reason: String,
    /// What is wrong, for programs.
    pub code: RejectCode,
    /// The field it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Why a command was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RejectCode {
    /// The line is longer than the router reads.
    LineTooLong,
    /// The line is not UTF-8.
    NotUtf8,
    /// The line is not JSON.
    InvalidJson,
    /// The line is JSON, but not an object.
    NotAnObject,
    /// `protocol` is missing or another one.
    WrongProtocol,
    /// A field is missing, or is not what it has to be.
    BadField,
    /// No such command.
    UnknownCommand,
    /// The same `request_id` was used for something else.
    DuplicateRequestId,
    /// No such job.
    UnknownJob,
    /// No such node in the job.
    UnknownNode,
    /// No such approval, or somebody has answered it.
    UnknownApproval,
    /// The client may not do that.
    NotAllowed,
    /// It cannot be done in this state: nothing to interrupt, nothing to steer.
    NotNow,
    /// As many wait as may wait.
    QueueFull,
    /// The job has used the tokens that it may.
    OverBudget,
    /// The agent cannot be started.
    CannotStart,
    /// The events asked for are not kept any more.
    CursorExpired,
    /// The journal could not be written. Nothing was accepted.
    NotAccepted,
}

/// Data of `inject_ack` and `inject_delivered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Injection {
    /// As asked. Of a message that came by another door, its id there.
    pub request_id: String,
    /// Who asked: the client's name, or the door.
    pub client: String,
    /// Where.
    #[serde(flatten)]
    pub at: At,
}

/// Data of `inject_failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectFailed {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// Why.
    pub error: String,
}

/// Data of `assistant`, `assistant_delta` and `reasoning_delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// The text.
    pub content: String,
}

/// Data of `usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// What was used.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// What the whole job has used so far.
    pub job_total_tokens: u64,
}

/// Tokens, as far as the agent tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// All of them.
    pub total_tokens: u64,
    /// Read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

/// Data of `turn_complete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnComplete {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// How it ended.
    pub status: TurnStatus,
    /// Why, unless it was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The agent has answered.
    Completed,
    /// The agent could not.
    Failed,
    /// Somebody stopped it.
    Interrupted,
    /// It took too long.
    Timeout,
    /// The agent's process, or the router's, ended before the turn did.
    WorkerLost,
}

impl TurnStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Timeout => "timeout",
            Self::WorkerLost => "worker_lost",
        }
    }
}

/// Data of `command_started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandStarted {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// The agent's id for it.
    pub item_id: String,
    /// The command, or the tool and its title.
    pub command: String,
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Data of `command_completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandCompleted {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// The agent's id for it.
    pub item_id: String,
    /// The command, or the tool and its title.
    pub command: String,
    /// The agent's word for how it ended: `completed`, `failed`, `declined` …
    pub status: String,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// What it wrote, the end of it where that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Data of `file_change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// The agent's id for it.
    pub item_id: String,
    /// The agent's word for how far it is: `inProgress`, `completed`, `declined` …
    pub status: String,
    /// The files.
    pub changes: Vec<Change>,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its path.
    pub path: String,
    /// The agent's word for the change: `add`, `update`, `delete` …
    pub kind: String,
    /// The difference, where the agent tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Data of `approval_required`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequired {
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// What to answer to.
    pub approval_id: String,
    /// What it is about.
    #[serde(flatten)]
    pub ask: Ask,
    /// When the answer will be no.
    pub expires_at: String,
}

/// What an agent asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ask {
    /// `command`, `file_change`, `permission` or `tool`.
    pub kind: String,
    /// The agent's id for what it wants to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// In a line, for people.
    pub title: String,
    /// The whole command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The agent's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The files and their differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The arguments of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
}

/// Data of `approval_resolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalResolved {
    /// Of the client that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Where.
    #[serde(flatten)]
    pub at: At,
    /// Which one.
    pub approval_id: String,
    /// The answer.
    pub decision: Decision,
    /// Who gave it: a client, `policy`, `timeout` or `turn`, when the turn ended first.
    pub by: String,
}

/// Data of `agent_error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentError {
    /// Which node.
    #[serde(flatten)]
    pub node: NodeAt,
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// What went wrong.
    pub error: String,
    /// Whether the agent tries again by itself.
    #[serde(default)]
    pub will_retry: bool,
}

/// Data of `node_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Which node.
    #[serde(flatten)]
    pub node: NodeAt,
    /// How it is.
    pub status: NodeState,
    /// What it is busy with. Written before the agent is given the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// How many injections wait.
    pub queued: usize,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its process starts.
    Starting,
    /// It waits for an injection.
    Idle,
    /// A turn runs.
    Busy,
    /// Its process has ended, and is started again with the next injection or after a pause.
    Down,
    /// Its process has ended too often.
    Failed,
    /// The job is over.
    Terminated,
}

impl NodeState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Down => "down",
            Self::Failed => "failed",
            Self::Terminated => "terminated",
        }
    }
}

/// Data of `worker_exited`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerExited {
    /// Which node.
    #[serde(flatten)]
    pub node: NodeAt,
    /// How.
    pub reason: String,
    /// The last line it wrote to stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// In how many milliseconds it is started again; not at all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_in_ms: Option<u64>,
}

/// Data of `job_launched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobLaunched {
    /// As asked.
    pub request_id: String,
    /// Who asked.
    pub client: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
}

/// A job, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobInfo {
    /// Its id.
    pub job_id: String,
    /// Its id once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// What runs on its nodes.
    pub agent: String,
    /// Who launched it.
    pub owner: String,
    /// `running` or `terminated`.
    pub status: String,
    /// When it was launched.
    pub launched_at: String,
    /// What it has used so far.
    pub total_tokens: u64,
    /// Its nodes.
    pub nodes: Vec<NodeInfo>,
}

/// A node, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeInfo {
    /// Its number.
    pub node_id: u32,
    /// Its name as an agent of the hub.
    pub agent_name: String,
    /// How it is.
    pub status: NodeState,
    /// How many injections wait.
    pub queued: usize,
    /// What it is busy with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection_id: Option<String>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where it works.
    pub cwd: String,
    /// How many turns it has ended.
    pub turns: u64,
}

/// Data of `job_terminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobTerminated {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub job_id: String,
    /// The job once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// What it has used.
    pub total_tokens: u64,
}

/// Data of `budget_exceeded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetExceeded {
    /// The job.
    pub job_id: String,
    /// What it has used.
    pub total_tokens: u64,
    /// What it may use.
    pub limit: u64,
}

/// Data of `jobs_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobsList {
    /// As asked.
    pub request_id: String,
    /// The jobs, the oldest first.
    pub jobs: Vec<JobInfo>,
}

/// Data of `job_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatusAnswer {
    /// As asked.
    pub request_id: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
}

/// Data of `interrupt_ack` and `steer_ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeAnswer {
    /// As asked.
    pub request_id: String,
    /// Which turn.
    #[serde(flatten)]
    pub at: At,
}

/// Data of `approvals_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalsList {
    /// As asked.
    pub request_id: String,
    /// Those that wait, the oldest first.
    pub approvals: Vec<ApprovalRequired>,
}

/// Data of `queue_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// As asked.
    pub request_id: String,
    /// Those that wait, in the order in which they will run.
    pub queue: Vec<Queued>,
}

/// An injection that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queued {
    /// The injection.
    #[serde(flatten)]
    pub injection: Injection,
    /// Its first line.
    pub title: String,
}

/// Data of `subscribed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribed {
    /// As asked.
    pub request_id: String,
    /// Everything after this follows.
    pub from_seq: u64,
    /// Only of these jobs; of all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
}

/// Data of `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// How many jobs run.
    pub jobs: usize,
    /// How many turns run.
    pub busy: usize,
}

/// Data of `cut_off`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CutOff {
    /// Why.
    pub reason: String,
    /// What to subscribe from.
    pub resume_from: u64,
}

/// Data of `swarm_launched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmLaunched {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
    /// How many nodes.
    pub node_count: usize,
}

/// Data of `swarm_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmList {
    /// As asked.
    pub request_id: String,
    /// The jobs by their ids.
    pub swarms: BTreeMap<String, JobInfo>,
}

/// Data of `swarm_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmStatus {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
    /// How many nodes.
    pub node_count: usize,
    /// `running` or `terminated`.
    pub status: String,
}

/// Data of `swarm_terminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmTerminated {
    /// As asked.
    pub request_id: String,
    /// The job.
    pub swarm_id: String,
    /// The job.
    pub job_id: String,
}

impl EventBody {
    /// The job it is about, where it is about one.
    pub fn job(&self) -> Option<&str> {
        Some(match self {
            Self::InjectAck(data) | Self::InjectDelivered(data) => &data.at.job_id,
            Self::InjectFailed(data) => &data.injection.at.job_id,
            Self::TurnStarted(at) => &at.job_id,
            Self::AssistantDelta(data) | Self::ReasoningDelta(data) | Self::Assistant(data) => {
                &data.at.job_id
            }
            Self::Usage(data) => &data.at.job_id,
            Self::TurnComplete(data) => &data.at.job_id,
            Self::CommandStarted(data) => &data.at.job_id,
            Self::CommandCompleted(data) => &data.at.job_id,
            Self::FileChange(data) => &data.at.job_id,
            Self::ApprovalRequired(data) => &data.at.job_id,
            Self::ApprovalResolved(data) => &data.at.job_id,
            Self::AgentError(data) => &data.node.job_id,
            Self::NodeStatus(data) => &data.node.job_id,
            Self::WorkerExited(data) => &data.node.job_id,
            Self::JobLaunched(data) => &data.job.job_id,
            Self::JobTerminated(data) => &data.job_id,
            Self::BudgetExceeded(data) => &data.job_id,
            Self::JobStatus(data) => &data.job.job_id,
            Self::InterruptAck(data) | Self::SteerAck(data) => &data.at.job_id,
            Self::SwarmLaunched(data) => &data.job_id,
            Self::SwarmStatus(data) => &data.job_id,
            Self::SwarmTerminated(data) => &data.job_id,
            Self::Hello(_)
            | Self::CommandRejected(_)
            | Self::JobsList(_)
            | Self::ApprovalsList(_)
            | Self::QueueList(_)
            | Self::Subscribed(_)
            | Self::Heartbeat(_)
            | Self::CutOff(_)
            | Self::SwarmList(_) => return None,
        })
    }
}
