//! Which messages may be typed. Pure.

use jiff::Timestamp;
use switchboard_core::{Address, AgentId, Directory, Door, Message};

use super::encode::sanitize_input;
use crate::translate::is_foreign;

/// The kind of message that is typed.
pub(crate) const EXECUTE: &str = "execute";

/// Most bytes that are typed for one message. More takes longer to type than anyone would watch; a file
/// of the workspace holds it better.
const LONGEST: usize = 64 << 10;

/// Since when somebody stands at a terminal, and what its owner allows.
#[derive(Debug, Clone)]
pub(crate) struct Permission {
    /// The last journal number before.
    pub(crate) after: i64,
    /// The moment.
    pub(crate) began: Timestamp,
    /// Whether what was dropped as a file may be typed.
    pub(crate) from_files: bool,
}

/// Why a message is not typed. It stays in the mailbox, and its sender is told this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is older than the run of the terminal.
    #[error("it was accepted before this terminal was run; send it again if it is still wanted")]
    Old,
    /// It lost its use.
    #[error("it expired before it could be typed")]
    Expired,
    /// It came from another hub, swarm or protocol.
    #[error("'{from}' wrote it through {door}; only agents and the person of this hub may type here")]
    Elsewhere {
        /// Who.
        from: AgentId,
        /// How it came in.
        door: Door,
    },
    /// Its file belongs to another user of the machine.
    #[error("its file belongs to another user")]
    ForeignFile,
    /// Nobody knows the sender.
    #[error("'{from}' is not registered here; register it with `switchboard agents register \"{from}\"`")]
    UnknownSender {
        /// Who.
        from: AgentId,
    },
    /// Nobody vouches for the sender.
    #[error(
        "it was dropped as a file, so nobody vouches for its sender; send it with `switchboard send --kind execute`, \
         or set terminals.executeFromFiles"
    )]
    Unverified,
    /// It is for many.
    #[error("it is written to {to}; an execute message names one terminal")]
    Group {
        /// To whom.
        to: Address,
    },
    /// No terminal ran when it came.
    #[error("no terminal of '{agent}' ran when it came; start it with `switchboard run` and send it again")]
    NoTerminal {
        /// Whose terminal.
        agent: AgentId,
    },
    /// There is nothing to type.
    #[error("there is nothing left to type without control characters and leading '!', '/' and '$'")]
    Empty,
    /// It is too long.
    #[error("it has {size} bytes to type and the limit is {LONGEST}; put them into a file and send its path")]
    TooLong {
        /// How long.
        size: usize,
    },
}

/// What is to be typed for a message, or why nothing is.
pub(crate) fn text_to_type(
    message: &Message,
    seq: i64,
    directory: &Directory,
    permission: &Permission,
    now: Timestamp,
) -> Result<String, Refusal> {
    let (from, door) = (&message.from, message.origin.native.door);
    if from.realm.is_some() || door != Door::Workspace {
        return Err(Refusal::Elsewhere { from: from.clone(), door });
    }
    if is_foreign(message) {
        return Err(Refusal::ForeignFile);
    }
    if !message.origin.verified && !permission.from_files {
        return Err(Refusal::Unverified);
    }
    // A file is taken in when it is found, which may be long after it was put there.
    if seq <= permission.after || (!message.origin.verified && message.sent_at < permission.began) {
        return Err(Refusal::Old);
    }
    if !from.is_human() && directory.agent(from).is_none() {
        return Err(Refusal::UnknownSender { from: from.clone() });
    }
    if message.to.as_agent().is_none() {
        return Err(Refusal::Group { to: message.to.clone() });
    }
    if message.expires_at.is_some_and(|at| at <= now) {
        return Err(Refusal::Expired);
    }
    match sanitize_input(&message.body) {
        text if text.is_empty() => Err(Refusal::Empty),
        text if text.len() > LONGEST => Err(Refusal::TooLong { size: text.len() }),
        text => Ok(text),
    }
}

#[cfg(test)]
#[path = "permission_tests.rs"]
mod tests;
