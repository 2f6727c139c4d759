//! Roster updates in system messages, as pure functions.
//!
//! The master may change any entry, and a member only its own.

mod rotation;
mod snapshot;
mod updates;

use std::collections::BTreeSet;

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::members::{MemberConflict, RosterEntry};
use crate::model::{Ban, InviteRecord, KeylessMember, MembershipStatus, Swarm};
use crate::state::MAX_MEMBERS;
use crate::timestamp;
use crate::wire::{MemberField, RosterMember, SystemContent};

pub(crate) use self::rotation::prove_key;
pub(crate) use self::snapshot::MAX_ROSTER_BYTES;
pub use self::updates::AppliedUpdates;
pub(crate) use self::updates::{CarrierMessage, RosterUpdate};

/// Maximum number of unused invites that a member may have revoked, because the master stores each of them.
const MAX_UNUSED_REVOKED: usize = 50;

/// Result of a system message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpdateOutcome {
    /// Nothing changes, because the message is informational or outdated.
    Nothing,
    /// The roster has changed.
    Changed,
    /// An earlier update is missing, so the roster must be requested from the master. This update may have been applied
    /// or not.
    Behind,
    /// A new member was announced without its key, which has to be fetched.
    KeyMissing(PeerId),
    /// A member requests the full roster from our agent.
    RosterRequested,
    /// Our agent is the master now.
    Promoted,
}

/// Reason why a system message is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UpdateError {
    #[error("only the master may send '{action}'")]
    NotMaster { action: &'static str },
    #[error("'{field}' is missing or cannot be used")]
    Field { field: &'static str },
    #[error("the new master is not a member")]
    NotAMember,
    #[error("the new key is not proven by a signature with it")]
    NoProof,
    #[error("the agent_id or the public_key belongs to another member")]
    Taken,
    #[error("the roster is refused: {0}")]
    Conflict(#[from] MemberConflict),
}

/// Context of a system message: sender, recipient and times.
pub(crate) struct UpdateContext<'a> {
    /// Our agent.
    pub(crate) me: &'a PeerId,
    /// The sender, whose signature is verified.
    pub(crate) sender: &'a PeerId,
    /// True if our agent is the only recipient.
    pub(crate) to_me: bool,
    /// Signing time of the message.
    pub(crate) at: Timestamp,
    pub(crate) now: Timestamp,
}

impl UpdateContext<'_> {
    /// Returns the agent that an update is about: the named agent, or else the sender.
    fn subject_of(&self, content: &SystemContent) -> Result<PeerId, UpdateError> {
        match content.subject() {
            Some(id) => PeerId::parse(id).map_err(|_| UpdateError::Field { field: "agent_id" }),
            None => Ok(self.sender.clone()),
        }
    }
}

impl Swarm {
    /// Applies a system message if its sender has the authority.
    pub(crate) fn apply(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        // A value that is present in both the flat and the nested form must be the same in both.
        if let (Some(flat), Some(member)) = (&content.agent_id, content.full_member())
            && *flat != member.agent_id
        {
            return Err(UpdateError::Field { field: "member" });
        }
        match content.action.as_str() {
            "member_joined" => self.on_joined(context, content),
            "member_left" => self.on_departure(context, content),
            "kicked" => self.on_kicked(context, content),
            "member_kicked" => self.on_member_kicked(context, content),
            "master_transfer" => self.on_transfer(context, content),
            "master_changed" => self.on_master_changed(context, content),
            "swarm_dissolved" => {
                self.require_master(context, "swarm_dissolved")?;
                if self.predates_membership(context, content) {
                    return Ok(UpdateOutcome::Nothing);
                }
                self.status = MembershipStatus::Dissolved;
                Ok(UpdateOutcome::Changed)
            }
            "key_rotated" => self.on_key_rotated(context, content),
            "endpoint_changed" => self.on_endpoint_changed(context, content),
            "invite_revoked" => self.on_invite_revoked(context, content),
            "roster_request" => {
                Ok(if context.to_me { UpdateOutcome::RosterRequested } else { UpdateOutcome::Nothing })
            }
            _ => Ok(UpdateOutcome::Nothing),
        }
    }

