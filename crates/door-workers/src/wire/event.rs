//! Events of sections 3 to 6 of the protocol, with extensions.

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

/// An event of the router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum EventBody {
    /// Answer to `hello`.
    Hello(HelloReply),
    /// The router rejected a line or a command.
    CommandRejected(CommandRejected),
    /// The journal has an injection, on disk.
    InjectAck(Injection),
    /// The agent has accepted an injection.
    InjectDelivered(Injection),
    /// The agent will not receive an injection.
    InjectFailed(InjectFailed),
    /// A turn has started.
    TurnStarted(InjectionRef),
    /// A delta of the answer.
    AssistantDelta(Text),
    /// A delta of the agent's reasoning.
    ReasoningDelta(Text),
    /// The full answer.
    Assistant(Text),
    /// Token usage of the turn.
    Usage(Usage),
    /// The turn has ended. Every acknowledged injection has exactly one.
    TurnComplete(TurnComplete),
    /// The agent has started a turn of its own, without an injection.
    OwnTurnStarted(InjectionRef),
    /// The agent's own turn has ended.
    OwnTurnComplete(OwnTurnComplete),
    /// The agent has started a command.
    CommandStarted(CommandStarted),
    /// A command of the agent has ended.
    CommandCompleted(CommandCompleted),
    /// The agent has changed files, or is about to.
    FileChange(FileChange),
    /// The agent asks for an approval.
    ApprovalRequired(ApprovalRequired),
    /// An approval was decided.
    ApprovalResolved(ApprovalResolved),
    /// The agent reported an error; the end of the turn shows its effect.
    AgentError(AgentError),
    /// The state of a node changed.
    NodeStatus(NodeStatus),
    /// The worker process of a node has exited.
    WorkerExited(WorkerExited),
    /// A job was launched.
    JobLaunched(JobLaunched),
    /// A job was terminated.
    JobTerminated(JobTerminated),
    /// A job has exceeded its token budget.
    BudgetExceeded(BudgetExceeded),
    /// Answer to `jobs_list`.
    JobsList(JobsList),
    /// Answer to `job_status`.
    JobStatus(JobStatusReply),
    /// Answer to `interrupt`: the agent was asked to stop.
    InterruptAck(InjectionReply),
    /// Answer to `steer`: the agent has accepted the text.
    SteerAck(InjectionReply),
    /// Answer to `approvals_list`.
    ApprovalsList(ApprovalsList),
    /// Answer to `queue_list`.
    QueueList(QueueList),
    /// Answer to `subscribe`.
    Subscribed(Subscribed),
    /// Sign of life of an idle router.
    Heartbeat(Heartbeat),
    /// Last line before the router disconnects a client.
    CutOff(CutOff),
    /// Answer to `providers_list` of the legacy dialect.
    ProvidersList(ProvidersList),
    /// Answer to `project_list` of the legacy dialect.
    ProjectList(ProjectList),
}

/// Job, node and injection of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectionRef {
    /// The job.
    pub job_id: String,
    /// The node.
    pub node_id: u32,
    /// The injection id; in a turn that the agent started itself, the turn's own id `own_…`.
    pub injection_id: String,
}

/// Job and node of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventNode {
    /// The job.
    pub job_id: String,
    /// The node.
    pub node_id: u32,
}

impl EventBody {
    /// Returns the job of the event, if it has one.
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
