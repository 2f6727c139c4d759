//! After the database was lost: messages are read back from the files that remain, under the same ids.

use std::collections::BTreeMap;

use jiff::Timestamp;
use switchboard_core::{Address, AgentId, DeliveryState, Name};
use switchboard_hub::Draft;

use crate::error::WorkspaceError;
use crate::ids;
use crate::intake::restored_state;
use crate::mailbox;
use crate::receipts::later_name;
use crate::translate::{Found, group_address, to_draft};
use crate::tree::{Section, Tree};
use crate::wire::MessageFile;
use crate::workspace::{Workspace, blocking};

/// One message file, wherever it was found.
struct Remains {
    file: MessageFile,
    group: Option<Address>,
    agent: Name,
    modified: Timestamp,
    archived: bool,
    seen: bool,
    superseded: bool,
}

/// Reads back what the mailboxes, archives and receipts say. Nothing where they are empty.
pub(crate) async fn read_back(workspace: &Workspace) -> Result<(), WorkspaceError> {
    workspace.read_state().await?;
    let (tree, limit) = (workspace.tree().clone(), workspace.config().file_limit);
    let mut remains = blocking(move || collect(&tree, limit)).await?;
    remains.sort_by(|a, b| order(a).cmp(&order(b)));
    // A message to a group has one file per member: they are one message again.
    let mut drafts: Vec<Draft> = Vec::new();
    let mut by_id: BTreeMap<_, usize> = BTreeMap::new();
    for remains in remains {
        let state = restored_state(remains.archived, remains.seen, remains.superseded);
        let delivery = (AgentId::local(remains.agent.clone()), state);
        let Some(draft) = draft(workspace, &remains, &drafts, &by_id).await? else { continue };
        match by_id.get(&draft.id) {
            Some(at) => add_recipient(&mut drafts[*at], delivery),
            None => {
                by_id.insert(draft.id, drafts.len());
                drafts.push(Draft { restored: Some(vec![delivery]), ..draft });
            }
        }
    }
    let count = drafts.len();
    if count > 0 {
        tracing::warn!(messages = count, "the journal is new; messages are read back from files");
    }
    for answer in workspace.hub().submit_all(drafts).await {
        if let Err(error) = answer {
            tracing::warn!(error = %error, "a message file was not read back");
        }
    }
    workspace.hub().rebuilt().await?;
    Ok(())
}

fn order(remains: &Remains) -> (Timestamp, &str) {
    let created = remains.file.created_at.as_deref().and_then(|text| text.parse().ok());
    (created.unwrap_or(remains.modified), &remains.file.id)
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
        Some(native) => match workspace.find(native).await {
            Ok(id) => Some(id),
            // Not in the journal yet, but read back in this very run.
            Err(_) => ids::from_native(native)
                .filter(|id| by_id.contains_key(id))
                .or_else(|| drafts.iter().find(|draft| draft.native.id == *native).map(|draft| draft.id)),
        },
    };
    let found = Found { mailbox: remains.agent.clone(), modified: remains.modified, foreign_owner: None };
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
    Ok(Some(Draft { from, to, native, ..draft }))
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
                let group = group_address(&mut file);
                let sender = file.sender.parse::<AgentId>().ok();
                let seen =
                    match sender.and_then(|s| tree.folder(Section::Outbox, s.name.as_str()).transpose()) {
                        Some(outbox) => outbox?.stat(&later_name(&file.id, "seen"))?.is_some(),
                        None => false,
                    };
                let superseded = dir.stat(&format!("{name}.superseded.meta"))?.is_some();
                let archived = section == Section::Archive;
                all.push(Remains {
                    file,
                    group,
                    agent: agent.clone(),
                    modified: found.modified,
                    archived,
                    seen,
                    superseded,
                });
            }
        }
    }
    Ok(all)
}
