//! What a system message changes: only the master's word changes the roster, and anyone's only for itself. Pure.

mod orders;
mod rotation;
mod whole;

use std::collections::BTreeSet;

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::ledger::{Announced, Ban, InviteRecord, Standing, Swarm};
use crate::members::{Clash, Told};
use crate::stamp;
use crate::state::MOST_MEMBERS;
use crate::wire::{Joined, MemberWord, SystemContent};

pub use self::orders::Orders;
pub(crate) use self::orders::{Carrier, Order};
pub(crate) use self::rotation::prove_key;
pub(crate) use self::whole::ROSTER_BYTES;

/// Most invites that a member may have taken back without anybody having used them: the master keeps a note of each.
const MOST_TAKEN_BACK: usize = 50;

/// What a system message came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Nothing changes: it is news for people, or old news.
    Nothing,
    /// The roster has changed.
    Changed,
    /// The roster has changed, or not, and something before it was missed: the master should be asked.
    Behind,
    /// A new member, whose key has to be asked for because the message does not have it.
    KeyMissing(PeerId),
    /// A member wants the whole roster, of us or of whoever leads now.
    RosterWanted,
    /// Our agent leads the swarm now.
    Promoted,
}

/// Why a system message is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAuthority {
    #[error("only the master may say '{action}'")]
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
    Clash(#[from] Clash),
}

/// What happens to whom, and by whom.
pub(crate) struct Said<'a> {
    /// Our agent.
    pub(crate) me: &'a PeerId,
    /// Who says it; its signature has been verified.
    pub(crate) sender: &'a PeerId,
    /// Whether it was said to our agent alone.
    pub(crate) to_me: bool,
    /// When it was signed.
    pub(crate) at: Timestamp,
    pub(crate) now: Timestamp,
}

impl Swarm {
    /// Makes what a system message says true, where whoever says it may.
    pub(crate) fn apply(&mut self, said: &Said<'_>, content: &SystemContent) -> Result<Applied, NoAuthority> {
        // Where a fact is said twice, both have to agree.
        if let (Some(flat), Some(member)) = (&content.agent_id, content.full_member())
            && *flat != member.agent_id
        {
            return Err(NoAuthority::Field { field: "member" });
        }
        match content.action.as_str() {
            "member_joined" => self.on_joined(said, content),
            "member_left" => self.on_left(said, content),
            "kicked" => self.on_kicked(said, content),
            "member_kicked" => self.on_member_kicked(said, content),
            "master_transfer" => self.on_transfer(said, content),
            "master_changed" => self.on_master_changed(said, content),
            "swarm_dissolved" => {
                self.only_master(said, "swarm_dissolved")?;
                if self.is_from_before_us(said, content) {
                    return Ok(Applied::Nothing);
                }
                self.standing = Standing::Dissolved;
                Ok(Applied::Changed)
            }
            "key_rotated" => self.on_key_rotated(said, content),
            "endpoint_changed" => self.on_endpoint_changed(said, content),
            "invite_revoked" => self.on_invite_revoked(said, content),
            "roster_request" => Ok(if said.to_me { Applied::RosterWanted } else { Applied::Nothing }),
            _ => Ok(Applied::Nothing),
        }
    }

    pub(crate) fn only_master(&self, said: &Said<'_>, action: &'static str) -> Result<(), NoAuthority> {
        if *said.sender == self.master { Ok(()) } else { Err(NoAuthority::NotMaster { action }) }
    }

    /// Whether a change of the master's count is new; what follows from it beside the change.
    pub(crate) fn step(&mut self, epoch: Option<u64>) -> Option<Applied> {
        match epoch {
            // Masters that do not count: what was not seen before is new.
            None => Some(Applied::Changed),
            Some(epoch) if epoch <= self.epoch => None,
            Some(epoch) => {
                let is_next = epoch == self.epoch + 1;
                self.epoch = epoch;
                self.orders.is_behind |= !is_next;
                Some(if is_next { Applied::Changed } else { Applied::Behind })
            }
        }
    }

