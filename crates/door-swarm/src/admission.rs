//! Admission of new members: invites, bans, key proofs and approval, as pure functions of a swarm.

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::contested_key::KeyProof;
use crate::endpoint::Endpoint;
use crate::invite::Invite;
use crate::keys::PublicKey;
use crate::members::RosterEntry;
use crate::model::{Ban, InviteRecord, Member, PendingJoin, Swarm};
use crate::roster::millis;
use crate::state::MAX_MEMBERS;
use crate::timestamp;
use crate::wire::{MemberField, RosterMember, SystemContent};

/// Maximum number of join requests that wait for approval. Further requests are refused, because a person reads this
/// list.
const MAX_PENDING: usize = 100;

/// Maximum number of stored invites. Expired invites are evicted first.
const MAX_INVITES: usize = 1000;

/// A join request that has passed all checks that do not need the swarm's state.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) agent: PeerId,
    pub(crate) endpoint: Endpoint,
    pub(crate) public_key: PublicKey,
    pub(crate) invite: Invite,
    /// Digest of the invite token. The uses of an invite are counted under it.
    pub(crate) digest: String,
    /// True if the candidate states that it has left the swarm. Other members may learn of the departure before this
    /// hub does.
    pub(crate) has_left: bool,
    /// Verified signature by `public_key`; `None` for an unsigned request.
    pub(crate) proof: Option<Proof>,
}

/// The verified signature of a join request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Signing time, by the candidate's clock.
    pub(crate) at: Timestamp,
    /// True if the signature covers the whole request, including endpoint and id.
    pub(crate) is_whole: bool,
}

/// The decision on a join request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The candidate is a new member.
    Joined,
    /// The candidate is already a member, and the member's entry is unchanged.
    AlreadyMember,
    /// The candidate is a member that has proved its key and now has a new endpoint.
    Moved,
    /// The request waits for the master's approval.
    Pending,
}

/// Reason why an agent may not join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("the agent_id is taken by a member with another key, or clashes with one; choose another")]
    IdTaken,
    #[error(
        "the public_key belongs to another member; where it is yours, sign the request with it, or ask the master"
    )]
    KeyTaken,
    #[error(
        "the agent is a member with another endpoint, or signed its requests before; sign the whole request with its \
         current key, join under another agent_id, or ask the master to change the endpoint"
    )]
    NotProven,
    #[error("the request was used before, or is older than the last change of the member; sign a new one")]
    Replayed,
    #[error("the agent was removed from the swarm; ask the master for a new invite")]
    Banned,
    #[error("the invite was revoked; ask for a new one")]
    Revoked,
    #[error("the invite has no uses left; ask for a new one")]
    Exhausted,
    #[error("the invite is not known here; ask for a new one")]
    Unknown,
    #[error("members of this swarm may not invite; ask the master")]
    InvitesDisabled,
    #[error("the request was denied by the master")]
    Denied,
    #[error("the swarm has {MAX_MEMBERS} members, the maximum")]
    Full,
    #[error("too many requests wait for approval; try again later")]
    TooManyPending,
}

impl Candidate {
    /// Builds the pending entry for this request.
    fn entry(&self, now: Timestamp) -> PendingJoin {
        PendingJoin {
            endpoint: self.endpoint.clone(),
            public_key: self.public_key.clone(),
            invite: self.digest.clone(),
            asked_at: now,
            signed_at: self.proof.map(|proof| proof.at),
            denied: false,
        }
    }
}