    pub(crate) fn require_master(
        &self,
        context: &UpdateContext<'_>,
        action: &'static str,
    ) -> Result<(), UpdateError> {
        if *context.sender == self.master { Ok(()) } else { Err(UpdateError::NotMaster { action }) }
    }

    /// Advances the epoch for an update of the master. Returns `None` if the update is outdated.
    pub(crate) fn advance_epoch(&mut self, epoch: Option<u64>) -> Option<UpdateOutcome> {
        match epoch {
            // Without epochs, every update that is not a replay counts as new.
            None => Some(UpdateOutcome::Changed),
            Some(epoch) if epoch <= self.epoch => None,
            Some(epoch) => {
                let is_next = epoch == self.epoch + 1;
                self.epoch = epoch;
                self.orders.is_behind |= !is_next;
                Some(if is_next { UpdateOutcome::Changed } else { UpdateOutcome::Behind })
            }
        }
    }

    /// Returns true if an update of the whole swarm is older than our agent's membership.
    fn predates_membership(&self, context: &UpdateContext<'_>, content: &SystemContent) -> bool {
        match content.epoch {
            Some(epoch) => epoch <= self.epoch,
            None => millis(context.at) < millis(self.joined_at),
        }
    }

    /// Returns true if the same master has already sent a later update about the member.
    ///
    /// This applies only to a master without epochs. Of two updates with the same time, the removal wins.
    fn is_superseded(
        &self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
        id: &PeerId,
        removes: bool,
    ) -> bool {
        let last = self.orders.master_update_at(context, id).filter(|_| content.epoch.is_none());
        last.is_some_and(|last| context.at < last || (context.at == last && !removes))
    }

    fn on_joined(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        self.require_master(context, "member_joined")?;
        let id = PeerId::parse_member(subject(content)?.as_str())
            .map_err(|_| UpdateError::Field { field: "agent_id" })?;
        let endpoint = content.full_member().map(|m| &m.endpoint).or(content.endpoint.as_ref());
        let endpoint = endpoint.ok_or(UpdateError::Field { field: "endpoint" })?;
        let endpoint = Endpoint::parse(endpoint).map_err(|_| UpdateError::Field { field: "endpoint" })?;
        let has_left =
            content.epoch.is_none() && self.orders.departed_at(&id).is_some_and(|left| context.at <= left);
        if has_left || self.is_superseded(context, content, &id, false) {
            return Ok(UpdateOutcome::Nothing);
        }
        if self.members.contains_key(&id) {
            return self.on_rejoined(context, content, &id, endpoint);
        }
        if self.members.len() >= MAX_MEMBERS {
            return Err(UpdateError::Field { field: "members" });
        }
        if self.members.keys().any(|known| known.conflicts_with(&id)) {
            return Err(UpdateError::Taken);
        }
        let Some(key) = content.full_member().map(|member| &member.public_key).filter(|key| !key.is_empty())
        else {
            return self.on_joined_without_key(context, content, id, endpoint);
        };
        let key = PublicKey::parse(key).map_err(|_| UpdateError::Field { field: "public_key" })?;
        let provisional = is_provisional(context, content, &id);
        self.members.check(&id, &key, provisional).map_err(|_| UpdateError::Taken)?;
        let Some(step) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
        let joined_at = content.joined_at.as_deref().and_then(timestamp::parse).unwrap_or(context.now);
        self.orders.record_master_update(context, &id);
        self.insert_entry(RosterEntry { id, endpoint, public_key: key, joined_at, provisional });
        Ok(step)
    }

    /// Adds a member whose key has to be fetched from its endpoint.
    fn on_joined_without_key(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
        id: PeerId,
        endpoint: Endpoint,
    ) -> Result<UpdateOutcome, UpdateError> {
        if self.members.len() + self.announced.len() >= MAX_MEMBERS {
            return Err(UpdateError::Field { field: "members" });
        }
        let before = self.epoch;
        match self.advance_epoch(content.epoch) {
            None => return Ok(UpdateOutcome::Nothing),
            // An earlier update is missing. The epoch stays behind, so that the next message triggers a roster request.
            Some(UpdateOutcome::Behind) => self.epoch = before,
            Some(_) => {}
        }
        self.orders.record_master_update(context, &id);
        let joined_at = content.joined_at.as_deref().and_then(timestamp::parse).unwrap_or(context.now);
        // The key is fetched at once, and housekeeping retries a failed request.
        let announced = KeylessMember { endpoint, joined_at, asked: 0, ask_at: context.now };
        self.announced.insert(id.clone(), announced);
        Ok(UpdateOutcome::KeyMissing(id))
    }

