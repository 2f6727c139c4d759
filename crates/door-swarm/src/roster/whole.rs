//! The whole roster, for a member that has missed something: in one message where it fits, and otherwise in parts.
//!
//! A part says everything of the ids from one up to another, so that each can be taken over for itself. Messages to a
//! member come in their order, and the last part brings the count, the master and the rules: whoever has not got it yet
//! is still behind, and asks again.

use std::collections::BTreeSet;

use super::orders::NextPart;
use super::{NoAuthority, Said, read_member};
use crate::agent_id::PeerId;
use crate::keys::PublicKey;
use crate::ledger::{Standing, Swarm};
use crate::members::{Told, sift};
use crate::state::MOST_MEMBERS;
use crate::wire::{Joined, Roster};

/// Most bytes of the members in one message: half of what a request may have by default. As text within a message they
/// grow by a tenth.
const PART: usize = 128 * 1024;

/// Most bytes of one member: an id of 128, an address of 2,048, a key of 2,048 in base64, and what stands between them.
const MEMBER: usize = 128 + 2048 + 2732 + 128;

/// Most bytes of a roster in one piece, as the answer to a request to join has it.
pub(crate) const ROSTER_BYTES: usize = MOST_MEMBERS * MEMBER + 4096;

/// The ids that a part is about.
#[derive(Debug, Clone, Copy)]
struct Span<'a> {
    from: Option<&'a PeerId>,
    until: Option<&'a PeerId>,
}

impl Span<'_> {
    fn has(&self, id: &PeerId) -> bool {
        self.from.is_none_or(|from| from <= id) && self.until.is_none_or(|until| id < until)
    }
}

impl Swarm {
    /// Replaces the roster, or a part of it, by the master's word; false where it is not newer than ours.
    ///
    /// A roster of the same count is newer only while orders before it are missing: members change their keys and leave by
    /// their own word before the master has counted it, and such a roster would undo that.
    pub(crate) fn replace_roster(&mut self, said: &Said<'_>, roster: &Roster) -> Result<bool, NoAuthority> {
        self.only_master(said, "roster")?;
        let is_wanted = roster.epoch > self.epoch || (roster.epoch == self.epoch && self.orders.is_behind);
        if !is_wanted {
            return Ok(false);
        }
        let wrong = |field| NoAuthority::Field { field };
        let end = |text: &Option<String>, field| {
            text.as_deref().map(PeerId::parse).transpose().map_err(|_| wrong(field))
        };
        let (from, until) = (end(&roster.from, "from")?, end(&roster.until, "until")?);
        let span = Span { from: from.as_ref(), until: until.as_ref() };
        let master = PeerId::parse(&roster.master).map_err(|_| wrong("master"))?;
        let mut told = self.read_roster(said, roster, span)?;
        for member in &mut told {
            // A proof that this hub has seen counts, also where the master has not.
            member.provisional &= !self.has_signed(&member.id, &member.public_key);
        }
        let ids: BTreeSet<PeerId> = told.iter().map(|member| member.id.clone()).collect();
        let is_last = until.is_none();
        if is_last && !ids.contains(&master) && (span.has(&master) || !self.members.contains_key(&master)) {
            return Err(NoAuthority::NotAMember);
        }
        if span.has(said.me) && !ids.contains(said.me) {
            self.standing = Standing::Kicked;
            return Ok(true);
        }
        let others = self.members.iter().filter(|(id, _)| !span.has(id)).map(|(id, member)| Told {
            id: id.clone(),
            endpoint: member.endpoint.clone(),
            public_key: member.public_key.clone(),
            joined_at: member.joined_at,
            provisional: member.provisional,
        });
        let (members, left_out) = sift(said.me, &master, others.chain(told).collect())?;
        let gone: Vec<PeerId> =
            self.members.keys().filter(|id| span.has(id) && !ids.contains(id)).cloned().collect();
        let unfit = left_out.keys().filter_map(|id| PeerId::parse(id).ok());
        for id in gone.into_iter().chain(unfit) {
            self.drop_member(&id);
        }
        if from.is_none() {
            self.left_out.clear();
        }
        self.left_out.extend(left_out);
        self.put_told(said, members.into_iter().filter(|member| span.has(&member.id)).collect());
        self.count_part(roster.epoch, from.as_ref(), until.as_ref(), |swarm| {
            swarm.master = master;
            swarm.settings = roster.settings;
        });
        Ok(true)
    }

