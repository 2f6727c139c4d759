//! Trust levels of messages.

use crate::{AgentId, Message, Name};

/// Trust level of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Written by an agent or the person of this hub or of a linked hub.
    Ours,
    /// The sender is not verified: the message is a file that any program could have written.
    Unverified,
    /// Written by another owner, verified or not.
    OtherOwner,
}

impl Trust {
    /// Returns the trust level of a message from this sender. The argument `hub` is the other hub that accepted it, if
    /// any.
    ///
    /// A realm is a swarm, whose members are other owners, unless the message is from the hub of that name: linked hubs
    /// have the same owner.
    pub fn of(from: &AgentId, verified: bool, hub: Option<&Name>) -> Self {
        match &from.realm {
            Some(realm) if hub != Some(realm) => Self::OtherOwner,
            _ if !verified => Self::Unverified,
            _ => Self::Ours,
        }
    }

    /// Returns the warning label for models, or `None` for trusted messages.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Ours => None,
            Self::Unverified => Some("untrusted: sender not verified"),
            Self::OtherOwner => Some("untrusted: from another owner"),
        }
    }
}

impl Message {
    /// Returns the trust level of the message.
    pub fn trust(&self) -> Trust {
        Trust::of(&self.from, self.origin.verified, self.origin_hub().as_ref())
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
