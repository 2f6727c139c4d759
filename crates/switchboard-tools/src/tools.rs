//! Tool definitions: names, descriptions and profiles.

mod clipboard;
mod history;
mod inbox;
mod mail;
mod people;
mod teams;
mod terminals;
mod wait;
mod work;
mod workflows;

use std::sync::LazyLock;

use door_workspace::{EXECUTE, SendPermit, Snapshot, Workspace};
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use switchboard_actions::Actor;
use switchboard_core::{AgentId, suggest_similar};
use switchboard_mcp::{Caller, Transport};

pub(super) use self::people::{client_name, roster};
use super::answer::{Outcome, ToolError};
use super::arguments::{read, schema};
use super::session::Session;

/// Which tools are listed. Fewer cost fewer tokens in every conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Profile {
    /// No tools, for a client that only uses other parts of the server.
    None,
    /// Tools to read and answer mail.
    Minimal,
    /// Tools for mail, agents and teams.
    Messaging,
    /// Workflows and terminals as well.
    #[default]
    Full,
}

impl Profile {
    /// All profiles, each with its name in the configuration.
    pub const ALL: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("minimal", Self::Minimal),
        ("messaging", Self::Messaging),
        ("full", Self::Full),
    ];

    /// Returns the profile's name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, profile)| *profile == self).map_or("full", |(name, _)| name)
    }

    /// Returns the profile with this name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, profile)| *profile)
    }
}

/// Effect of a tool, for clients that ask before some calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Read-only.
    Reads,
    /// Adds something: a message, an agent.
    Adds,
    /// May end or replace something.
    Changes,
}

/// A tool and its profile.
struct ListedTool {
    profile: Profile,
    tool: Tool,
}

/// All tools in listing order. The order never changes, because clients compare the lists.
static TOOLS: LazyLock<Vec<ListedTool>> = LazyLock::new(|| {
    use Effect::{Adds, Changes, Reads};
    use Profile::{Full, Messaging, Minimal};
    vec![
        listed::<mail::SendMessage>(Minimal, Adds, "send_message", mail::SEND_MESSAGE),
        listed::<inbox::CheckInbox>(Minimal, Reads, "check_inbox", inbox::CHECK_INBOX),
        listed::<inbox::AckMessage>(Minimal, Changes, "ack_message", inbox::ACK_MESSAGE),
        listed::<wait::WaitForMessage>(Minimal, Reads, "wait_for_message", wait::WAIT_FOR_MESSAGE),
        listed::<people::RegisterChatAgent>(
            Minimal,
            Adds,
            "register_chat_agent",
            people::REGISTER_CHAT_AGENT,
        ),
        listed::<people::GetTeamRoster>(Minimal, Reads, "get_team_roster", people::GET_TEAM_ROSTER),
        listed::<mail::SendTeamMessage>(Messaging, Adds, "send_team_message", mail::SEND_TEAM_MESSAGE),
        listed::<history::GetReceipt>(Messaging, Reads, "get_receipt", history::GET_RECEIPT),
        listed::<history::SearchMessages>(Messaging, Reads, "search_messages", history::SEARCH_MESSAGES),
        listed::<people::SetAgentStatus>(Messaging, Adds, "set_agent_status", people::SET_AGENT_STATUS),
        listed::<people::RegisterTerminal>(Messaging, Adds, "register_terminal", people::REGISTER_TERMINAL),
        listed::<teams::CreateTeam>(Messaging, Adds, "create_team", teams::CREATE_TEAM),
        listed::<teams::AssignToTeam>(Messaging, Changes, "assign_to_team", teams::ASSIGN_TO_TEAM),
        listed::<teams::AssignRole>(Messaging, Changes, "assign_role", teams::ASSIGN_ROLE),
        listed::<work::ClaimTask>(Messaging, Adds, "claim_task", work::CLAIM_TASK),
        listed::<work::RenewClaim>(Messaging, Adds, "renew_claim", work::RENEW_CLAIM),
        listed::<work::ReleaseClaim>(Messaging, Adds, "release_claim", work::RELEASE_CLAIM),
        listed::<work::ReserveFiles>(Messaging, Adds, "reserve_files", work::RESERVE_FILES),
        listed::<workflows::StartWorkflow>(Full, Changes, "start_workflow", workflows::START_WORKFLOW),
        listed::<workflows::GetWorkflowState>(
            Full,
            Reads,
            "get_workflow_state",
            workflows::GET_WORKFLOW_STATE,
        ),
        listed::<workflows::CompleteWorkflowPhase>(
            Full,
            Changes,
            "complete_workflow_phase",
            workflows::COMPLETE_PHASE,
        ),
        listed::<workflows::StopWorkflow>(Full, Changes, "stop_workflow", workflows::STOP_WORKFLOW),
        listed::<terminals::RunInTerminal>(Full, Changes, "run_in_terminal", terminals::RUN_IN_TERMINAL),
        listed::<clipboard::HandoffClipboard>(
            Full,
            Changes,
            "handoff_clipboard",
            clipboard::HANDOFF_CLIPBOARD,
        ),
    ]
});