    /// Parses the members of a roster and checks that they are few enough, of its part, and each there once.
    fn read_roster(
        &self,
        said: &Said<'_>,
        roster: &Roster,
        span: Span<'_>,
    ) -> Result<Vec<Told>, NoAuthority> {
        let others = || self.members.iter().filter(|(id, _)| !span.has(id));
        if roster.members.len() + others().count() > MOST_MEMBERS {
            return Err(NoAuthority::Field { field: "members" });
        }
        let read = roster.members.iter().map(|member| read_member(member, said.now));
        let told = read.collect::<Result<Vec<Told>, NoAuthority>>()?;
        if !told.iter().all(|member| span.has(&member.id)) {
            return Err(NoAuthority::Field { field: "members" });
        }
        let ids: BTreeSet<&PeerId> = told.iter().map(|member| &member.id).collect();
        if ids.len() < told.len() {
            return Err(NoAuthority::Taken);
        }
        Ok(told)
    }

    /// True if a member signs whole envelopes with this key.
    fn has_signed(&self, id: &PeerId, key: &PublicKey) -> bool {
        self.members.get(id).is_some_and(|known| known.signs_envelopes && known.public_key == *key)
    }

    /// Makes these the members of their part. The own word of a member counts where it is later than the roster.
    fn put_told(&mut self, said: &Said<'_>, told: Vec<Told>) {
        let mut fresh = Vec::new();
        for Told { id, endpoint, public_key, joined_at, provisional } in told {
            let is_earlier = self.orders.rekeyed_at(&id).is_some_and(|rekeyed| said.at <= rekeyed);
            let has_left = self.orders.left_at(&id).is_some_and(|left| said.at <= left)
                && self.former.get(&id).is_some_and(|former| joined_at <= former.joined_at);
            let Some(known) = self.members.get_mut(&id) else {
                // The same membership again: its own word for its key counts as before.
                let former = self.former.get(&id).filter(|former| joined_at <= former.joined_at);
                let former = former.filter(|former| former.replaced_keys.contains(&public_key));
                let key = former.map_or(public_key, |former| former.public_key.clone());
                if !has_left {
                    fresh.push(Told { id, endpoint, public_key: key, joined_at, provisional });
                }
                continue;
            };
            // The master's word for a new key counts as the member's own does.
            let is_old_key = is_earlier || known.replaced_keys.contains(&public_key);
            if known.public_key != public_key && !is_old_key {
                known.public_key = public_key;
                known.signs_envelopes = false;
                known.offered_key = None;
                known.confirmed_at = Some(said.now);
            }
            let moved_at = known.endpoint_change.as_ref().map(|change| change.at);
            if moved_at.is_none_or(|moved_at| moved_at < said.at) {
                known.move_to(endpoint, said.at);
            }
            known.provisional = provisional;
            // It may have left and come back since.
            known.joined_at = known.joined_at.max(joined_at);
        }
        // After the known ones, one of which may have had the key before.
        for member in fresh {
            self.insert_told(member);
        }
    }

    /// Notes that a part was taken over. The last one brings the count where all before it have come.
    fn count_part(
        &mut self,
        epoch: u64,
        from: Option<&PeerId>,
        until: Option<&PeerId>,
        finish: impl FnOnce(&mut Self),
    ) {
        let expected = self.orders.next_part.take();
        let is_next = match from {
            None => true,
            Some(from) => expected.is_some_and(|part| part.epoch == epoch && part.from == *from),
        };
        match until {
            Some(until) if is_next => {
                self.orders.next_part = Some(NextPart { epoch, from: until.clone() });
            }
            None if is_next => {
                self.epoch = epoch;
                self.orders.is_behind = false;
                finish(self);
            }
            // Still behind: the roster is asked for again.
            _ => {}
        }
    }

    /// The whole roster, for a member that has missed something, in as many parts as it takes.
    pub(crate) fn whole_roster(&self) -> Vec<Roster> {
        let mut parts: Vec<Vec<Joined>> = vec![Vec::new()];
        let mut size = 0;
        for member in self.roster() {
            // What is written here can be written as JSON.
            let bytes = serde_json::to_vec(&member).map_or(MEMBER, |text| text.len());
            if size + bytes > PART {
                parts.push(Vec::new());
                size = 0;
            }
            size += bytes;
            if let Some(part) = parts.last_mut() {
                part.push(member);
            }
        }
        // A part ends where the next one begins.
        let firsts: Vec<Option<String>> =
            parts.iter().skip(1).map(|part| part.first().map(|member| member.agent_id.clone())).collect();
        let froms = std::iter::once(None).chain(firsts.iter().cloned());
        let untils = firsts.iter().cloned().chain([None]);
        let ends = froms.zip(untils);
        let part = |(members, (from, until))| Roster {
            action: "roster".to_owned(),
            epoch: self.epoch,
            master: self.master.to_string(),
            name: self.name.clone(),
            members,
            settings: self.settings,
            from,
            until,
        };
        parts.into_iter().zip(ends).map(part).collect()
    }
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
