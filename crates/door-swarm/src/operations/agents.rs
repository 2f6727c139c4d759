//! Local agents that take part in swarms: creation, endpoint and mutes.

use std::sync::Arc;

use switchboard_core::{Name, suggest_similar};

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::keys::SecretKey;
use crate::model::Identity;
use crate::operations::{ImportMode, resolve_member};
use crate::store;
use crate::swarms::{KEY_FILE, STATE_FILE, Swarms, blocking, open_home, restrict_home};
use crate::wire::SystemContent;

impl Swarms {
    /// Creates the key, folder and mailbox of a local agent that takes part in swarms.
    ///
    /// The files of the first agent are in the home folder itself, as the protocol specifies; further agents have
    /// subfolders.
    pub async fn init(&self, agent: &str, endpoint: &str) -> Result<Identity, SwarmError> {
        let (agent, endpoint) = (PeerId::parse_new(agent)?, Endpoint::parse(endpoint)?);
        let snapshot = self.snapshot();
        if let Some(known) = snapshot.identities.get(&agent) {
            return self.move_to(known, endpoint).await;
        }
        if snapshot.identities.values().any(|known| known.agent.conflicts_with(&agent)) {
            return Err(SwarmError::field(
                "agent",
                format!("'{agent}' conflicts with another agent's id here"),
            ));
        }
        check_endpoint(&snapshot, &agent, &endpoint)?;
        let (root, name) = (self.config().home.clone(), agent.to_string());
        let (home, key) = blocking(move || {
            let folder = open_home(&root)?;
            restrict_home(&folder)?;
            // A key without a state file belongs to a program that stores its state elsewhere, or to another workspace,
            // so the folder is not free.
            let state = folder.read(STATE_FILE, 64 << 20)?.map(|found| found.bytes);
            let owner = state.as_deref().and_then(state_owner);
            let is_free = folder.stat(KEY_FILE)?.is_none() && owner.is_none();
            let folder = if is_free || owner.as_deref() == Some(&name) {
                folder
            } else {
                folder.ensure_subdir(&name)?
            };
            let key = if let Some(key) = SecretKey::read(&folder, KEY_FILE)? {
                key
            } else {
                let key = SecretKey::generate()?;
                key.write_new(&folder, KEY_FILE)?;
                // If another process created the key first, its key is used.
                SecretKey::read(&folder, KEY_FILE)?.unwrap_or(key)
            };
            Ok((folder.path().to_owned(), key))
        })
        .await?;
        let identity = Identity {
            agent: agent.clone(),
            endpoint,
            home,
            public_key: key.public(),
            created_at: self.hub().now(),
            muted_swarms: <_>::default(),
            muted_agents: <_>::default(),
            known_keys: <_>::default(),
            joining: <_>::default(),
        };
        let new = identity.clone();
        store::edit_identity(self.hub(), &agent, move |slot| {
            if let Some(known) = slot.as_ref() {
                let (agent, endpoint) = (known.agent.clone(), known.endpoint.to_string());
                return Err(SwarmError::IdentityExists { agent, endpoint });
            }
            *slot = Some(new);
            Ok(())
        })
        .await?;
        self.register_mailbox(&agent).await?;
        self.refresh().await?;
        self.import_state_file(&agent, ImportMode::Add).await?;
        self.write_state(&agent).await?;
        Ok(identity)
    }

    /// Changes the endpoint of a known agent and announces it to the agent's swarms.
    ///
    /// The announcement is signed with the agent's key. A second call finishes an interrupted change, and corrects a
    /// roster that has another endpoint for the agent.
    async fn move_to(&self, known: &Identity, endpoint: Endpoint) -> Result<Identity, SwarmError> {
        let (agent, snapshot) = (known.agent.clone(), self.snapshot());
        if known.endpoint == endpoint && self.outdated_entries(known).is_empty() {
            return Err(SwarmError::IdentityExists { agent, endpoint: known.endpoint.to_string() });
        }
        check_endpoint(&snapshot, &agent, &endpoint)?;
        // Nothing can be announced without the key.
        self.key(&agent).await?;
        let change = move |identity: &mut Identity| {
            identity.endpoint = endpoint;
            Ok(identity.clone())
        };
        let moved = self.edit_identity(&agent, change).await?;
        self.announce_endpoint(&moved).await?;
        Ok(moved)
    }

    /// Mutes or unmutes an agent: a muted agent's messages are dropped.
    pub async fn mute_agent(
        &self,
        agent: Option<&str>,
        other: &str,
        mute: bool,
    ) -> Result<PeerId, SwarmError> {
        let identity = self.identity(agent)?;
        let other = self.resolve_peer(&identity.agent, other)?;
        let id = other.clone();
        self.edit_identity(&identity.agent, move |identity| {
            let _ = if mute { identity.muted_agents.insert(id) } else { identity.muted_agents.remove(&id) };
            Ok(())
        })
        .await?;
        let snapshot = self.snapshot();
        for swarm in snapshot.swarms_of(&identity.agent).filter(|swarm| swarm.members.contains_key(&other)) {
            let action = if mute { "member_muted" } else { "member_unmuted" };
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                agent_id: Some(other.to_string()),
                initiated_by: Some(identity.agent.to_string()),
                ..SystemContent::new(action)
            };
            self.notify(&identity.agent, swarm, &content).await;
        }
        Ok(other)
    }

    /// Resolves an agent by id, or by its address in one of our agent's swarms. The id need not belong to a member yet.
    fn resolve_peer(&self, agent: &PeerId, named: &str) -> Result<PeerId, SwarmError> {
        let Some((_, realm)) = named.split_once('@') else { return Ok(PeerId::parse(named)?) };
        let snapshot = self.snapshot();
        let swarm = snapshot.swarms_of(agent).find(|swarm| swarm.realm.as_str().eq_ignore_ascii_case(realm));
        let swarm = swarm.ok_or_else(|| SwarmError::UnknownSwarm {
            swarm: realm.to_owned(),
            near: suggest_similar(realm, snapshot.swarms_of(agent).map(|swarm| swarm.realm.as_str())),
        })?;
        resolve_member(swarm, named)
    }

    /// Returns true if an agent with this id is in one of our agent's swarms.
    pub fn knows_peer(&self, agent: &PeerId, other: &PeerId) -> bool {
        self.snapshot().swarms_of(agent).any(|swarm| swarm.members.contains_key(other))
    }

    /// Mutes or unmutes a swarm: a muted swarm's messages are dropped.
    pub async fn mute_swarm(&self, swarm: Option<&str>, mute: bool) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_swarm(swarm)?;
        let id = swarm.swarm_id;
        self.edit_identity(&agent, move |identity| {
            let _ = if mute { identity.muted_swarms.insert(id) } else { identity.muted_swarms.remove(&id) };
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }
}

/// Checks that no other agent of this hub has this endpoint.
fn check_endpoint(
    snapshot: &store::StoreSnapshot,
    agent: &PeerId,
    endpoint: &Endpoint,
) -> Result<(), SwarmError> {
    let is_taken = |known: &&Arc<Identity>| known.agent != *agent && known.endpoint == *endpoint;
    match snapshot.identities.values().find(is_taken) {
        Some(other) => {
            let problem = format!("{endpoint} is that of '{}'; give each agent its own path", other.agent);
            Err(SwarmError::field("endpoint", problem))
        }
        None => Ok(()),
    }
}

/// Returns the owner of a state file, or `None` if the file is unreadable.
fn state_owner(bytes: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    Some(value.get("agent_id")?.as_str()?.to_owned())
}