    /// True if an order about the whole swarm is from before our agent joined it.
    fn is_from_before_us(&self, said: &Said<'_>, content: &SystemContent) -> bool {
        match content.epoch {
            Some(epoch) => epoch <= self.epoch,
            None => millis(said.at) < millis(self.joined_at),
        }
    }

    /// True if a master that does not count has given a later order about the same member. Of two of the same time the
    /// one that removes the member counts.
    fn is_overtaken(&self, said: &Said<'_>, content: &SystemContent, id: &PeerId, removes: bool) -> bool {
        let last = self.orders.ordered_at(said, id).filter(|_| content.epoch.is_none());
        last.is_some_and(|last| said.at < last || (said.at == last && !removes))
    }

    fn on_joined(&mut self, said: &Said<'_>, content: &SystemContent) -> Result<Applied, NoAuthority> {
        self.only_master(said, "member_joined")?;
        let id = PeerId::parse_member(subject(content)?.as_str())
            .map_err(|_| NoAuthority::Field { field: "agent_id" })?;
        let endpoint = content.full_member().map(|m| &m.endpoint).or(content.endpoint.as_ref());
        let endpoint = endpoint.ok_or(NoAuthority::Field { field: "endpoint" })?;
        let endpoint = Endpoint::parse(endpoint).map_err(|_| NoAuthority::Field { field: "endpoint" })?;
        let has_left =
            content.epoch.is_none() && self.orders.left_at(&id).is_some_and(|left| said.at <= left);
        if has_left || self.is_overtaken(said, content, &id, false) {
            return Ok(Applied::Nothing);
        }
        if self.members.contains_key(&id) {
            return self.on_joined_again(said, content, &id, endpoint);
        }
        if self.members.len() >= MOST_MEMBERS {
            return Err(NoAuthority::Field { field: "members" });
        }
        if self.members.keys().any(|known| known.clashes_with(&id)) {
            return Err(NoAuthority::Taken);
        }
        let Some(key) = content.full_member().map(|member| &member.public_key).filter(|key| !key.is_empty())
        else {
            return self.on_joined_without_key(said, content, id, endpoint);
        };
        let key = PublicKey::parse(key).map_err(|_| NoAuthority::Field { field: "public_key" })?;
        let provisional = is_provisional(said, content, &id);
        self.members.check(&id, &key, provisional).map_err(|_| NoAuthority::Taken)?;
        let Some(step) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
        let joined_at = content.joined_at.as_deref().and_then(stamp::parse).unwrap_or(said.now);
        self.orders.note_ordered(said, &id);
        self.insert_told(Told { id, endpoint, public_key: key, joined_at, provisional });
        Ok(step)
    }

    /// A new member whose key its own endpoint has to tell.
    fn on_joined_without_key(
        &mut self,
        said: &Said<'_>,
        content: &SystemContent,
        id: PeerId,
        endpoint: Endpoint,
    ) -> Result<Applied, NoAuthority> {
        if self.members.len() + self.announced.len() >= MOST_MEMBERS {
            return Err(NoAuthority::Field { field: "members" });
        }
        let before = self.epoch;
        match self.step(content.epoch) {
            None => return Ok(Applied::Nothing),
            // Still behind: the next message shows it, and the roster is asked for.
            Some(Applied::Behind) => self.epoch = before,
            Some(_) => {}
        }
        self.orders.note_ordered(said, &id);
        let joined_at = content.joined_at.as_deref().and_then(stamp::parse).unwrap_or(said.now);
        // Asked now, and again by whoever keeps house if that fails.
        let announced = Announced { endpoint, joined_at, asked: 0, ask_at: said.now };
        self.announced.insert(id.clone(), announced);
        Ok(Applied::KeyMissing(id))
    }