impl Swarm {
    /// Decides on a join request and counts the use of its invite.
    ///
    /// Bans and the invite are checked before anything else, even for a member, so that a request without a valid
    /// invite learns nothing but the refusal. A refusal may leave a partial change behind, so callers work on a copy.
    pub(crate) fn admit(
        &mut self,
        candidate: &Candidate,
        now: Timestamp,
    ) -> Result<Admission, AdmissionError> {
        self.check_bans(candidate)?;
        self.check_invite(candidate)?;
        if self.members.contains_key(&candidate.agent) {
            return self.admit_member(candidate, now);
        }
        if candidate.proof.is_some() && !self.is_fresh(candidate) {
            return self.answer_replay(candidate);
        }
        let signed_before =
            |former: &Member| former.signs_envelopes && former.public_key == candidate.public_key;
        if candidate.proof.is_none() && self.former.get(&candidate.agent).is_some_and(signed_before) {
            return Err(AdmissionError::NotProven);
        }
        let squatters =
            self.check_id_and_key(&candidate.agent, &candidate.public_key, candidate.proof.is_some())?;
        self.record_use(candidate, now)?;
        if self.settings.require_approval {
            self.add_pending(candidate, now)?;
            return Ok(Admission::Pending);
        }
        self.insert_admitted(&candidate.agent, &squatters, candidate.entry(now), now);
        Ok(Admission::Joined)
    }

    /// Decides on a join request that uses the id of an existing member. The member's entry changes only if the request
    /// is signed with the member's current key.
    fn admit_member(&mut self, candidate: &Candidate, now: Timestamp) -> Result<Admission, AdmissionError> {
        let id = &candidate.agent;
        let Some(member) = self.members.get(id) else { return Err(AdmissionError::IdTaken) };
        if member.public_key != candidate.public_key {
            return Err(AdmissionError::IdTaken);
        }
        let is_same = member.endpoint == candidate.endpoint;
        // The master's entry changes only through the master's own settings, never through a join request.
        let proof = candidate.proof.filter(|_| self.is_fresh(candidate) && *id != self.master);
        let Some(proof) = proof else {
            return if is_same {
                Ok(Admission::AlreadyMember)
            } else if candidate.proof.is_some() {
                Err(AdmissionError::Replayed)
            } else {
                Err(AdmissionError::NotProven)
            };
        };
        // Without a signature over the whole request, an attacker could have replaced the endpoint.
        if member.signs_envelopes && !proof.is_whole {
            return if is_same { Ok(Admission::AlreadyMember) } else { Err(AdmissionError::NotProven) };
        }
        let changed_at = member.endpoint_change.as_ref().map(|change| change.at);
        if !is_same && changed_at.is_some_and(|changed_at| millis(proof.at) <= millis(changed_at)) {
            return Err(AdmissionError::Replayed);
        }
        if candidate.has_left {
            let squatters = self.find_yielding(&candidate.public_key, id);
            self.insert_admitted(id, &squatters, candidate.entry(now), now);
            return Ok(Admission::Joined);
        }
        if let Some(member) = self.members.get_mut(id) {
            member.signed_at = Some(proof.at);
        }
        let me = self.master.clone();
        self.settle_key(&me, id, KeyProof::Signature);
        if is_same {
            return Ok(Admission::AlreadyMember);
        }
        self.change_endpoint(id, candidate.endpoint.clone(), now);
        Ok(Admission::Moved)
    }

    /// Answers a replayed signed request without changing anything.
    fn answer_replay(&self, candidate: &Candidate) -> Result<Admission, AdmissionError> {
        let waiting = self.pending.get(&candidate.agent).filter(|waiting| {
            waiting.public_key == candidate.public_key && waiting.endpoint == candidate.endpoint
        });
        match waiting {
            Some(waiting) if !waiting.denied => Ok(Admission::Pending),
            _ => Err(AdmissionError::Replayed),
        }
    }

    /// Returns true if this is the newest known request that is signed with its key, under any id.
    fn is_fresh(&self, candidate: &Candidate) -> bool {
        let members = self.members.values().chain(self.former.values());
        let of_members = members.map(|member| (&member.public_key, member.signed_at));
        let of_pending = self.pending.values().map(|waiting| (&waiting.public_key, waiting.signed_at));
        let of_key = of_members.chain(of_pending).filter(|(key, _)| **key == candidate.public_key);
        let last = of_key.filter_map(|(_, signed_at)| signed_at).max();
        candidate.proof.is_some_and(|proof| last.is_none_or(|last| millis(last) < millis(proof.at)))
    }

