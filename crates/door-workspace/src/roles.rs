//! Agent roles, and the resolution of roles to recipients.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, AgentRecord, Directory, Name, ResolveError, suggest_similar};
use switchboard_hub::HubError;

use crate::error::WorkspaceError;
use crate::snapshot::Snapshot;
use crate::state;
use crate::workspace::{Workspace, blocking};

/// The role of an agent.
///
/// The protocol defines the first seven roles; the others are in common use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Plans and assigns the work.
    Lead,
    /// Writes code, as the first of two coders.
    Coder1,
    /// Writes code, as the second of two coders.
    Coder2,
    /// Reviews the work of others.
    Reviewer,
    /// Tests the work of others.
    Tester,
    /// Researches questions.
    Researcher,
    /// Executes decisions.
    Execution,
    /// Writes code.
    Coder,
    /// Writes plans.
    Planner,
    /// Works through an authorised plan.
    TaskRunner,
    /// Analyses data and requirements.
    Analyst,
}

/// Error while resolving a role or recipient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The given role does not exist.
    #[error("role '{}' is unknown; {}use one of: {}, none", .given.escape_debug(), did_you_mean(.near), Role::list())]
    Unknown {
        /// The role as given.
        given: String,
        /// Similar role names, best match first.
        near: Vec<String>,
    },
    /// No agent has the role.
    #[error("recipient '{role}': no agent has the role {role}; {}. Assign it with assign_role, or name an agent", list_assigned(.present))]
    Unfilled {
        /// The role that no agent has.
        role: Role,
        /// The roles that agents currently have.
        present: Vec<Role>,
    },
    /// A recipient matches several agents.
    #[error("recipient '{}' is ambiguous: it matches {}; name one of them", .given.escape_debug(), .candidates.join(", "))]
    Ambiguous {
        /// The recipient as given.
        given: String,
        /// The agents that match.
        candidates: Vec<String>,
    },
}

impl Role {
    /// All roles; those defined by the protocol come first.
    pub const ALL: [Self; 11] = [
        Self::Lead,
        Self::Coder1,
        Self::Coder2,
        Self::Reviewer,
        Self::Tester,
        Self::Researcher,
        Self::Execution,
        Self::Coder,
        Self::Planner,
        Self::TaskRunner,
        Self::Analyst,
    ];

    /// Returns the role's name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lead => "lead",
            Self::Coder1 => "coder 1",
            Self::Coder2 => "coder 2",
            Self::Reviewer => "reviewer",
            Self::Tester => "tester",
            Self::Researcher => "researcher",
            Self::Execution => "execution",
            Self::Coder => "coder",
            Self::Planner => "planner",
            Self::TaskRunner => "task runner",
            Self::Analyst => "analyst",
        }
    }

    /// Parses a role in any spelling; returns `None` for `none` and for unknown roles.
    pub fn read(text: &str) -> Option<Self> {
        let word = normalize(text);
        let word = match word.as_str() {
            "lead coder" | "team lead" => "lead",
            "coder1" => "coder 1",
            "coder2" => "coder 2",
            "taskrunner" => "task runner",
            other => other,
        };
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// Parses a role in any spelling; returns `Ok(None)` for `none`.
    ///
    /// Returns an error for any other text.
    pub fn parse(text: &str) -> Result<Option<Self>, RoleError> {
        match Self::read(text) {
            Some(role) => Ok(Some(role)),
            None if normalize(text) == NONE => Ok(None),
            None => {
                let near = suggest_similar(&normalize(text), Self::ALL.map(Self::as_str));
                Err(RoleError::Unknown { given: text.to_owned(), near })
            }
        }
    }

    /// Returns true if an agent with this role matches `asked`.
    ///
    /// Both numbered coder roles match `coder`.
    pub fn matches(self, wanted: Self) -> bool {
        self == wanted || (wanted == Self::Coder && matches!(self, Self::Coder1 | Self::Coder2))
    }

    /// Returns the file name of the role's persona in `.agent/personas/`.
    pub fn persona_file(self) -> &'static str {
        match self {
            Self::Lead => "lead.md",
            Self::Coder | Self::Coder1 | Self::Coder2 => "coder.md",
            Self::Reviewer => "reviewer.md",
            Self::Tester => "tester.md",
            Self::Researcher => "researcher.md",
            Self::Planner => "planner.md",
            Self::Execution | Self::TaskRunner => "task_runner.md",
            Self::Analyst => "analyst.md",
        }
    }

    fn list() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Role {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The name for the absence of a role.
const NONE: &str = "none";

/// Normalizes the spelling of a role.
///
/// The result is in lower case, with one space for any run of spaces, `_` and `-`.
fn normalize(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '_' | '-'));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").to_lowercase()
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("did you mean '{}'? ", near.join("' or '")),
    }
}

fn list_assigned(roles: &[Role]) -> String {
    match roles {
        [] => "no agent has a role".to_owned(),
        roles => format!("roles taken: {}", join(roles)),
    }
}

/// Joins roles with commas.
pub(crate) fn join(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns an agent's role.
///
/// `state.json`, which other programs write as well, takes precedence over the hub.
pub(crate) fn role_of(agent: &AgentRecord, state: &Map<String, Value>) -> Option<Role> {
    let written = state::record(state, &agent.id.name).and_then(|record| state::text(record, "role"));
    match written {
        Some(role) if agent.id.realm.is_none() => Role::read(&role),
        _ => agent.role.as_deref().and_then(Role::read),
    }
}

/// Returns the roles that agents have, without duplicates.
pub(crate) fn assigned_roles<'d>(
    agents: impl Iterator<Item = &'d AgentRecord>,
    state: &Map<String, Value>,
) -> Vec<Role> {
    let mut roles: Vec<Role> = agents.filter_map(|agent| role_of(agent, state)).collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}