fn listed<T: JsonSchema + 'static>(
    profile: Profile,
    effect: Effect,
    name: &'static str,
    description: &'static str,
) -> ListedTool {
    let annotations = match effect {
        Effect::Reads => ToolAnnotations::new().read_only(true),
        Effect::Adds => ToolAnnotations::new().destructive(false),
        Effect::Changes => ToolAnnotations::new(),
    };
    let tool = Tool::new(name, description, schema::<T>());
    ListedTool {
        profile,
        tool: if effect == Effect::Changes { tool } else { tool.with_annotations(annotations) },
    }
}

/// Returns the names of all tools, including those that the profile does not list.
pub fn tool_names() -> impl Iterator<Item = String> {
    TOOLS.iter().map(|listed| listed.tool.name.to_string())
}

/// Returns the tools that a profile lists.
pub fn list_tools(profile: Profile) -> Vec<Tool> {
    TOOLS.iter().filter(|listed| listed.profile <= profile).map(|listed| listed.tool.clone()).collect()
}

/// Returns a tool by name, if the profile lists it.
pub(super) fn find(profile: Profile, name: &str) -> Option<&'static Tool> {
    let listed = TOOLS.iter().find(|listed| listed.tool.name == name && listed.profile <= profile);
    listed.map(|listed| &listed.tool)
}

/// Returns true if a tool can set the agent of the session.
pub fn registers_agent(name: &str) -> bool {
    matches!(name, "register_chat_agent" | "register_terminal" | "set_agent_status")
}

/// Returns true if a tool only sends messages.
///
/// Such a tool changes neither the caller's mailbox nor a workflow.
pub(super) fn only_sends(name: &str) -> bool {
    matches!(name, "send_message" | "send_team_message")
}

/// Returns true if a call waits for nothing but the disk.
///
/// The response then needs no event stream.
pub fn is_immediate(name: &str) -> bool {
    let waits = matches!(
        name,
        "wait_for_message"
            | "claim_task"
            | "renew_claim"
            | "release_claim"
            | "run_in_terminal"
            | "handoff_clipboard"
    );
    !waits && TOOLS.iter().any(|listed| listed.tool.name == name)
}

/// Returns true if a tool lists the caller's inbox.
pub(super) fn lists_inbox(name: &str) -> bool {
    name == "check_inbox"
}

/// Returns the other tool whose permission a call also needs.
///
/// An `execute` message is typed into a terminal, so it needs the permission for `run_in_terminal`.
pub(super) fn equivalent_tool(name: &str, arguments: Option<&JsonObject>) -> Option<&'static str> {
    let action = arguments?.get("action")?.as_str()?;
    (only_sends(name) && action == EXECUTE).then_some("run_in_terminal")
}

/// Returns the name of a tool's idempotency key argument.
pub fn idempotency_argument(name: &str) -> Option<&'static str> {
    only_sends(name).then_some("idempotencyKey")
}

/// Returns true if a call may be retried after an unknown outcome.
///
/// Such a tool is read-only, deduplicated by an idempotency key, or idempotent.
pub fn is_idempotent(name: &str) -> bool {
    let Some(listed) = TOOLS.iter().find(|listed| listed.tool.name == name) else { return false };
    let only_looks = listed.tool.annotations.as_ref().is_some_and(|known| known.read_only_hint == Some(true));
    only_looks || registers_agent(name) || idempotency_argument(name).is_some() || name == "ack_message"
}

/// Builds the error for a tool that is unknown or disabled by the profile.
pub(super) fn unknown_tool(profile: Profile, name: &str) -> ToolError {
    if TOOLS.iter().any(|listed| listed.tool.name == name) {
        return ToolError::new(format!("The tool '{name}' is disabled here"))
            .next("The setting tools.profile in switchboard.config.json enables it.");
    }
    let names =
        || TOOLS.iter().filter(|listed| listed.profile <= profile).map(|listed| listed.tool.name.as_ref());
    let problem = ToolError::new(format!("There is no tool '{}'", name.escape_debug()));
    match suggest_similar(name, names()).first() {
        Some(near) => problem.next(format!("Did you mean '{near}'?")),
        None => problem.next(format!("The tools are {}.", names().collect::<Vec<_>>().join(", "))),
    }
}

