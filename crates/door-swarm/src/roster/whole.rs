//! The whole roster, for a member that has missed something: in one message where it fits, and otherwise in parts.
//!
//! A part says everything of the ids from one up to another, so that each can be taken over for itself. Messages to a
//! member come in their order, and the last part brings the count, the master and the rules: whoever has not got it yet
//! is still behind, and asks again.

use std::collections::BTreeSet;

use super::{NoAuthority, Said, read_member};
use crate::agent_id::PeerId;
use crate::ledger::{Standing, Swarm};
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
    /// Takes over the whole roster from the master, or a part of it; false where it is older than ours.
    pub(crate) fn replace_roster(&mut self, said: &Said<'_>, roster: &Roster) -> Result<bool, NoAuthority> {
        self.only_master(said, "roster")?;
        if roster.epoch < self.epoch {
            return Ok(false);
        }
        let wrong = |field| NoAuthority::Field { field };
        let end = |text: &Option<String>, field| {
            text.as_deref().map(PeerId::parse).transpose().map_err(|_| wrong(field))
        };
        let (from, until) = (end(&roster.from, "from")?, end(&roster.until, "until")?);
        let span = Span { from: from.as_ref(), until: until.as_ref() };
        let others = || self.members.iter().filter(|(id, _)| !span.has(id));
        if roster.members.len() + others().count() > MOST_MEMBERS {
            return Err(wrong("members"));
        }
        let mut members = Vec::with_capacity(roster.members.len());
        for member in &roster.members {
            members.push(read_member(member, said.now)?);
        }
        if !members.iter().all(|(id, ..)| span.has(id)) {
            return Err(wrong("members"));
        }
        let master = PeerId::parse(&roster.master).map_err(|_| wrong("master"))?;
        let ids: BTreeSet<&PeerId> = members.iter().map(|(id, ..)| id).collect();
        let mut keys: BTreeSet<String> = members.iter().map(|(_, _, key, _)| key.to_wire()).collect();
        if ids.len() < members.len() || keys.len() < members.len() {
            return Err(NoAuthority::Taken);
        }
        if !others().all(|(_, member)| keys.insert(member.public_key.to_wire())) {
            return Err(NoAuthority::Taken);
        }
        let is_last = until.is_none();
        if is_last && !ids.contains(&master) && (span.has(&master) || !self.members.contains_key(&master)) {
            return Err(NoAuthority::NotAMember);
        }
        if span.has(said.me) && !ids.contains(said.me) {
            self.standing = Standing::Kicked;
            return Ok(true);
        }
        let gone: Vec<PeerId> =
            self.members.keys().filter(|id| span.has(id) && !ids.contains(id)).cloned().collect();
        for id in gone {
            self.drop_member(&id);
        }
        for ((id, endpoint, key, joined_at), told) in members.into_iter().zip(&roster.members) {
            match self.members.get_mut(&id) {
                Some(known) => {
                    // The master's word for a new key counts as the member's own does.
                    if known.public_key != key {
                        known.public_key = key;
                        known.signs_envelopes = false;
                        known.offered_key = None;
                        known.confirmed_at = Some(said.now);
                    }
                    known.move_to(endpoint, said.now);
                    // It may have left and come back since.
                    known.joined_at = known.joined_at.max(joined_at);
                }
                None => self.put_member(&id, endpoint, key, joined_at),
            }
            self.note_provisional(&id, Some(told));
        }
        if is_last {
            self.epoch = roster.epoch;
            self.master = master;
            self.settings = roster.settings;
        }
        Ok(true)
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