    /// Applies the announcement of a member that is already known.
    ///
    /// Either the roster of our join already contained the member, or the member left and rejoined and only the second
    /// message arrived. The master's entry counts if the master uses epochs. The epoch advances in both cases.
    fn on_rejoined(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
        id: &PeerId,
        endpoint: Endpoint,
    ) -> Result<UpdateOutcome, UpdateError> {
        let announced_key =
            content.full_member().map(|member| PublicKey::parse(&member.public_key)).transpose();
        let key = announced_key.map_err(|_| UpdateError::Field { field: "public_key" })?;
        let provisional = is_provisional(context, content, id);
        if let Some(key) = &key {
            self.members.check(id, key, provisional).map_err(|_| UpdateError::Taken)?;
        }
        let Some(step) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
        self.orders.record_master_update(context, id);
        let joined_at = content.joined_at.as_deref().and_then(timestamp::parse);
        if let (Some(_), Some(key), Some(joined_at)) = (content.epoch, key, joined_at) {
            let known = self.members.get(id);
            if known
                .is_some_and(|known| known.public_key != key || millis(known.joined_at) < millis(joined_at))
            {
                self.insert_entry(RosterEntry {
                    id: id.clone(),
                    endpoint,
                    public_key: key,
                    joined_at,
                    provisional,
                });
            }
            if id == context.me {
                self.joined_at = self.joined_at.max(joined_at);
            }
        }
        Ok(if step == UpdateOutcome::Behind { step } else { UpdateOutcome::Nothing })
    }

    /// Applies the departure of a member, announced by the member or by the master.
    fn on_departure(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        let id = context.subject_of(content)?;
        if id != *context.sender {
            self.require_master(context, "member_left")?;
            if self.is_superseded(context, content, &id, true) {
                return Ok(UpdateOutcome::Nothing);
            }
            let Some(step) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
            self.orders.record_master_update(context, &id);
            let dropped = id != *context.me && self.remove_member(&id);
            return Ok(if dropped || step == UpdateOutcome::Behind { step } else { UpdateOutcome::Nothing });
        }
        if self.is_earlier_membership(context, content, &id) {
            return Ok(UpdateOutcome::Nothing);
        }
        if id == self.master {
            // A swarm without a master is dissolved.
            self.status = MembershipStatus::Dissolved;
            return Ok(UpdateOutcome::Changed);
        }
        if !self.remove_member(&id) {
            return Ok(UpdateOutcome::Nothing);
        }
        self.orders.record_departure(context, &id);
        let notice = SystemContent { agent_id: Some(id.to_string()), ..SystemContent::new("member_left") };
        self.announce_as_master(context, notice);
        Ok(UpdateOutcome::Changed)
    }

    /// Returns true if a message is about an earlier membership of this member.
    ///
    /// Such a message is a replay or a late delivery. `joined_at` identifies the membership; without it, the signing
    /// time does.
    fn is_earlier_membership(
        &self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
        id: &PeerId,
    ) -> bool {
        let Some(since) = self.members.get(id).map(|member| member.joined_at) else { return false };
        let departed_at = content.joined_at.as_deref().and_then(timestamp::parse).unwrap_or(context.at);
        millis(departed_at) < millis(since)
    }

    /// Counts a member's own change and announces it to all members, if our agent is the master.
    ///
    /// Some members may have missed the member's own message.
    pub(crate) fn announce_as_master(&mut self, context: &UpdateContext<'_>, content: SystemContent) {
        if self.master != *context.me {
            return;
        }
        self.epoch += 1;
        let (swarm_id, epoch) = (Some(self.swarm_id.to_string()), Some(self.epoch));
        let content = SystemContent { swarm_id, epoch, ..content };
        self.announce(Uuid::new_v4(), None, content.to_text());
    }

