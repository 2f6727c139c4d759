//! Invites, and whom they let in.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::not_master;
use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::invite::{Invite, InviteLink, Token};
use crate::stamp;
use crate::swarms::Swarms;
use crate::wire::SystemContent;

/// How long an invite is good for unless something else is said.
pub const INVITE_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// An invite that was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// What it is listed under.
    pub digest: String,
    /// The link to give away.
    pub link: InviteLink,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
}

impl Swarms {
    /// Makes an invite. Without an end it is only good where that was asked for.
    pub async fn invite(
        &self,
        swarm: Option<&str>,
        lifetime: Option<SignedDuration>,
        max_uses: Option<u32>,
    ) -> Result<Made, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        let is_master = swarm.master == agent;
        if !is_master && !swarm.settings.allow_member_invite {
            return Err(not_master(&swarm));
        }
        if max_uses == Some(0) {
            return Err(SwarmError::field("max_uses", "must be 1 or more"));
        }
        let now = self.hub().now();
        let ends_at = match lifetime {
            Some(lifetime) => Some(
                now.checked_add(lifetime).map_err(|_| SwarmError::field("expires", "is too far ahead"))?,
            ),
            None => None,
        };
        let key = self.key(&agent).await?;
        let master = swarm.members.get(&swarm.master);
        let master = master.ok_or_else(|| SwarmError::field("swarm", "has no master; ask for its roster"))?;
        let invite = Invite {
            swarm_id: swarm.swarm_id,
            master: swarm.master.clone(),
            endpoint: master.endpoint.clone(),
            iat: now.as_second(),
            // Written so that every reader of times in use takes it.
            expires_at: ends_at.map(|end| stamp::render(end).replace('Z', "+00:00")),
            exp: None,
            max_uses,
            master_key: Some(master.public_key.clone()),
            issuer: (!is_master).then(|| agent.clone()),
        };
        let token = invite.sign(&key);
        let digest = Token::read(&token)?.digest();
        let (known, issuer) = (digest.clone(), agent.clone());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            swarm.remember_invite(known, issuer, now, ends_at, max_uses, now).map_err(|_| {
                SwarmError::field("invites", "are too many; revoke some, or wait until they end")
            })
        })
        .await?;
        Ok(Made { digest, link: invite.link(token), ends_at })
    }

    /// Takes an invite back; the beginning of its digest is enough. The master, who counts its uses, is told by a member.
    pub async fn revoke(&self, swarm: Option<&str>, digest: &str) -> Result<String, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        let is_meant = |known: &&String| !digest.is_empty() && known.starts_with(digest);
        let found: Vec<&String> = swarm.invites.keys().filter(is_meant).collect();
        let [found] = found.as_slice() else {
            return Err(SwarmError::UnknownInvite { swarm: swarm.realm.clone(), digest: digest.to_owned() });
        };
        let (found, known, me) = ((*found).clone(), (*found).clone(), agent.clone());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let Some(invite) = swarm.invites.get_mut(&known) else { return Ok(()) };
            invite.revoked = true;
            if swarm.master != me {
                let content = SystemContent {
                    swarm_id: Some(swarm.swarm_id.to_string()),
                    expires_at: invite.ends_at.map(stamp::render),
                    invite: Some(known),
                    ..SystemContent::new("invite_revoked")
                };
                swarm.announce(Uuid::new_v4(), Some(swarm.master.clone()), content.to_text());
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Lets somebody in who waits for it, or turns them away.
    pub async fn decide(
        &self,
        swarm: Option<&str>,
        candidate: &str,
        approve: bool,
    ) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led(swarm)?;
        let not_pending =
            || SwarmError::NotPending { swarm: swarm.realm.clone(), agent: candidate.to_owned() };
        let id = swarm
            .pending
            .iter()
            .find(|(id, waiting)| id.as_str() == candidate && !waiting.denied)
            .map(|(id, _)| id.clone())
            .ok_or_else(not_pending)?;
        let (new, now) = (id.clone(), self.hub().now());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let Some(waiting) = swarm.pending.get_mut(&new) else { return Ok(()) };
            if approve {
                swarm.approve(&new, now).map_err(|refused| {
                    SwarmError::field("candidate", format!("'{new}' cannot join: {refused}"))
                })?;
            } else {
                waiting.denied = true;
            }
            Ok(())
        })
        .await?;
        if approve {
            self.notify_joined(&agent, swarm.swarm_id, &id).await;
            if let Some(swarm) = self.book().swarms.get(&(agent.clone(), swarm.swarm_id)) {
                self.say_approved(&agent, swarm, &id).await?;
            }
        }
        Ok(id)
    }
}