    fn check_bans(&self, candidate: &Candidate) -> Result<(), AdmissionError> {
        // The token has the creation time in whole seconds only; the stored creation time is exact.
        let recorded = self.invites.get(&candidate.digest).map(|invite| invite.made_at);
        let issued_at = || Timestamp::from_second(candidate.invite.iat).unwrap_or(Timestamp::MIN);
        let invited_at = recorded.unwrap_or_else(issued_at);
        let is_banned = |(id, ban): (&PeerId, &Ban)| {
            // A provisional member may have named another agent's key; the ban does not apply to the agent that proves
            // this key.
            let by_key = ban.public_key.as_ref() == Some(&candidate.public_key)
                && (!ban.provisional || candidate.proof.is_none());
            (by_key || id.conflicts_with(&candidate.agent)) && invited_at <= ban.at
        };
        if self.banned.iter().any(is_banned) { Err(AdmissionError::Banned) } else { Ok(()) }
    }

    /// Checks that the invite may be used and has a use left for this candidate.
    ///
    /// A recorded invite must not be revoked. An invite that is not recorded yet must be recent and must expire.
    fn check_invite(&self, candidate: &Candidate) -> Result<(), AdmissionError> {
        let invite = &candidate.invite;
        if *invite.signer() != self.master && !self.settings.allow_member_invite {
            return Err(AdmissionError::InvitesDisabled);
        }
        let Some(record) = self.invites.get(&candidate.digest) else {
            // A member, or another program with the master's key, created this invite. Its uses are counted from now
            // on, so the invite must be newer than the start of the count, and must expire.
            let is_old = invite.iat < self.invites_since.as_second();
            let is_endless = invite.ends_at().ok().flatten().is_none();
            return if is_old || is_endless { Err(AdmissionError::Unknown) } else { Ok(()) };
        };
        if record.revoked {
            return Err(AdmissionError::Revoked);
        }
        let uses = record.used_by.len() + usize::try_from(record.reused).unwrap_or(usize::MAX);
        let most = record.max_uses.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        if uses < most || self.find_user(candidate, record).is_some() {
            return Ok(());
        }
        Err(AdmissionError::Exhausted)
    }

    /// Returns the id under which this candidate has already used an invite.
    ///
    /// A matching id is not sufficient: the candidate must prove the key, or its request must have exactly the endpoint
    /// and key of the entry with this id.
    fn find_user(&self, candidate: &Candidate, record: &InviteRecord) -> Option<PeerId> {
        let Candidate { agent, endpoint, public_key, .. } = candidate;
        let is_fresh = self.is_fresh(candidate);
        let is_same =
            |key: &PublicKey, place: &Endpoint| key == public_key && (place == endpoint || is_fresh);
        let is_own = match (self.members.get(agent), self.pending.get(agent), self.former.get(agent)) {
            (Some(member), ..) => is_same(&member.public_key, &member.endpoint),
            (None, Some(waiting), _) => is_same(&waiting.public_key, &waiting.endpoint),
            (None, None, Some(former)) => former.public_key == *public_key && is_fresh,
            (None, None, None) => false,
        };
        let own = is_own.then(|| agent.clone()).filter(|id| record.used_by.contains(id));
        let squatters = || self.find_squatters(candidate).find(|id| record.used_by.contains(*id)).cloned();
        own.or_else(squatters)
    }

    /// Returns the squatters on the key that this candidate proves.
    ///
    /// Squatters are members and unsigned requests that name the key under another id. They give way to the candidate.
    fn find_squatters<'s>(&'s self, candidate: &'s Candidate) -> impl Iterator<Item = &'s PeerId> {
        let members = self.members.iter().filter(|(_, member)| member.yields_to_signature());
        let members = members.map(|(id, member)| (id, &member.public_key));
        let waiting = self.pending.iter().filter(|(_, waiting)| waiting.signed_at.is_none());
        let waiting = waiting.map(|(id, waiting)| (id, &waiting.public_key));
        let is_proven = self.is_fresh(candidate);
        let of_key = move |(id, key): &(&PeerId, &PublicKey)| {
            is_proven && **key == candidate.public_key && **id != candidate.agent
        };
        members.chain(waiting).filter(of_key).map(|(id, _)| id)
    }

