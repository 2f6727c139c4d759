//! Handle to a workspace, used by the command line and the MCP tools.

mod people;

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, Door, Kind, Message, MessageId, Name, NativeId,
};
use switchboard_hub::{Accepted, DamagedRow, Draft, Hub, HubConfig, HubError};
use switchboard_sys::files::{Dir, FileError, Moved};
use tokio::sync::OwnedMutexGuard;

use crate::config::Config;
use crate::error::{WorkspaceError, unless_disk};
use crate::ids;
use crate::own_files::OwnFiles;
use crate::receipts::{self, WriteResult};
use crate::state::StateFile;
use crate::translate::{Found, dispatch_expiry, drop_label, group_address, iso, to_draft};
use crate::tree::{Folders, Section, Tree};
use crate::wire::{SupersededFile, pretty};

/// An open workspace: the folder and the hub. Clones share both.
#[derive(Clone)]
pub struct Workspace {
    hub: Hub,
    tree: Tree,
    state: StateFile,
    own_files: OwnFiles,
    config: Arc<Config>,
}

/// Permit to journal a sender's next message. Dropping it releases the permit.
pub type SendPermit = OwnedMutexGuard<()>;

/// A message that an agent of this workspace sends.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// The sender.
    pub from: AgentId,
    /// The recipient.
    pub to: Address,
    /// The kind of message.
    pub kind: Kind,
    /// Text of the message.
    pub body: String,
    /// The message to which this message replies.
    pub in_reply_to: Option<MessageId>,
    /// Time at which the message expires.
    pub expires_at: Option<Timestamp>,
    /// True to supersede the sender's earlier tasks for the same recipient.
    pub replace_earlier: bool,
    /// Additional metadata.
    pub metadata: Map<String, Value>,
    /// True to accept an unregistered recipient, such as a program that reads its mailbox as files.
    pub allow_unregistered: bool,
    /// Idempotency key of the sender: a retry with the same key is not sent again.
    pub key: Option<String>,
}

impl OutgoingMessage {
    /// Creates a message without optional fields.
    pub fn new(from: AgentId, to: Address, kind: Kind, body: impl Into<String>) -> Self {
        Self {
            from,
            to,
            kind,
            body: body.into(),
            in_reply_to: None,
            expires_at: None,
            replace_earlier: false,
            metadata: Map::new(),
            allow_unregistered: false,
            key: None,
        }
    }
}

impl Workspace {
    /// Opens the workspace in a folder. `configure` may change the hub's settings.
    ///
    /// If the journal is new, it is rebuilt from the existing files. Agents that other programs wrote into `state.json`
    /// are imported.
    pub async fn open(
        folder: &Path,
        config: Config,
        configure: impl FnOnce(&mut HubConfig),
    ) -> Result<Self, WorkspaceError> {
        let workspace = Self::attach(folder, config, configure).await?;
        if workspace.hub.database().needs_rebuild().await? {
            unless_disk(crate::rebuild::rebuild_journal(&workspace).await)?;
        }
        unless_disk(workspace.import_state().await)?;
        Ok(workspace)
    }

    /// Opens the workspace without a rebuild and without importing `state.json`.
    pub async fn attach(
        folder: &Path,
        config: Config,
        configure: impl FnOnce(&mut HubConfig),
    ) -> Result<Self, WorkspaceError> {
        let tree = Tree::open(folder)?;
        let mut hub_config = HubConfig::new(tree.root().path());
        configure(&mut hub_config);
        let hub = Hub::open(hub_config).await?;
        let state = StateFile::new(tree.root().clone()).with_hub(hub.clone());
        Ok(Self { hub, tree, state, own_files: OwnFiles::default(), config: Arc::new(config) })
    }

    /// Returns the workspace's hub.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Returns the `.switchboard/` folder.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the `state.json` file, which other programs share.
    pub fn state(&self) -> &StateFile {
        &self.state
    }

    /// Returns the mailbox files that this process writes itself.
    pub(crate) fn own_files(&self) -> &OwnFiles {
        &self.own_files
    }

    /// Returns the door's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Sends a message and returns `Ok` once it is on disk.
    ///
    /// [`Deliveries::wait_until_settled`] waits for the delivery.
    ///
    /// [`Deliveries::wait_until_settled`]: switchboard_hub::Deliveries::wait_until_settled
    pub async fn send(&self, outgoing: OutgoingMessage) -> Result<Accepted, WorkspaceError> {
        self.send_with_permit(outgoing, None).await
    }

