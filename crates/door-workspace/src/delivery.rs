//! The way out: mailbox files.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use switchboard_core::{AgentId, DeliveryState, Directory, Message, MessageId, Outcome, Route};
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

/// Most deliveries written in one go.
const BATCH: usize = 64;

/// How long deliveries are gathered while several come one upon the other. What a batch costs beside its files, the way
/// over three threads and a transaction, is then paid once for many, and those who submit have the machine meanwhile.
const GATHER: Duration = Duration::from_millis(2);

/// Most batches whose files are written and whose outcomes are not reported. Two keep both cores busy; more would only hold
/// more messages in memory.
const UNREPORTED_BATCHES: usize = 2;

/// Files are read up to this size to be compared; larger ones only with what is as large.
pub(crate) const LARGEST: u64 = 64 << 20;

/// A message's file as it should be in one mailbox.
pub(crate) struct Expected {
    pub(crate) file: MessageFile,
    parent: Option<MessageId>,
    directory: Arc<Directory>,
}

/// Delivers what the hub hands over, until it shuts down.
///
/// Message files are written batch by batch, so that a mailbox fills in the order of the journal. The receipts and the report of
/// a batch follow beside the next batch.
pub(crate) async fn run(workspace: &Workspace, mut outbound: Outbound) {
    let mut reports = JoinSet::new();
    let mut ended: Option<Instant> = None;
    loop {
        let handoffs = outbound.next(BATCH).await;
        if handoffs.is_empty() {
            break;
        }
        // Behind a full batch more are waiting already.
        let are_some = (2..BATCH).contains(&handoffs.len());
        let is_busy = are_some && ended.is_some_and(|ended| ended.elapsed() < 2 * GATHER);
        if let Some(placed) = place_all(workspace, handoffs).await {
            reports.spawn(report_all(workspace.clone(), placed));
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

/// Writes the message files; `None` where that panicked, which drops the handoffs.
///
/// A file is not synced by itself: the journal holds the message, and after a power failure the file is written again.
async fn place_all(workspace: &Workspace, handoffs: Vec<Handoff>) -> Option<Vec<(Handoff, Outcome)>> {
    let mut named = Vec::with_capacity(handoffs.len());
    for handoff in handoffs {
        let reply_to = workspace.reply_name(&handoff.message).await;
        named.push((handoff, reply_to));
    }
    let (tree, own_files) = (workspace.tree().clone(), workspace.own_files().clone());
    let placed = blocking::run(move || {
        let mut folders = Folders::new(&tree);
        let mut place = |(handoff, reply_to): (Handoff, Result<Option<String>, WorkspaceError>)| {
            let outcome = match reply_to {
                Ok(reply_to) => put(&mut folders, &own_files, &handoff, reply_to),
                Err(error) => Outcome::Unreachable { reason: error.to_string() },
            };
            (handoff, outcome)
        };
        named.into_iter().map(&mut place).collect::<Vec<_>>()
    });
    placed.await.ok()
}

/// Writes the receipts of a batch, then reports all its outcomes at once.
///
/// In this order, so that a process killed between the two repeats a delivery that finds its own file, rather than leaving a
/// delivery without a receipt.
async fn report_all(workspace: Workspace, placed: Vec<(Handoff, Outcome)>) {
    let (tree, now) = (workspace.tree().clone(), workspace.hub().now());
    let written = blocking::run(move || {
        write_receipts(&tree, &placed, now);
        placed
    });
    // A panic in there drops the handoffs, which reports them as unreachable.
    let Ok(placed) = written.await else { return };
    let messages: Vec<_> = placed.iter().map(|(handoff, _)| handoff.message.clone()).collect();
    let answers = Handoff::report_all(placed).await;
    for (message, answer) in messages.into_iter().zip(answers) {
        match answer {
            Ok(Some(state)) => after(&workspace, &message, state).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(error = %error, "a delivery could not be noted"),
        }
    }
}

/// Writes the receipts of messages that were delivered to their only recipient.
fn write_receipts(tree: &Tree, placed: &[(Handoff, Outcome)], now: Timestamp) {
    let mut folders = Folders::new(tree);
    for (handoff, outcome) in placed {
        if *outcome != Outcome::Delivered {
            continue;
        }
        let Some(receipt) = receipts::of_one(&handoff.message, &handoff.delivery, DeliveryState::Delivered)
        else {
            continue;
        };
        if let Err(error) = receipts::write(&mut folders, &handoff.message, &receipt, now) {
            // The message is where it belongs; a missing receipt must not have it sent again.
            tracing::warn!(error = %error, "a receipt could not be written");
        }
    }
}

/// What follows a reported outcome.
async fn after(workspace: &Workspace, message: &Message, state: DeliveryState) {
    let mut failed = Ok(());
    if state == DeliveryState::Delivered && replaces_earlier(message) {
        failed = workspace.supersede_earlier(message).await;
    }
    // A message to one agent has its receipt; the others are told once all recipients are known.
    if message.to.as_agent().is_none() || state != DeliveryState::Delivered {
        failed = failed.and(workspace.write_receipt(message.id).await);
    }
    if let Err(error) = failed {
        tracing::warn!(error = %error, "a receipt could not be written");
    }
}

/// Puts one message into its mailbox.
fn put(
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
        // An attempt whose report was lost had come this far, and its reader is done with it.
        return Outcome::Delivered;
    }
    let file = to_mailbox(&handoff.message, &recipient, reply_to);
    let result = folders.open_or_create(Section::Inbox, agent).and_then(|mailbox| {
        own_files.expect(mailbox.path().join(ids::file_name(&file.id)));
        place(folders.root(), &mailbox, &file)
    });
    match result {
        Ok(()) => Outcome::Delivered,
        Err(error) => {
            let waits = if error.is_disk() { WAITS_FOR_DISK } else { "" };
            Outcome::Unreachable { reason: format!("{waits}{}", describe(&error)) }
        }
    }
}

/// Writes a message's file, unless it is there already. Another file under its name is moved aside. The mailboxes are
/// watched, and `root` is not.
pub(crate) fn place(root: &Dir, mailbox: &Dir, file: &MessageFile) -> Result<(), FileError> {
    let name = ids::file_name(&file.id);
    let bytes = file.to_bytes();
    // Twice at most: what stood in the way is moved aside in between.
    for _ in 0..2 {
        if mailbox.create_new_from(root, &name, &bytes, Durability::Later)? == Created::Created {
            return Ok(());
        }
        match mailbox.read(&name, LARGEST.max(2 * bytes.len() as u64)) {
            Ok(there) if there.as_ref().is_none_or(|t| t.bytes == bytes || is_same(&t.bytes, file)) => {
                return Ok(());
            }
            Ok(_) | Err(FileError::TooLarge { .. }) => {}
            Err(error) => return Err(error),
        }
        set_aside(mailbox, &name)?;
    }
    Ok(())
}

/// Moves a file that is not what its name says out of the way, without losing it.
pub(crate) fn set_aside(mailbox: &Dir, name: &str) -> Result<String, FileError> {
    let aside = format!("{name}.conflict.{:08x}", fastrand::u32(..));
    mailbox.move_new(name, mailbox, &aside)?;
    tracing::warn!(mailbox = %mailbox.path().display(), file = name, moved_to = %aside, "another file stood under this message's name");
    Ok(aside)
}

impl Expected {
    /// The file of `message` in the mailbox of `recipient`.
    pub(crate) fn new(
        message: &Message,
        recipient: &AgentId,
        reply_to: Option<String>,
        directory: Arc<Directory>,
    ) -> Self {
        Self { file: to_mailbox(message, recipient, reply_to), parent: message.in_reply_to, directory }
    }

    /// Whether a file says the same, however it is spelled and whichever of its names the sender used.
    pub(crate) fn is_met_by(&self, bytes: &[u8]) -> bool {
        let Ok(mut found) = MessageFile::parse(bytes) else { return false };
        let mut expected = self.file.clone();
        for file in [&mut found, &mut expected] {
            if let Ok(sender) = file.sender.parse::<AgentId>() {
                file.sender = self.directory.canonical(&sender).to_string();
            }
        }
        // What another program called a message that is no longer in the journal cannot be known.
        let parent = self.parent.map(ids::to_native);
        if expected.reply_to == parent
            && found.reply_to.as_deref().is_some_and(|name| ids::from_native(name).is_none())
        {
            expected.reply_to.clone_from(&found.reply_to);
        }
        normal(found) == normal(expected)
    }
}

/// Whether this is the name of a file that was moved out of the way.
pub(crate) fn is_aside(name: &str) -> bool {
    name.contains(".json.conflict.")
}

/// Whether two files say the same, however they are spelled.
pub(crate) fn says_the_same(one: &[u8], other: &[u8]) -> bool {
    one == other || MessageFile::parse(other).is_ok_and(|other| is_same(one, &other))
}

/// Whether a file says the same as a message, however it is spelled.
fn is_same(bytes: &[u8], expected: &MessageFile) -> bool {
    MessageFile::parse(bytes).is_ok_and(|found| normal(found) == normal(expected.clone()))
}

/// What different writers write differently without meaning something different.
fn normal(mut file: MessageFile) -> MessageFile {
    file.sender = file.sender.to_ascii_lowercase();
    // The mailbox says whom it is for; the name in the file may be a former one.
    file.recipient.clear();
    // Files from before there were labels have none.
    drop_label(&mut file);
    // A file without a time takes it from its date, and the time does not make another message.
    file.created_at = None;
    file
}

/// An error with its cause, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
