//! Key changes: rotation of a local agent's key, and acceptance of a member's new key by a person.

use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::contested_key::KeyProof;
use crate::error::SwarmError;
use crate::keys::{KeyError, PublicKey, SecretKey};
use crate::model::{Identity, Rotation, Swarm};
use crate::operations::resolve_member;
use crate::roster::prove_key;
use crate::swarms::{KEY_FILE, Swarms, blocking, open_home};
use crate::wire::SystemContent;

/// Maximum number of previous keys that are tracked. A peer that missed more rotations learns the key from the master.
const MAX_ROTATIONS: usize = 8;

/// File that holds the new key until every swarm has an announcement of it, signed with the old key.
const NEXT_KEY_FILE: &str = "agent.key.next";

/// Result of a key rotation.
#[derive(Debug, Clone)]
pub struct RotationSummary {
    /// The new key.
    pub key: PublicKey,
    /// Number of open invites that were revoked because the old key signed them.
    pub ended_invites: usize,
    /// True if the old key was lost. No announcement can then be signed, so each member has to accept the new key.
    pub was_lost: bool,
}

/// The keys in an agent's folder.
struct KeyFiles {
    current: Option<SecretKey>,
    next: Option<SecretKey>,
}

impl Swarms {
    /// Rotates an agent's key, after finishing an interrupted rotation.
    ///
    /// Each swarm gets an announcement signed with the old key. This announcement is sent before everything else,
    /// because all later messages are signed with the new key. If the old key is lost, no announcement is possible:
    /// other members see the new key at the endpoint, and their owners accept it.
    pub async fn rotate_key(&self, agent: Option<&str>) -> Result<RotationSummary, SwarmError> {
        let identity = self.identity(agent)?;
        if let Some(rotated) = self.resume_rotation(&identity.agent).await? {
            return Ok(rotated);
        }
        let files = self.key_files(&identity).await?;
        let old = match files.current {
            Some(_) => Some(self.key(&identity.agent).await?.as_ref().clone()),
            None => None,
        };
        let home = identity.home.clone();
        let new = match files.next {
            // An interrupted rotation left this key behind without announcing it.
            Some(next) => next,
            None => {
                blocking(move || {
                    let key = SecretKey::generate()?;
                    key.write_new(&open_home(&home)?, NEXT_KEY_FILE)?;
                    Ok(key)
                })
                .await?
            }
        };
        self.finish_rotation(&identity, old, new).await
    }