/// Resolves a recipient from the directory and `state.json`. Pure.
///
/// In order of precedence: an address or an agent's name, the only agent with that role, and the only agent with that
/// `alias` or `friendlyName` in `state.json`.
pub(crate) fn recipient(
    text: &str,
    directory: &Directory,
    state: &Map<String, Value>,
) -> Result<Address, WorkspaceError> {
    let text = text.trim();
    let address = text.parse::<Address>();
    let target = match &address {
        Ok(Address::Agent(agent)) if agent.is_human() => return Ok(AgentId::human().into()),
        Ok(Address::Agent(agent)) if agent.realm.is_none() => match directory.agent(agent) {
            Some(record) => return Ok(record.id.clone().into()),
            // The agent is retired, but its messages are forwarded.
            None if directory.routing_rules().forward_target(agent).is_some() => {
                return Ok(agent.clone().into());
            }
            None => Some(agent.clone()),
        },
        Ok(other) => return Ok(other.clone()),
        Err(_) => None,
    };
    let local = || directory.agents().filter(|agent| agent.id.realm.is_none());
    let role = Role::read(text);
    if let Some(role) = role {
        let with = |fits: &dyn Fn(Role) -> bool| -> Vec<AgentId> {
            let fitting = local().filter(|agent| role_of(agent, state).is_some_and(fits));
            fitting.map(|agent| agent.id.clone()).collect()
        };
        // Agents with exactly this role take precedence over agents whose role merely matches it.
        for found in [with(&|has| has == role), with(&|has| has.matches(role))] {
            if let Some(address) = require_unique(text, found)? {
                return Ok(address);
            }
        }
    }
    let called = |agent: &&AgentRecord| {
        let record = state::record(state, &agent.id.name);
        ["alias", "friendlyName"].into_iter().any(|key| {
            let name = record.and_then(|record| state::text(record, key));
            name.is_some_and(|name| name.trim().eq_ignore_ascii_case(text))
        })
    };
    if let Some(address) =
        require_unique(text, local().filter(called).map(|agent| agent.id.clone()).collect())?
    {
        return Ok(address);
    }
    // No local agent matches, but an agent of another hub may.
    if let Some(record) = target.as_ref().and_then(|agent| directory.find_remote(&agent.name)) {
        return Ok(record.id.clone().into());
    }
    match (role, target) {
        (Some(role), _) => Err(RoleError::Unfilled { role, present: assigned_roles(local(), state) }.into()),
        (None, Some(agent)) => {
            let known: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
            let filled = assigned_roles(local(), state).into_iter().map(|role| role.to_string());
            let candidates: Vec<String> = known.iter().cloned().chain(filled).collect();
            let near = suggest_similar(text, candidates.iter().map(String::as_str));
            Err(HubError::from(ResolveError::UnknownAgent { agent, near, known }).into())
        }
        (None, None) => Ok(address?),
    }
}

fn require_unique(role: &str, found: Vec<AgentId>) -> Result<Option<Address>, RoleError> {
    match found.as_slice() {
        [] => Ok(None),
        [agent] => Ok(Some(agent.clone().into())),
        several => {
            let candidates = several.iter().map(ToString::to_string).collect();
            Err(RoleError::Ambiguous { given: role.to_owned(), candidates })
        }
    }
}

impl Snapshot {
    /// Resolves a recipient against the snapshot.
    pub fn recipient(&self, text: &str) -> Result<Address, WorkspaceError> {
        recipient(text, &self.directory, &self.state)
    }
}

impl Workspace {
    /// Assigns or removes an agent's role, in the hub and in `state.json`.
    pub async fn assign_role(&self, agent: Name, role: &str) -> Result<AgentRecord, WorkspaceError> {
        let role = Role::parse(role)?;
        let record = self.hub().agents().set_role(agent, role.map(|role| role.to_string())).await?;
        let (state, agent) = (self.state().clone(), record.clone());
        blocking(move || {
            state.update(|state| {
                state::write_agent(state, &agent);
                if let Some((_, record)) = state::find(state, &agent.id.name) {
                    record.insert("role".into(), role.map_or(NONE, Role::as_str).into());
                }
                true
            })
        })
        .await?;
        Ok(record)
    }

    /// Resolves a recipient: an address, an agent's name, or the only agent with a role, alias or display name.
    pub async fn resolve_recipient(&self, text: &str) -> Result<Address, WorkspaceError> {
        match self.snapshot().await?.recipient(text) {
            Err(error) => Err(self.or_retired(error).await),
            found => found,
        }
    }

    /// Replaces the error for an unknown name if a more specific one applies.
    ///
    /// The agent may be retired, or unknown only until a recovery has restored all agents.
    pub async fn or_retired(&self, error: WorkspaceError) -> WorkspaceError {
        if self.hub().database().is_rebuilding()
            && matches!(error, WorkspaceError::Hub(HubError::Unresolved(_)))
        {
            return HubError::Rebuilding.into();
        }
        let WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownAgent { agent, .. })) = &error
        else {
            return error;
        };
        let agent = agent.clone();
        match self.hub().agents().retired_at(agent.clone()).await {
            Ok(Some(at)) => HubError::from(ResolveError::Retired { agent, at }).into(),
            _ => error,
        }
    }
}

#[cfg(test)]
#[path = "roles_tests.rs"]
mod tests;
