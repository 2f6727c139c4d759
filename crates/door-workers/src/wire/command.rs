//! Commands of section 2 of the protocol, with extensions.

mod legacy;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use self::legacy::*;

/// A command of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Identifies the client and queries the router's features.
    Hello(Hello),
    /// Sends a prompt to nodes.
    Inject(Inject),
    /// Starts a job.
    Launch(Box<Launch>),
    /// Lists the jobs.
    JobsList(EmptyPayload),
    /// Returns the state of a job.
    JobStatus(JobRef),
    /// Terminates a job and its processes.
    Terminate(JobRef),
    /// Interrupts the turn that runs on a node.
    Interrupt(NodeRef),
    /// Adds text to the turn that runs on a node.
    Steer(Steer),
    /// Decides an approval.
    Approve(Approve),
    /// Lists the open approvals.
    ApprovalsList(JobFilter),
    /// Lists the queued injections.
    QueueList(JobFilter),
    /// Subscribes to events.
    Subscribe(Subscribe),
    /// Lists the launch options for clients of the legacy dialect.
    ProvidersList(EmptyPayload),
    /// Lists the projects of the legacy router: always none.
    ProjectList(EmptyPayload),
}

/// A parsed command with its request id and dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The client's id for this command, echoed in every answer.
    pub request_id: String,
    /// The command.
    pub command: Command,
    /// True if the command uses the legacy dialect. Only the session reads it.
    pub is_legacy: bool,
}

/// Commands without a payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyPayload {}

/// Payload of `hello`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// A client name that persists across connections: request ids then count across connections as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The agent that sends the client's injections; default `orchestrator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The token, if the router listens on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Payload of `inject`.
///
/// `job_id` and `node_id` follow section 2.1; `swarm_id` and `nodes` come from the legacy dialect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inject {
    /// The job.
    #[serde(alias = "swarm_id")]
    pub job_id: String,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeNumber>,
    /// Several nodes; each gets an injection of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// The prompt.
    pub content: String,
}

/// The number of a node, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct NodeNumber(pub u32);

impl<'de> Deserialize<'de> for NodeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeNumberVisitor)
    }
}

struct NodeNumberVisitor;

impl Visitor<'_> for NodeNumberVisitor {
    type Value = NodeNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer, 0 or more")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<NodeNumber, E> {
        let known = u32::try_from(number).map(NodeNumber);
        known.map_err(|_| E::custom(format_args!("no job has a node with the integer `{number}`")))
    }
}

/// Selected nodes: one, several, or `"all"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected an integer, 0 or more, a list of them, or \"all\"")]
pub enum Nodes {
    /// One node.
    One(NodeNumber),
    /// Several nodes.
    Some(Vec<NodeNumber>),
    /// All nodes of the job.
    All(AllNodes),
}

/// The value `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllNodes {
    /// The value `all`.
    All,
}

/// Payload of `launch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// The agent to run on each node.
    pub agent: AgentKind,
    /// How many nodes, 1 to 64.
    #[serde(default = "default_count")]
    pub nodes: u32,
    /// The job id; default: a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Agent name of the nodes in the hub: `name`, or `name-0`, `name-1` … for several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A first injection for every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Standing instructions, for agents that support them.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "system_prompt")]
    pub instructions: Option<String>,
    /// The working folder; default: the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether the nodes share the working folder.
    #[serde(default)]
    pub folders: Folders,
    /// The program, if not the agent's default; for `command`, the program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// Arguments in front of the router's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables to inherit from the router's environment, by name or as `PREFIX_*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_allow: Vec<String>,
    /// The model, for agents that support a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sandbox mode in the agent's terms, for example `workspace-write` of Codex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Approval policy in the agent's terms, for example `untrusted` of Codex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
    /// Policy for the agent's questions.
    #[serde(default)]
    pub approvals: Approvals,
    /// How a `command` receives its prompt.
    #[serde(default)]
    pub input: Input,
    /// Time limits and token budget.
    #[serde(default, deserialize_with = "object")]
    pub limits: Limits,
    /// Settings of `echo`.
    #[serde(default, deserialize_with = "object")]
    pub echo: Echo,
}

/// Deserializes an object and rejects a list. Serde alone would also accept a list of the field values.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

fn default_count() -> u32 {
    1
}