    /// Finishes an interrupted rotation whose key may have been announced already.
    pub(crate) async fn resume_rotation(
        &self,
        agent: &PeerId,
    ) -> Result<Option<RotationSummary>, SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        match self.find_interrupted_rotation(&identity).await? {
            Some((old, new)) => self.finish_rotation(&identity, old, new).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns true if a key rotation was interrupted.
    pub(crate) async fn is_rotation_interrupted(&self, identity: &Identity) -> Result<bool, SwarmError> {
        Ok(self.find_interrupted_rotation(identity).await?.is_some())
    }

    /// Returns the old and the new key of an interrupted rotation.
    ///
    /// The rotation was interrupted if a swarm or the key file already has the new key.
    async fn find_interrupted_rotation(
        &self,
        identity: &Identity,
    ) -> Result<Option<(Option<SecretKey>, SecretKey)>, SwarmError> {
        let files = self.key_files(identity).await?;
        let snapshot = self.snapshot();
        let is_announced = |key: &SecretKey| {
            let mut own =
                snapshot.swarms_of(&identity.agent).filter_map(|swarm| swarm.members.get(&identity.agent));
            own.any(|member| member.public_key == key.public())
        };
        let is_current = |key: &SecretKey| key.public() == identity.public_key;
        let found = match (files.current, files.next) {
            (current, Some(next)) if !is_current(&next) && is_announced(&next) => Some((current, next)),
            (Some(current), next) if !is_current(&current) => {
                let is_swapped = next.is_some_and(|next| next.public() == current.public());
                (is_swapped || is_announced(&current)).then_some((None, current))
            }
            _ => None,
        };
        // If the key file was already replaced, both files hold the new key, and all announcements exist.
        Ok(found.map(|(old, new)| (old.filter(|old| old.public() != new.public()), new)))
    }

    async fn key_files(&self, identity: &Identity) -> Result<KeyFiles, SwarmError> {
        let home = identity.home.clone();
        blocking(move || {
            let folder = open_home(&home)?;
            let current = SecretKey::read(&folder, KEY_FILE)?;
            Ok(KeyFiles { current, next: SecretKey::read(&folder, NEXT_KEY_FILE)? })
        })
        .await
    }

    /// Announces the new key in the remaining swarms, then replaces the key file. Each step is idempotent.
    async fn finish_rotation(
        &self,
        identity: &Identity,
        old: Option<SecretKey>,
        new: SecretKey,
    ) -> Result<RotationSummary, SwarmError> {
        let (snapshot, public) = (self.snapshot(), new.public());
        let was_lost =
            old.is_none() && identity.public_key != public && !self.has_former_key(identity).await?;
        let mut ended_invites = 0;
        for swarm in snapshot.swarms_of(&identity.agent).filter(|swarm| swarm.is_active()) {
            let (me, key, former) =
                (identity.agent.clone(), public.clone(), old.as_ref().map(SecretKey::public));
            let proof = prove_key(&new, swarm.swarm_id, &identity.agent);
            let change = move |swarm: &mut Swarm| Ok(swarm.set_own_key(&me, key, former, proof));
            ended_invites += self.edit_swarm(&identity.agent, swarm.swarm_id, change).await?;
        }
        // Announcements are signed when they are sent, so the old key must stay available until then.
        let home = identity.home.clone();
        blocking(move || {
            let folder = open_home(&home)?;
            if let Some(old) = &old {
                old.replace(&folder, &former_key_file(&old.public()))?;
            }
            new.replace(&folder, KEY_FILE)?;
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
        Ok(RotationSummary { key: public, ended_invites, was_lost })
    }

    /// Returns true if a former key file holds the key that other members know.
    async fn has_former_key(&self, identity: &Identity) -> Result<bool, SwarmError> {
        Ok(self.former_key(&identity.agent, &identity.public_key).await?.is_some())
    }

    /// Reads the former key that belongs to a public key, if its file exists.
    pub(crate) async fn former_key(
        &self,
        agent: &PeerId,
        public: &PublicKey,
    ) -> Result<Option<SecretKey>, SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        let (home, file) = (identity.home.clone(), former_key_file(public));
        blocking(move || Ok(SecretKey::read(&open_home(&home)?, &file)?)).await
    }

    /// Accepts a new key of a member by decision of a person.
    ///
    /// The person has compared the key, which the member's endpoint returns, through another channel.
    pub async fn accept_key(
        &self,
        swarm: Option<&str>,
        member: &str,
        key: Option<&str>,
    ) -> Result<PublicKey, SwarmError> {
        let (agent, swarm) = self.find_active_swarm(swarm)?;
        let id = resolve_member(&swarm, member)?;
        let unusable = |error: KeyError| SwarmError::field("key", format!("cannot be used: {error}"));
        let accepted_key = key.map(PublicKey::parse).transpose().map_err(unusable)?;
        let offered = swarm.members.get(&id).and_then(|member| member.offered_key.clone());
        let key = accepted_key.or(offered).ok_or_else(|| {
            SwarmError::field(
                "key",
                format!("is missing: the endpoint of '{id}' has returned no other key; set it with --key"),
            )
        })?;
        let (new, now, me) = (key.clone(), self.hub().now(), agent.clone());
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            if let Some(holder) = swarm.key_holder(&new, &id) {
                let problem = format!("is the key of '{holder}'; compare it with the owner of '{id}' again");
                return Err(SwarmError::field("key", problem));
            }
            if let Some(member) = swarm.members.get_mut(&id) {
                member.replace_key(new);
                member.offered_key = None;
                member.signs_envelopes = false;
                member.confirmed_at = Some(now);
            }
            swarm.settle_key(&me, &id, KeyProof::Signature);
            Ok(())
        })
        .await?;
        Ok(key)
    }
}

impl Swarm {
    /// Sets our agent's new key and queues the announcement. Returns the number of invites that this revokes.
    fn set_own_key(
        &mut self,
        me: &PeerId,
        key: PublicKey,
        former: Option<PublicKey>,
        proof: String,
    ) -> usize {
        let Some(member) = self.members.get_mut(me).filter(|member| member.public_key != key) else {
            return 0;
        };
        member.replace_key(key.clone());
        if let Some(former) = former {
            // The master increments the epoch for every roster change.
            let is_counted = self.master == *me;
            self.epoch += u64::from(is_counted);
            let content = SystemContent {
                swarm_id: Some(self.swarm_id.to_string()),
                agent_id: Some(me.to_string()),
                public_key: Some(key.to_wire()),
                old_key: Some(former.to_wire()),
                proof: Some(proof),
                epoch: is_counted.then_some(self.epoch),
                ..SystemContent::new("key_rotated")
            };
            let news = Uuid::new_v4();
            self.announce(news, None, content.to_text());
            let extra = (self.rotations.len() + 1).saturating_sub(MAX_ROTATIONS);
            self.rotations.drain(..extra);
            self.rotations.push(Rotation { news, old_key: former });
        }
        self.revoke_invites_of(me)
    }
}

fn former_key_file(public: &PublicKey) -> String {
    format!("agent.key.{}", public.fingerprint().replace(':', ""))
}
