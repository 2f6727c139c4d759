//! Full rosters for a member that has missed updates: one message if it fits, otherwise several parts.
//!
//! A part covers all ids of a range, so each part can be applied on its own. Messages to a member arrive in order, and
//! the last part sets the epoch, the master and the settings. A member that misses the last part is still behind and
//! requests the roster again.

use std::collections::BTreeSet;

use super::updates::NextPart;
use super::{UpdateContext, UpdateError, parse_member};
use crate::agent_id::PeerId;
use crate::keys::PublicKey;
use crate::members::{RosterEntry, filter_roster};
use crate::model::{MembershipStatus, Swarm};
use crate::state::MAX_MEMBERS;
use crate::wire::{Roster, RosterMember};

/// Maximum size of the members in one message: half of the default request limit. Escaping inside a message adds about
/// a tenth.
const MAX_PART_BYTES: usize = 128 * 1024;

/// Maximum size of one member: an id of 128 bytes, a URL of 2,048, a key of 2,048 in base64, and the JSON around them.
const MAX_MEMBER_BYTES: usize = 128 + 2048 + 2732 + 128;

/// Maximum size of an undivided roster, as in the answer to a join request.
pub(crate) const MAX_ROSTER_BYTES: usize = MAX_MEMBERS * MAX_MEMBER_BYTES + 4096;

