//! Exactly the JSON of the Agent Swarm Protocol 0.1.0 (§4 to §6, §9).
//!
//! Fields that nobody knows are ignored; a field that is `null` is one that is not there. What a text must look like
//! beyond being a text is checked where it is used, so that a bad one gets an error that names it.

mod join;
mod message;
mod reference;
mod system;

pub use self::join::{
    ErrorBody, ErrorDetail, Health, Info, JoinAccepted, JoinPending, JoinRequest, JoinSender, Joined, Queued,
    Roster,
};
pub use self::message::{Attachment, AttachmentType, Envelope, MessageType, Priority, Sender};
pub use self::reference::{Action, Reference, ReferenceError, ReferenceType};
pub use self::system::{MemberWord, SystemContent};

/// The version of the protocol that we speak.
pub const PROTOCOL_VERSION: &str = "0.1.0";

/// The major version: agents of the same one understand each other.
pub(crate) fn is_compatible(version: &str) -> bool {
    let mut parts = version.split('.');
    let numbers = version.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    numbers && version.len() <= 32 && parts.next() == PROTOCOL_VERSION.split('.').next()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
