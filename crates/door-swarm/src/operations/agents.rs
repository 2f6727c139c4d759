//! An agent of this hub: how it comes to take part in swarms, and whom it does not listen to.

use std::sync::Arc;

use switchboard_core::{Name, nearest};

use crate::agent_id::PeerId;
use crate::book;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::keys::SecretKey;
use crate::ledger::Identity;
use crate::operations::{Merge, member_of};
use crate::swarms::{KEY_FILE, STATE_FILE, Swarms, blocking, check_home, open_home};
use crate::wire::SystemContent;

impl Swarms {
    /// Makes an agent of this hub one that takes part in swarms: a key, a folder, a mailbox.
    ///
    /// The first one has its files in the home folder itself, as the protocol says; further ones in folders of their own.
    pub async fn init(&self, agent: &str, endpoint: &str) -> Result<Identity, SwarmError> {
        let (agent, endpoint) = (PeerId::parse_new(agent)?, Endpoint::parse(endpoint)?);
        let book = self.book();
        if let Some(known) = book.identities.get(&agent) {
            return self.move_to(known, endpoint).await;
        }
        if book.identities.values().any(|known| known.agent.clashes_with(&agent)) {
            return Err(SwarmError::field(
                "agent",
                format!("'{agent}' clashes with another agent's id here"),
            ));
        }
        check_endpoint(&book, &agent, &endpoint)?;
        let (root, name) = (self.config().home.clone(), agent.to_string());
        let (home, key) = blocking(move || {
            let folder = open_home(&root)?;
            check_home(&folder)?;
            // A key without a state is of a program that keeps its state elsewhere, or of another workspace.
            let state = folder.read(STATE_FILE, 64 << 20)?.map(|found| found.bytes);
            let owner = state.as_deref().and_then(state_owner);
            let is_free = folder.stat(KEY_FILE)?.is_none() && owner.is_none();
            let folder = if is_free || owner.as_deref() == Some(&name) {
                folder
            } else {
                folder.make_subdir(&name)?
            };
            let key = if let Some(key) = SecretKey::read(&folder, KEY_FILE)? {
                key
            } else {
                let key = SecretKey::generate()?;
                key.write_new(&folder, KEY_FILE)?;
                // Whoever was first has the key that counts.
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
        book::edit_identity(self.hub(), &agent, move |place| {
            if let Some(known) = place.as_ref() {
                let (agent, endpoint) = (known.agent.clone(), known.endpoint.to_string());
                return Err(SwarmError::IdentityExists { agent, endpoint });
            }
            *place = Some(new);
            Ok(())
        })
        .await?;
        self.register(&agent).await?;
        self.refresh().await?;
        self.take_over_state(&agent, Merge::Add).await?;
        self.write_state(&agent).await?;
        Ok(identity)
    }

    /// Gives a known agent another endpoint and announces it in its swarms, signed with its key. One that was interrupted
    /// is finished by the same again, and so is a roster put right that has another endpoint for the agent.
    async fn move_to(&self, known: &Identity, endpoint: Endpoint) -> Result<Identity, SwarmError> {
        let (agent, book) = (known.agent.clone(), self.book());
        if known.endpoint == endpoint && self.outdated_entries(known).is_empty() {
            return Err(SwarmError::IdentityExists { agent, endpoint: known.endpoint.to_string() });
        }
        check_endpoint(&book, &agent, &endpoint)?;
        // Without its key nothing can be announced.
        self.key(&agent).await?;
        let change = move |identity: &mut Identity| {
            identity.endpoint = endpoint;
            Ok(identity.clone())
        };
        let moved = self.edit_identity(&agent, change).await?;
        self.announce_endpoint(&moved).await?;
        Ok(moved)
    }

    /// Drops the messages of an agent from now on, or no longer.
    pub async fn mute_agent(
        &self,
        agent: Option<&str>,
        other: &str,
        mute: bool,
    ) -> Result<PeerId, SwarmError> {
        let identity = self.identity(agent)?;
        let other = self.peer_named(&identity.agent, other)?;
        let id = other.clone();
        self.edit_identity(&identity.agent, move |identity| {
            let _ = if mute { identity.muted_agents.insert(id) } else { identity.muted_agents.remove(&id) };
            Ok(())
        })
        .await?;
        let book = self.book();
        for swarm in book.swarms_of(&identity.agent).filter(|swarm| swarm.members.contains_key(&other)) {
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

    /// The agent that is meant by an id, or by an address of a swarm that our agent is in. Nobody has to have the id yet.
    fn peer_named(&self, agent: &PeerId, named: &str) -> Result<PeerId, SwarmError> {
        let Some((_, realm)) = named.split_once('@') else { return Ok(PeerId::parse(named)?) };
        let book = self.book();
        let swarm = book.swarms_of(agent).find(|swarm| swarm.realm.as_str().eq_ignore_ascii_case(realm));
        let swarm = swarm.ok_or_else(|| SwarmError::UnknownSwarm {
            swarm: realm.to_owned(),
            near: nearest(realm, book.swarms_of(agent).map(|swarm| swarm.realm.as_str())),
        })?;
        member_of(swarm, named)
    }

    /// Whether somebody of this id is in a swarm of our agent's.
    pub fn knows_peer(&self, agent: &PeerId, other: &PeerId) -> bool {
        self.book().swarms_of(agent).any(|swarm| swarm.members.contains_key(other))
    }

    /// Drops the messages of a whole swarm from now on, or no longer.
    pub async fn mute_swarm(&self, swarm: Option<&str>, mute: bool) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find(swarm)?;
        let id = swarm.swarm_id;
        self.edit_identity(&agent, move |identity| {
            let _ = if mute { identity.muted_swarms.insert(id) } else { identity.muted_swarms.remove(&id) };
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }
}

/// Whether an address is no other agent's of this hub.
fn check_endpoint(book: &book::Book, agent: &PeerId, endpoint: &Endpoint) -> Result<(), SwarmError> {
    let is_taken = |known: &&Arc<Identity>| known.agent != *agent && known.endpoint == *endpoint;
    match book.identities.values().find(is_taken) {
        Some(other) => {
            let problem = format!("{endpoint} is that of '{}'; give each agent its own path", other.agent);
            Err(SwarmError::field("endpoint", problem))
        }
        None => Ok(()),
    }
}

/// Whose state a file is, as far as that can be read.
fn state_owner(bytes: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    Some(value.get("agent_id")?.as_str()?.to_owned())
}
