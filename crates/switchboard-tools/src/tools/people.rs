//! Tools for registration, status and the roster.

use std::fmt::Write;

use door_workspace::state;
use door_workspace::{TerminalRegistration, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_actions as actions;
use switchboard_core::{AgentId, Name, PresenceState, label_inline, sanitize_inline, sanitize_value};

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const REGISTER_CHAT_AGENT: &str = "Register your name. Needed once per session before you can send or read mail, \
     unless your client is configured with a name.";

pub(super) const REGISTER_TERMINAL: &str = "Register an agent that runs in a terminal, with its process id. A session's \
     first registration also sets your own name.";

pub(super) const GET_TEAM_ROSTER: &str = "Everyone you can write to: agents with role, team, status and presence, and the \
     teams.";

pub(super) const SET_AGENT_STATUS: &str = "Publish what you are doing.";

/// Statuses by which an unknown agent registers itself.
const ANNOUNCING: [&str; 3] = ["active", "away", "planning"];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RegisterChatAgent {
    /// Your name: letters, digits, space, . _ -
    name: String,
    /// Your program, for example claude-code, codex, cursor.
    interface: Option<String>,
    /// Your capabilities.
    capabilities: Option<Vec<String>>,
    /// lead, coder 1, coder 2, reviewer, tester, researcher or execution.
    role: Option<String>,
    /// A name for people.
    friendly_name: Option<String>,
    /// A team to join.
    team: Option<String>,
}

pub(super) async fn register_chat_agent(ctx: &ToolContext<'_>, input: RegisterChatAgent) -> Outcome {
    let agent = canonical(ctx, &input.name).await?;
    let is_new = ctx.session.bind(&agent, ctx.caller, ctx.workspace.hub())?;
    let request = actions::RegisterAgent {
        name: agent.name.to_string(),
        interface: Some(input.interface.or_else(|| client(ctx)).unwrap_or_else(|| "unknown".to_owned())),
        capabilities: input.capabilities.unwrap_or_default(),
        role: input.role,
        friendly_name: input.friendly_name,
        team: input.team,
    };
    let registering = actions::register_agent(ctx.workspace, request).await;
    let record = unbind_on_failure(ctx, &agent, is_new, registering)
        .map_err(|error| ToolError::of("register_chat_agent", error))?;
    Ok(registered(&record))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RegisterTerminal {
    /// The agent's name: letters, digits, space, . _ -
    name: String,
    /// Process id of the terminal.
    pid: u32,
    /// Purpose, for example coding or review.
    purpose: String,
    /// lead, coder 1, coder 2, reviewer, tester, researcher or execution.
    role: Option<String>,
    /// A name for people.
    friendly_name: Option<String>,
    /// For hosts that show it: blue, orange …
    color: Option<String>,
    /// For hosts that show it: code, eye …
    icon: Option<String>,
    /// A team to join.
    team: Option<String>,
    /// The process is on another machine or in a container.
    external: Option<bool>,
    /// tmux pane to type into, for example %3.
    pane: Option<String>,
}

pub(super) async fn register_terminal(ctx: &ToolContext<'_>, input: RegisterTerminal) -> Outcome {
    let agent = canonical(ctx, &input.name).await?;
    let team = input.team.as_deref().map(Name::parse).transpose()?;
    let is_new = match ctx.agent {
        // A program may register terminals that it opened, but must not change the terminals of other agents.
        Some(me) if *me != agent => {
            if ctx.workspace.hub().directory().await?.agent(&agent).is_some() || agent.is_human() {
                return Err(ToolError::new(format!(
                    "'{agent}' is registered already, and this session speaks for '{me}'"
                ))
                .next("Choose another name for the terminal."));
            }
            false
        }
        _ => ctx.session.bind(&agent, ctx.caller, ctx.workspace.hub())?,
    };
    let mut registration = TerminalRegistration::new(agent.name.clone(), input.pid, input.purpose);
    registration.role = input.role;
    registration.friendly_name = input.friendly_name;
    registration.color = input.color;
    registration.icon = input.icon;
    registration.team = team;
    registration.external = input.external.unwrap_or(false);
    registration.pane = input.pane;
    let registering = ctx.workspace.register_terminal(registration).await;
    let record = unbind_on_failure(ctx, &agent, is_new, registering)?;
    Ok(registered(&record))
}

/// Unbinds the session from the agent if a registration failed.
fn unbind_on_failure<T, E>(
    ctx: &ToolContext<'_>,
    agent: &AgentId,
    is_new: bool,
    registering: Result<T, E>,
) -> Result<T, E> {
    if is_new && registering.is_err() {
        ctx.session.unbind(agent);
    }
    registering
}

fn registered(record: &switchboard_core::AgentRecord) -> Answer {
    let mut text = format!("Registered {}", record.id);
    if let Some(role) = &record.role {
        let _ = write!(text, ", role {role}");
    }
    if let Some(team) = &record.team {
        let _ = write!(text, ", team {team}");
    }
    text.push('.');
    let team = record.team.as_ref().map(Name::as_str);
    Answer::new(text, json!({ "name": record.id.to_string(), "role": record.role, "team": team }))
}

/// Returns the agent with this name, in canonical spelling.
async fn canonical(ctx: &ToolContext<'_>, name: &str) -> Result<AgentId, ToolError> {
    let agent = AgentId::local(Name::parse(name)?);
    Ok(ctx.workspace.hub().directory().await?.canonical(&agent))
}

/// Returns the client's name.
pub(crate) fn client_name(context: &rmcp::service::RequestContext<rmcp::RoleServer>) -> Option<String> {
    let named = context.peer.peer_info().map(|info| info.client_info.name.clone());
    named.filter(|name| !name.trim().is_empty())
}

fn client(ctx: &ToolContext<'_>) -> Option<String> {
    client_name(ctx.request)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetAgentStatus {
    /// working, thinking, idle, error, active, away …
    status: String,
    /// One line about it.
    message: Option<String>,
    /// Your own name; optional.
    name: Option<String>,
}

pub(super) async fn set_agent_status(ctx: &ToolContext<'_>, input: SetAgentStatus) -> Outcome {
    let status = input.status.trim();
    let of_tool = |error| ToolError::of("set_agent_status", error);
    let me = match (ctx.agent, input.name.as_deref()) {
        // The protocol lets an agent register by reporting its first status.
        (None, Some(name)) if ANNOUNCING.contains(&status) => {
            let agent = canonical(ctx, name).await?;
            let is_new = ctx.session.bind(&agent, ctx.caller, ctx.workspace.hub())?;
            if ctx.workspace.hub().directory().await?.agent(&agent).is_none() {
                let request = actions::RegisterAgent {
                    name: agent.name.to_string(),
                    interface: Some(client(ctx).unwrap_or_else(|| "unknown".to_owned())),
                    ..actions::RegisterAgent::default()
                };
                let registering = actions::register_agent(ctx.workspace, request).await;
                unbind_on_failure(ctx, &agent, is_new, registering).map_err(of_tool)?;
            }
            agent
        }
        _ => ctx.require_self(input.name.as_deref(), "name")?,
    };
    let request = actions::SetStatus { status: status.to_owned(), message: input.message.clone() };
    actions::set_status(ctx.workspace, me.name.as_str(), request).await.map_err(of_tool)?;
    let text = match &input.message {
        Some(message) => format!("{me} is {status}: {message}"),
        None => format!("{me} is {status}."),
    };
    Ok(Answer::new(text, json!({ "name": me.to_string(), "status": status, "message": input.message })))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetTeamRoster {}

pub(super) async fn get_team_roster(ctx: &ToolContext<'_>, _: GetTeamRoster) -> Outcome {
    roster(ctx.workspace, ctx.agent).await
}

/// Builds the roster as text and data, also for the resource `switchboard://roster`.
pub(crate) async fn roster(workspace: &Workspace, me: Option<&AgentId>) -> Outcome {
    let hub = workspace.hub();
    workspace.import_state().await?;
    let directory = hub.directory().await?;
    let known = workspace.read_state_json().await;
    let (claims, reservations) = (hub.claims().list().await?, hub.claims().reservations().await?);
    let (mut agents, mut lines) = (Map::new(), Vec::new());
    for agent in directory.agents() {
        let record = state::record(&known, &agent.id.name);
        let kind = if record.is_some_and(|record| record.contains_key("pid")) { "terminal" } else { "chat" };
        // Sanitize this text, because any program may have written it and every model reads it.
        let text =
            |key: &str| record.and_then(|record| state::text(record, key)).map(|text| sanitize_inline(&text));
        let presence = hub.agents().presence(&agent.id);
        // The caller is awake, even if it has no recorded heartbeat.
        let awareness = match presence.state {
            _ if me == Some(&agent.id) => "awake",
            PresenceState::Awake => "awake",
            PresenceState::Stale => "stale",
            PresenceState::Offline => "offline",
            PresenceState::Unknown => "unknown",
        };
        let status = text("statusState").or_else(|| text("status"));
        let own = claims.iter().filter(|claim| claim.holder == agent.id);
        let tasks: Vec<String> = own.map(|claim| sanitize_inline(claim.task.as_str())).collect();
        let own = reservations.iter().filter(|one| one.holder == agent.id);
        let files: Vec<String> = own.map(|one| sanitize_inline(&one.pattern)).collect();
        let label = |text: Option<String>| text.as_deref().map(label_inline);
        let listed = |things: &[String]| {
            let labels: Vec<String> = things.iter().map(|thing| label_inline(thing)).collect();
            (!labels.is_empty()).then(|| labels.join(", "))
        };
        let mut line = format!("{} ({kind})", agent.id);
        for (label, value) in [
            ("role", label(agent.role.clone())),
            ("team", agent.team.as_ref().map(Name::to_string)),
            ("status", label(status.clone())),
            ("workflow", label(text("activeWorkflow"))),
            ("claims", listed(&tasks)),
            ("reserves", listed(&files)),
        ] {
            if let Some(value) = value {
                let _ = write!(line, ", {label} {value}");
            }
        }
        let _ = write!(line, ", {awareness}{}", if me == Some(&agent.id) { ", you" } else { "" });
        lines.push(line);
        let details = json!({
            "type": kind,
            "role": agent.role.as_deref().map(sanitize_inline),
            "purpose": text("purpose"),
            "interface": text("interface"),
            "status": status,
            "statusMessage": text("statusMessage"),
            "activeWorkflow": text("activeWorkflow"),
            "friendlyName": text("friendlyName"),
            "team": agent.team.as_ref().map(Name::as_str),
            "presence": awareness,
            "claims": (!tasks.is_empty()).then_some(tasks),
            "reserves": (!files.is_empty()).then_some(files),
        });
        agents.insert(agent.id.to_string(), without_nulls(details));
    }
    let mut teams = Map::new();
    for team in directory.teams() {
        let members: Vec<String> = directory.members(&team.id).map(|agent| agent.id.to_string()).collect();
        lines.push(format!(
            "team:{} — {}{}",
            team.id,
            if team.composite { "composite, " } else { "" },
            members.join(", ")
        ));
        let capabilities = known
            .get("teams")
            .and_then(|teams| teams.get(team.id.as_str()))
            .and_then(|team| team.get("capabilities"));
        let mut capabilities = capabilities.cloned().unwrap_or_else(|| json!([]));
        sanitize_value(&mut capabilities);
        teams.insert(
            team.id.to_string(),
            json!({
                "name": sanitize_inline(&team.title),
                "isComposite": team.composite,
                "capabilities": capabilities,
                "memberCount": members.len(),
                "members": members,
            }),
        );
    }
    let text = if agents.is_empty() { "No agents registered.".to_owned() } else { lines.join("\n") };
    Ok(Answer::new(text, json!({ "agents": agents, "teams": teams })))
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.retain(|_, value| !value.is_null());
    }
    value
}