    /// Sends a message and drops `permit` once the message is queued.
    ///
    /// The sender's next message is then journaled after this one.
    pub async fn send_with_permit(
        &self,
        outgoing: OutgoingMessage,
        permit: Option<SendPermit>,
    ) -> Result<Accepted, WorkspaceError> {
        let id = self.hub.next_id();
        let sent_at = self.hub.now();
        let native = NativeId { door: Door::Workspace, scope: String::new(), id: ids::to_native(id) };
        let metadata = dispatch_metadata(&outgoing, sent_at, &native.id);
        let draft = Draft {
            id,
            from: outgoing.from,
            to: outgoing.to,
            kind: outgoing.kind,
            body: outgoing.body,
            in_reply_to: outgoing.in_reply_to,
            sent_at,
            expires_at: outgoing.expires_at.or_else(|| dispatch_expiry(&metadata, sent_at)),
            metadata,
            native,
            native_is_id: true,
            verified: true,
            route: None,
            signed: None,
            allow_unregistered: outgoing.allow_unregistered,
            key: outgoing.key,
            restored: None,
        };
        let queued = self.hub.queue(draft).await?;
        drop(permit);
        let accepted = queued.accepted().await?;
        if accepted.stopped.is_some() {
            self.write_receipt(accepted.id).await?;
        }
        Ok(accepted)
    }

    /// Marks messages as seen by an agent.
    ///
    /// If the disk cannot be written, the messages stay unseen and are shown again.
    pub async fn mark_seen(&self, agent: &AgentId, ids: Vec<MessageId>) -> Result<(), WorkspaceError> {
        self.mark_seen_if(agent, ids, || true).await
    }

