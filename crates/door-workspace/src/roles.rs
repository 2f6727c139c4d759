//! Roles: what an agent is there for, and who is meant when a role is written in "to".

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use switchboard_core::{Address, AgentId, AgentRecord, Directory, Name, ResolveError, nearest};
use switchboard_hub::HubError;

use crate::error::WorkspaceError;
use crate::snapshot::Snapshot;
use crate::state;
use crate::workspace::{Workspace, blocking};

/// What an agent is there for. The protocol names the first seven; the others are in use beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Plans and hands out the work.
    Lead,
    /// The first of two who write code.
    Coder1,
    /// The second of two who write code.
    Coder2,
    /// Reads what others wrote.
    Reviewer,
    /// Tries what others wrote.
    Tester,
    /// Finds things out.
    Researcher,
    /// Carries out what was decided.
    Execution,
    /// Writes code.
    Coder,
    /// Writes plans.
    Planner,
    /// Works through a plan that was authorised.
    TaskRunner,
    /// Looks into data and requirements.
    Analyst,
}

/// Why a role leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// There is no such role.
    #[error("role '{}' is unknown; {}use one of: {}, none", .given.escape_debug(), did_you_mean(.near), Role::list())]
    Unknown {
        /// The role as given.
        given: String,
        /// Roles that look like it, best first.
        near: Vec<String>,
    },
    /// Nobody has the role.
    #[error("recipient '{role}': nobody has the role {role}; {}. Give it to an agent with assign_role, or name an agent", taken(.present))]
    Unfilled {
        /// The role.
        role: Role,
        /// The roles that somebody has.
        present: Vec<Role>,
    },
    /// Several agents are meant by one text.
    #[error("recipient '{}' is ambiguous: it stands for {}; name one of them", .given.escape_debug(), .candidates.join(", "))]
    Ambiguous {
        /// The recipient as given.
        given: String,
        /// Who could be meant.
        candidates: Vec<String>,
    },
}

impl Role {
    /// All roles, those of the protocol first.
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

    /// The role in the protocol's words.
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

    /// The role that a text stands for, in any spelling; none for `none` and for words that are no role.
    pub fn read(text: &str) -> Option<Self> {
        let word = normal(text);
        let word = match word.as_str() {
            "lead coder" | "team lead" => "lead",
            "coder1" => "coder 1",
            "coder2" => "coder 2",
            "taskrunner" => "task runner",
            other => other,
        };
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// The same, but a word that is neither a role nor `none` is refused.
    pub fn parse(text: &str) -> Result<Option<Self>, RoleError> {
        match Self::read(text) {
            Some(role) => Ok(Some(role)),
            None if normal(text) == NONE => Ok(None),
            None => {
                let near = nearest(&normal(text), Self::ALL.map(Self::as_str));
                Err(RoleError::Unknown { given: text.to_owned(), near })
            }
        }
    }

    /// Whether whoever has this role is meant by `asked`: the two coders are coders too.
    pub fn answers_to(self, asked: Self) -> bool {
        self == asked || (asked == Self::Coder && matches!(self, Self::Coder1 | Self::Coder2))
    }

    /// The file with the text for this role, in `.agent/personas/`.
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

/// The word for no role at all.
const NONE: &str = "none";

/// Lower case, one space where there were spaces, `_` or `-`.
fn normal(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '_' | '-'));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").to_lowercase()
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("did you mean '{}'? ", near.join("' or '")),
    }
}

fn taken(roles: &[Role]) -> String {
    match roles {
        [] => "no agent has a role".to_owned(),
        roles => format!("roles taken: {}", join(roles)),
    }
}

/// Roles in a row.
pub(crate) fn join(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

/// An agent's role: what `state.json`, which others write as well, says of it, or else the hub.
pub(crate) fn role_of(agent: &AgentRecord, state: &Map<String, Value>) -> Option<Role> {
    let written = state::record(state, &agent.id.name).and_then(|record| state::text(record, "role"));
    match written {
        Some(role) if agent.id.realm.is_none() => Role::read(&role),
        _ => agent.role.as_deref().and_then(Role::read),
    }
}

/// The roles that somebody has, each once.
pub(crate) fn present<'d>(
    agents: impl Iterator<Item = &'d AgentRecord>,
    state: &Map<String, Value>,
) -> Vec<Role> {
    let mut roles: Vec<Role> = agents.filter_map(|agent| role_of(agent, state)).collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}