/// Agent that runs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentKind {
    /// Codex through `codex app-server`.
    Codex,
    /// Codex through `codex exec --json`: one process per turn, no approvals.
    CodexExec,
    /// Claude Code through stream-json.
    Claude,
    /// Any program that speaks the Agent Client Protocol; `program` names it.
    Acp,
    /// Gemini CLI through the Agent Client Protocol.
    Gemini,
    /// OpenCode through the Agent Client Protocol.
    Opencode,
    /// Goose through the Agent Client Protocol.
    Goose,
    /// Any program: one process per turn, whose output is the answer.
    Command,
    /// Returns its prompt as the answer. For tests and measurements.
    Echo,
}

impl AgentKind {
    /// All agents.
    pub const ALL: [Self; 9] = [
        Self::Codex,
        Self::CodexExec,
        Self::Claude,
        Self::Acp,
        Self::Gemini,
        Self::Opencode,
        Self::Goose,
        Self::Command,
        Self::Echo,
    ];

    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::CodexExec => "codex-exec",
            Self::Claude => "claude",
            Self::Acp => "acp",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Goose => "goose",
            Self::Command => "command",
            Self::Echo => "echo",
        }
    }

    /// Returns the agent with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Working folders of a job's nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Folders {
    /// All nodes share one folder.
    #[default]
    Shared,
    /// Each node has an empty folder.
    PerNode,
    /// Each node has a git worktree at the checked-out commit.
    Worktree,
}

/// Policy for the questions of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approvals {
    /// A client decides; on timeout, the question is declined.
    #[default]
    Ask,
    /// Every question is declined.
    Deny,
    /// Every question is accepted.
    Allow,
}

/// How a `command` receives its prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// On stdin, which is then closed.
    #[default]
    Stdin,
    /// As the last argument.
    Argument,
}

/// Time limits and token budget of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Time limit of a turn in seconds; default 1800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_seconds: Option<u32>,
    /// Time limit in seconds for the agent to accept a prompt; default 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_seconds: Option<u32>,
    /// Seconds until an open question is declined; default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_seconds: Option<u32>,
    /// Token budget of the job; when it is used up, the router accepts no further injections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Whether a turn that exceeds the budget is interrupted; by default it may finish.
    #[serde(default)]
    pub interrupt_over_budget: bool,
}

/// Settings of `echo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Echo {
    /// Number of deltas per turn.
    #[serde(default = "default_count")]
    pub deltas: u32,
    /// Duration of a turn in milliseconds.
    #[serde(default)]
    pub millis: u32,
}

impl Default for Echo {
    fn default() -> Self {
        Self { deltas: 1, millis: 0 }
    }
}

/// Reference to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobRef {
    /// The job.
    #[serde(alias = "swarm_id")]
    pub job_id: String,
}

/// Filter for one job or all jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobFilter {
    /// The job; default: all jobs.
    #[serde(default, alias = "swarm_id", skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// Reference to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRef {
    /// The job.
    #[serde(alias = "swarm_id")]
    pub job_id: String,
    /// The node.
    pub node_id: NodeNumber,
}

/// Payload of `steer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steer {
    /// The job.
    #[serde(alias = "swarm_id")]
    pub job_id: String,
    /// The node.
    pub node_id: NodeNumber,
    /// The text to add.
    pub content: String,
}

/// Payload of `approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approve {
    /// The approval id from `approval_required`.
    #[serde(alias = "call_id")]
    pub approval_id: String,
    /// The decision.
    pub decision: Decision,
}

/// Decision on an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Accept.
    #[serde(alias = "approved", alias = "approve")]
    Accept,
    /// Accept, and accept similar questions until the session ends, if the agent supports it.
    AcceptForSession,
    /// Decline; the turn continues.
    #[serde(alias = "denied", alias = "deny")]
    Decline,
    /// Decline and end the turn.
    #[serde(alias = "abort")]
    Cancel,
}

impl Decision {
    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AcceptForSession => "accept_for_session",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }

    /// Returns true if the decision allows the agent's action.
    pub fn is_approval(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptForSession)
    }
}

/// Payload of `subscribe`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribe {
    /// The last `seq` that the client has: events after it follow. Default: events from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<u64>,
    /// The jobs to subscribe to; default: all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
}
