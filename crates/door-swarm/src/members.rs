//! The members of a swarm: the one place where every roster is built.
//!
//! Joins, announcements, rosters, answers to joins and state files all use this module, so that no roster holds two ids
//! whose signatures are ambiguous.

use std::collections::BTreeMap;
use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent_id::{PeerId, PeerIdError};
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::model::Member;

/// Members by id, without conflicts between any two of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<PeerId, Member>", into = "BTreeMap<PeerId, Member>")]
pub struct Members(BTreeMap<PeerId, Member>);

/// Reason why a swarm cannot have a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberConflict {
    /// The id is invalid for a member.
    #[error(transparent)]
    Id(#[from] PeerIdError),
    /// Two ids map to one local name, or their signatures are ambiguous.
    #[error(
        "agent_id '{id}' clashes with '{other}': their signatures cannot be told apart; one of them needs another id"
    )]
    Ids {
        /// The id of the new member.
        id: PeerId,
        /// The other member, whose id conflicts.
        other: PeerId,
    },
    /// The key belongs to another member.
    #[error("public_key of '{id}' belongs to '{other}' as well")]
    Key {
        /// The id.
        id: PeerId,
        /// The member that has the key.
        other: PeerId,
    },
}

/// A parsed roster entry from another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RosterEntry {
    pub(crate) id: PeerId,
    pub(crate) endpoint: Endpoint,
    pub(crate) public_key: PublicKey,
    pub(crate) joined_at: Timestamp,
    /// True if the member has not proved its key.
    pub(crate) provisional: bool,
}

/// Roster entries that were excluded: the id as received, and the reason.
pub type ExcludedMembers = BTreeMap<String, String>;

impl Members {
    /// Adds a member, or replaces the member with the same id. Fails if the new entry conflicts with another member.
    pub(crate) fn insert(&mut self, id: PeerId, member: Member) -> Result<(), MemberConflict> {
        self.check(&id, &member.public_key, member.provisional)?;
        self.0.insert(id, member);
        Ok(())
    }

    /// Checks that a member with this id and key does not conflict with another member. Provisional members may share a
    /// key.
    pub(crate) fn check(
        &self,
        id: &PeerId,
        key: &PublicKey,
        is_provisional: bool,
    ) -> Result<(), MemberConflict> {
        id.check_member()?;
        for (other, member) in self.0.iter().filter(|(other, _)| *other != id) {
            if other.conflicts_with(id) {
                return Err(MemberConflict::Ids { id: id.clone(), other: other.clone() });
            }
            if member.public_key == *key && !(is_provisional && member.provisional) {
                return Err(MemberConflict::Key { id: id.clone(), other: other.clone() });
            }
        }
        Ok(())
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, id: &PeerId) -> Option<Member> {
        self.0.remove(id)
    }

    /// Returns a member for editing.
    pub(crate) fn get_mut(&mut self, id: &PeerId) -> Option<&mut Member> {
        self.0.get_mut(id)
    }
}

/// Filters the roster of another program.
///
/// An entry with an invalid id is excluded. Of two entries with conflicting ids, the later one is excluded, so that a
/// message that the rest of the swarm signs for that entry is never read as a message to our agent. An id that is
/// ambiguous with our agent's own id could lead to that, so such a roster is refused as a whole. A roster is also
/// refused if its master would be excluded.
///
/// A provisional entry that names a proved key is excluded. The entries of our agent and of the master count as proved:
/// our agent has its own key, and the master has signed the invite with its key. A roster in which two proved members
/// share a key is refused.
pub(crate) fn filter_roster(
    me: &PeerId,
    master: &PeerId,
    mut entries: Vec<RosterEntry>,
) -> Result<(Vec<RosterEntry>, ExcludedMembers), MemberConflict> {
    for member in entries.iter_mut().filter(|member| member.id == *me || member.id == *master) {
        member.provisional = false;
    }
    entries
        .sort_by_key(|member| (member.id != *me, member.id != *master, member.provisional, member.joined_at));
    let (mut kept, mut left_out) = (Vec::<RosterEntry>::with_capacity(entries.len()), ExcludedMembers::new());
    for member in entries {
        let id = &member.id;
        if let Some(other) = kept.iter().find(|other| other.id != *id && other.id.conflicts_with(id)) {
            let conflict = MemberConflict::Ids { id: id.clone(), other: other.id.clone() };
            if *id == *master || (other.id == *me && id.is_ambiguous_with(me)) {
                return Err(conflict);
            }
            left_out.insert(id.to_string(), conflict.to_string());
            continue;
        }
        let shares_key = |other: &&RosterEntry| {
            other.id != *id
                && other.public_key == member.public_key
                && !(other.provisional && member.provisional)
        };
        if let Some(other) = kept.iter().find(shares_key) {
            let conflict = MemberConflict::Key { id: id.clone(), other: other.id.clone() };
            if !member.provisional {
                return Err(conflict);
            }
            left_out.insert(id.to_string(), conflict.to_string());
            continue;
        }
        match id.check_member() {
            // Our own id was already checked when it was created.
            Err(error) if *id != *me => {
                if *id == *master {
                    return Err(error.into());
                }
                left_out.insert(id.to_string(), error.to_string());
            }
            _ => kept.push(member),
        }
    }
    Ok((kept, left_out))
}

impl Deref for Members {
    type Target = BTreeMap<PeerId, Member>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Members {
    type Item = (&'a PeerId, &'a Member);
    type IntoIter = std::collections::btree_map::Iter<'a, PeerId, Member>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl From<BTreeMap<PeerId, Member>> for Members {
    /// Loads stored members. If two of them have ambiguous signatures, the one that joined later is excluded.
    fn from(stored: BTreeMap<PeerId, Member>) -> Self {
        let mut ambiguous = Vec::new();
        // In sorted order, an id is followed directly by the ids that it is a prefix of.
        let mut prefixes: Vec<(&PeerId, &Member)> = Vec::new();
        for (id, member) in &stored {
            prefixes.retain(|(prefix, _)| id.as_str().starts_with(prefix.as_str()));
            for (prefix, earlier) in prefixes.iter().filter(|(prefix, _)| prefix.is_ambiguous_with(id)) {
                let later = if earlier.joined_at <= member.joined_at { id } else { *prefix };
                tracing::warn!(member = %later, "left out of a roster: its id is ambiguous with another");
                ambiguous.push(later.clone());
            }
            prefixes.push((id, member));
        }
        let mut members = stored;
        members.retain(|id, _| !ambiguous.contains(id));
        Self(members)
    }
}

impl From<Members> for BTreeMap<PeerId, Member> {
    fn from(members: Members) -> Self {
        members.0
    }
}

impl<const N: usize> From<[(PeerId, Member); N]> for Members {
    fn from(members: [(PeerId, Member); N]) -> Self {
        BTreeMap::from(members).into()
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
