//! Receipt files: `outbox/<sender>/<message-id>.receipt.json`.
//!
//! A message has one receipt, under the file name that the protocol defines. When the message's state advances (seen,
//! acknowledged, expired), the receipt is replaced atomically, so that the state which a reader finds never goes back.

use jiff::Timestamp;
use switchboard_core::{Address, Delivery, DeliveryState, Message, OverallState, Receipt, sanitize_inline};
use switchboard_sys::files::{Created, Dir, Durability, FileError};

use crate::ids;
use crate::translate::{is_foreign, iso};
use crate::tree::{Folders, Section};
use crate::wire::{ReceiptFile, pretty};

/// Writes the receipt for a message's current state.
///
/// Writes nothing while a delivery is pending. A message file that another user owns has an unauthenticated sender, so
/// no receipt is written for it.
pub(crate) fn write(
    folders: &mut Folders<'_>,
    message: &Message,
    receipt: &Receipt,
    now: Timestamp,
) -> Result<WriteResult, FileError> {
    if message.from.realm.is_some() || is_foreign(message) {
        return Ok(WriteResult::First);
    }
    let Some(status) = status(receipt.overall_state()) else { return Ok(WriteResult::First) };
    let native = ids::native_id(message);
    let file = ReceiptFile {
        id: format!("receipt_{native}"),
        in_reply_to: native.clone(),
        status: status.to_owned(),
        summary: summary(message, receipt),
        processed_at: iso(now),
        error: error(receipt),
    };
    let folder = folders.open_or_create(Section::Outbox, &message.from.name)?;
    let (name, bytes) = (file_name(&native), pretty(&file));
    if folder.create_new_from(folders.root(), &name, &bytes, Durability::Unsynced)? == Created::AlreadyExists
        && is_outdated(&folder, &name, &file)?
    {
        folder.replace_from(folders.root(), &name, &bytes)?;
        return Ok(WriteResult::Replaced);
    }
    Ok(WriteResult::First)
}

/// Result of [`write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// The first receipt of the message was written, or no write was needed.
    First,
    /// A receipt with an older state was replaced. Another process may have been about to replace the same file.
    Replaced,
}

/// Returns true if Switchboard's receipt on disk has an older state than the new one.
///
/// Files of other programs are never outdated.
fn is_outdated(folder: &Dir, name: &str, newer: &ReceiptFile) -> Result<bool, FileError> {
    let found = match folder.read(name, MAX_RECEIPT) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(true),
        // Ours are smaller.
        Err(FileError::TooLarge { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    // A power failure may leave an empty file or zeros.
    if found.bytes.iter().all(|byte| *byte == 0) {
        return Ok(true);
    }
    let existing = serde_json::from_slice::<ReceiptFile>(&found.bytes).ok();
    Ok(existing
        .is_some_and(|existing| existing.id == newer.id && rank(&existing.status) < rank(&newer.status)))
}

/// Maximum size of a receipt file that is read: a group's receipt lists the error of each member.
pub(crate) const MAX_RECEIPT: u64 = 16 << 20;

/// Returns the rank of a status by progress.
///
/// `failed` ranks lowest because a person may release a stopped message later.
fn rank(status: &str) -> u8 {
    match status {
        "failed" => 0,
        "delivered" => 1,
        "seen" => 2,
        _ => 3,
    }
}

/// Returns the file name of a message's receipt.
pub(crate) fn file_name(native: &str) -> String {
    format!("{native}.receipt.json")
}

/// Returns the file name of the record with the terminal's result for an `execute` message.
pub(crate) fn result_name(native: &str, status: &str) -> String {
    format!("{native}.{status}.receipt.json")
}

/// Returns the file names of all receipts and records that a message's sender may have.
pub(crate) fn all_names(native: &str) -> [String; 4] {
    let [executed, failed, refused] =
        ["executed", "failed", "refused"].map(|status| result_name(native, status));
    [file_name(native), executed, failed, refused]
}

/// Builds the receipt of a message to one agent from its only delivery.
pub(crate) fn of_single_delivery(
    message: &Message,
    delivery: &Delivery,
    state: DeliveryState,
) -> Option<Receipt> {
    let Address::Agent(_) = &message.to else { return None };
    let delivery = Delivery { state, ..delivery.clone() };
    Some(Receipt::of(message.id, message.to.clone(), vec![delivery]))
}

fn status(state: OverallState) -> Option<&'static str> {
    match state {
        OverallState::Pending => None,
        OverallState::Failed => Some("failed"),
        OverallState::Expired => Some("expired"),
        OverallState::Delivered => Some("delivered"),
        OverallState::Seen => Some("seen"),
        OverallState::Acknowledged => Some("acknowledged"),
    }
}

fn summary(message: &Message, receipt: &Receipt) -> String {
    let to = &message.to;
    match (receipt.overall_state(), &receipt.deliveries[..]) {
        (OverallState::Delivered, [one]) => format!("Message delivered to '{}' inbox", one.agent),
        (OverallState::Delivered, all) => format!("Message delivered to {} inboxes of '{to}'", all.len()),
        (OverallState::Seen, _) => format!("Message seen by '{to}'"),
        (OverallState::Acknowledged, [Delivery { note: Some(note), .. }]) => {
            format!("Message acknowledged by '{to}': {}", sanitize_inline(note))
        }
        (OverallState::Acknowledged, _) => format!("Message acknowledged by '{to}'"),
        (OverallState::Expired, _) => format!("Message to '{to}' expired"),
        (OverallState::Failed | OverallState::Pending, all) => {
            format!("Message reached {} of {} recipients of '{to}'", receipt.reached_count(), all.len())
        }
    }
}

fn error(receipt: &Receipt) -> Option<String> {
    let problems: Vec<String> = receipt
        .deliveries
        .iter()
        .filter(|d| matches!(d.state, DeliveryState::Refused | DeliveryState::Expired))
        .map(|d| format!("{}: {}", d.agent, sanitize_inline(d.note.as_deref().unwrap_or(d.state.as_str()))))
        .collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[cfg(test)]
#[path = "receipts_tests.rs"]
mod tests;
