//! Results of `execute` messages: `outbox/<sender>/<message-id>.<status>.receipt.json`, beside the receipts and in
//! their format.

use jiff::Timestamp;
use switchboard_core::{AgentId, Message};
use switchboard_sys::files::{Durability, FileError};

use crate::ids;
use crate::receipts::result_name;
use crate::translate::{is_foreign, iso};
use crate::tree::{Folders, Section, Tree};
use crate::wire::{ReceiptFile, pretty};

/// Largest record that is read.
const LIMIT: u64 = 1 << 20;

/// Result of an `execute` message at its terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecuteResult {
    /// It was typed, with one Enter.
    Executed,
    /// It was started and not finished, or may not have been typed at all. There is no retry.
    Failed {
        /// The reason.
        reason: String,
    },
    /// It was not typed and stays in the mailbox.
    Refused {
        /// The reason.
        reason: String,
    },
    /// It is not typed yet and waits in the mailbox. Never written as a record.
    Queued {
        /// The reason.
        reason: String,
    },
}

impl ExecuteResult {
    /// Returns the status in a record.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Failed { .. } => "failed",
            Self::Refused { .. } => "refused",
            Self::Queued { .. } => "queued",
        }
    }

    /// Returns why it was not typed.
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

    /// Parses the text of [`note`](Self::note); `None` for other texts.
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

    /// Writes the record, once: the first result stays. A sender of another owner has no outbox here.
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

    /// Reads the record of a message, if there is one.
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
