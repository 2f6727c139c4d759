//! JSON types of the Agent Swarm Protocol 0.1.0 (§4 to §6, §9).
//!
//! Unknown fields are ignored, and `null` means absent. The format of strings is checked where they are used, so that
//! the error names the field.

mod join;
mod message;
mod reference;
mod system;

pub use self::join::{
    ErrorBody, ErrorDetail, Health, Info, JoinAccepted, JoinPending, JoinRequest, JoinSender, Queued, Roster,
    RosterMember,
};
pub use self::message::{Attachment, AttachmentType, Envelope, MessageType, Priority, Sender};
pub use self::reference::{Action, Reference, ReferenceError, ReferenceType};
pub use self::system::{MemberField, SystemContent};

use serde_json::Value;
use switchboard_core::json::{StrictRules, parse_strict};

/// The protocol version of this implementation.
pub const PROTOCOL_VERSION: &str = "0.1.0";

/// Rules for JSON from other owners. The depth suffices for any protocol message and cannot exhaust the stack.
const RULES: StrictRules = StrictRules { max_depth: 32, allows_nul: false };

/// Parses JSON strictly, because signed content must not be read differently by other programs.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    parse_strict(bytes, RULES)
}

/// Returns true if an agent with this version is compatible, that is, has the same major version.
pub(crate) fn is_compatible(version: &str) -> bool {
    let mut parts = version.split('.');
    let numbers = version.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    numbers && version.len() <= 32 && parts.next() == PROTOCOL_VERSION.split('.').next()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
