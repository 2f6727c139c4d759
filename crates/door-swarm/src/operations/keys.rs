//! New keys: an agent's own, and those of members that a person vouches for.

use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::keys::{PublicKey, SecretKey};
use crate::ledger::Rotation;
use crate::operations::member_of;
use crate::roster::prove_key;
use crate::swarms::{KEY_FILE, Swarms, blocking, open_home};
use crate::wire::SystemContent;

/// How many keys before the current one are thought of: a peer that was away for as many is told by the master.
const MOST_ROTATIONS: usize = 8;

/// Where the new key is until every swarm has been told of it with the old one.
const NEXT_KEY_FILE: &str = "agent.key.next";

impl Swarms {
    /// Gives an agent a new key. Each swarm is told with the old one, which signs for the last time; the news goes first
    /// to everybody, because what follows is signed with the new one.
    pub async fn rotate_key(&self, agent: Option<&str>) -> Result<PublicKey, SwarmError> {
        let identity = self.identity(agent)?;
        let book = self.book();
        let old = self.key(&identity.agent).await?;
        let home = identity.home.clone();
        let new = blocking(move || {
            let folder = open_home(&home)?;
            // One that an interrupted rotation has left is the one that others may have been told of.
            if let Some(key) = SecretKey::read(&folder, NEXT_KEY_FILE)? {
                return Ok(key);
            }
            let key = SecretKey::generate()?;
            key.write_new(&folder, NEXT_KEY_FILE)?;
            Ok(key)
        })
        .await?;
        let public = new.public();
        let swarms: Vec<_> =
            book.swarms_of(&identity.agent).filter(|swarm| swarm.is_active()).cloned().collect();
        for swarm in swarms {
            let (me, key, former) = (identity.agent.clone(), public.clone(), old.public());
            let proof = prove_key(&new, swarm.swarm_id, &identity.agent);
            self.edit(&identity.agent, swarm.swarm_id, move |swarm| {
                let content = SystemContent {
                    swarm_id: Some(swarm.swarm_id.to_string()),
                    agent_id: Some(me.to_string()),
                    public_key: Some(key.to_wire()),
                    old_key: Some(former.to_wire()),
                    proof: Some(proof),
                    ..SystemContent::new("key_rotated")
                };
                let news = Uuid::new_v4();
                swarm.announce(news, None, content.to_text());
                let extra = (swarm.rotations.len() + 1).saturating_sub(MOST_ROTATIONS);
                swarm.rotations.drain(..extra);
                swarm.rotations.push(Rotation { news, old_key: former });
                if let Some(member) = swarm.members.get_mut(&me) {
                    member.public_key = key;
                }
                Ok(())
            })
            .await?;
        }
        // The news is signed when it is sent, so the old key has to stay within reach until it was.
        let home = identity.home.clone();
        let (kept, next) = (old.clone(), new.clone());
        blocking(move || {
            let folder = open_home(&home)?;
            kept.replace(&folder, &former_key_file(&kept.public()))?;
            next.replace(&folder, KEY_FILE)?;
            folder.remove(NEXT_KEY_FILE)?;
            Ok(())
        })
        .await?;
        let key = public.clone();
        self.edit_identity(&identity.agent, move |identity| {
            identity.public_key = key;
            Ok(())
        })
        .await?;
        Ok(public)
    }

    /// The key that an agent signed with before a new one was announced, while it is still needed.
    pub(crate) async fn former_key(
        &self,
        agent: &PeerId,
        public: &PublicKey,
    ) -> Result<Option<SecretKey>, SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        let (home, file) = (identity.home.clone(), former_key_file(public));
        blocking(move || Ok(SecretKey::read(&open_home(&home)?, &file)?)).await
    }

    /// Accepts the key that a member's endpoint names, on the word of the person who compared it by other means.
    pub async fn accept_key(
        &self,
        swarm: Option<&str>,
        member: &str,
        key: Option<&str>,
    ) -> Result<PublicKey, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        let id = member_of(&swarm, member)?;
        let given = key.map(PublicKey::parse).transpose()?;
        let offered = swarm.members.get(&id).and_then(|member| member.offered_key.clone());
        let key = given.or(offered).ok_or_else(|| {
            SwarmError::field(
                "key",
                format!("is missing: the endpoint of '{id}' has named no other; give it with --key"),
            )
        })?;
        let new = key.clone();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            if swarm.members.iter().any(|(other, member)| *other != id && member.public_key == new) {
                return Err(SwarmError::field("key", "belongs to another member"));
            }
            if let Some(member) = swarm.members.get_mut(&id) {
                member.public_key = new;
                member.offered_key = None;
                member.signs_envelopes = false;
            }
            Ok(())
        })
        .await?;
        Ok(key)
    }
}

fn former_key_file(public: &PublicKey) -> String {
    format!("agent.key.{}", public.fingerprint().replace(':', ""))
}
