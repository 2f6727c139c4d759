//! Results of `execute` messages, stored next to the receipts and in their format.
//!
//! The file is `outbox/<sender>/<message-id>.<status>.receipt.json`.

use jiff::Timestamp;
use switchboard_core::{AgentId, Message};
use switchboard_sys::files::{Durability, FileError};

use crate::ids;
use crate::receipts::result_name;
use crate::translate::{is_foreign, iso};
use crate::tree::{Folders, Section, Tree};
use crate::wire::{ReceiptFile, pretty};

/// Maximum size of a result record that is read, in bytes.
const LIMIT: u64 = 1 << 20;

/// Result of typing an `execute` message into a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecuteResult {
    /// The text was typed and submitted with one Enter.
    Executed,
    /// Typing was started but not finished, or the text may not have been typed at all. There is no retry.
    Failed {
        /// The reason of the failure.
        reason: String,
    },
    /// The text was not typed, and the message stays in the mailbox.
    Refused {
        /// The reason of the refusal.
        reason: String,
    },
    /// The text is not typed yet, and the message waits in the mailbox.
    ///
    /// This result is never written as a record.
    Queued {
        /// The reason of the delay.
        reason: String,
    },
}

impl ExecuteResult {
    /// Returns the status as written in a record.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Failed { .. } => "failed",
            Self::Refused { .. } => "refused",
            Self::Queued { .. } => "queued",
        }
    }

    /// Returns the reason why the text was not typed.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Executed => None,
            Self::Failed { reason } | Self::Refused { reason } | Self::Queued { reason } => Some(reason),
        }
    }

    /// Formats the result as one sentence for a receipt.
    pub fn note(&self) -> String {
        match self {
            Self::Executed => self.status().to_owned(),
            Self::Failed { reason } | Self::Refused { reason } => format!("{}: {reason}", self.status()),
            Self::Queued { reason } => format!("not typed yet: {reason}"),
        }
    }

    /// Parses the text of [`note`](Self::note); returns `None` for any other text.
    pub(crate) fn from_note(note: &str) -> Option<Self> {
        match note.split_once(": ") {
            None if note == Self::Executed.status() => Some(Self::Executed),
            Some(("failed", reason)) => Some(Self::Failed { reason: reason.to_owned() }),
            _ => None,
        }
    }

    fn summary(&self, agent: &AgentId) -> String {
        match self {
            Self::Executed => format!("Typed into the terminal of '{agent}'"),
            Self::Failed { .. } => format!("Typing into the terminal of '{agent}' failed"),
            Self::Refused { .. } => {
                format!("Not typed into the terminal of '{agent}'; it stays in the mailbox")
            }
            Self::Queued { .. } => format!("Not typed into the terminal of '{agent}' yet"),
        }
    }

    /// Writes the result record, unless a record with the same status exists.
    ///
    /// A sender of another owner has no outbox here, so no record is written for it.
    pub(crate) fn write(
        &self,
        tree: &Tree,
        message: &Message,
        agent: &AgentId,
        now: Timestamp,
    ) -> Result<(), FileError> {
        if message.from.realm.is_some() || is_foreign(message) {
            return Ok(());
        }
        let native = ids::native_id(message);
        let file = ReceiptFile {
            id: format!("result_{native}"),
            in_reply_to: native.clone(),
            status: self.status().to_owned(),
            summary: self.summary(agent),
            processed_at: iso(now),
            error: self.reason().map(str::to_owned),
        };
        let folder = Folders::new(tree).open_or_create(Section::Outbox, &message.from.name)?;
        folder.create_new(&result_name(&native, self.status()), &pretty(&file), Durability::Unsynced)?;
        Ok(())
    }

    /// Reads the record of a message; returns `None` if there is none.
    pub(crate) fn read(tree: &Tree, message: &Message) -> Result<Option<Self>, FileError> {
        let Some(folder) = tree.folder(Section::Outbox, message.from.name.as_str())? else { return Ok(None) };
        let native = ids::native_id(message);
        let reason = |status: &str| -> Result<Option<String>, FileError> {
            let found = folder.read(&result_name(&native, status), LIMIT)?;
            let file = found.and_then(|found| serde_json::from_slice::<ReceiptFile>(&found.bytes).ok());
            Ok(file.map(|file| file.error.unwrap_or_default()))
        };
        if reason("executed")?.is_some() {
            return Ok(Some(Self::Executed));
        }
        if let Some(reason) = reason("failed")? {
            return Ok(Some(Self::Failed { reason }));
        }
        Ok(reason("refused")?.map(|reason| Self::Refused { reason }))
    }
}