    fn on_kicked(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        self.require_master(context, "kicked")?;
        if !context.to_me || content.subject().is_some_and(|id| id != context.me.as_str()) {
            return Err(UpdateError::Field { field: "recipient" });
        }
        let is_old = match content.epoch {
            // Our agent was invited again later, which has advanced the epoch.
            Some(epoch) => epoch <= self.epoch,
            None => millis(context.at) < millis(self.joined_at),
        };
        if is_old {
            return Ok(UpdateOutcome::Nothing);
        }
        self.status = MembershipStatus::Kicked;
        Ok(UpdateOutcome::Changed)
    }

    fn on_member_kicked(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        self.require_master(context, "member_kicked")?;
        let id = subject(content)?;
        if id == self.master {
            return Err(UpdateError::Field { field: "agent_id" });
        }
        if content.epoch.is_none() && self.is_earlier_membership(context, content, &id) {
            return Ok(UpdateOutcome::Nothing);
        }
        if self.is_superseded(context, content, &id, true) {
            return Ok(UpdateOutcome::Nothing);
        }
        let Some(step) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
        self.orders.record_master_update(context, &id);
        if id == *context.me {
            self.status = MembershipStatus::Kicked;
        }
        if self.banned.len() < MAX_MEMBERS {
            // Every member stores the bans, because any future master needs them.
            let ban = Ban::of(self.members.get(&id), context.now);
            self.banned.insert(id.clone(), ban);
        }
        let dropped = self.remove_member(&id);
        Ok(if dropped || step == UpdateOutcome::Behind { step } else { UpdateOutcome::Nothing })
    }

    /// Accepts the transfer of the master role. Our agent becomes master once the old master has announced it.
    fn on_transfer(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        let named = content.new_master.as_deref().unwrap_or(context.me.as_str());
        if !context.to_me || named != context.me.as_str() {
            return Err(UpdateError::Field { field: "new_master" });
        }
        if self.master == *context.me {
            // Our agent is already the master: the answer to the first request was lost.
            return Ok(UpdateOutcome::Nothing);
        }
        self.require_master(context, "master_transfer")?;
        if let Some(banned) = &content.banned {
            let banned = banned.iter().filter_map(|id| PeerId::parse(id).ok()).take(MAX_MEMBERS);
            let banned_ids: BTreeSet<PeerId> = banned.collect();
            // Bans that are newer than the request are kept.
            self.banned.retain(|id, ban| banned_ids.contains(id) || ban.at >= context.at);
            for id in banned_ids {
                self.banned.entry(id).or_insert(Ban::of(None, context.now));
            }
        }
        // A new master needs the full roster, and the old master can still provide it.
        let is_behind = content.epoch.is_some_and(|epoch| epoch > self.epoch);
        Ok(if is_behind { UpdateOutcome::Behind } else { UpdateOutcome::Nothing })
    }

    fn on_master_changed(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        let id = content.new_master.as_deref().ok_or(UpdateError::Field { field: "new_master" })?;
        let id = PeerId::parse(id).map_err(|_| UpdateError::Field { field: "new_master" })?;
        if id == self.master && content.epoch.is_none_or(|epoch| epoch <= self.epoch) {
            return Ok(UpdateOutcome::Nothing);
        }
        self.require_master(context, "master_changed")?;
        if self.predates_membership(context, content) {
            return Ok(UpdateOutcome::Nothing);
        }
        if !self.members.contains_key(&id) {
            return Err(UpdateError::NotAMember);
        }
        let Some(step) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
        self.master = id;
        if self.master != *context.me {
            return Ok(step);
        }
        // Existing invites name the old master, and only that master knows the number of their uses.
        self.invites_since = context.now;
        self.invites.clear();
        self.pending.clear();
        Ok(UpdateOutcome::Promoted)
    }

