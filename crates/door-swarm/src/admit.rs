//! Who may join: the rules of invites, bans and approval, as a function of a swarm. Pure.

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::invite::Invite;
use crate::keys::PublicKey;
use crate::ledger::{InviteRecord, Member, PendingJoin, Swarm};
use crate::stamp;
use crate::state::MOST_MEMBERS;
use crate::wire::{Joined, MemberWord, SystemContent};

/// Most requests that wait for approval. Further ones are refused: a person reads this list.
const MOST_PENDING: usize = 100;

/// Most invites that are remembered. Those that have ended make room first.
const MOST_INVITES: usize = 1000;

/// Who asks to join, after everything that can be checked without the swarm was checked.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) agent: PeerId,
    pub(crate) endpoint: Endpoint,
    pub(crate) public_key: PublicKey,
    pub(crate) invite: Invite,
    /// What the invite's uses are counted under.
    pub(crate) digest: String,
    /// Whether it says that it had left: others may have heard of that though we have not.
    pub(crate) has_left: bool,
}

/// What became of a request to join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A new member.
    Joined,
    /// It is one already.
    AlreadyMember,
    /// The master has to approve.
    Pending,
}

/// Why somebody may not join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("the agent_id is taken by a member with another key, or clashes with one; choose another")]
    IdTaken,
    #[error("the public_key belongs to another member")]
    KeyTaken,
    #[error("the agent was removed from the swarm; ask the master for a new invite")]
    Banned,
    #[error("the invite was taken back; ask for a new one")]
    Revoked,
    #[error("the invite has been used as often as it may be; ask for a new one")]
    Exhausted,
    #[error("the invite is not known here; ask for a new one")]
    Unknown,
    #[error("members of this swarm may not invite; ask the master")]
    InvitesDisabled,
    #[error("the request was denied by the master")]
    Denied,
    #[error("the swarm has {MOST_MEMBERS} members, which is the most")]
    Full,
    #[error("too many requests wait for approval; try again later")]
    TooManyPending,
}

impl Swarm {
    /// Decides on a request to join, and counts the use of its invite with it.
    pub(crate) fn admit(&mut self, candidate: &Candidate, now: Timestamp) -> Result<Admission, NotAdmitted> {
        if let Some(member) = self.members.get(&candidate.agent) {
            return if member.public_key != candidate.public_key {
                Err(NotAdmitted::IdTaken)
            } else if candidate.has_left {
                self.take_in(&candidate.agent, candidate.endpoint.clone(), candidate.public_key.clone(), now);
                Ok(Admission::Joined)
            } else {
                Ok(Admission::AlreadyMember)
            };
        }
        // What was signed for a former member can still be replayed.
        let is_ambiguous = self.former.keys().any(|id| id.is_ambiguous_with(&candidate.agent));
        if is_ambiguous || self.members.keys().any(|id| id.clashes_with(&candidate.agent)) {
            return Err(NotAdmitted::IdTaken);
        }
        if self.members.values().any(|member| member.public_key == candidate.public_key) {
            return Err(NotAdmitted::KeyTaken);
        }
        // The token counts whole seconds; what was noted when it was made is exact.
        let noted = self.invites.get(&candidate.digest).map(|invite| invite.made_at);
        let told = || Timestamp::from_second(candidate.invite.iat).unwrap_or(Timestamp::MIN);
        let invited_at = noted.unwrap_or_else(told);
        let is_banned = |(id, ban): (&PeerId, &crate::ledger::Ban)| {
            let same =
                id.clashes_with(&candidate.agent) || ban.public_key.as_ref() == Some(&candidate.public_key);
            same && invited_at <= ban.at
        };
        if self.banned.iter().any(is_banned) {
            return Err(NotAdmitted::Banned);
        }
        self.use_invite(candidate, now)?;
        if self.members.len() >= MOST_MEMBERS {
            return Err(NotAdmitted::Full);
        }
        if self.settings.require_approval {
            self.wait_for_approval(candidate, now)?;
            return Ok(Admission::Pending);
        }
        self.take_in(&candidate.agent, candidate.endpoint.clone(), candidate.public_key.clone(), now);
        Ok(Admission::Joined)
    }

