//! Events, sections 3 to 6, and the ones that were added.

mod job;
mod legacy;
mod reply;
mod turn;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::job::*;
pub use self::legacy::*;
pub use self::reply::*;
pub use self::turn::*;

/// What the router says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum EventBody {
    /// The answer to `hello`.
    Hello(HelloReply),
    /// A line was not understood, or what it asks for is not possible.
    CommandRejected(CommandRejected),
    /// An injection is in the journal, on disk.
    InjectAck(Injection),
    /// The agent has accepted an injection.
    InjectDelivered(Injection),
    /// The agent will not get an injection.
    InjectFailed(InjectFailed),
    /// A turn has begun.
    TurnStarted(InjectionRef),
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
    /// The agent has begun a turn of its own, which no injection asked for.
    OwnTurnStarted(InjectionRef),
    /// The agent's own turn is over.
    OwnTurnComplete(OwnTurnComplete),
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
    JobStatus(JobStatusReply),
    /// The answer to `interrupt`: the agent was asked to stop.
    InterruptAck(InjectionReply),
    /// The answer to `steer`: the agent has it.
    SteerAck(InjectionReply),
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
    /// The answer to `providers_list` of the older router.
    ProvidersList(ProvidersList),
    /// The answer to `project_list` of the older router.
    ProjectList(ProjectList),
}

/// Where something happens: all runtime events have these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectionRef {
    /// The job.
    pub job_id: String,
    /// The job once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// The node.
    pub node_id: u32,
    /// The injection; in a turn that the agent began itself, the turn's own id, `own_…`.
    pub injection_id: String,
}

/// Which job and node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventNode {
    /// The job.
    pub job_id: String,
    /// The job once more, for those who launched it in the older router's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm_id: Option<String>,
    /// The node.
    pub node_id: u32,
}

impl EventBody {
    /// The job it is about, where it is about one.
    pub fn job(&self) -> Option<&str> {
        Some(match self {
            Self::InjectAck(data) | Self::InjectDelivered(data) => &data.at.job_id,
            Self::InjectFailed(data) => &data.injection.at.job_id,
            Self::TurnStarted(at) | Self::OwnTurnStarted(at) => &at.job_id,
            Self::OwnTurnComplete(data) => &data.at.job_id,
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
            Self::Hello(_)
            | Self::CommandRejected(_)
            | Self::JobsList(_)
            | Self::ApprovalsList(_)
            | Self::QueueList(_)
            | Self::Subscribed(_)
            | Self::Heartbeat(_)
            | Self::CutOff(_)
            | Self::ProvidersList(_)
            | Self::ProjectList(_) => return None,
        })
    }
}
