//! Rules that decide which messages may be typed. Pure.

use jiff::Timestamp;
use switchboard_core::{Address, AgentId, Directory, Door, Message};

use super::encode::sanitize_input;
use crate::translate::is_foreign;

/// The message kind that is typed into terminals.
pub const EXECUTE: &str = "execute";

/// Maximum number of bytes typed for one message.
///
/// Typing more takes longer than a person would watch. A larger text should be sent as the path of a file in the
/// workspace.
const MAX_TEXT: usize = 64 << 10;

/// Permissions set by a terminal's owner, and the start of the executor.
#[derive(Debug, Clone)]
pub(crate) struct Permission {
    /// The last journal number before the executor started.
    pub(crate) after: i64,
    /// Time at which the executor started.
    pub(crate) began: Timestamp,
    /// True if messages that were dropped as files may be typed.
    pub(crate) from_files: bool,
}

/// Reason why a message is not typed.
///
/// The message stays in the mailbox, and the reason is reported to its sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The message is older than the current run of the terminal.
    #[error("it was accepted before this terminal started; send it again if it is still needed")]
    Old,
    /// The message has expired.
    #[error("it expired before it could be typed")]
    Expired,
    /// The message came from another hub, swarm or protocol.
    #[error("'{from}' sent it through {door}; only agents and the person of this hub may type here")]
    Elsewhere {
        /// The sender.
        from: AgentId,
        /// The door through which the message came.
        door: Door,
    },
    /// Another user of the machine owns the message's file.
    #[error("its file belongs to another user")]
    ForeignFile,
    /// The sender is not registered.
    #[error("'{from}' is not registered here; register it with `switchboard agents register \"{from}\"`")]
    UnknownSender {
        /// The sender.
        from: AgentId,
    },
    /// The sender is not authenticated.
    #[error(
        "it was dropped as a file, so its sender is not authenticated; send it with `switchboard send --kind execute`, \
         or set terminals.executeFromFiles"
    )]
    Unverified,
    /// The message is addressed to a group.
    #[error("it is addressed to {to}; an execute message needs one agent")]
    Group {
        /// The address.
        to: Address,
    },
    /// No terminal was running when the message arrived.
    #[error(
        "no terminal of '{agent}' ran when it arrived; start it with `switchboard run` and send it again"
    )]
    NoTerminal {
        /// The agent without a terminal.
        agent: AgentId,
    },
    /// No text is left after sanitizing.
    #[error("nothing is left to type without control characters and leading '!', '/' and '$'")]
    Empty,
    /// The text to type is too long.
    #[error(
        "it has {size} bytes to type and the limit is {MAX_TEXT}; put them into a file and send its path"
    )]
    TooLong {
        /// Size of the text in bytes.
        size: usize,
    },
}

/// Returns the sanitized text to type for a message, or the reason for refusing it.
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
    // For a dropped file, also check the sending time: the file may be ingested long after it was written.
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
        text if text.len() > MAX_TEXT => Err(Refusal::TooLong { size: text.len() }),
        text => Ok(text),
    }
}

#[cfg(test)]
#[path = "permission_tests.rs"]
mod tests;