    /// A member that is known. The roster that came with the join had it already, or it has left and come back and only
    /// the second is heard: the master's word counts where it counts its changes. The count goes on in either case.
    fn on_joined_again(
        &mut self,
        said: &Said<'_>,
        content: &SystemContent,
        id: &PeerId,
        endpoint: Endpoint,
    ) -> Result<Applied, NoAuthority> {
        let told = content.full_member().map(|member| PublicKey::parse(&member.public_key)).transpose();
        let key = told.map_err(|_| NoAuthority::Field { field: "public_key" })?;
        let provisional = is_provisional(said, content, id);
        if let Some(key) = &key {
            self.members.check(id, key, provisional).map_err(|_| NoAuthority::Taken)?;
        }
        let Some(step) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
        self.orders.note_ordered(said, id);
        let joined_at = content.joined_at.as_deref().and_then(stamp::parse);
        if let (Some(_), Some(key), Some(joined_at)) = (content.epoch, key, joined_at) {
            let known = self.members.get(id);
            if known
                .is_some_and(|known| known.public_key != key || millis(known.joined_at) < millis(joined_at))
            {
                self.insert_told(Told { id: id.clone(), endpoint, public_key: key, joined_at, provisional });
            }
            if id == said.me {
                self.joined_at = self.joined_at.max(joined_at);
            }
        }
        Ok(if step == Applied::Behind { step } else { Applied::Nothing })
    }

    /// Somebody has left, on its own word or as the master passes it on.
    fn on_left(&mut self, said: &Said<'_>, content: &SystemContent) -> Result<Applied, NoAuthority> {
        let id = match content.subject() {
            Some(id) => PeerId::parse(id).map_err(|_| NoAuthority::Field { field: "agent_id" })?,
            None => said.sender.clone(),
        };
        if id != *said.sender {
            self.only_master(said, "member_left")?;
            if self.is_overtaken(said, content, &id, true) {
                return Ok(Applied::Nothing);
            }
            let Some(step) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
            self.orders.note_ordered(said, &id);
            let dropped = id != *said.me && self.drop_member(&id);
            return Ok(if dropped || step == Applied::Behind { step } else { Applied::Nothing });
        }
        if self.is_of_before(said, content, &id) {
            return Ok(Applied::Nothing);
        }
        if id == self.master {
            // A swarm without a master is none.
            self.standing = Standing::Dissolved;
            return Ok(Applied::Changed);
        }
        if !self.drop_member(&id) {
            return Ok(Applied::Nothing);
        }
        self.orders.note_left(said, &id);
        let told = SystemContent { agent_id: Some(id.to_string()), ..SystemContent::new("member_left") };
        self.pass_on(said, told);
        Ok(Applied::Changed)
    }

    /// Whether what is said of a member is about an earlier time that it was one: said again by whoever kept it, or late.
    /// Who says since when it was a member means that time; otherwise the time of the signature tells.
    fn is_of_before(&self, said: &Said<'_>, content: &SystemContent, id: &PeerId) -> bool {
        let Some(since) = self.members.get(id).map(|member| member.joined_at) else { return false };
        let meant = content.joined_at.as_deref().and_then(stamp::parse).unwrap_or(said.at);
        millis(meant) < millis(since)
    }

    /// For the master: counts a change that a member has made by its own word and tells the others, some of whom may have
    /// missed it.
    pub(crate) fn pass_on(&mut self, said: &Said<'_>, content: SystemContent) {
        if self.master != *said.me {
            return;
        }
        self.epoch += 1;
        let (swarm_id, epoch) = (Some(self.swarm_id.to_string()), Some(self.epoch));
        let content = SystemContent { swarm_id, epoch, ..content };
        self.announce(Uuid::new_v4(), None, content.to_text());
    }