/// Context of a tool call.
pub(super) struct ToolContext<'c> {
    pub(super) workspace: &'c Workspace,
    pub(super) session: &'c Session,
    pub(super) caller: &'c Caller,
    pub(super) request: &'c RequestContext<RoleServer>,
    /// The agent of the call.
    pub(super) agent: Option<&'c AgentId>,
    /// The directory and `state.json` at the start of the call.
    pub(super) now: &'c Snapshot,
    /// Permit of a sending call, until its message is queued.
    pub(super) permit: Mutex<Option<SendPermit>>,
}

impl ToolContext<'_> {
    /// Returns the calling agent.
    ///
    /// Returns an error if the session has no agent, because it then can neither receive nor send messages.
    pub(super) fn me(&self) -> Result<&AgentId, ToolError> {
        self.agent.ok_or_else(|| {
            let problem = ToolError::new("This session speaks for no agent yet");
            let header = switchboard_mcp::AGENT_HEADER;
            match self.caller.transport {
                Transport::Stdio => problem.next(
                    "Call register_chat_agent with a name first, or set SWITCHBOARD_AGENT_NAME for the client.",
                ),
                Transport::Stateless => {
                    problem.next(format!("Set the header '{header}: NAME' in the client's configuration."))
                }
                Transport::StreamableHttp | Transport::Sse => problem.next(format!(
                    "Call register_chat_agent with a name first, or set the header '{header}: NAME' for the client."
                )),
            }
        })
    }

    /// Returns the actor of the call, for an agent that has already been checked.
    pub(super) fn actor<'a>(&'a self, agent: &'a AgentId) -> Actor<'a> {
        Actor::new(self.workspace, agent)
    }

    /// Checks that an argument which names the caller matches the session's agent.
    pub(super) fn require_self(&self, sender: Option<&str>, argument: &str) -> Result<AgentId, ToolError> {
        let me = self.me()?.clone();
        let Some(sender) = sender else { return Ok(me) };
        let named: AgentId = sender.parse()?;
        let directory = &self.now.directory;
        if directory.canonical(&named) == directory.canonical(&me) {
            return Ok(me);
        }
        Err(ToolError::new(format!("This session speaks for '{me}', not for '{named}'"))
            .next(format!("Leave '{argument}' out, or use the session of '{named}'.")))
    }
}

/// Calls a tool by name.
pub(super) async fn call(ctx: &ToolContext<'_>, name: &str, arguments: Option<JsonObject>) -> Outcome {
    match name {
        "send_message" => mail::send_message(ctx, read(arguments)?).await,
        "check_inbox" => inbox::check_inbox(ctx, read(arguments)?).await,
        "ack_message" => inbox::ack_message(ctx, read(arguments)?).await,
        "wait_for_message" => wait::wait_for_message(ctx, read(arguments)?).await,
        "register_chat_agent" => people::register_chat_agent(ctx, read(arguments)?).await,
        "get_team_roster" => people::get_team_roster(ctx, read(arguments)?).await,
        "send_team_message" => mail::send_team_message(ctx, read(arguments)?).await,
        "get_receipt" => history::get_receipt(ctx, read(arguments)?).await,
        "search_messages" => history::search_messages(ctx, read(arguments)?).await,
        "set_agent_status" => people::set_agent_status(ctx, read(arguments)?).await,
        "register_terminal" => people::register_terminal(ctx, read(arguments)?).await,
        "create_team" => teams::create_team(ctx, read(arguments)?).await,
        "assign_to_team" => teams::assign_to_team(ctx, read(arguments)?).await,
        "assign_role" => teams::assign_role(ctx, read(arguments)?).await,
        "claim_task" => work::claim_task(ctx, read(arguments)?).await,
        "renew_claim" => work::renew_claim(ctx, read(arguments)?).await,
        "release_claim" => work::release_claim(ctx, read(arguments)?).await,
        "reserve_files" => work::reserve_files(ctx, read(arguments)?).await,
        "start_workflow" => workflows::start_workflow(ctx, read(arguments)?).await,
        "get_workflow_state" => workflows::get_workflow_state(ctx, read(arguments)?).await,
        "complete_workflow_phase" => workflows::complete_phase(ctx, read(arguments)?).await,
        "stop_workflow" => workflows::stop_workflow(ctx, read(arguments)?).await,
        "run_in_terminal" => terminals::run_in_terminal(ctx, read(arguments)?).await,
        "handoff_clipboard" => clipboard::handoff_clipboard(ctx, read(arguments)?).await,
        other => Err(unknown_tool(Profile::Full, other)),
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