/// The range of ids that a part covers.
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
    /// Replaces the roster, or a part of it, with that of the master. Returns false if the master's roster is not
    /// newer.
    ///
    /// A roster with the current epoch counts as newer only while earlier updates are missing. Members rotate keys and
    /// leave by their own messages before the master has counted these, and such a roster would undo the changes.
    pub(crate) fn replace_roster(
        &mut self,
        context: &UpdateContext<'_>,
        roster: &Roster,
    ) -> Result<bool, UpdateError> {
        self.require_master(context, "roster")?;
        let is_wanted = roster.epoch > self.epoch || (roster.epoch == self.epoch && self.orders.is_behind);
        if !is_wanted {
            return Ok(false);
        }
        let wrong = |field| UpdateError::Field { field };
        let end = |text: &Option<String>, field| {
            text.as_deref().map(PeerId::parse).transpose().map_err(|_| wrong(field))
        };
        let (from, until) = (end(&roster.from, "from")?, end(&roster.until, "until")?);
        let span = Span { from: from.as_ref(), until: until.as_ref() };
        let master = PeerId::parse(&roster.master).map_err(|_| wrong("master"))?;
        let mut entries = self.read_roster(context, roster, span)?;
        for member in &mut entries {
            // A proof that this hub has seen counts even if the master has not seen it.
            member.provisional &= !self.has_signed(&member.id, &member.public_key);
        }
        let ids: BTreeSet<PeerId> = entries.iter().map(|member| member.id.clone()).collect();
        let is_last = until.is_none();
        if is_last && !ids.contains(&master) && (span.has(&master) || !self.members.contains_key(&master)) {
            return Err(UpdateError::NotAMember);
        }
        if span.has(context.me) && !ids.contains(context.me) {
            self.status = MembershipStatus::Kicked;
            return Ok(true);
        }
        let others = self.members.iter().filter(|(id, _)| !span.has(id)).map(|(id, member)| RosterEntry {
            id: id.clone(),
            endpoint: member.endpoint.clone(),
            public_key: member.public_key.clone(),
            joined_at: member.joined_at,
            provisional: member.provisional,
        });
        let (members, left_out) = filter_roster(context.me, &master, others.chain(entries).collect())?;
        let gone: Vec<PeerId> =
            self.members.keys().filter(|id| span.has(id) && !ids.contains(id)).cloned().collect();
        let unfit = left_out.keys().filter_map(|id| PeerId::parse(id).ok());
        for id in gone.into_iter().chain(unfit) {
            self.remove_member(&id);
        }
        if from.is_none() {
            self.left_out.clear();
        }
        self.left_out.extend(left_out);
        self.apply_entries(context, members.into_iter().filter(|member| span.has(&member.id)).collect());
        self.count_part(roster.epoch, from.as_ref(), until.as_ref(), |swarm| {
            swarm.master = master;
            swarm.settings = roster.settings;
        });
        Ok(true)
    }

    /// Parses the members of a roster.
    ///
    /// Checks the number of members, that all are in range, and that none occurs twice.
    fn read_roster(
        &self,
        context: &UpdateContext<'_>,
        roster: &Roster,
        span: Span<'_>,
    ) -> Result<Vec<RosterEntry>, UpdateError> {
        let others = || self.members.iter().filter(|(id, _)| !span.has(id));
        if roster.members.len() + others().count() > MAX_MEMBERS {
            return Err(UpdateError::Field { field: "members" });
        }
        let read = roster.members.iter().map(|member| parse_member(member, context.now));
        let entries = read.collect::<Result<Vec<RosterEntry>, UpdateError>>()?;
        if !entries.iter().all(|member| span.has(&member.id)) {
            return Err(UpdateError::Field { field: "members" });
        }
        let ids: BTreeSet<&PeerId> = entries.iter().map(|member| &member.id).collect();
        if ids.len() < entries.len() {
            return Err(UpdateError::Taken);
        }
        Ok(entries)
    }

    /// Returns true if a member signs whole envelopes with this key.
    fn has_signed(&self, id: &PeerId, key: &PublicKey) -> bool {
        self.members.get(id).is_some_and(|known| known.signs_envelopes && known.public_key == *key)
    }

    /// Replaces the members in the range of a part. A member's own later message takes precedence over the roster.
    fn apply_entries(&mut self, context: &UpdateContext<'_>, entries: Vec<RosterEntry>) {
        let mut fresh = Vec::new();
        for RosterEntry { id, endpoint, public_key, joined_at, provisional } in entries {
            let is_earlier = self.orders.rekeyed_at(&id).is_some_and(|rekeyed| context.at <= rekeyed);
            let has_left = self.orders.departed_at(&id).is_some_and(|left| context.at <= left)
                && self.former.get(&id).is_some_and(|former| joined_at <= former.joined_at);
            let Some(known) = self.members.get_mut(&id) else {
                // The membership is the same, so the key from the member's own message still counts.
                let former = self.former.get(&id).filter(|former| joined_at <= former.joined_at);
                let former = former.filter(|former| former.replaced_keys.contains(&public_key));
                let key = former.map_or(public_key, |former| former.public_key.clone());
                if !has_left {
                    fresh.push(RosterEntry { id, endpoint, public_key: key, joined_at, provisional });
                }
                continue;
            };
            // Any other key comes from a rotation that the master announces, which counts like the member's own
            // announcement.
            let is_old_key = is_earlier || known.replaced_keys.contains(&public_key);
            if known.public_key != public_key && !is_old_key {
                known.public_key = public_key;
                known.signs_envelopes = false;
                known.offered_key = None;
                known.confirmed_at = Some(context.now);
            }
            let moved_at = known.endpoint_change.as_ref().map(|change| change.at);
            if moved_at.is_none_or(|moved_at| moved_at < context.at) {
                known.move_to(endpoint, context.at);
            }
            known.provisional = provisional;
            // The member may have left and rejoined in the meantime.
            known.joined_at = known.joined_at.max(joined_at);
        }
        // New members are inserted after the known ones, because a known member may have held the key of a new one
        // before.
        for member in fresh {
            self.insert_entry(member);
        }
    }

    /// Records that a part was applied. The last part sets the epoch if all earlier parts were applied.
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
            // A part is missing, so the roster is requested again.
            _ => {}
        }
    }

    /// Renders the full roster, in as many parts as needed.
    pub(crate) fn roster_parts(&self) -> Vec<Roster> {
        let mut parts: Vec<Vec<RosterMember>> = vec![Vec::new()];
        let mut size = 0;
        for member in self.roster() {
            // A struct of strings always serializes.
            let bytes = serde_json::to_vec(&member).map_or(MAX_MEMBER_BYTES, |text| text.len());
            if size + bytes > MAX_PART_BYTES {
                parts.push(Vec::new());
                size = 0;
            }
            size += bytes;
            if let Some(part) = parts.last_mut() {
                part.push(member);
            }
        }
        // A part ends where the next part begins.
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
#[path = "snapshot_tests.rs"]
mod tests;
