//! After the database was lost, or a part of it: what the files that remain say of messages, under the same ids.

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

/// Larger than any receipt: a group's names what went wrong with each member.
const RECEIPT_LIMIT: u64 = 16 << 20;

/// One message file, wherever it was found.
struct Remains {
    file: MessageFile,
    group: Option<Address>,
    agent: Name,
    modified: Timestamp,
    uid: u32,
    state: DeliveryState,
}

/// Reads back what the mailboxes, archives and receipts say. Nothing where they are empty.
pub(crate) async fn read_back(workspace: &Workspace) -> Result<(), WorkspaceError> {
    workspace.import_state().await?;
    let (tree, limit) = (workspace.tree().clone(), workspace.config().file_limit);
    let mut remains = blocking(move || collect(&tree, limit)).await?;
    let directory = workspace.hub().directory().await?;
    remains.retain(|remains| was_mail(remains, &directory));
    remains.sort_by(|a, b| order(a).cmp(&order(b)));
    // A message to a group has one file per member: they are one message again.
    let mut drafts: Vec<Draft> = Vec::new();
    let mut by_id: BTreeMap<_, usize> = BTreeMap::new();
    for remains in remains {
        let delivery = (AgentId::local(remains.agent.clone()), remains.state);
        let Some(draft) = draft(workspace, &remains, &drafts, &by_id).await? else { continue };
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
            Err(error) => tracing::warn!(error = %error, "a message file was not read back"),
        }
    }
    if restored > 0 {
        tracing::warn!(messages = restored, "the journal had lost messages; they were read back from files");
    }
    workspace.hub().mark_rebuilt().await?;
    Ok(())
}

/// Our own ids rise; of others with the same time the date of the file tells, as when they were taken in.
fn order(remains: &Remains) -> (Timestamp, Option<Timestamp>, &str) {
    let created = remains.file.created_at.as_deref().and_then(time_of);
    let dated = ids::from_native(&remains.file.id).is_none().then_some(remains.modified);
    (created.unwrap_or(remains.modified), dated, &remains.file.id)
}

/// Whether a file was mail before: one that was refused then is refused now.
fn was_mail(remains: &Remains, directory: &Directory) -> bool {
    let agent = AgentId::local(remains.agent.clone());
    // A name that nobody has may be a former one of this agent; the file has gone along with it.
    let misrouted = match remains.file.recipient.parse::<AgentId>() {
        Ok(recipient) => recipient != agent && directory.agent(&recipient).is_some(),
        Err(_) => true,
    };
    let ours = ids::from_native(&remains.file.id).is_some();
    let is_known = directory.agent(&agent).is_some() || agent.is_human();
    !misrouted && (ours || is_known || remains.state.is_final())
}

fn add_recipient(draft: &mut Draft, delivery: (AgentId, DeliveryState)) {
    let restored = draft.restored.get_or_insert_default();
    match restored.iter_mut().find(|(agent, _)| *agent == delivery.0) {
        // In the mailbox and in the archive: an interrupted move. It counts once, as done with.
        Some(known) if delivery.1.is_final() => *known = delivery,
        Some(_) => {}
        None => restored.push(delivery),
    }
}

async fn draft(
    workspace: &Workspace,
    remains: &Remains,
    drafts: &[Draft],
    by_id: &BTreeMap<switchboard_core::MessageId, usize>,
) -> Result<Option<Draft>, WorkspaceError> {
    let parent = match &remains.file.reply_to {
        None => None,
        Some(native) => match workspace.resolve_id(native).await {
            Ok(id) => Some(id),
            // Not in the journal yet, but read back in this very run.
            Err(_) => ids::from_native(native)
                .filter(|id| by_id.contains_key(id))
                .or_else(|| drafts.iter().find(|draft| draft.native.id == *native).map(|draft| draft.id)),
        },
    };
    let own = workspace.tree().owner();
    let found = Found {
        mailbox: remains.agent.clone(),
        modified: remains.modified,
        foreign_owner: own.is_some_and(|own| own != remains.uid).then_some(remains.uid),
    };
    let draft = match to_draft(remains.file.clone(), &found, parent) {
        Ok(draft) => draft,
        Err(error) => {
            tracing::warn!(file = %remains.file.id, error = %error, "a message file was not read back");
            return Ok(None);
        }
    };
    let directory = workspace.hub().directory().await?;
    let from = directory.canonical(&draft.from);
    let ours = ids::from_native(&draft.native.id).is_some();
    let to = remains.group.clone().unwrap_or(draft.to);
    let native =
        if ours { switchboard_core::NativeId { scope: String::new(), ..draft.native } } else { draft.native };
    Ok(Some(Draft { from, to, native, native_is_id: ours, ..draft }))
}

fn collect(tree: &Tree, limit: u64) -> Result<Vec<Remains>, WorkspaceError> {
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
                let told = told(tree, &file.sender, &file.id);
                let state = told.state(section, superseded, group.is_some());
                let (modified, uid) = (found.modified, found.uid);
                all.push(Remains { file, group, agent: agent.clone(), modified, uid, state });
            }
        }
    }
    Ok(all)
}

/// What the sender of a message was told of it.
#[derive(Default)]
struct Told {
    seen: bool,
    expired: bool,
    failed: bool,
}

impl Told {
    /// How far a message has got whose file lies in this section.
    fn state(&self, section: Section, superseded: bool, is_for_group: bool) -> DeliveryState {
        match section {
            Section::Archive if superseded || self.expired => DeliveryState::Expired,
            // A group's receipt does not say whose delivery failed.
            Section::Archive if self.failed && !is_for_group => DeliveryState::Refused,
            Section::Archive => DeliveryState::Acknowledged,
            _ if self.seen => DeliveryState::Seen,
            _ => DeliveryState::Delivered,
        }
    }
}

/// Reads a message's receipt; of one that is missing or damaged, nothing is known.
fn told(tree: &Tree, sender: &str, id: &str) -> Told {
    let Ok(sender) = sender.parse::<AgentId>() else { return Told::default() };
    let Ok(Some(outbox)) = tree.folder(Section::Outbox, sender.name.as_str()) else {
        return Told::default();
    };
    let receipt = outbox.read(&receipts::file_name(id), RECEIPT_LIMIT).ok().flatten();
    let receipt = receipt.and_then(|found| serde_json::from_slice::<ReceiptFile>(&found.bytes).ok());
    let says = |status: &str| receipt.as_ref().is_some_and(|receipt| receipt.status == status);
    // Done with, and not in the archive yet: it was seen at least.
    Told { seen: says("seen") || says("acknowledged"), expired: says("expired"), failed: says("failed") }
}

impl Workspace {
    /// Makes the deliveries of a message anew that the database has lost; says how many. How far they had got is told by
    /// the files of the message; those of which there is no file begin again.
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
        Ok(self.hub().restore_deliveries(lost.stored.message.id, had).await?)
    }
}

/// How far a message has got with an agent, by its file there. In the mailbox and in the archive it is done with.
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
            let told = told(tree, &message.from.to_string(), &native);
            return Ok(Some(told.state(section, superseded, message.to.as_agent().is_none())));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "rebuild_tests.rs"]
mod tests;
