//! Invites and the approval of candidates.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::not_master;
use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::invite::{Invite, InviteLink, Token};
use crate::swarms::Swarms;
use crate::timestamp;
use crate::wire::SystemContent;

/// Default lifetime of an invite.
pub const INVITE_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// A newly created invite.
#[derive(Debug, Clone)]
pub struct CreatedInvite {
    /// The digest that identifies the invite in lists.
    pub digest: String,
    /// The link to share.
    pub link: InviteLink,
    /// Expiry time.
    pub ends_at: Option<Timestamp>,
}

impl Swarms {
    /// Creates an invite. An invite without an expiry time is created only on request.
    pub async fn invite(
        &self,
        swarm: Option<&str>,
        lifetime: Option<SignedDuration>,
        max_uses: Option<u32>,
    ) -> Result<CreatedInvite, SwarmError> {
        let (agent, swarm) = self.find_active_swarm(swarm)?;
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
                now.checked_add(lifetime)
                    .map_err(|_| SwarmError::field("expires", "is too far in the future"))?,
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
            // `+00:00` is the spelling that every common time parser accepts.
            expires_at: ends_at.map(|end| timestamp::render(end).replace('Z', "+00:00")),
            exp: None,
            max_uses,
            master_key: Some(master.public_key.clone()),
            issuer: (!is_master).then(|| agent.clone()),
        };
        let token = invite.sign(&key);
        let digest = Token::read(&token)?.digest();
        let (known, issuer) = (digest.clone(), agent.clone());
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            swarm.record_invite(known, issuer, now, ends_at, max_uses, now).map_err(|_| {
                SwarmError::field("invites", "are too many; revoke some, or wait until they end")
            })
        })
        .await?;
        Ok(CreatedInvite { digest, link: invite.link(token), ends_at })
    }

    /// Revokes an invite, named by a prefix of its digest. A member also notifies the master, who counts the uses.
    pub async fn revoke(&self, swarm: Option<&str>, digest: &str) -> Result<String, SwarmError> {
        let (agent, swarm) = self.find_active_swarm(swarm)?;
        let is_meant = |known: &&String| !digest.is_empty() && known.starts_with(digest);
        let found: Vec<&String> = swarm.invites.keys().filter(is_meant).collect();
        let [found] = found.as_slice() else {
            return Err(SwarmError::UnknownInvite { swarm: swarm.realm.clone(), digest: digest.to_owned() });
        };
        let (found, known, me) = ((*found).clone(), (*found).clone(), agent.clone());
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            let Some(invite) = swarm.invites.get_mut(&known) else { return Ok(()) };
            invite.revoked = true;
            if swarm.master != me {
                let content = SystemContent {
                    swarm_id: Some(swarm.swarm_id.to_string()),
                    expires_at: invite.ends_at.map(timestamp::render),
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

    /// Approves or denies a candidate.
    pub async fn decide_join(
        &self,
        swarm: Option<&str>,
        candidate: &str,
        approve: bool,
    ) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led_swarm(swarm)?;
        let not_pending =
            || SwarmError::NotPending { swarm: swarm.realm.clone(), agent: candidate.to_owned() };
        let id = swarm
            .pending
            .iter()
            .find(|(id, waiting)| id.as_str() == candidate && !waiting.denied)
            .map(|(id, _)| id.clone())
            .ok_or_else(not_pending)?;
        let (new, now) = (id.clone(), self.hub().now());
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
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
            if let Some(swarm) = self.snapshot().swarms.get(&(agent.clone(), swarm.swarm_id)) {
                self.send_approval(&agent, swarm, &id).await?;
            }
        }
        Ok(id)
    }
}