/// Whom a text means: an agent by name, else the one agent with that role, else the one agent that
/// people call so (`alias` or `friendlyName` in `state.json`). Pure.
pub(crate) fn recipient(
    text: &str,
    directory: &Directory,
    state: &Map<String, Value>,
) -> Result<Address, WorkspaceError> {
    let text = text.trim();
    let address = text.parse::<Address>();
    let asked = match &address {
        Ok(Address::Agent(agent)) if agent.is_human() => return Ok(AgentId::human().into()),
        Ok(Address::Agent(agent)) if agent.realm.is_none() => match directory.agent(agent) {
            Some(record) => return Ok(record.id.clone().into()),
            // One that has gone, and whose mail goes to another.
            None if directory.links().end_of(agent).is_some() => return Ok(agent.clone().into()),
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
        // Whoever has exactly this role comes before those who also answer to it.
        for found in [with(&|has| has == role), with(&|has| has.answers_to(role))] {
            if let Some(address) = the_one(text, found)? {
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
    if let Some(address) = the_one(text, local().filter(called).map(|agent| agent.id.clone()).collect())? {
        return Ok(address);
    }
    // Nobody here goes by it in any way; somebody of another hub may.
    if let Some(record) = asked.as_ref().and_then(|agent| directory.elsewhere(&agent.name)) {
        return Ok(record.id.clone().into());
    }
    match (role, asked) {
        (Some(role), _) => Err(RoleError::Unfilled { role, present: present(local(), state) }.into()),
        (None, Some(agent)) => {
            let known: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
            let filled = present(local(), state).into_iter().map(|role| role.to_string());
            let candidates: Vec<String> = known.iter().cloned().chain(filled).collect();
            let near = nearest(text, candidates.iter().map(String::as_str));
            Err(HubError::from(ResolveError::UnknownAgent { agent, near, known }).into())
        }
        (None, None) => Ok(address?),
    }
}

fn the_one(given: &str, found: Vec<AgentId>) -> Result<Option<Address>, RoleError> {
    match found.as_slice() {
        [] => Ok(None),
        [agent] => Ok(Some(agent.clone().into())),
        several => {
            let candidates = several.iter().map(ToString::to_string).collect();
            Err(RoleError::Ambiguous { given: given.to_owned(), candidates })
        }
    }
}

impl Snapshot {
    /// Whom a text means.
    pub(crate) fn recipient(&self, text: &str) -> Result<Address, WorkspaceError> {
        recipient(text, &self.directory, &self.state)
    }
}

impl Workspace {
    /// Gives an agent a role, or none, here and in `state.json`.
    pub async fn assign_role(&self, agent: Name, role: &str) -> Result<AgentRecord, WorkspaceError> {
        let role = Role::parse(role)?;
        let record = self.hub().set_role(agent, role.map(|role| role.to_string())).await?;
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

    /// Whom a person or an agent means by `text`: an address, an agent's name, the one agent with a
    /// role, or the one that people call so.
    pub async fn resolve_recipient(&self, text: &str) -> Result<Address, WorkspaceError> {
        match self.snapshot().await?.recipient(text) {
            Err(error) => Err(self.or_retired(error).await),
            found => found,
        }
    }

    /// Error for an unknown or a retired name. While a recovery still reads agents back, the error is temporary.
    pub(crate) async fn or_retired(&self, error: WorkspaceError) -> WorkspaceError {
        if self.hub().is_rebuilding() && matches!(error, WorkspaceError::Hub(HubError::Unresolved(_))) {
            return HubError::Rebuilding.into();
        }
        let WorkspaceError::Hub(HubError::Unresolved(ResolveError::UnknownAgent { agent, .. })) = &error
        else {
            return error;
        };
        let agent = agent.clone();
        match self.hub().retired_at(agent.clone()).await {
            Ok(Some(at)) => HubError::from(ResolveError::Retired { agent, at }).into(),
            _ => error,
        }
    }
}

#[cfg(test)]
#[path = "roles_tests.rs"]
mod tests;
