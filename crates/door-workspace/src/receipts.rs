//! Receipt files: `outbox/<sender>/<message-id>.receipt.json`.
//!
//! A message has one receipt, under the name that the protocol gives it. When more becomes true (seen, acknowledged,
//! expired), the file is replaced in one step; a reader finds the old or the new one, and never one that says less than
//! the one before.

use jiff::Timestamp;
use switchboard_core::{Address, Delivery, DeliveryState, Message, Receipt, Standing, sanitize_inline};
use switchboard_sys::files::{Created, Dir, Durability, FileError};

use crate::ids;
use crate::translate::{is_foreign, iso};
use crate::tree::{Folders, Section};
use crate::wire::{ReceiptFile, pretty};

/// Writes what the sender may be told now; nothing while a recipient may still get the message.
///
/// A file that belongs to another user names a sender nobody vouches for: its receipts go nowhere.
pub(crate) fn write(
    folders: &mut Folders<'_>,
    message: &Message,
    receipt: &Receipt,
    now: Timestamp,
) -> Result<Written, FileError> {
    if message.from.realm.is_some() || is_foreign(message) {
        return Ok(Written::First);
    }
    let Some(status) = status(receipt.standing()) else { return Ok(Written::First) };
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
    if folder.create_new_from(folders.root(), &name, &bytes, Durability::Later)? == Created::AlreadyThere
        && is_outdated(&folder, &name, &file)?
    {
        folder.replace_from(folders.root(), &name, &bytes)?;
        return Ok(Written::Replaced);
    }
    Ok(Written::First)
}

/// What became of [`write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// The receipt is the first of its message, or there is nothing to say, or one says as much already.
    First,
    /// It took the place of one that said less. Another process may have been about to replace that one, too.
    Replaced,
}

/// Whether a receipt of ours says less than this one. What others put under its name stays.
fn is_outdated(folder: &Dir, name: &str, newer: &ReceiptFile) -> Result<bool, FileError> {
    let Some(found) = folder.read(name, LONGEST)? else { return Ok(true) };
    // What a power failure leaves of a file is empty or zeros.
    if found.bytes.iter().all(|byte| *byte == 0) {
        return Ok(true);
    }
    let there = serde_json::from_slice::<ReceiptFile>(&found.bytes).ok();
    Ok(there.is_some_and(|there| there.id == newer.id && rank(&there.status) < rank(&newer.status)))
}

/// Receipts are short; whatever is longer is none of ours.
const LONGEST: u64 = 1 << 20;

/// How much a status says. A person may let go on what had failed.
fn rank(status: &str) -> u8 {
    match status {
        "failed" => 0,
        "delivered" => 1,
        "seen" => 2,
        _ => 3,
    }
}

/// The name of a message's receipt.
pub(crate) fn file_name(native: &str) -> String {
    format!("{native}.receipt.json")
}

/// The name of the record of what became of an `execute` at its terminal, beside the receipt.
pub(crate) fn result_name(native: &str, status: &str) -> String {
    format!("{native}.{status}.receipt.json")
}

/// The names of everything that a message's sender may have been told in files.
pub(crate) fn all_names(native: &str) -> [String; 4] {
    let [executed, failed, refused] =
        ["executed", "failed", "refused"].map(|status| result_name(native, status));
    [file_name(native), executed, failed, refused]
}

/// A receipt for a message to one agent, from that one delivery alone.
pub(crate) fn of_one(message: &Message, delivery: &Delivery, state: DeliveryState) -> Option<Receipt> {
    let Address::Agent(_) = &message.to else { return None };
    let delivery = Delivery { state, ..delivery.clone() };
    Some(Receipt::of(message.id, message.to.clone(), vec![delivery]))
}

fn status(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing::Pending => None,
        Standing::Failed => Some("failed"),
        Standing::Expired => Some("expired"),
        Standing::Delivered => Some("delivered"),
        Standing::Seen => Some("seen"),
        Standing::Acknowledged => Some("acknowledged"),
    }
}

fn summary(message: &Message, receipt: &Receipt) -> String {
    let to = &message.to;
    match (receipt.standing(), &receipt.deliveries[..]) {
        (Standing::Delivered, [one]) => format!("Message delivered to '{}' inbox", one.agent),
        (Standing::Delivered, all) => format!("Message delivered to {} inboxes of '{to}'", all.len()),
        (Standing::Seen, _) => format!("Message seen by '{to}'"),
        (Standing::Acknowledged, [Delivery { note: Some(note), .. }]) => {
            format!("Message acknowledged by '{to}': {}", sanitize_inline(note))
        }
        (Standing::Acknowledged, _) => format!("Message acknowledged by '{to}'"),
        (Standing::Expired, _) => format!("Message to '{to}' expired"),
        (Standing::Failed | Standing::Pending, all) => {
            format!("Message reached {} of {} recipients of '{to}'", receipt.reached(), all.len())
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
