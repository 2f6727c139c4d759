//! How far a message may be believed.

use crate::{AgentId, Message, Name};

/// How far what a message says may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// An agent or the person of this hub wrote it, or one of a hub that this one is linked with.
    Ours,
    /// Nobody vouches for whom it names as its sender: a file that anybody could have put there.
    Unverified,
    /// It is of another owner, whether or not it is known which.
    OtherOwner,
}

impl Trust {
    /// How much to believe a message from this sender that another hub accepted, or none but this one.
    ///
    /// A realm is a swarm, whose members are other owners, unless the message is of the hub of that name: the hubs that
    /// are linked with each other have one owner.
    pub fn of(from: &AgentId, verified: bool, hub: Option<&Name>) -> Self {
        match &from.realm {
            Some(realm) if hub != Some(realm) => Self::OtherOwner,
            _ if !verified => Self::Unverified,
            _ => Self::Ours,
        }
    }

    /// What a model is told of it; nothing where there is nothing to tell.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Ours => None,
            Self::Unverified => Some("untrusted: sender not verified"),
            Self::OtherOwner => Some("untrusted: from another owner"),
        }
    }
}

impl Message {
    /// How far it may be believed.
    pub fn trust(&self) -> Trust {
        Trust::of(&self.from, self.origin.verified, self.other_hub().as_ref())
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
