//! Receipt files: `outbox/<sender>/<message-id>.receipt.json`.
//!
//! The first outcome of a message gets the file that the protocol names. What is true later (seen,
//! acknowledged, expired after delivery) gets a file of its own beside it, because a receipt once
//! written is never changed.

use jiff::Timestamp;
use switchboard_core::{Address, Delivery, DeliveryState, Message, Receipt, Standing, sanitize_inline};
use switchboard_hub::files::{Created, Dir, Durability, FileError};

use crate::ids;
use crate::translate::{is_foreign, iso};
use crate::tree::{Folders, Section, Tree};
use crate::wire::{ReceiptFile, pretty};

/// Writes what the sender may be told now; nothing while a recipient may still get the message.
///
/// A file that belongs to another user names a sender nobody vouches for: its receipts go nowhere.
pub(crate) fn write(
    folders: &mut Folders<'_>,
    message: &Message,
    receipt: &Receipt,
    now: Timestamp,
) -> Result<(), FileError> {
    if message.from.realm.is_some() || is_foreign(message) {
        return Ok(());
    }
    let Some(status) = status(receipt.standing()) else { return Ok(()) };
    let native = ids::native_of(message);
    let file = ReceiptFile {
        id: format!("receipt_{native}"),
        in_reply_to: native.clone(),
        status: status.to_owned(),
        summary: summary(message, receipt),
        processed_at: iso(now),
        error: error(receipt),
    };
    let folder = folders.make(Section::Outbox, &message.from.name)?;
    let bytes = pretty(&file);
    let first = format!("{native}.receipt.json");
    if matches!(status, "delivered" | "failed") || folder.stat(&first)?.is_none() {
        let there = folder.create_new(&first, &bytes, Durability::Later)? == Created::AlreadyThere;
        // A person let go on what was stopped, and the first receipt told that.
        if there && status == "delivered" && says_failed(&folder, &first)? {
            folder.create_new(&later_name(&native, status), &bytes, Durability::Later)?;
        }
    } else {
        folder.create_new(&later_name(&native, status), &bytes, Durability::Later)?;
    }
    Ok(())
}

fn says_failed(folder: &Dir, name: &str) -> Result<bool, FileError> {
    /// Receipts are short; whatever is longer is none of ours.
    const LONGEST: u64 = 1 << 20;
    let Some(found) = folder.read(name, LONGEST)? else { return Ok(false) };
    let first = serde_json::from_slice::<ReceiptFile>(&found.bytes);
    Ok(first.is_ok_and(|first| first.status == "failed"))
}

/// Whether the sender has been told the first outcome.
pub(crate) fn is_written(tree: &Tree, message: &Message) -> Result<bool, FileError> {
    let name = format!("{}.receipt.json", ids::native_of(message));
    match tree.folder(Section::Outbox, message.from.name.as_str())? {
        Some(folder) => Ok(folder.stat(&name)?.is_some()),
        None => Ok(false),
    }
}

/// The file for what became true after the first outcome.
pub(crate) fn later_name(native: &str, status: &str) -> String {
    format!("{native}.{status}.receipt.json")
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