    /// Counts the use of an invite. Repeated requests of the same agent count once.
    fn record_use(&mut self, candidate: &Candidate, now: Timestamp) -> Result<(), AdmissionError> {
        let Candidate { invite, digest, agent, .. } = candidate;
        if !self.invites.contains_key(digest) {
            let made_at = Timestamp::from_second(invite.iat).unwrap_or(Timestamp::MIN);
            let ends_at = invite.ends_at().ok().flatten();
            let issuer = invite.signer().clone();
            self.record_invite(digest.clone(), issuer, made_at, ends_at, invite.max_uses, now)?;
        }
        let user = self.invites.get(digest).and_then(|record| self.find_user(candidate, record));
        let Some(record) = self.invites.get_mut(digest) else { return Err(AdmissionError::Unknown) };
        if let Some(user) = &user {
            record.used_by.remove(user);
        }
        if !record.used_by.insert(agent.clone()) {
            record.reused = record.reused.saturating_add(1);
        }
        Ok(())
    }

    /// Checks that id and key are free. Returns the members that give way to a candidate that proves the key.
    ///
    /// Without a proof no member gives way, but the candidate may name a key that only provisional members name.
    fn check_id_and_key(
        &self,
        agent: &PeerId,
        key: &PublicKey,
        is_proven: bool,
    ) -> Result<Vec<PeerId>, AdmissionError> {
        let holds = |(id, member): (&PeerId, &Member)| {
            let gives_way = if is_proven { member.yields_to_signature() } else { member.provisional };
            member.public_key == *key && (*id == self.master || !gives_way)
        };
        let squatters = if is_proven { self.find_yielding(key, agent) } else { Vec::new() };
        // A message that was signed for a former member can still be replayed, so no new id may be ambiguous with a
        // former one.
        let is_ambiguous = self.former.keys().any(|id| id.is_ambiguous_with(agent));
        let is_taken = |id: &PeerId| id.conflicts_with(agent) && !squatters.contains(id);
        if is_ambiguous || self.members.keys().any(is_taken) {
            return Err(AdmissionError::IdTaken);
        }
        if self.members.iter().any(holds) {
            return Err(AdmissionError::KeyTaken);
        }
        if self.members.len() - squatters.len() >= MAX_MEMBERS {
            return Err(AdmissionError::Full);
        }
        Ok(squatters)
    }

    /// Stores an invite. If the list is full, expired invites are evicted.
    pub(crate) fn record_invite(
        &mut self,
        digest: String,
        issuer: PeerId,
        made_at: Timestamp,
        ends_at: Option<Timestamp>,
        max_uses: Option<u32>,
        now: Timestamp,
    ) -> Result<(), AdmissionError> {
        if self.invites.len() >= MAX_INVITES {
            self.invites.retain(|_, invite| invite.ends_at.is_none_or(|end| end > now));
        }
        if self.invites.len() >= MAX_INVITES {
            return Err(AdmissionError::Unknown);
        }
        let record = InviteRecord {
            issuer,
            made_at,
            ends_at,
            max_uses,
            used_by: <_>::default(),
            reused: 0,
            revoked: false,
        };
        self.invites.insert(digest, record);
        Ok(())
    }

