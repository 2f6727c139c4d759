//! A workspace, as the command line and the MCP tools use it.

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
use crate::receipts::{self, Written};
use crate::state::StateFile;
use crate::translate::{Found, dispatch_expiry, drop_label, group_address, iso, to_draft};
use crate::tree::{Folders, Section, Tree};
use crate::wire::{SupersededFile, pretty};

/// An open workspace: its folder and its hub. Clones are handles on the same one.
#[derive(Clone)]
pub struct Workspace {
    hub: Hub,
    tree: Tree,
    state: StateFile,
    own_files: OwnFiles,
    config: Arc<Config>,
}

/// The turn of a sender, which ends when it is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// A message that an agent of this workspace writes.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// Who writes.
    pub from: AgentId,
    /// To whom.
    pub to: Address,
    /// What for.
    pub kind: Kind,
    /// The text.
    pub body: String,
    /// The message it answers.
    pub in_reply_to: Option<MessageId>,
    /// When it loses its use.
    pub expires_at: Option<Timestamp>,
    /// Whether it takes the place of the sender's earlier tasks for the same recipient.
    pub replace_earlier: bool,
    /// Whatever else it carries.
    pub metadata: Map<String, Value>,
    /// Whether an unknown recipient is fine: one that reads its mailbox as files and never registered.
    pub allow_unregistered: bool,
    /// The sender's own word for it: sent again under the same word, it is not sent twice.
    pub key: Option<String>,
}

impl OutgoingMessage {
    /// A plain letter.
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
    /// Opens the workspace in this folder. `configure` may change the hub's settings.
    ///
    /// A new journal is filled from the files that are there, and agents that other programs wrote into
    /// `state.json` become known.
    pub async fn open(
        folder: &Path,
        config: Config,
        configure: impl FnOnce(&mut HubConfig),
    ) -> Result<Self, WorkspaceError> {
        let workspace = Self::attach(folder, config, configure).await?;
        if workspace.hub.needs_rebuild().await? {
            unless_disk(crate::rebuild::read_back(&workspace).await)?;
        }
        unless_disk(workspace.import_state().await)?;
        Ok(workspace)
    }

    /// Opens the workspace and leaves everything as it is.
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

    /// The hub behind it.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Its folder.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The agent state that is shared with other programs.
    pub fn state(&self) -> &StateFile {
        &self.state
    }

    /// The files that this process puts into mailboxes itself.
    pub(crate) fn own_files(&self) -> &OwnFiles {
        &self.own_files
    }

    /// The door's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a letter in. It is on disk when this returns `Ok`; [`Hub::settled`] tells when it arrived.
    pub async fn send(&self, letter: OutgoingMessage) -> Result<Accepted, WorkspaceError> {
        self.send_in_turn(letter, None).await
    }

    /// Sends a message and drops `turn` as soon as it is queued: the sender's next one is journaled behind it.
    pub(crate) async fn send_in_turn(
        &self,
        letter: OutgoingMessage,
        turn: Option<Turn>,
    ) -> Result<Accepted, WorkspaceError> {
        let id = self.hub.next_id();
        let sent_at = self.hub.now();
        let native = NativeId { door: Door::Workspace, scope: String::new(), id: ids::to_native(id) };
        let metadata = dispatch_metadata(&letter, sent_at, &native.id);
        let draft = Draft {
            id,
            from: letter.from,
            to: letter.to,
            kind: letter.kind,
            body: letter.body,
            in_reply_to: letter.in_reply_to,
            sent_at,
            expires_at: letter.expires_at.or_else(|| dispatch_expiry(&metadata, sent_at)),
            metadata,
            native,
            native_is_id: true,
            verified: true,
            route: None,
            signed: None,
            allow_unregistered: letter.allow_unregistered,
            key: letter.key,
            restored: None,
        };
        let queued = self.hub.queue(draft).await?;
        drop(turn);
        let accepted = queued.accepted().await?;
        if accepted.stopped.is_some() {
            self.write_receipt(accepted.id).await?;
        }
        Ok(accepted)
    }

    /// Notes that an agent was shown these messages. Where the disk takes no note they count as new, and are shown again.
    pub async fn mark_seen(&self, agent: &AgentId, ids: Vec<MessageId>) -> Result<(), WorkspaceError> {
        self.mark_seen_if(agent, ids, || true).await
    }

    /// [`mark_seen`](Self::mark_seen), unless the reader is gone by the time that this is written down.
    pub(crate) async fn mark_seen_if(
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
        for delivery in self.hub.mark_seen_if(agent, ids, is_there).await? {
            self.write_receipt(delivery.message).await?;
        }
        Ok(())
    }

    /// Notes that an agent is done with a message, and moves its file to the archive.
    pub async fn acknowledge(
        &self,
        agent: &AgentId,
        id: MessageId,
        note: Option<String>,
    ) -> Result<Option<Delivery>, WorkspaceError> {
        let agent = self.hub.directory().await?.canonical(agent);
        let delivery = self.hub.acknowledge(agent.clone(), id, note).await?;
        self.archive(&agent, id).await?;
        if delivery.is_some() {
            self.write_receipt(id).await?;
        }
        Ok(delivery)
    }

