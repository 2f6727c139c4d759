//! The state file (§9): an agent's memberships, readable and portable for other programs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use switchboard_core::{describe_field_error, describe_json_error};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::timestamp;

/// Version of the format that this program writes.
pub(crate) const SCHEMA_VERSION: &str = "1.0.0";

/// Maximum number of members per swarm. It also bounds the size of the roster in a join answer.
pub(crate) const MAX_MEMBERS: usize = 1000;

/// Maximum number of entries in each of the other lists.
const MAX_ENTRIES: usize = 10_000;

/// Content of `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MembershipState {
    /// Version of this format.
    #[schemars(regex(pattern = r"^1\.[0-9]+\.[0-9]+$"))]
    pub schema_version: String,
    /// Owner of the state.
    #[schemars(length(min = 1, max = 256))]
    pub agent_id: String,
    /// Time of the export; only in exports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported_at: Option<String>,
    /// Swarms by id.
    pub swarms: BTreeMap<String, SwarmMembership>,
    /// Swarms whose messages are dropped.
    pub muted_swarms: BTreeSet<String>,
    /// Agents whose messages are dropped.
    pub muted_agents: BTreeSet<String>,
    /// Public keys of other agents.
    pub public_keys: BTreeMap<String, KnownKey>,
}

/// A swarm that the agent belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmMembership {
    /// The swarm's id, a UUID.
    pub swarm_id: String,
    /// Display name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The master.
    pub master: String,
    /// All members.
    pub members: Vec<StateMember>,
    /// Time when the agent joined.
    pub joined_at: String,
    /// Rules of the swarm.
    pub settings: SwarmSettings,
}

/// Rules of a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SwarmSettings {
    /// True if members may invite.
    #[serde(default)]
    pub allow_member_invite: bool,
    /// True if joins need the master's approval.
    #[serde(default)]
    pub require_approval: bool,
}

/// A member of a swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateMember {
    /// The agent's id.
    pub agent_id: String,
    /// Its endpoint.
    #[schemars(regex(pattern = r"^https://"))]
    pub endpoint: String,
    /// Its public key, base64.
    #[schemars(length(min = 1, max = 2048))]
    pub public_key: String,
    /// Time when it joined.
    pub joined_at: String,
}

/// A public key of another agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownKey {
    /// The key, base64.
    #[schemars(length(min = 1, max = 2048))]
    pub public_key: String,
    /// Time when it was learned or last confirmed.
    pub fetched_at: String,
    /// URL that can confirm it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// Reason why a state file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The file is not JSON of this format.
    #[error("the state is refused at '{path}': {problem}")]
    Shape {
        /// Path of the invalid value.
        path: String,
        /// Why it is invalid.
        problem: String,
    },
    /// The format has an unsupported version.
    #[error(
        "schema_version is '{found}', but this switchboard reads 1.x; export the state again with a program that writes 1.x"
    )]
    Version {
        /// The version found.
        found: String,
    },
    /// The file belongs to another agent.
    #[error("the state belongs to '{found}', not to '{expected}'; name the agent it belongs to with --agent")]
    Owner {
        /// The owner found.
        found: String,
        /// The owner expected.
        expected: String,
    },
}

impl MembershipState {
    /// Returns the state of an agent without swarms.
    pub fn empty(agent: &PeerId) -> Self {
        Self {
            schema_version: SCHEMA_VERSION.to_owned(),
            agent_id: agent.to_string(),
            exported_at: None,
            swarms: BTreeMap::new(),
            muted_swarms: BTreeSet::new(),
            muted_agents: BTreeSet::new(),
            public_keys: BTreeMap::new(),
        }
    }

    /// Parses a state file and checks every value.
    pub fn parse(bytes: &[u8]) -> Result<Self, StateError> {
        let value = crate::wire::parse_json(bytes).map_err(|error| StateError::Shape {
            path: String::new(),
            problem: describe_json_error(&error),
        })?;
        if let Some(version) = value.get("schema_version").and_then(|version| version.as_str())
            && !version.starts_with("1.")
        {
            return Err(StateError::Version { found: version.chars().take(40).collect() });
        }
        let state: Self = serde_path_to_error::deserialize(value).map_err(|error| StateError::Shape {
            path: error.path().to_string(),
            problem: describe_field_error(error.inner()),
        })?;
        state.check()?;
        Ok(state)
    }