    /// Adds a join request to the approval list.
    ///
    /// Several unsigned requests may name the same key; they give way to the agent that proves the key.
    fn add_pending(&mut self, candidate: &Candidate, now: Timestamp) -> Result<(), AdmissionError> {
        let Candidate { agent, public_key, .. } = candidate;
        let is_proven = candidate.proof.is_some();
        let others = |id: &PeerId, waiting: &PendingJoin| id != agent && waiting.public_key == *public_key;
        if is_proven {
            self.pending.retain(|id, waiting| !others(id, waiting) || waiting.signed_at.is_some());
        }
        let is_held = |(id, waiting): (&PeerId, &PendingJoin)| {
            others(id, waiting) && waiting.signed_at.is_some() && !waiting.denied
        };
        if self.pending.iter().any(is_held) {
            return Err(AdmissionError::KeyTaken);
        }
        match self.pending.get(agent) {
            Some(known) if known.public_key != *public_key && !known.denied => {
                return Err(AdmissionError::IdTaken);
            }
            // A signed request replaces an unsigned one, which another agent may have sent: neither that endpoint nor a
            // decision on the unsigned request binds the signer.
            Some(known) if known.public_key == *public_key && is_proven && known.signed_at.is_none() => {}
            Some(known)
                if known.public_key == *public_key && known.denied && known.invite == candidate.digest =>
            {
                return Err(AdmissionError::Denied);
            }
            Some(known) if !known.denied && !is_proven => return Ok(()),
            None if self.pending.values().filter(|waiting| !waiting.denied).count() >= MAX_PENDING => {
                return Err(AdmissionError::TooManyPending);
            }
            _ => {}
        }
        self.pending.insert(agent.clone(), candidate.entry(now));
        Ok(())
    }

    /// Turns a pending request into a membership. Only the master calls this.
    pub(crate) fn approve(&mut self, id: &PeerId, now: Timestamp) -> Result<(), AdmissionError> {
        let Some(entry) = self.pending.get(id).cloned() else { return Err(AdmissionError::Unknown) };
        let invite = self.invites.get(&entry.invite);
        if invite.is_none_or(|invite| invite.revoked || invite.ends_at.is_some_and(|end| end <= now)) {
            // The candidate fetches the roster by repeating its request with this invite, so the invite must still be
            // valid.
            return Err(AdmissionError::Revoked);
        }
        let squatters = self.check_id_and_key(id, &entry.public_key, entry.signed_at.is_some())?;
        self.insert_admitted(id, &squatters, entry, now);
        Ok(())
    }

    /// Makes an agent a member, displaces the squatters on its key, and announces the new member.
    fn insert_admitted(&mut self, id: &PeerId, squatters: &[PeerId], entry: PendingJoin, now: Timestamp) {
        for squatter in squatters {
            self.displace(squatter);
        }
        self.pending.remove(id);
        let PendingJoin { endpoint, public_key, signed_at, .. } = entry;
        let provisional = signed_at.is_none();
        self.insert_entry(RosterEntry { id: id.clone(), endpoint, public_key, joined_at: now, provisional });
        self.epoch += 1;
        if let Some(member) = self.members.get_mut(id) {
            member.signed_at = signed_at.or(member.signed_at);
        }
        if let Some(member) = self.members.get(id) {
            let content = self.joined_content(id, member).to_text();
            self.announce(Uuid::new_v4(), None, content);
        }
    }

    /// Removes a member whose key another agent has proved. The member is not banned.
    pub(crate) fn displace(&mut self, id: &PeerId) {
        self.remove_member(id);
        self.epoch += 1;
        let content = SystemContent {
            swarm_id: Some(self.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            reason: Some("another agent has proved that it has the key".to_owned()),
            epoch: Some(self.epoch),
            ..SystemContent::new("member_left")
        };
        self.announce(Uuid::new_v4(), None, content.to_text());
    }

    /// Builds the announcement of a new member, with the member's fields in both the flat and the nested form.
    fn joined_content(&self, id: &PeerId, member: &Member) -> SystemContent {
        let joined_at = Some(timestamp::render(member.joined_at));
        let full = RosterMember {
            agent_id: id.to_string(),
            endpoint: member.endpoint.to_string(),
            public_key: member.public_key.to_wire(),
            joined_at: joined_at.clone(),
            provisional: member.provisional.then_some(true),
        };
        SystemContent {
            kind: Some("system".to_owned()),
            swarm_id: Some(self.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            endpoint: Some(member.endpoint.to_string()),
            joined_at,
            member: Some(MemberField::Full(full)),
            epoch: Some(self.epoch),
            ..SystemContent::new("member_joined")
        }
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