    /// Marks messages as seen, unless the reader has disconnected by then.
    pub async fn mark_seen_if(
        &self,
        agent: &AgentId,
        ids: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<(), WorkspaceError> {
        unless_disk(self.note_seen(agent, ids, is_there).await)
    }

    async fn note_seen(
        &self,
        agent: &AgentId,
        ids: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<(), WorkspaceError> {
        if ids.is_empty() {
            return Ok(());
        }
        let agent = self.hub.directory().await?.canonical(agent);
        for delivery in self.hub.mailboxes().mark_seen_if(agent, ids, is_there).await? {
            self.write_receipt(delivery.message).await?;
        }
        Ok(())
    }

    /// Acknowledges a message and moves its file to the archive.
    pub async fn acknowledge(
        &self,
        agent: &AgentId,
        id: MessageId,
        note: Option<String>,
    ) -> Result<Option<Delivery>, WorkspaceError> {
        let agent = self.hub.directory().await?.canonical(agent);
        let delivery = self.hub.mailboxes().acknowledge(agent.clone(), id, note).await?;
        self.archive(&agent, id).await?;
        if delivery.is_some() {
            self.write_receipt(id).await?;
        }
        Ok(delivery)
    }

    /// Moves a message's file from an agent's mailbox to the agent's archive.
    ///
    /// A no-op if the file was already moved.
    pub(crate) async fn archive(&self, agent: &AgentId, id: MessageId) -> Result<(), WorkspaceError> {
        if agent.realm.is_some() {
            return Ok(());
        }
        let Some(stored) = self.hub.journal().message(id).await? else { return Ok(()) };
        let name = ids::file_name(&ids::native_id(&stored.message));
        let (tree, agent) = (self.tree.clone(), agent.name.clone());
        blocking(move || match tree.folder(Section::Inbox, agent.as_str())? {
            Some(mailbox) => Ok(move_to_archive(&tree, &mailbox, &agent, &name)?),
            None => Ok(()),
        })
        .await
    }

    /// Supersedes the sender's earlier tasks for the same recipient and archives them.
    pub(crate) async fn supersede_earlier(&self, newer: &Message) -> Result<(), WorkspaceError> {
        for delivery in self.hub.mailboxes().supersede(newer.id).await? {
            let Some(stored) = self.hub.journal().message(delivery.message).await? else { continue };
            let native = ids::native_id(&stored.message);
            let marker = SupersededFile {
                id: format!("superseded_{native}"),
                in_reply_to: native.clone(),
                status: "superseded".to_owned(),
                superseded_by: ids::native_id(newer),
                superseded_at: iso(self.hub.now()),
            };
            let (tree, agent) = (self.tree.clone(), delivery.agent.name.clone());
            blocking(move || {
                let archive = tree.create_folder(Section::Archive, &agent)?;
                let name = format!("{}.superseded.meta", ids::file_name(&native));
                archive.create_new(&name, &pretty(&marker), switchboard_sys::files::Durability::Unsynced)?;
                Ok(())
            })
            .await?;
            self.archive(&delivery.agent, delivery.message).await?;
            self.write_receipt(delivery.message).await?;
        }
        Ok(())
    }

    /// Writes the receipt file for the current states of a message's deliveries.
    ///
    /// Two processes may replace a receipt at the same time. After a replacement, each process checks whether the
    /// states have advanced, so that the last write has the latest state.
    pub(crate) async fn write_receipt(&self, id: MessageId) -> Result<(), WorkspaceError> {
        let mut last_state = None;
        loop {
            let Some((stored, receipt)) = self.hub.journal().receipt(id).await? else { return Ok(()) };
            let state = receipt.overall_state();
            if last_state.replace(state) == Some(state) {
                return Ok(());
            }
            let (tree, now) = (self.tree.clone(), self.hub.now());
            let write =
                move || Ok(receipts::write(&mut Folders::new(&tree), &stored.message, &receipt, now)?);
            if blocking(write).await? == WriteResult::First {
                return Ok(());
            }
        }
    }

    /// Returns the protocol id of the message to which `message` replies.
    pub(crate) async fn reply_name(&self, message: &Message) -> Result<Option<String>, WorkspaceError> {
        let Some(parent) = message.in_reply_to else { return Ok(None) };
        Ok(Some(match self.hub.journal().message(parent).await {
            Ok(Some(parent)) => ids::native_id(&parent.message),
            // The parent was removed by retention or is damaged. Assume that it was created by Switchboard.
            Ok(None) | Err(HubError::DamagedMessage { .. }) => ids::to_native(parent),
            Err(other) => return Err(other.into()),
        }))
    }

    /// Restores a damaged journal row from an intact mailbox or archive file.
    ///
    /// Returns false if there is no such file.
    pub async fn restore_damaged(&self, row: &DamagedRow) -> Result<bool, WorkspaceError> {
        let likely = |id| NativeId { door: Door::Workspace, scope: String::new(), id: ids::to_native(id) };
        if self.hub.journal().repair_damaged(row.seq, row.id.map(likely)).await? {
            return Ok(true);
        }
        let Some(id) = row.id else { return Ok(false) };
        let native = row.native.as_ref().map_or_else(|| ids::to_native(id), |native| native.id.clone());
        for agent in row.agents.iter().filter_map(|name| Name::parse(name).ok()) {
            let (tree, name, limit) = (self.tree.clone(), ids::file_name(&native), self.config.file_limit);
            let owner = agent.clone();
            let found = blocking(move || {
                for section in [Section::Inbox, Section::Archive] {
                    if let Some(dir) = tree.folder(section, owner.as_str())?
                        && let Some(file) = crate::mailbox::read(&dir, &name, limit)
                        && let Ok(content) = file.content
                    {
                        return Ok(Some((*content, file.modified, file.uid)));
                    }
                }
                Ok(None)
            })
            .await?;
            let Some((mut file, modified, uid)) = found else { continue };
            drop_label(&mut file);
            let ours = ids::from_native(&file.id).is_some();
            let group = if ours { group_address(&mut file) } else { None };
            let parent = match &file.reply_to {
                Some(native) => self.resolve_id(native).await.ok(),
                None => None,
            };
            let foreign_owner = self.tree.owner().is_some_and(|own| own != uid).then_some(uid);
            let found = Found { mailbox: agent, modified, foreign_owner };
            let Ok(draft) = to_draft(file, &found, parent) else { continue };
            let to = group.unwrap_or_else(|| draft.to.clone());
            let from = self.hub.directory().await?.canonical(&draft.from);
            if self.hub.journal().restore_damaged(Draft { id, to, from, ..draft }).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Closes the hub, after redelivering orphaned messages that an ended process left in the queue.
    pub async fn close(&self) {
        self.drain_orphaned_deliveries().await;
        self.retention_after_command().await;
        self.hub.shut_down().await;
    }
}

/// Builds the metadata of a message.
///
/// Adds the protocol's `dispatch` object if the message has an expiry or supersedes earlier tasks.
fn dispatch_metadata(outgoing: &OutgoingMessage, sent_at: Timestamp, native: &str) -> Map<String, Value> {
    let mut metadata = outgoing.metadata.clone();
    if outgoing.expires_at.is_none() && !outgoing.replace_earlier {
        return metadata;
    }
    let dispatch = metadata.entry("dispatch").or_insert_with(|| {
        json!({
            "dispatch_id": native,
            "created_at": iso(sent_at),
            "queue_mode": if outgoing.replace_earlier { "replace" } else { "keep" },
            "sender": outgoing.from.to_string(),
            "action": outgoing.kind.as_str(),
        })
    });
    if let (Some(dispatch), Some(at)) = (dispatch.as_object_mut(), outgoing.expires_at) {
        dispatch.insert("expires_at".into(), iso(at).into());
    }
    metadata
}

/// Returns true if a delivery has ended, so that its file belongs in the archive.
pub(crate) fn belongs_in_archive(state: DeliveryState) -> bool {
    state.is_final()
}

/// Moves a file to an agent's archive; a no-op if the file does not exist.
pub(crate) fn move_to_archive(tree: &Tree, from: &Dir, agent: &Name, name: &str) -> Result<(), FileError> {
    let archive = tree.create_folder(Section::Archive, agent)?;
    if from.move_new(name, &archive, name)? == Moved::AlreadyExists {
        // The archive already has a file of this name, so add a suffix.
        let other = format!("{name}.again.{:08x}", fastrand::u32(..));
        from.move_new(name, &archive, &other)?;
    }
    Ok(())
}

/// Runs blocking file operations on a separate thread.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, WorkspaceError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
{
    switchboard_sys::blocking::run(work).await.map_err(|_| WorkspaceError::Closed)?
}

#[cfg(test)]
#[path = "workspace_tests.rs"]
mod tests;