    /// Checks every value.
    pub fn check(&self) -> Result<(), StateError> {
        let fail = |path: String, problem: String| Err(StateError::Shape { path, problem });
        if PeerId::parse(&self.agent_id).is_err() {
            return fail("agent_id".to_owned(), "is not the id of an agent".to_owned());
        }
        check_time("exported_at", self.exported_at.as_deref())?;
        if [self.swarms.len(), self.muted_swarms.len(), self.muted_agents.len(), self.public_keys.len()]
            .iter()
            .any(|count| *count > MAX_ENTRIES)
        {
            return fail(String::new(), format!("a list has more than {MAX_ENTRIES} entries"));
        }
        for (id, swarm) in &self.swarms {
            swarm.check(id)?;
        }
        for id in &self.muted_swarms {
            if Uuid::try_parse(id).is_err() {
                return fail("muted_swarms".to_owned(), format!("'{}' is no UUID", id.escape_debug()));
            }
        }
        for id in &self.muted_agents {
            if let Err(error) = PeerId::parse(id) {
                return fail("muted_agents".to_owned(), error.to_string());
            }
        }
        for (id, key) in &self.public_keys {
            let path = format!("public_keys.{}", id.escape_debug());
            if let Err(error) = PeerId::parse(id) {
                return fail(path, error.to_string());
            }
            if let Err(error) = PublicKey::parse(&key.public_key) {
                return fail(format!("{path}.public_key"), error.to_string());
            }
            check_time(&format!("{path}.fetched_at"), Some(&key.fetched_at))?;
        }
        Ok(())
    }

    /// Serializes the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        // A struct of strings always serializes.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Marks the state as an export.
    #[must_use]
    pub fn exported(mut self, now: Timestamp) -> Self {
        self.exported_at = Some(timestamp::render(now));
        self
    }
}

impl SwarmMembership {
    fn check(&self, key: &str) -> Result<(), StateError> {
        let at = |field: &str| format!("swarms.{}.{field}", key.chars().take(40).collect::<String>());
        let fail = |path: String, problem: String| Err(StateError::Shape { path, problem });
        if Uuid::try_parse(&self.swarm_id).is_err() || self.swarm_id != key {
            return fail(at("swarm_id"), "must be the UUID of its key in 'swarms'".to_owned());
        }
        if !(1..=256).contains(&self.name.chars().count()) || self.name.chars().any(char::is_control) {
            return fail(
                at("name"),
                "must have 1 to 256 characters, none of them a control character".to_owned(),
            );
        }
        if self.members.len() > MAX_MEMBERS {
            return fail(at("members"), format!("has more than {MAX_MEMBERS} entries"));
        }
        check_time(&at("joined_at"), Some(&self.joined_at))?;
        let mut seen: Vec<PeerId> = Vec::new();
        for (n, member) in self.members.iter().enumerate() {
            let at = |field: &str| at(&format!("members[{n}].{field}"));
            let id = match PeerId::parse(&member.agent_id) {
                Ok(id) => id,
                Err(error) => return fail(at("agent_id"), error.to_string()),
            };
            if seen.contains(&id) {
                return fail(at("agent_id"), format!("'{id}' occurs twice"));
            }
            if let Err(error) = Endpoint::parse(&member.endpoint) {
                return fail(at("endpoint"), error.to_string());
            }
            // Provisional members may share a key. The code that builds the roster decides whether these members may.
            if let Err(error) = PublicKey::parse(&member.public_key) {
                return fail(at("public_key"), error.to_string());
            }
            check_time(&at("joined_at"), Some(&member.joined_at))?;
            seen.push(id);
        }
        if !seen.iter().any(|id| id.as_str() == self.master) {
            return fail(at("master"), "is not one of the members".to_owned());
        }
        Ok(())
    }
}

fn check_time(path: &str, text: Option<&str>) -> Result<(), StateError> {
    match text {
        Some(text) if timestamp::parse(text).is_none() => {
            Err(StateError::Shape { path: path.to_owned(), problem: "is not a time in UTC".to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