    fn on_kicked(&mut self, said: &Said<'_>, content: &SystemContent) -> Result<Applied, NoAuthority> {
        self.only_master(said, "kicked")?;
        if !said.to_me || content.subject().is_some_and(|id| id != said.me.as_str()) {
            return Err(NoAuthority::Field { field: "recipient" });
        }
        let is_old = match content.epoch {
            // It was invited again since, which the master has counted.
            Some(epoch) => epoch <= self.epoch,
            None => millis(said.at) < millis(self.joined_at),
        };
        if is_old {
            return Ok(Applied::Nothing);
        }
        self.standing = Standing::Kicked;
        Ok(Applied::Changed)
    }

    fn on_member_kicked(&mut self, said: &Said<'_>, content: &SystemContent) -> Result<Applied, NoAuthority> {
        self.only_master(said, "member_kicked")?;
        let id = subject(content)?;
        if id == self.master {
            return Err(NoAuthority::Field { field: "agent_id" });
        }
        if content.epoch.is_none() && self.is_of_before(said, content, &id) {
            return Ok(Applied::Nothing);
        }
        if self.is_overtaken(said, content, &id, true) {
            return Ok(Applied::Nothing);
        }
        let Some(step) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
        self.orders.note_ordered(said, &id);
        if id == *said.me {
            self.standing = Standing::Kicked;
        }
        if self.banned.len() < MOST_MEMBERS {
            // Whoever leads the swarm one day has to know.
            let ban = Ban::of(self.members.get(&id), said.now);
            self.banned.insert(id.clone(), ban);
        }
        let dropped = self.drop_member(&id);
        Ok(if dropped || step == Applied::Behind { step } else { Applied::Nothing })
    }

    /// Our agent is asked to lead the swarm, and will once the master has told everybody so.
    fn on_transfer(&mut self, said: &Said<'_>, content: &SystemContent) -> Result<Applied, NoAuthority> {
        let named = content.new_master.as_deref().unwrap_or(said.me.as_str());
        if !said.to_me || named != said.me.as_str() {
            return Err(NoAuthority::Field { field: "new_master" });
        }
        if self.master == *said.me {
            // The answer to the first one got lost.
            return Ok(Applied::Nothing);
        }
        self.only_master(said, "master_transfer")?;
        if let Some(banned) = &content.banned {
            let banned = banned.iter().filter_map(|id| PeerId::parse(id).ok()).take(MOST_MEMBERS);
            let told: BTreeSet<PeerId> = banned.collect();
            // Bans of after the question was signed stay.
            self.banned.retain(|id, ban| told.contains(id) || ban.at >= said.at);
            for id in told {
                self.banned.entry(id).or_insert(Ban::of(None, said.now));
            }
        }
        // Whoever is to lead has to know everybody; now there is still somebody to ask.
        let is_behind = content.epoch.is_some_and(|epoch| epoch > self.epoch);
        Ok(if is_behind { Applied::Behind } else { Applied::Nothing })
    }

    fn on_master_changed(
        &mut self,
        said: &Said<'_>,
        content: &SystemContent,
    ) -> Result<Applied, NoAuthority> {
        let id = content.new_master.as_deref().ok_or(NoAuthority::Field { field: "new_master" })?;
        let id = PeerId::parse(id).map_err(|_| NoAuthority::Field { field: "new_master" })?;
        if id == self.master && content.epoch.is_none_or(|epoch| epoch <= self.epoch) {
            return Ok(Applied::Nothing);
        }
        self.only_master(said, "master_changed")?;
        if self.is_from_before_us(said, content) {
            return Ok(Applied::Nothing);
        }
        if !self.members.contains_key(&id) {
            return Err(NoAuthority::NotAMember);
        }
        let Some(step) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
        self.master = id;
        if self.master != *said.me {
            return Ok(step);
        }
        // Invites name the master before, who alone knows how often they were used.
        self.invites_since = said.now;
        self.invites.clear();
        self.pending.clear();
        Ok(Applied::Promoted)
    }

