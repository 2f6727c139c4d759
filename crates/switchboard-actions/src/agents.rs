//! The actions that register agents, assign roles and teams, and publish statuses.

use door_workspace::{ChatRegistration, Role, Workspace};
use switchboard_core::{AgentRecord, Name, TeamRecord};
use switchboard_hub::Registration;

use crate::actor::known_agent;
use crate::error::{ActionError, check_line};
use crate::send_team::parse_team;

/// Maximum length of a status in characters: enough for a word or two, because details belong in the message.
const LONGEST_STATUS: usize = 64;

/// Request to register an agent.
#[derive(Debug, Clone, Default)]
pub struct RegisterAgent {
    /// Name of the agent.
    pub name: String,
    /// The program that the agent runs in.
    pub interface: Option<String>,
    /// Capabilities of the agent.
    pub capabilities: Vec<String>,
    /// Role of the agent.
    pub role: Option<String>,
    /// Display name of the agent for people.
    pub friendly_name: Option<String>,
    /// Team that the agent joins.
    pub team: Option<String>,
}

/// Request to publish an agent's status.
#[derive(Debug, Clone, Default)]
pub struct SetStatus {
    /// A word or two: `working`, `idle` …
    pub status: String,
    /// A line with details.
    pub message: Option<String>,
}

/// Request to create a team.
#[derive(Debug, Clone, Default)]
pub struct CreateTeam {
    /// Id of the team, which names it in addresses.
    pub id: String,
    /// Display name of the team for people.
    pub title: Option<String>,
    /// True if a single agent acts as the whole team.
    pub composite: bool,
}

/// Registers an agent, or updates the record of a registered one.
pub async fn register_agent(
    workspace: &Workspace,
    request: RegisterAgent,
) -> Result<AgentRecord, ActionError> {
    let name = Name::parse(&request.name)?;
    let team = request.team.as_deref().map(parse_team).transpose()?;
    if let Some(role) = &request.role {
        Role::parse(role).map_err(door_workspace::WorkspaceError::from)?;
    }
    check_line("friendly_name", request.friendly_name.as_deref())?;
    let Some(interface) = request.interface else {
        let role = request.role;
        return Ok(workspace.register(Registration { role, team, ..Registration::mailbox(name) }).await?);
    };
    let registration = ChatRegistration {
        capabilities: request.capabilities,
        role: request.role,
        friendly_name: request.friendly_name,
        team,
        ..ChatRegistration::new(name, interface)
    };
    let record = workspace.register_chat_agent(registration).await?;
    workspace.hub().agents().announce(record.id.clone(), "active", None);
    Ok(record)
}

/// Renames an agent. Messages to the old name still reach the agent.
pub async fn rename_agent(workspace: &Workspace, from: &str, to: &str) -> Result<AgentRecord, ActionError> {
    Ok(workspace.rename(Name::parse(from)?, Name::parse(to)?).await?)
}

/// Removes an agent and returns its last record. The agent's messages are kept.
pub async fn remove_agent(workspace: &Workspace, name: &str) -> Result<AgentRecord, ActionError> {
    let record = known_agent(workspace, name).await?;
    workspace.deregister(record.id.name.clone()).await?;
    Ok(record)
}

/// Publishes the status of a registered agent. Returns the agent's record.
pub async fn set_status(
    workspace: &Workspace,
    name: &str,
    request: SetStatus,
) -> Result<AgentRecord, ActionError> {
    let status = request.status.trim();
    if status.is_empty() || status.chars().count() > LONGEST_STATUS {
        let problem = format!("must have 1 to {LONGEST_STATUS} characters; put details into 'message'");
        return Err(ActionError::Invalid { field: "status", problem });
    }
    check_line("message", request.message.as_deref())?;
    let record = known_agent(workspace, name).await?;
    workspace.set_status(&record.id, status, request.message.as_deref()).await?;
    Ok(record)
}

/// Assigns a role to an agent, or removes the agent's role.
pub async fn assign_role(workspace: &Workspace, name: &str, role: &str) -> Result<AgentRecord, ActionError> {
    Ok(workspace.assign_role(Name::parse(name)?, role).await?)
}

/// Creates a team.
pub async fn create_team(workspace: &Workspace, request: CreateTeam) -> Result<TeamRecord, ActionError> {
    let id = parse_team(&request.id)?;
    check_line("title", request.title.as_deref())?;
    Ok(workspace.create_team(id, request.title, request.composite).await?)
}

/// Moves an agent into a team. Without a team, removes the agent from its current one.
pub async fn assign_to_team(
    workspace: &Workspace,
    agent: &str,
    team: Option<&str>,
) -> Result<AgentRecord, ActionError> {
    let team = team.map(parse_team).transpose()?;
    Ok(workspace.assign(Name::parse(agent)?, team).await?)
}

/// Removes an agent from a team. Returns false if the agent is not a member.
pub async fn remove_from_team(workspace: &Workspace, agent: &str, team: &str) -> Result<bool, ActionError> {
    let (team, record) = (parse_team(team)?, known_agent(workspace, agent).await?);
    let is_member = record.team == Some(team);
    if is_member {
        workspace.assign(record.id.name, None).await?;
    }
    Ok(is_member)
}
