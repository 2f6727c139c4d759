//! Delivery: writes messages as files into mailboxes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use switchboard_core::{AgentId, DeliveryState, Directory, Message, MessageId, Outcome, Route, error_chain};
use switchboard_hub::WAITS_FOR_DISK;
use switchboard_hub::{Handoff, Outbound};
use switchboard_sys::blocking;
use switchboard_sys::files::{Created, Dir, Durability, FileError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::error::WorkspaceError;
use crate::ids;
use crate::own_files::OwnFiles;
use crate::receipts;
use crate::translate::{drop_label, replaces_earlier, to_mailbox};
use crate::tree::{Folders, Section, Tree};
use crate::wire::MessageFile;
use crate::workspace::Workspace;

/// Maximum number of deliveries per batch.
const BATCH: usize = 64;

/// Pause after a batch under load, so that deliveries collect into the next batch.
///
/// Besides its files, a batch costs three thread switches and a transaction; a larger batch shares this cost among more
/// messages. During the pause, submitters have the CPU.
const GATHER: Duration = Duration::from_millis(2);

/// Maximum number of batches that are written but not yet reported.
///
/// Two batches keep both cores busy; more would only hold more messages in memory.
const UNREPORTED_BATCHES: usize = 2;

/// Maximum size of an existing file that is read for a comparison.
///
/// The limit is higher if the new file is itself that large.
pub(crate) const LARGEST: u64 = 64 << 20;

/// Expected mailbox file of a message, to compare with the file on disk.
pub(crate) struct Expected {
    pub(crate) file: MessageFile,
    parent: Option<MessageId>,
    directory: Arc<Directory>,
}

/// Delivers the hub's handoffs until the hub shuts down.
///
/// Message files are written batch by batch, so that a mailbox fills in journal order. While the next batch is written,
/// the receipts of the previous batch are written and its outcomes reported.
pub(crate) async fn run(workspace: &Workspace, mut outbound: Outbound) {
    let mut reports = JoinSet::new();
    let mut ended: Option<Instant> = None;
    loop {
        let handoffs = outbound.next(BATCH).await;
        if handoffs.is_empty() {
            break;
        }
        // A full batch is followed by the next one without a pause, because more deliveries are already waiting.
        let are_some = (2..BATCH).contains(&handoffs.len());
        let is_busy = are_some && ended.is_some_and(|ended| ended.elapsed() < 2 * GATHER);
        if let Some(written) = write_all(workspace, handoffs).await {
            reports.spawn(report_all(workspace.clone(), written));
        }
        while reports.len() > UNREPORTED_BATCHES {
            reports.join_next().await;
        }
        ended = Some(Instant::now());
        if is_busy {
            sleep(GATHER).await;
        }
        while reports.try_join_next().is_some() {}
    }
    while reports.join_next().await.is_some() {}
}

/// Writes the message files. Returns `None` after a panic, which drops the handoffs.
///
/// Files are not synced: the messages are in the journal, and after a power failure the files are rewritten from it.
async fn write_all(workspace: &Workspace, handoffs: Vec<Handoff>) -> Option<Vec<(Handoff, Outcome)>> {
    let mut named = Vec::with_capacity(handoffs.len());
    for handoff in handoffs {
        let reply_to = workspace.reply_name(&handoff.message).await;
        named.push((handoff, reply_to));
    }
    let (tree, own_files) = (workspace.tree().clone(), workspace.own_files().clone());
    let written = blocking::run(move || {
        let mut folders = Folders::new(&tree);
        let mut write_file = |(handoff, reply_to): (Handoff, Result<Option<String>, WorkspaceError>)| {
            let outcome = match reply_to {
                Ok(reply_to) => write_one(&mut folders, &own_files, &handoff, reply_to),
                Err(error) => Outcome::Unreachable { reason: error.to_string() },
            };
            (handoff, outcome)
        };
        named.into_iter().map(&mut write_file).collect::<Vec<_>>()
    });
    written.await.ok()
}

/// Writes the receipts of a batch, then reports all its outcomes at once.
///
/// If a process is killed between the two steps, the message is redelivered, and the redelivery finds the file that
/// already exists. The other order would leave a delivery without a receipt.
async fn report_all(workspace: Workspace, written: Vec<(Handoff, Outcome)>) {
    let (tree, now) = (workspace.tree().clone(), workspace.hub().now());
    let written = blocking::run(move || {
        write_receipts(&tree, &written, now);
        written
    });
    // A panic drops the handoffs, which reports them as unreachable.
    let Ok(written) = written.await else { return };
    let messages: Vec<_> = written.iter().map(|(handoff, _)| handoff.message.clone()).collect();
    let answers = Handoff::report_all(written).await;
    for (message, answer) in messages.into_iter().zip(answers) {
        match answer {
            Ok(Some(state)) => finish_report(&workspace, &message, state).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(error = %error, "a delivery's outcome could not be recorded"),
        }
    }
}

/// Writes the receipts of messages that were delivered to their only recipient.
fn write_receipts(tree: &Tree, written: &[(Handoff, Outcome)], now: Timestamp) {
    let mut folders = Folders::new(tree);
    for (handoff, outcome) in written {
        if *outcome != Outcome::Delivered {
            continue;
        }
        let Some(receipt) =
            receipts::of_single_delivery(&handoff.message, &handoff.delivery, DeliveryState::Delivered)
        else {
            continue;
        };
        if let Err(error) = receipts::write(&mut folders, &handoff.message, &receipt, now) {
            // The message is delivered; a missing receipt must not cause a redelivery.
            tracing::warn!(error = %error, "a receipt could not be written");
        }
    }
}

/// Supersedes earlier tasks and writes remaining receipts once an outcome is reported.
async fn finish_report(workspace: &Workspace, message: &Message, state: DeliveryState) {
    let mut failed = Ok(());
    if state == DeliveryState::Delivered && replaces_earlier(message) {
        failed = workspace.supersede_earlier(message).await;
    }
    // A message to a single agent already has its receipt; any other message gets one when the outcome of every
    // recipient is known.
    if message.to.as_agent().is_none() || state != DeliveryState::Delivered {
        failed = failed.and(workspace.write_receipt(message.id).await);
    }
    if let Err(error) = failed {
        tracing::warn!(error = %error, "a receipt could not be written");
    }
}

/// Writes the file of one message into the recipient's mailbox.
fn write_one(
    folders: &mut Folders<'_>,
    own_files: &OwnFiles,
    handoff: &Handoff,
    reply_to: Option<String>,
) -> Outcome {
    let agent = match &handoff.delivery.route {
        Route::Mailbox { agent } => agent,
        other => return Outcome::Refused { reason: format!("the workspace door has no way '{other}'") },
    };
    let recipient = AgentId::local(agent.clone());
    if handoff.delivery.attempts > 1
        && folders.is_archived(agent, &ids::file_name(&ids::native_id(&handoff.message)))
    {
        // An earlier attempt delivered the file but its report was lost, and the reader has archived the file since.
        // Report success instead of redelivering.
        return Outcome::Delivered;
    }
    let file = to_mailbox(&handoff.message, &recipient, reply_to);
    let result = folders.open_or_create(Section::Inbox, agent).and_then(|mailbox| {
        own_files.expect(mailbox.path().join(ids::file_name(&file.id)));
        write_file(folders.root(), &mailbox, &file)
    });
    match result {
        Ok(()) => Outcome::Delivered,
        Err(error) => {
            let waits = if error.is_disk() { WAITS_FOR_DISK } else { "" };
            Outcome::Unreachable { reason: format!("{waits}{}", error_chain(&error)) }
        }
    }
}

/// Writes a message's file, unless an equivalent file exists.
///
/// A different file under that name is moved aside. The temporary file is created in `root`, which has no watcher.
pub(crate) fn write_file(root: &Dir, mailbox: &Dir, file: &MessageFile) -> Result<(), FileError> {
    let name = ids::file_name(&file.id);
    let bytes = file.to_bytes();
    // Two attempts suffice: after the first one, the conflicting file is moved aside.
    for _ in 0..2 {
        if mailbox.create_new_from(root, &name, &bytes, Durability::Unsynced)? == Created::Created {
            return Ok(());
        }
        match mailbox.read(&name, LARGEST.max(2 * bytes.len() as u64)) {
            Ok(there) if there.as_ref().is_none_or(|t| t.bytes == bytes || is_equivalent(&t.bytes, file)) => {
                return Ok(());
            }
            Ok(_) | Err(FileError::TooLarge { .. }) => {}
            Err(error) => return Err(error),
        }
        move_aside(mailbox, &name)?;
    }
    Ok(())
}

/// Quarantines a file whose content does not match its name by moving it aside.
pub(crate) fn move_aside(mailbox: &Dir, name: &str) -> Result<String, FileError> {
    let aside = format!("{name}.conflict.{:08x}", fastrand::u32(..));
    mailbox.move_new(name, mailbox, &aside)?;
    tracing::warn!(mailbox = %mailbox.path().display(), file = name, moved_to = %aside, "another file had this message's name");
    Ok(aside)
}

impl Expected {
    /// Builds the expected file of `message` in the mailbox of `recipient`.
    pub(crate) fn new(
        message: &Message,
        recipient: &AgentId,
        reply_to: Option<String>,
        directory: Arc<Directory>,
    ) -> Self {
        Self { file: to_mailbox(message, recipient, reply_to), parent: message.in_reply_to, directory }
    }

    /// Returns true if a file is equivalent to the expected one.
    ///
    /// Formatting does not matter, and any current or former name of the sender matches.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        let Ok(mut found) = MessageFile::parse(bytes) else { return false };
        let mut expected = self.file.clone();
        for file in [&mut found, &mut expected] {
            if let Ok(sender) = file.sender.parse::<AgentId>() {
                file.sender = self.directory.canonical(&sender).to_string();
            }
        }
        // If the parent message has left the journal, the id that another program gave it is unknown, so any such id
        // matches.
        let parent = self.parent.map(ids::to_native);
        if expected.reply_to == parent
            && found.reply_to.as_deref().is_some_and(|name| ids::from_native(name).is_none())
        {
            expected.reply_to.clone_from(&found.reply_to);
        }
        normalize(found) == normalize(expected)
    }
}

/// Returns true if this is the name of a file that was moved aside.
pub(crate) fn is_conflict_name(name: &str) -> bool {
    name.contains(".json.conflict.")
}

/// Returns true if two message files are equivalent, ignoring formatting.
pub(crate) fn is_equivalent_file(one: &[u8], other: &[u8]) -> bool {
    one == other || MessageFile::parse(other).is_ok_and(|other| is_equivalent(one, &other))
}

/// Returns true if a file is equivalent to a message, ignoring formatting.
fn is_equivalent(bytes: &[u8], expected: &MessageFile) -> bool {
    MessageFile::parse(bytes).is_ok_and(|found| normalize(found) == normalize(expected.clone()))
}

/// Normalizes fields that writers spell differently but that mean the same.
fn normalize(mut file: MessageFile) -> MessageFile {
    file.sender = file.sender.to_ascii_lowercase();
    // The mailbox determines the recipient; the file may contain a former name.
    file.recipient.clear();
    // Files written before labels were introduced have no label.
    drop_label(&mut file);
    // A file without a creation time uses its modification time, so a missing time is not a difference.
    file.created_at = None;
    file
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
