//! Commands, section 2, and the ones that were added.

mod legacy;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use self::legacy::*;

/// What a client can ask for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Says who the client is, and asks what the router can do.
    Hello(Hello),
    /// Gives prompts to nodes.
    Inject(Inject),
    /// Starts a job.
    Launch(Box<Launch>),
    /// Lists the jobs.
    JobsList(EmptyPayload),
    /// Asks how a job is.
    JobStatus(JobRef),
    /// Ends a job and its processes.
    Terminate(JobRef),
    /// Ends the turn that runs on a node.
    Interrupt(NodeRef),
    /// Adds to the turn that runs on a node.
    Steer(Steer),
    /// Answers an approval.
    Approve(Approve),
    /// Lists the approvals that wait.
    ApprovalsList(JobFilter),
    /// Lists the injections that wait.
    QueueList(JobFilter),
    /// Says which events are wanted, and from where on.
    Subscribe(Subscribe),
    /// Lists what the older router's clients may launch.
    ProvidersList(EmptyPayload),
    /// Lists the older router's projects, of which there are none.
    ProjectList(EmptyPayload),
}

/// Who asks, and in which dialect the answer has to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The client's word for this command, echoed in every answer.
    pub request_id: String,
    /// What is asked for.
    pub command: Command,
    /// Whether it came in the words of the older router, and is answered in them as well.
    pub dialect: bool,
}

/// Commands without a payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyPayload {}

/// Payload of `hello`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// A name under which the client comes back: with it, a `request_id` counts across connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The agent that injections are from; `orchestrator` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The token, where the router listens on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Payload of `inject`.
///
/// `job_id` and `node_id` as section 2.1 has them; `swarm_id` and `nodes` are the older router's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inject {
    /// The job.
    #[serde(alias = "swarm_id")]
    pub job_id: String,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeNumber>,
    /// Several nodes, each of which gets an injection of its own.
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
        f.write_str("an integer from 0")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<NodeNumber, E> {
        let known = u32::try_from(number).map(NodeNumber);
        known.map_err(|_| E::custom(format_args!("no job has a node with the integer `{number}`")))
    }
}

/// Which nodes: one, several, or `"all"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected an integer from 0, a list of them, or \"all\"")]
pub enum Nodes {
    /// One.
    One(NodeNumber),
    /// Several.
    Some(Vec<NodeNumber>),
    /// All of the job.
    All(AllNodes),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllNodes {
    /// The word `all`.
    All,
}

/// Payload of `launch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// What to run on each node.
    pub agent: AgentKind,
    /// How many nodes, 1 to 64.
    #[serde(default = "one")]
    pub nodes: u32,
    /// The job's id; without it the router chooses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// What the nodes are called as agents of the hub: `name`, or `name-0`, `name-1` … for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A first injection for every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Standing instructions, for agents that take them.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "system_prompt")]
    pub instructions: Option<String>,
    /// The folder to work in; the workspace without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether the nodes share that folder.
    #[serde(default)]
    pub folders: Folders,
    /// The program, where it is not the agent's usual one; for `command` the program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// Arguments that come before the ones the router gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables of the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables that it gets from the router's own environment, by name or as `PREFIX_*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_allow: Vec<String>,
    /// The model, for agents that let it be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent's own word for what it may do unasked, for instance `workspace-write` of Codex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The agent's own word for when it asks, for instance `untrusted` of Codex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
    /// What becomes of the questions that an agent asks.
    #[serde(default)]
    pub approvals: Approvals,
    /// How a `command` gets its prompt.
    #[serde(default)]
    pub input: Input,
    /// Time-outs.
    #[serde(default, deserialize_with = "object")]
    pub limits: Limits,
    /// How `echo` answers.
    #[serde(default, deserialize_with = "object")]
    pub echo: Echo,
}

/// Reads an object as its type. By itself the type would take a list of its values as well.
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

fn one() -> u32 {
    1
}

/// What runs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentKind {
    /// Codex, by `codex app-server`.
    Codex,
    /// Codex, by `codex exec --json`: one process a turn, no questions.
    CodexExec,
    /// Claude Code, by stream-json.
    Claude,
    /// Any program that speaks the Agent Client Protocol; `program` says which.
    Acp,
    /// Gemini CLI, by the Agent Client Protocol.
    Gemini,
    /// OpenCode, by the Agent Client Protocol.
    Opencode,
    /// Goose, by the Agent Client Protocol.
    Goose,
    /// Any program: one process a turn, its output is the answer.
    Command,
    /// Answers with what it was asked. For tests and measurements.
    Echo,
}

impl AgentKind {
    /// All of them.
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

    /// The word for it.
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

    /// The agent with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Where the nodes of a job work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Folders {
    /// All in the same folder.
    #[default]
    Shared,
    /// Each in an empty folder of its own.
    PerNode,
    /// Each in a git worktree of its own, at the commit that is checked out.
    Worktree,
}

/// What becomes of the questions that an agent asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approvals {
    /// A client decides; nobody does in time and the answer is no.
    #[default]
    Ask,
    /// The answer is always no.
    Deny,
    /// The answer is always yes.
    Allow,
}

/// How a `command` gets its prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// On its stdin, which then ends.
    #[default]
    Stdin,
    /// As its last argument.
    Argument,
}

/// Time-outs and budgets of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// How many seconds a turn may take; 1800 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_seconds: Option<u32>,
    /// How many seconds the agent may take to accept a prompt; 60 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_seconds: Option<u32>,
    /// How many seconds a question waits before the answer is no; 600 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_seconds: Option<u32>,
    /// How many tokens the job may use; then no injection is taken any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Whether a turn that runs over the budget is interrupted; otherwise it may end.
    #[serde(default)]
    pub interrupt_over_budget: bool,
}

/// How `echo` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Echo {
    /// How many deltas a turn has.
    #[serde(default = "one")]
    pub deltas: u32,
    /// How long a turn takes.
    #[serde(default)]
    pub millis: u32,
}

impl Default for Echo {
    fn default() -> Self {
        Self { deltas: 1, millis: 0 }
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobRef {
    /// The job.
    #[serde(alias = "swarm_id")]
    pub job_id: String,
}

/// One job, or all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobFilter {
    /// The job; all of them without it.
    #[serde(default, alias = "swarm_id", skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// A node.
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
    /// What to add.
    pub content: String,
}

/// Payload of `approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approve {
    /// Which approval, from `approval_required`.
    #[serde(alias = "call_id")]
    pub approval_id: String,
    /// The answer.
    pub decision: Decision,
}

/// The answer to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes.
    #[serde(alias = "approved", alias = "approve")]
    Accept,
    /// Yes, and to its like until the session ends, where the agent knows such an answer.
    AcceptForSession,
    /// No; the turn goes on.
    #[serde(alias = "denied", alias = "deny")]
    Decline,
    /// No; the turn ends.
    #[serde(alias = "abort")]
    Cancel,
}

impl Decision {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AcceptForSession => "accept_for_session",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }

    /// Whether it lets the agent do what it asked for.
    pub fn is_approval(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptForSession)
    }
}

/// Payload of `subscribe`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribe {
    /// The last `seq` that the client has: events after it follow. From now on without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<u64>,
    /// Only these jobs; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
}