    /// Counts the use of an invite by somebody; the same agent uses it once however often it asks.
    fn use_invite(&mut self, candidate: &Candidate, now: Timestamp) -> Result<(), NotAdmitted> {
        let Candidate { invite, digest, agent, .. } = candidate;
        let issuer = invite.signer().clone();
        if issuer != self.master && !self.settings.allow_member_invite {
            return Err(NotAdmitted::InvitesDisabled);
        }
        if !self.invites.contains_key(digest) {
            // Made by another program with the same key, or by a member. Its uses are counted from now on, so it must
            // be from after the count began, and must end.
            let made_at = Timestamp::from_second(invite.iat).unwrap_or(Timestamp::MIN);
            let ends_at = invite.ends_at().ok().flatten();
            let is_old = made_at.as_second() < self.invites_since.as_second();
            if is_old || ends_at.is_none() {
                return Err(NotAdmitted::Unknown);
            }
            self.remember_invite(digest.clone(), issuer, made_at, ends_at, invite.max_uses, now)?;
        }
        let Some(record) = self.invites.get_mut(digest) else { return Err(NotAdmitted::Unknown) };
        if record.revoked {
            return Err(NotAdmitted::Revoked);
        }
        if record.used_by.contains(agent) {
            return Ok(());
        }
        let most = record.max_uses.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        if record.used_by.len() >= most {
            return Err(NotAdmitted::Exhausted);
        }
        record.used_by.insert(agent.clone());
        Ok(())
    }

    /// Notes an invite. Where the list is full, those that have ended make room.
    pub(crate) fn remember_invite(
        &mut self,
        digest: String,
        issuer: PeerId,
        made_at: Timestamp,
        ends_at: Option<Timestamp>,
        max_uses: Option<u32>,
        now: Timestamp,
    ) -> Result<(), NotAdmitted> {
        if self.invites.len() >= MOST_INVITES {
            self.invites.retain(|_, invite| invite.ends_at.is_none_or(|end| end > now));
        }
        if self.invites.len() >= MOST_INVITES {
            return Err(NotAdmitted::Unknown);
        }
        let record =
            InviteRecord { issuer, made_at, ends_at, max_uses, used_by: <_>::default(), revoked: false };
        self.invites.insert(digest, record);
        Ok(())
    }

    fn wait_for_approval(&mut self, candidate: &Candidate, now: Timestamp) -> Result<(), NotAdmitted> {
        match self.pending.get(&candidate.agent) {
            Some(known) if known.public_key != candidate.public_key => return Err(NotAdmitted::IdTaken),
            Some(known) if known.denied && known.invite == candidate.digest => {
                return Err(NotAdmitted::Denied);
            }
            Some(known) if !known.denied => return Ok(()),
            None if self.pending.values().filter(|waiting| !waiting.denied).count() >= MOST_PENDING => {
                return Err(NotAdmitted::TooManyPending);
            }
            _ => {}
        }
        let waiting = PendingJoin {
            endpoint: candidate.endpoint.clone(),
            public_key: candidate.public_key.clone(),
            invite: candidate.digest.clone(),
            asked_at: now,
            denied: false,
        };
        self.pending.insert(candidate.agent.clone(), waiting);
        Ok(())
    }

    /// Makes somebody a member and notes that the others are to be told.
    pub(crate) fn take_in(&mut self, id: &PeerId, endpoint: Endpoint, key: PublicKey, now: Timestamp) {
        self.pending.remove(id);
        self.put_member(id, endpoint, key, now);
        self.epoch += 1;
        if let Some(member) = self.members.get(id) {
            let content = self.joined_content(id, member).to_text();
            self.announce(Uuid::new_v4(), None, content);
        }
    }

    /// What the others are told of a new member, flat and nested.
    fn joined_content(&self, id: &PeerId, member: &Member) -> SystemContent {
        let joined_at = Some(stamp::render(member.joined_at));
        let full = Joined {
            agent_id: id.to_string(),
            endpoint: member.endpoint.to_string(),
            public_key: member.public_key.to_wire(),
            joined_at: joined_at.clone(),
        };
        SystemContent {
            kind: Some("system".to_owned()),
            swarm_id: Some(self.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            endpoint: Some(member.endpoint.to_string()),
            joined_at,
            member: Some(MemberWord::Full(full)),
            epoch: Some(self.epoch),
            ..SystemContent::new("member_joined")
        }
    }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
