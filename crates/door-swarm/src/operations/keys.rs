//! New keys: an agent's own, and those of members that a person vouches for.

use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::contest::KeyProof;
use crate::error::SwarmError;
use crate::keys::{KeyError, PublicKey, SecretKey};
use crate::ledger::{Identity, Rotation, Swarm};
use crate::operations::member_of;
use crate::roster::prove_key;
use crate::swarms::{KEY_FILE, Swarms, blocking, open_home};
use crate::wire::SystemContent;

/// How many keys before the current one are thought of: a peer that was away for as many is told by the master.
const MOST_ROTATIONS: usize = 8;

/// Where the new key is until every swarm has been told of it with the old one.
const NEXT_KEY_FILE: &str = "agent.key.next";

/// A new key, and what became of others for it.
#[derive(Debug, Clone)]
pub struct Rotated {
    /// The key.
    pub key: PublicKey,
    /// How many open invites have ended, because they are signed with the key before.
    pub ended_invites: usize,
    /// Whether the key before was lost: nobody can be told with it, and each member has to accept the new one.
    pub was_lost: bool,
}

/// The keys in an agent's folder.
struct KeyFiles {
    current: Option<SecretKey>,
    next: Option<SecretKey>,
}

impl Swarms {
    /// Gives an agent a new key. Each swarm is told with the old one, which signs for the last time; the news goes first
    /// to everybody, because what follows is signed with the new one. Where the old one is lost there is nothing to tell
    /// it with: others see the new one at the endpoint, and their owners accept it. One that was interrupted is finished.
    pub async fn rotate_key(&self, agent: Option<&str>) -> Result<Rotated, SwarmError> {
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
            // One that an interrupted rotation has left, of which nobody was told.
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

    /// Finishes a change of an agent's key that was interrupted after somebody may have been told of it.
    pub(crate) async fn resume_rotation(&self, agent: &PeerId) -> Result<Option<Rotated>, SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        match self.interrupted(&identity).await? {
            Some((old, new)) => self.finish_rotation(&identity, old, new).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether a change of an agent's key was interrupted.
    pub(crate) async fn is_rotation_interrupted(&self, identity: &Identity) -> Result<bool, SwarmError> {
        Ok(self.interrupted(identity).await?.is_some())
    }

    /// The old key and the new one of a change that was interrupted: a swarm has the new one noted, or it has taken the
    /// old one's place in its file already.
    async fn interrupted(
        &self,
        identity: &Identity,
    ) -> Result<Option<(Option<SecretKey>, SecretKey)>, SwarmError> {
        let files = self.key_files(identity).await?;
        let book = self.book();
        let is_told = |key: &SecretKey| {
            let mut own =
                book.swarms_of(&identity.agent).filter_map(|swarm| swarm.members.get(&identity.agent));
            own.any(|member| member.public_key == key.public())
        };
        let is_current = |key: &SecretKey| key.public() == identity.public_key;
        let found = match (files.current, files.next) {
            (current, Some(next)) if !is_current(&next) && is_told(&next) => Some((current, next)),
            (Some(current), next) if !is_current(&current) => {
                let is_swapped = next.is_some_and(|next| next.public() == current.public());
                (is_swapped || is_told(&current)).then_some((None, current))
            }
            _ => None,
        };
        // Swapped in its file, the new key is in both places, and the swarms have all been told.
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

    /// Tells every swarm that has not been told, then puts the new key in the place of the old one. Each step can be
    /// taken again.
    async fn finish_rotation(
        &self,
        identity: &Identity,
        old: Option<SecretKey>,
        new: SecretKey,
    ) -> Result<Rotated, SwarmError> {
        let (book, public) = (self.book(), new.public());
        let was_lost = old.is_none() && identity.public_key != public && !self.has_former(identity).await?;
        let mut ended_invites = 0;
        for swarm in book.swarms_of(&identity.agent).filter(|swarm| swarm.is_active()) {
            let (me, key, former) =
                (identity.agent.clone(), public.clone(), old.as_ref().map(SecretKey::public));
            let proof = prove_key(&new, swarm.swarm_id, &identity.agent);
            let change = move |swarm: &mut Swarm| Ok(swarm.take_new_key(&me, key, former, proof));
            ended_invites += self.edit(&identity.agent, swarm.swarm_id, change).await?;
        }
        // The news is signed when it is sent, so the old key has to stay within reach until it was.
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
        Ok(Rotated { key: public, ended_invites, was_lost })
    }

    /// Whether the key that others know is kept under its former name.
    async fn has_former(&self, identity: &Identity) -> Result<bool, SwarmError> {
        Ok(self.former_key(&identity.agent, &identity.public_key).await?.is_some())
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
        let unusable = |error: KeyError| SwarmError::field("key", format!("cannot be used: {error}"));
        let given = key.map(PublicKey::parse).transpose().map_err(unusable)?;
        let offered = swarm.members.get(&id).and_then(|member| member.offered_key.clone());
        let key = given.or(offered).ok_or_else(|| {
            SwarmError::field(
                "key",
                format!("is missing: the endpoint of '{id}' has named no other; give it with --key"),
            )
        })?;
        let (new, now, me) = (key.clone(), self.hub().now(), agent.clone());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
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
    /// Notes our agent's own new key and what others are to be told of it; says how many invites have ended for it.
    fn take_new_key(
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
            // The master counts what changes the roster.
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
            let extra = (self.rotations.len() + 1).saturating_sub(MOST_ROTATIONS);
            self.rotations.drain(..extra);
            self.rotations.push(Rotation { news, old_key: former });
        }
        self.end_invites_of(me)
    }
}

fn former_key_file(public: &PublicKey) -> String {
    format!("agent.key.{}", public.fingerprint().replace(':', ""))
}
