//! The members of a swarm: the one place where a roster is built, whichever way it came.
//!
//! Joins, announcements, rosters, answers to joins and state files all end here, so that no roster holds two ids whose
//! signatures can be confused.

use std::collections::BTreeMap;
use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent_id::{PeerId, PeerIdError};
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::ledger::Member;

/// Members by id, none of which clashes with another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<PeerId, Member>", into = "BTreeMap<PeerId, Member>")]
pub struct Members(BTreeMap<PeerId, Member>);

/// Reason why a swarm cannot have a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Clash {
    /// The id is one that no member may have.
    #[error(transparent)]
    Id(#[from] PeerIdError),
    /// Two ids are one name here, or their signatures are ambiguous.
    #[error(
        "agent_id '{id}' clashes with '{other}': their signatures cannot be told apart; one of them needs another id"
    )]
    Ids {
        /// The id.
        id: PeerId,
        /// The member that has the other one.
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

/// A member as another program tells it, with every value parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) id: PeerId,
    pub(crate) endpoint: Endpoint,
    pub(crate) public_key: PublicKey,
    pub(crate) joined_at: Timestamp,
    /// True if it has not proved its key.
    pub(crate) provisional: bool,
}

/// Members that were left out of a roster: the id as it was told, and the reason.
pub type LeftOut = BTreeMap<String, String>;

impl Members {
    /// Adds a member, or replaces the one of the same id; refused where it clashes with another.
    pub(crate) fn insert(&mut self, id: PeerId, member: Member) -> Result<(), Clash> {
        self.check(&id, &member.public_key, member.provisional)?;
        self.0.insert(id, member);
        Ok(())
    }

    /// Checks that a member of this id and key clashes with no other. Provisional members may share a key.
    pub(crate) fn check(&self, id: &PeerId, key: &PublicKey, is_provisional: bool) -> Result<(), Clash> {
        id.check_member()?;
        for (other, member) in self.0.iter().filter(|(other, _)| *other != id) {
            if other.clashes_with(id) {
                return Err(Clash::Ids { id: id.clone(), other: other.clone() });
            }
            if member.public_key == *key && !(is_provisional && member.provisional) {
                return Err(Clash::Key { id: id.clone(), other: other.clone() });
            }
        }
        Ok(())
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, id: &PeerId) -> Option<Member> {
        self.0.remove(id)
    }

    /// The member of an id, to change what is known of it.
    pub(crate) fn get_mut(&mut self, id: &PeerId) -> Option<&mut Member> {
        self.0.get_mut(id)
    }
}

/// Sifts a roster that another program tells.
///
/// An id that no member may have is left out, and so is the later one of two that clash: what the rest of the swarm signs
/// for them is never taken for a message to our agent. An id that is ambiguous with our own would be, so that such a
/// roster is refused, and so is one without its master.
///
/// A provisional member that names a proven key is left out. Our agent has its key, and the master has signed the invite
/// with its own. A roster in which two proven members have one key is refused.
pub(crate) fn sift(me: &PeerId, master: &PeerId, mut told: Vec<Told>) -> Result<(Vec<Told>, LeftOut), Clash> {
    for member in told.iter_mut().filter(|member| member.id == *me || member.id == *master) {
        member.provisional = false;
    }
    told.sort_by_key(|member| (member.id != *me, member.id != *master, member.provisional, member.joined_at));
    let (mut kept, mut left_out) = (Vec::<Told>::with_capacity(told.len()), LeftOut::new());
    for member in told {
        let id = &member.id;
        if let Some(other) = kept.iter().find(|other| other.id != *id && other.id.clashes_with(id)) {
            let clash = Clash::Ids { id: id.clone(), other: other.id.clone() };
            if *id == *master || (other.id == *me && id.is_ambiguous_with(me)) {
                return Err(clash);
            }
            left_out.insert(id.to_string(), clash.to_string());
            continue;
        }
        let shares_key = |other: &&Told| {
            other.id != *id
                && other.public_key == member.public_key
                && !(other.provisional && member.provisional)
        };
        if let Some(other) = kept.iter().find(shares_key) {
            let clash = Clash::Key { id: id.clone(), other: other.id.clone() };
            if !member.provisional {
                return Err(clash);
            }
            left_out.insert(id.to_string(), clash.to_string());
            continue;
        }
        match id.check_member() {
            // Our own was checked when it was made.
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
    /// Members as they were stored. The later of two whose signatures are ambiguous is left out.
    fn from(stored: BTreeMap<PeerId, Member>) -> Self {
        let mut ambiguous = Vec::new();
        // In their order an id comes right before those that begin with it.
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