    /// A member takes back an invite of its own, of which the master may not have heard yet.
    fn on_invite_revoked(
        &mut self,
        said: &Said<'_>,
        content: &SystemContent,
    ) -> Result<Applied, NoAuthority> {
        if !said.to_me || self.master != *said.me {
            return Ok(Applied::Nothing);
        }
        let digest = content.invite.as_deref().filter(|digest| is_digest(digest));
        let digest = digest.ok_or(NoAuthority::Field { field: "invite" })?;
        if let Some(known) = self.invites.get_mut(digest) {
            if known.issuer != *said.sender {
                return Err(NoAuthority::NotMaster { action: "invite_revoked" });
            }
            known.revoked = true;
            return Ok(Applied::Changed);
        }
        let unused = |invite: &&InviteRecord| invite.issuer == *said.sender && invite.used_by.is_empty();
        if self.invites.values().filter(unused).count() >= MOST_TAKEN_BACK {
            return Err(NoAuthority::Field { field: "invite" });
        }
        let ends_at = content.expires_at.as_deref().and_then(stamp::parse);
        let (issuer, now) = (said.sender.clone(), said.now);
        let noted = self.remember_invite(digest.to_owned(), issuer, now, ends_at, None, now);
        noted.map_err(|_| NoAuthority::Field { field: "invite" })?;
        if let Some(noted) = self.invites.get_mut(digest) {
            noted.revoked = true;
        }
        Ok(Applied::Changed)
    }

    /// Removes a member and notes that it, and the others, are to be told. For the master.
    pub(crate) fn kick(&mut self, id: &PeerId, reason: Option<&str>, by: &PeerId, now: Timestamp) -> bool {
        let Some(ban) = self.members.get(id).map(|member| Ban::of(Some(member), now)) else { return false };
        self.drop_member(id);
        self.epoch += 1;
        self.banned.insert(id.clone(), ban);
        // Whoever had it could come back by it under another name and with another key.
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
        let told = SystemContent { action: "kicked".to_owned(), ..base.clone() };
        self.announce(Uuid::new_v4(), Some(id.clone()), told.to_text());
        let others = SystemContent {
            action: "member_kicked".to_owned(),
            member: Some(MemberWord::Id(id.to_string())),
            ..base
        };
        self.announce(Uuid::new_v4(), None, others.to_text());
        true
    }
}

/// True if an announced member has not proved its key. A master that does not count checks no proof.
fn is_provisional(said: &Said<'_>, content: &SystemContent, id: &PeerId) -> bool {
    (content.is_provisional() || content.epoch.is_none()) && id != said.me
}

/// A time as it travels, so that what was told can be compared with what was noted.
pub(crate) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// Whether a text can be what an invite is listed under.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn subject(content: &SystemContent) -> Result<PeerId, NoAuthority> {
    let id = content.subject().ok_or(NoAuthority::Field { field: "agent_id" })?;
    PeerId::parse(id).map_err(|_| NoAuthority::Field { field: "agent_id" })
}

/// Parses a member of a roster. Whether it may be one is decided where the roster is built.
pub(crate) fn read_member(member: &Joined, now: Timestamp) -> Result<Told, NoAuthority> {
    let id = PeerId::parse(&member.agent_id).map_err(|_| NoAuthority::Field { field: "agent_id" })?;
    let endpoint = Endpoint::parse(&member.endpoint).map_err(|_| NoAuthority::Field { field: "endpoint" })?;
    let public_key =
        PublicKey::parse(&member.public_key).map_err(|_| NoAuthority::Field { field: "public_key" })?;
    let joined_at = member.joined_at.as_deref().and_then(stamp::parse).unwrap_or(now);
    let provisional = member.provisional.unwrap_or(false);
    Ok(Told { id, endpoint, public_key, joined_at, provisional })
}

#[cfg(test)]
#[path = "roster_tests.rs"]
pub(crate) mod tests;
