//! Rebuilds lost journal entries from mailbox, archive and receipt files, under the same ids.

use std::collections::BTreeMap;

use jiff::Timestamp;
use switchboard_core::{Address, AgentId, DeliveryState, Directory, Message, Name};
use switchboard_hub::{Draft, MissingDeliveries};

use crate::error::WorkspaceError;
use crate::ids;
use crate::mailbox;
use crate::receipts;
use crate::translate::{Found, drop_label, group_address, time_of, to_draft};
use crate::tree::{Section, Tree};
use crate::wire::{MessageFile, ReceiptFile};
use crate::workspace::{Workspace, blocking};

/// A message file found on disk.
struct RecoveredFile {
    file: MessageFile,
    group: Option<Address>,
    agent: Name,
    modified: Timestamp,
    uid: u32,
    state: DeliveryState,
}

/// Rebuilds the journal from mailboxes, archives and receipts. A no-op if there are no files.
pub(crate) async fn rebuild_journal(workspace: &Workspace) -> Result<(), WorkspaceError> {
    workspace.import_state().await?;
    let (tree, limit) = (workspace.tree().clone(), workspace.config().file_limit);
    let mut recovered = blocking(move || collect_files(&tree, limit)).await?;
    let directory = workspace.hub().directory().await?;
    recovered.retain(|recovered| was_accepted(recovered, &directory));
    recovered.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    // A message to a group has one file per member; merge them into one message.
    let mut drafts: Vec<Draft> = Vec::new();
    let mut by_id: BTreeMap<_, usize> = BTreeMap::new();
    for recovered in recovered {
        let delivery = (AgentId::local(recovered.agent.clone()), recovered.state);
        let Some(draft) = build_draft(workspace, &recovered, &drafts, &by_id).await? else { continue };
        if let Some(at) = by_id.get(&draft.id) {
            add_recipient(&mut drafts[*at], delivery);
        } else {
            by_id.insert(draft.id, drafts.len());
            drafts.push(Draft { restored: Some(vec![delivery]), ..draft });
        }
    }
    let mut restored = 0;
    for answer in workspace.hub().submit_all(drafts).await {
        match answer {
            Ok(accepted) => restored += usize::from(!accepted.duplicate),
            Err(error) => tracing::warn!(error = %error, "a message file could not be rebuilt"),
        }
    }
    if restored > 0 {
        tracing::warn!(messages = restored, "the journal had lost messages; they were rebuilt from files");
    }
    workspace.hub().database().mark_rebuilt().await?;
    Ok(())
}

/// Returns the sort key of a recovered file.
///
/// Switchboard's own ids are ordered. Messages of other programs with the same time are ordered by the file's
/// modification time, as when they were ingested.
fn sort_key(recovered: &RecoveredFile) -> (Timestamp, Option<Timestamp>, &str) {
    let created = recovered.file.created_at.as_deref().and_then(time_of);
    let dated = ids::from_native(&recovered.file.id).is_none().then_some(recovered.modified);
    (created.unwrap_or(recovered.modified), dated, &recovered.file.id)
}

/// Returns true if the file was accepted before the journal was lost.
///
/// A file that was rejected before the loss stays rejected.
fn was_accepted(recovered: &RecoveredFile, directory: &Directory) -> bool {
    let agent = AgentId::local(recovered.agent.clone());
    // An unregistered name may be a former name of this agent, from before the file was moved to the agent's new
    // folder.
    let misrouted = match recovered.file.recipient.parse::<AgentId>() {
        Ok(recipient) => recipient != agent && directory.agent(&recipient).is_some(),
        Err(_) => true,
    };
    let ours = ids::from_native(&recovered.file.id).is_some();
    let is_known = directory.agent(&agent).is_some() || agent.is_human();
    !misrouted && (ours || is_known || recovered.state.is_final())
}

fn add_recipient(draft: &mut Draft, delivery: (AgentId, DeliveryState)) {
    let restored = draft.restored.get_or_insert_default();
    match restored.iter_mut().find(|(agent, _)| *agent == delivery.0) {
        // After an interrupted move, the file is both in the mailbox and in the archive; count it once, as archived.
        Some(known) if delivery.1.is_final() => *known = delivery,
        Some(_) => {}
        None => restored.push(delivery),
    }
}

async fn build_draft(
    workspace: &Workspace,
    recovered: &RecoveredFile,
    drafts: &[Draft],
    by_id: &BTreeMap<switchboard_core::MessageId, usize>,
) -> Result<Option<Draft>, WorkspaceError> {
    let parent = match &recovered.file.reply_to {
        None => None,
        Some(native) => match workspace.resolve_id(native).await {
            Ok(id) => Some(id),
            // The parent message is not in the journal yet, but it may be part of this rebuild.
            Err(_) => ids::from_native(native)
                .filter(|id| by_id.contains_key(id))
                .or_else(|| drafts.iter().find(|draft| draft.native.id == *native).map(|draft| draft.id)),
        },
    };
    let own = workspace.tree().owner();
    let found = Found {
        mailbox: recovered.agent.clone(),
        modified: recovered.modified,
        foreign_owner: own.is_some_and(|own| own != recovered.uid).then_some(recovered.uid),
    };
    let draft = match to_draft(recovered.file.clone(), &found, parent) {
        Ok(draft) => draft,
        Err(error) => {
            tracing::warn!(file = %recovered.file.id, error = %error, "a message file could not be rebuilt");
            return Ok(None);
        }
    };
    let directory = workspace.hub().directory().await?;
    let from = directory.canonical(&draft.from);
    let ours = ids::from_native(&draft.native.id).is_some();
    let to = recovered.group.clone().unwrap_or(draft.to);
    let native =
        if ours { switchboard_core::NativeId { scope: String::new(), ..draft.native } } else { draft.native };
    Ok(Some(Draft { from, to, native, native_is_id: ours, ..draft }))
}