    /// Moves a message's file from an agent's mailbox to its archive; nothing if that was done before.
    pub(crate) async fn archive(&self, agent: &AgentId, id: MessageId) -> Result<(), WorkspaceError> {
        if agent.realm.is_some() {
            return Ok(());
        }
        let Some(stored) = self.hub.message(id).await? else { return Ok(()) };
        let name = ids::file_name(&ids::native_id(&stored.message));
        let (tree, agent) = (self.tree.clone(), agent.name.clone());
        blocking(move || match tree.folder(Section::Inbox, agent.as_str())? {
            Some(mailbox) => Ok(move_to_archive(&tree, &mailbox, &agent, &name)?),
            None => Ok(()),
        })
        .await
    }

    /// Ends the sender's earlier tasks for the same recipient and moves them to the archive.
    pub(crate) async fn supersede_earlier(&self, newer: &Message) -> Result<(), WorkspaceError> {
        for delivery in self.hub.supersede(newer.id).await? {
            let Some(stored) = self.hub.message(delivery.message).await? else { continue };
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
                archive.create_new(&name, &pretty(&marker), switchboard_sys::files::Durability::Later)?;
                Ok(())
            })
            .await?;
            self.archive(&delivery.agent, delivery.message).await?;
            self.write_receipt(delivery.message).await?;
        }
        Ok(())
    }

    /// Writes the receipt file that a message's deliveries bear out now.
    ///
    /// Of two processes that replace a receipt at once, each looks afterwards whether more has become true meanwhile: so
    /// the last one to write has written the last word.
    pub(crate) async fn write_receipt(&self, id: MessageId) -> Result<(), WorkspaceError> {
        let mut told = None;
        loop {
            let Some((stored, receipt)) = self.hub.receipt(id).await? else { return Ok(()) };
            let standing = receipt.standing();
            if told.replace(standing) == Some(standing) {
                return Ok(());
            }
            let (tree, now) = (self.tree.clone(), self.hub.now());
            let write =
                move || Ok(receipts::write(&mut Folders::new(&tree), &stored.message, &receipt, now)?);
            if blocking(write).await? == Written::First {
                return Ok(());
            }
        }
    }

    /// What the message that this one answers is called in this protocol.
    pub(crate) async fn reply_name(&self, message: &Message) -> Result<Option<String>, WorkspaceError> {
        let Some(parent) = message.in_reply_to else { return Ok(None) };
        Ok(Some(match self.hub.message(parent).await {
            Ok(Some(parent)) => ids::native_id(&parent.message),
            // Removed by retention, or damaged: what it was called if it was one of ours.
            Ok(None) | Err(HubError::DamagedMessage { .. }) => ids::to_native(parent),
            Err(other) => return Err(other.into()),
        }))
    }

    /// Puts a damaged row of the journal back from an intact mailbox or archive file, if there is one.
    pub async fn restore_damaged(&self, row: &DamagedRow) -> Result<bool, WorkspaceError> {
        let likely = |id| NativeId { door: Door::Workspace, scope: String::new(), id: ids::to_native(id) };
        if self.hub.repair_damaged(row.seq, row.id.map(likely)).await? {
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
            if self.hub.restore_damaged(Draft { id, to, from, ..draft }).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Closes the hub. Mail that another process left in the queue is delivered first.
    pub async fn close(&self) {
        self.drain_orphaned_deliveries().await;
        self.retention_after_command().await;
        self.hub.shut_down().await;
    }
}

/// The protocol's `dispatch` object, for a letter that asks for what it governs.
fn dispatch_metadata(letter: &OutgoingMessage, sent_at: Timestamp, native: &str) -> Map<String, Value> {
    let mut metadata = letter.metadata.clone();
    if letter.expires_at.is_none() && !letter.replace_earlier {
        return metadata;
    }
    let dispatch = metadata.entry("dispatch").or_insert_with(|| {
        json!({
            "dispatch_id": native,
            "created_at": iso(sent_at),
            "queue_mode": if letter.replace_earlier { "replace" } else { "keep" },
            "sender": letter.from.to_string(),
            "action": letter.kind.as_str(),
        })
    });
    if let (Some(dispatch), Some(at)) = (dispatch.as_object_mut(), letter.expires_at) {
        dispatch.insert("expires_at".into(), iso(at).into());
    }
    metadata
}

/// Whether a delivery's file belongs in the archive: its reader is done with it, or must not get it.
pub(crate) fn belongs_in_archive(state: DeliveryState) -> bool {
    state.is_final()
}

/// Moves a file to an agent's archive; nothing if it is not there.
pub(crate) fn move_to_archive(tree: &Tree, from: &Dir, agent: &Name, name: &str) -> Result<(), FileError> {
    let archive = tree.create_folder(Section::Archive, agent)?;
    if from.move_new(name, &archive, name)? == Moved::AlreadyThere {
        // The archive has it already; what lies in the mailbox goes beside it.
        let other = format!("{name}.again.{:08x}", fastrand::u32(..));
        from.move_new(name, &archive, &other)?;
    }
    Ok(())
}

/// Runs file work away from the tasks that must not wait.
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