    /// Applies the revocation of an invite by the member that issued it. The master may not know the invite yet.
    fn on_invite_revoked(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        if !context.to_me || self.master != *context.me {
            return Ok(UpdateOutcome::Nothing);
        }
        let digest = content.invite.as_deref().filter(|digest| is_digest(digest));
        let digest = digest.ok_or(UpdateError::Field { field: "invite" })?;
        if let Some(known) = self.invites.get_mut(digest) {
            if known.issuer != *context.sender {
                return Err(UpdateError::NotMaster { action: "invite_revoked" });
            }
            known.revoked = true;
            return Ok(UpdateOutcome::Changed);
        }
        let unused = |invite: &&InviteRecord| invite.issuer == *context.sender && invite.used_by.is_empty();
        if self.invites.values().filter(unused).count() >= MAX_UNUSED_REVOKED {
            return Err(UpdateError::Field { field: "invite" });
        }
        let ends_at = content.expires_at.as_deref().and_then(timestamp::parse);
        let (issuer, now) = (context.sender.clone(), context.now);
        let noted = self.record_invite(digest.to_owned(), issuer, now, ends_at, None, now);
        noted.map_err(|_| UpdateError::Field { field: "invite" })?;
        if let Some(noted) = self.invites.get_mut(digest) {
            noted.revoked = true;
        }
        Ok(UpdateOutcome::Changed)
    }

    /// Kicks a member: removes and bans it, and queues the announcements. Only the master calls this.
    pub(crate) fn kick(&mut self, id: &PeerId, reason: Option<&str>, by: &PeerId, now: Timestamp) -> bool {
        let Some(ban) = self.members.get(id).map(|member| Ban::of(Some(member), now)) else { return false };
        self.remove_member(id);
        self.epoch += 1;
        self.banned.insert(id.clone(), ban);
        // Otherwise the holder of the invite could rejoin with it under another id and key.
        for invite in self.invites.values_mut().filter(|invite| invite.used_by.contains(id)) {
            invite.revoked = true;
        }
        let base = SystemContent {
            agent_id: Some(id.to_string()),
            swarm_id: Some(self.swarm_id.to_string()),
            reason: reason.map(str::to_owned),
            initiated_by: Some(by.to_string()),
            epoch: Some(self.epoch),
            ..SystemContent::default()
        };
        let notice = SystemContent { action: "kicked".to_owned(), ..base.clone() };
        self.announce(Uuid::new_v4(), Some(id.clone()), notice.to_text());
        let others = SystemContent {
            action: "member_kicked".to_owned(),
            member: Some(MemberField::Id(id.to_string())),
            ..base
        };
        self.announce(Uuid::new_v4(), None, others.to_text());
        true
    }
}

/// Returns true if an announced member has not proved its key. A master without epochs does not check proofs.
fn is_provisional(context: &UpdateContext<'_>, content: &SystemContent, id: &PeerId) -> bool {
    (content.is_provisional() || content.epoch.is_none()) && id != context.me
}

/// Truncates a time to milliseconds, as on the wire, to compare received and stored times.
pub(crate) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// Returns true if a text has the form of an invite digest.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn subject(content: &SystemContent) -> Result<PeerId, UpdateError> {
    let id = content.subject().ok_or(UpdateError::Field { field: "agent_id" })?;
    PeerId::parse(id).map_err(|_| UpdateError::Field { field: "agent_id" })
}

/// Parses a roster entry. The code that builds the roster decides whether the entry may be a member.
pub(crate) fn parse_member(member: &RosterMember, now: Timestamp) -> Result<RosterEntry, UpdateError> {
    let id = PeerId::parse(&member.agent_id).map_err(|_| UpdateError::Field { field: "agent_id" })?;
    let endpoint = Endpoint::parse(&member.endpoint).map_err(|_| UpdateError::Field { field: "endpoint" })?;
    let public_key =
        PublicKey::parse(&member.public_key).map_err(|_| UpdateError::Field { field: "public_key" })?;
    let joined_at = member.joined_at.as_deref().and_then(timestamp::parse).unwrap_or(now);
    let provisional = member.provisional.unwrap_or(false);
    Ok(RosterEntry { id, endpoint, public_key, joined_at, provisional })
}

#[cfg(test)]
#[path = "roster_tests.rs"]
pub(crate) mod tests;