fn collect_files(tree: &Tree, limit: u64) -> Result<Vec<RecoveredFile>, WorkspaceError> {
    let mut all = Vec::new();
    for section in [Section::Inbox, Section::Archive] {
        for folder in tree.folders(section)? {
            let Ok(agent) = Name::parse(&folder) else { continue };
            let Ok(Some(dir)) = tree.folder(section, &folder) else { continue };
            for name in dir.names()? {
                if ids::of_file(&name).is_none() {
                    continue;
                }
                let Some(found) = mailbox::read(&dir, &name, limit) else { continue };
                let Ok(file) = found.content else { continue };
                let mut file = *file;
                drop_label(&mut file);
                let ours = ids::from_native(&file.id).is_some();
                let group = if ours { group_address(&mut file) } else { None };
                let superseded = dir.stat(&format!("{name}.superseded.meta"))?.is_some();
                let reported = read_reported(tree, &file.sender, &file.id);
                let state = reported.state(section, superseded, group.is_some());
                let (modified, uid) = (found.modified, found.uid);
                all.push(RecoveredFile { file, group, agent: agent.clone(), modified, uid, state });
            }
        }
    }
    Ok(all)
}

/// State of a message as last reported to the sender in its receipt.
#[derive(Default)]
struct ReportedState {
    seen: bool,
    expired: bool,
    failed: bool,
}

impl ReportedState {
    /// Derives a delivery's state from the receipt and the section that holds the file.
    fn state(&self, section: Section, superseded: bool, is_for_group: bool) -> DeliveryState {
        match section {
            Section::Archive if superseded || self.expired => DeliveryState::Expired,
            // A group's receipt does not name the recipient whose delivery failed.
            Section::Archive if self.failed && !is_for_group => DeliveryState::Refused,
            Section::Archive => DeliveryState::Acknowledged,
            _ if self.seen => DeliveryState::Seen,
            _ => DeliveryState::Delivered,
        }
    }
}

/// Reads the reported state from a message's receipt.
///
/// All fields are false if the receipt is missing or damaged.
fn read_reported(tree: &Tree, sender: &str, id: &str) -> ReportedState {
    let Ok(sender) = sender.parse::<AgentId>() else { return ReportedState::default() };
    let Ok(Some(outbox)) = tree.folder(Section::Outbox, sender.name.as_str()) else {
        return ReportedState::default();
    };
    let receipt = outbox.read(&receipts::file_name(id), receipts::MAX_RECEIPT).ok().flatten();
    let receipt = receipt.and_then(|found| serde_json::from_slice::<ReceiptFile>(&found.bytes).ok());
    let has_status = |status: &str| receipt.as_ref().is_some_and(|receipt| receipt.status == status);
    // A message that was acknowledged but not archived yet has at least been seen.
    ReportedState {
        seen: has_status("seen") || has_status("acknowledged"),
        expired: has_status("expired"),
        failed: has_status("failed"),
    }
}

impl Workspace {
    /// Restores the deliveries of a message that the database lost; returns their number.
    ///
    /// Each delivery's state is derived from the message's files. Deliveries without a file are redelivered.
    pub async fn restore_deliveries(&self, lost: &MissingDeliveries) -> Result<usize, WorkspaceError> {
        let (tree, message, agents) = (self.tree().clone(), lost.stored.message.clone(), lost.agents.clone());
        let had = blocking(move || {
            let mut had = Vec::new();
            for agent in agents.into_iter().filter(|agent| agent.realm.is_none()) {
                if let Some(state) = state_by_file(&tree, &message, &agent.name)? {
                    had.push((agent, state));
                }
            }
            Ok(had)
        })
        .await?;
        Ok(self.hub().deliveries().restore(lost.stored.message.id, had).await?)
    }
}

/// Derives a delivery's state from the message's file; returns `None` if the file is missing.
///
/// The archive takes precedence over the mailbox.
fn state_by_file(
    tree: &Tree,
    message: &Message,
    agent: &Name,
) -> Result<Option<DeliveryState>, WorkspaceError> {
    let native = ids::native_id(message);
    let name = ids::file_name(&native);
    for section in [Section::Archive, Section::Inbox] {
        let Some(dir) = tree.folder(section, agent.as_str())? else { continue };
        if dir.stat(&name)?.is_some_and(|found| found.is_regular) {
            let superseded = dir.stat(&format!("{name}.superseded.meta"))?.is_some();
            let reported = read_reported(tree, &message.from.to_string(), &native);
            return Ok(Some(reported.state(section, superseded, message.to.as_agent().is_none())));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "rebuild_tests.rs"]
mod tests;
