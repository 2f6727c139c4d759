//! The way in: files that other programs put into mailboxes, and mailboxes that lost files of ours.
//!
//! Events are hints, the listing is the truth: whatever leads here, a mailbox is compared as a whole
//! with what the journal expects in it.

use std::collections::HashSet;
use std::sync::Arc;

use switchboard_core::{AgentId, DeliveryState, Directory, Door, Message, MessageId, Name};
use switchboard_hub::files::{Dir, FileError};
use switchboard_hub::{Draft, HubError};

use crate::delivery::{describe, is_same, place, set_aside};
use crate::error::WorkspaceError;
use crate::ids;
use crate::mailbox::{self, Listing, NewFile, Unreadable};
use crate::problems::Problem;
use crate::translate::{Found, to_draft, to_file};
use crate::tree::Section;
use crate::workspace::{Workspace, belongs_in_archive, blocking};

/// Under this topic the hub remembers the stamp of each mailbox as of its last complete look.
const LOOKED: &str = "looked";

/// Mailboxes with at most this many waiting messages are also compared by content whenever they
/// changed; larger ones by name only, and by content in [`crate::inspect`].
const COMPARE: usize = 64;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Messages taken in.
    pub taken: usize,
    /// Files of ours that were missing or damaged and were written again.
    pub restored: usize,
    /// Files that may still be being written; look again soon.
    pub settling: usize,
}

impl Swept {
    fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.restored += other.restored;
        self.settling += other.settling;
    }
}

/// One file's fate.
enum Fate {
    Taken,
    Settling,
    /// Known already; nothing to do.
    Known,
    /// Left in place, with a reason.
    Problem(String),
}

impl Workspace {
    /// Looks at all mailboxes that changed since they were last looked at.
    pub async fn sweep(&self) -> Result<Swept, WorkspaceError> {
        self.tree().check_in_place()?;
        let tree = self.tree().clone();
        let folders = blocking(move || Ok(tree.folders(Section::Inbox)?)).await?;
        let mut swept = Swept::default();
        for folder in folders {
            match self.sweep_folder(&folder).await {
                Ok(one) => swept.add(one),
                // One mailbox in trouble does not keep the others waiting.
                Err(WorkspaceError::File(error)) => self.report_folder(&folder, describe(&error)).await?,
                Err(other) => return Err(other),
            }
        }
        Ok(swept)
    }

    /// Looks at one agent's mailbox, if it changed since it was last looked at.
    pub async fn sweep_mailbox(&self, agent: &AgentId) -> Result<Swept, WorkspaceError> {
        match self.sweep_folder(agent.name.as_str()).await {
            Err(WorkspaceError::File(error)) => {
                self.report_folder(agent.name.as_str(), describe(&error)).await?;
                Ok(Swept::default())
            }
            swept => swept,
        }
    }

    async fn report_folder(&self, folder: &str, reason: String) -> Result<(), WorkspaceError> {
        Ok(self.report(Problem { path: format!("inbox/{folder}"), reason, stamp: String::new() }).await?)
    }

    async fn sweep_folder(&self, folder: &str) -> Result<Swept, WorkspaceError> {
        let Ok(name) = Name::parse(folder) else {
            self.report_folder(folder, "the folder's name is not the name of an agent".into()).await?;
            return Ok(Swept::default());
        };
        let tree = self.tree().clone();
        let agent = AgentId::local(name);
        let Some(dir) = blocking(move || Ok(tree.folder(Section::Inbox, agent.name.as_str())?)).await? else {
            return self.restore_folder(folder).await;
        };
        let (dir, stamp) =
            blocking(move || dir.stamp().map(|stamp| (dir, stamp)).map_err(Into::into)).await?;
        let stamp = mailbox::trusted_stamp(stamp, self.hub().now());
        let looked = self.hub().notes(Door::Workspace, LOOKED).await?;
        if stamp.is_some() && looked.iter().any(|(key, value)| key == folder && Some(value) == stamp.as_ref())
        {
            return Ok(Swept::default());
        }
        let swept = self.look(folder, dir).await?;
        // Only a look that left nothing open counts as complete.
        if swept.settling == 0 {
            self.hub().note(Door::Workspace, LOOKED, folder.to_owned(), stamp).await?;
        }
        Ok(swept)
    }

    /// A mailbox folder that is gone although mail waits in it is made again.
    async fn restore_folder(&self, folder: &str) -> Result<Swept, WorkspaceError> {
        let Ok(name) = Name::parse(folder) else { return Ok(Swept::default()) };
        let agent = self.hub().directory().await?.canonical(&AgentId::local(name));
        if self.hub().unread(agent.clone(), 1).await? == 0 {
            return Ok(Swept::default());
        }
        let (tree, name) = (self.tree().clone(), agent.name.clone());
        let dir = blocking(move || Ok(tree.make_folder(Section::Inbox, &name)?)).await?;
        self.look(agent.name.as_str(), dir).await
    }

    async fn look(&self, folder: &str, dir: Dir) -> Result<Swept, WorkspaceError> {
        let directory = self.hub().directory().await?;
        let Ok(name) = Name::parse(folder) else { return Ok(Swept::default()) };
        let agent = directory.canonical(&AgentId::local(name));
        // The folder of a former name holds nothing that is expected there.
        let is_own_folder = agent.name.as_str() == folder;
        let limit = self.config().file_limit;
        let listed = dir.clone();
        // The listing comes first: what is delivered after it is not missing, and what was archived
        // before it is known to be.
        let names: HashSet<String> = blocking(move || Ok(listed.names()?.into_iter().collect())).await?;
        let waiting = if is_own_folder { self.hub().waiting(agent.clone()).await? } else { Vec::new() };
        let expected: HashSet<String> = waiting.iter().map(ids::file_of).collect();
        let listed = dir.clone();
        let listing = blocking(move || {
            let mut listing = mailbox::look(&listed, &expected, limit)?;
            listing.missing.retain(|name| !names.contains(name));
            Ok(listing)
        })
        .await?;
        let mut swept = Swept::default();
        let by_name = |name: &String| waiting.iter().find(|waiting| ids::file_of(waiting) == *name);
        for name in &listing.missing {
            if let Some(waiting) = by_name(name) {
                swept.restored += usize::from(self.restore(&agent, waiting.id, &dir).await?);
            }
        }
        if listing.present.len() <= COMPARE {
            for name in &listing.present {
                if let Some(waiting) = by_name(name) {
                    swept.restored += usize::from(self.compare(&agent, waiting.id, &dir).await?);
                }
            }
        }
        swept.add(self.take_in(folder, &agent, &directory, listing, &dir).await?);
        Ok(swept)
    }

    /// Takes in what is new, in the order of its senders.
    async fn take_in(
        &self,
        folder: &str,
        agent: &AgentId,
        directory: &Arc<Directory>,
        listing: Listing,
        dir: &Dir,
    ) -> Result<Swept, WorkspaceError> {
        let mut swept = Swept { settling: usize::from(listing.again), ..Swept::default() };
        let mut still = Vec::new();
        let mut drafts: Vec<(String, String, Draft)> = Vec::new();
        for file in listing.new {
            let (name, stamp) = (file.name.clone(), file.stamp.clone());
            match self.draft(agent, directory, file, dir).await? {
                Ok(draft) => drafts.push((name, stamp, draft)),
                Err(fate) => self.note_fate(fate, folder, name, stamp, &mut swept, &mut still).await?,
            }
        }
        let (names, batch): (Vec<_>, Vec<_>) =
            drafts.into_iter().map(|(name, stamp, draft)| ((name, stamp), draft)).unzip();
        for ((name, stamp), answer) in names.into_iter().zip(self.hub().submit_all(batch).await) {
            let fate = match answer {
                Ok(accepted) => {
                    self.after_intake(accepted.id, accepted.duplicate).await?;
                    Fate::Taken
                }
                Err(error @ (HubError::Store { .. } | HubError::NoSpace { .. } | HubError::Closed)) => {
                    return Err(error.into());
                }
                Err(error) => Fate::Problem(error.to_string()),
            };
            self.note_fate(fate, folder, name, stamp, &mut swept, &mut still).await?;
        }
        self.forget_problems(&format!("inbox/{folder}/"), &still).await?;
        self.forget_problems(&format!("inbox/{folder}"), &[]).await.map(|()| swept).map_err(Into::into)
    }

    async fn note_fate(
        &self,
        fate: Fate,
        folder: &str,
        name: String,
        stamp: String,
        swept: &mut Swept,
        still: &mut Vec<String>,
    ) -> Result<(), WorkspaceError> {
        match fate {
            Fate::Taken => swept.taken += 1,
            Fate::Settling => swept.settling += 1,
            Fate::Known => {}
            Fate::Problem(reason) => {
                let path = format!("inbox/{folder}/{name}");
                still.push(name);
                self.report(Problem { path, reason, stamp }).await?;
            }
        }
        Ok(())
    }

    /// A receipt for what was taken in; and what its sender's earlier tasks make of it.
    async fn after_intake(&self, id: MessageId, duplicate: bool) -> Result<(), WorkspaceError> {
        if duplicate {
            return Ok(());
        }
        if let Some(stored) = self.hub().message(id).await?
            && crate::translate::replaces_earlier(&stored.message)
        {
            self.supersede_earlier(&stored.message).await?;
        }
        self.write_receipt(id).await
    }

    /// A new file as a draft, or what becomes of it instead.
    async fn draft(
        &self,
        agent: &AgentId,
        directory: &Directory,
        file: NewFile,
        dir: &Dir,
    ) -> Result<Result<Draft, Fate>, WorkspaceError> {
        let content = match file.content {
            Ok(content) => content,
            Err(error) => {
                let settle = jiff::SignedDuration::try_from(self.config().settle).unwrap_or_default();
                let age = self.hub().now().duration_since(file.modified);
                let half_written = matches!(error, Unreadable::Malformed(_)) && age < settle;
                let fate = if half_written { Fate::Settling } else { Fate::Problem(describe(&error)) };
                return Ok(Err(fate));
            }
        };
        let recipient = content.recipient.parse::<AgentId>().map(|id| directory.canonical(&id));
        if recipient.as_ref() != Ok(agent) {
            let reason = format!(
                "the field 'recipient' is '{}' but the file lies in the mailbox of {agent}",
                content.recipient.escape_debug()
            );
            return Ok(Err(Fate::Problem(reason)));
        }
        if let Some(known) = self.known(&content.id, agent).await? {
            return Ok(Err(self.again(agent, &known, &file.name, dir).await?));
        }
        if directory.agent(agent).is_none() && !agent.is_human() {
            let reason = format!(
                "no agent is named '{agent}'; register it with `switchboard agents register \"{agent}\"` and the file is taken in"
            );
            return Ok(Err(Fate::Problem(reason)));
        }
        let reply_to = match &content.reply_to {
            Some(native) => self.find(native).await.ok(),
            None => None,
        };
        let own = self.tree().root().stat(".gitignore").ok().flatten().map(|stamp| stamp.uid);
        let found = Found {
            mailbox: agent.name.clone(),
            modified: file.modified,
            foreign_owner: own.is_some_and(|own| own != file.uid).then_some(file.uid),
        };
        Ok(to_draft(*content, &found, reply_to)
            .map(|draft| Draft { from: directory.canonical(&draft.from), ..draft })
            .map_err(|error| Fate::Problem(error.to_string())))
    }

    /// The message that this mailbox knows by this id.
    async fn known(&self, native: &str, agent: &AgentId) -> Result<Option<MessageId>, WorkspaceError> {
        let mut candidates: Vec<MessageId> = ids::from_native(native).into_iter().collect();
        for (scope, id) in self.hub().by_native(Some(Door::Workspace), native).await? {
            if scope.is_empty() || scope.eq_ignore_ascii_case(agent.name.as_str()) {
                candidates.push(id);
            }
        }
        for id in candidates {
            if let Some((_, receipt)) = self.hub().receipt(id).await?
                && receipt.deliveries.iter().any(|delivery| &delivery.agent == agent)
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// A file under the id of a message that is known and not waiting.
    async fn again(
        &self,
        agent: &AgentId,
        id: &MessageId,
        name: &str,
        dir: &Dir,
    ) -> Result<Fate, WorkspaceError> {
        let Some((stored, receipt)) = self.hub().receipt(*id).await? else { return Ok(Fate::Known) };
        let expected = self.file_for(&stored.message, agent).await?;
        let (dir, name) = (dir.clone(), name.to_owned());
        let same = blocking(move || {
            Ok(dir.read(&name, u64::MAX)?.is_none_or(|found| is_same(&found.bytes, &expected)))
        })
        .await?;
        if !same {
            return Ok(Fate::Problem(format!("another message was accepted under this id before ({id})")));
        }
        let state = receipt.deliveries.iter().find(|d| &d.agent == agent).map(|d| d.state);
        if state.is_some_and(belongs_in_archive) {
            // An interrupted move, or a copy of something that was done with.
            self.archive(agent, *id).await?;
        }
        Ok(Fate::Known)
    }

    async fn file_for(
        &self,
        message: &Message,
        agent: &AgentId,
    ) -> Result<crate::wire::MessageFile, WorkspaceError> {
        let reply_to = self.reply_name(message).await?;
        Ok(to_file(message, agent, reply_to))
    }

    /// Writes a waiting message's file again, unless its reader has moved it to the archive.
    pub(crate) async fn restore(
        &self,
        agent: &AgentId,
        id: MessageId,
        dir: &Dir,
    ) -> Result<bool, WorkspaceError> {
        let Some((stored, receipt)) = self.hub().receipt(id).await? else { return Ok(false) };
        // Acknowledged by another process between the listing and now.
        let still_waits = receipt.deliveries.iter().any(|d| &d.agent == agent && d.state.is_waiting());
        if !still_waits {
            return Ok(false);
        }
        let file = self.file_for(&stored.message, agent).await?;
        let name = ids::file_name(&file.id);
        let (tree, owner) = (self.tree().clone(), agent.name.clone());
        let archived = blocking(move || match tree.folder(Section::Archive, owner.as_str())? {
            Some(archive) => Ok(archive.stat(&name)?.is_some()),
            None => Ok(false),
        })
        .await?;
        if archived {
            self.acknowledge(agent, id, Some("moved to the archive by its reader".into())).await?;
            return Ok(false);
        }
        tracing::warn!(file = %file.id, agent = %agent, "a waiting message's file was gone and is written again");
        let dir = dir.clone();
        blocking(move || Ok(place(&dir, &file)?)).await?;
        Ok(true)
    }

    /// Puts a waiting message's file right where its content is not what was accepted.
    pub(crate) async fn compare(
        &self,
        agent: &AgentId,
        id: MessageId,
        dir: &Dir,
    ) -> Result<bool, WorkspaceError> {
        let Some(stored) = self.hub().message(id).await? else { return Ok(false) };
        let file = self.file_for(&stored.message, agent).await?;
        let (dir, agent) = (dir.clone(), agent.clone());
        blocking(move || {
            let name = ids::file_name(&file.id);
            let Some(found) = dir.read(&name, u64::MAX)? else { return Ok(false) };
            let expected = file.to_bytes();
            if found.bytes == expected || is_same(&found.bytes, &file) {
                return Ok(false);
            }
            // What a power failure leaves of our own file holds nothing new; anything else is kept.
            if is_torn(&found.bytes, &expected) {
                tracing::warn!(file = %file.id, %agent, "a damaged message file is written again");
                dir.replace(&name, &expected, 0o600)?;
            } else {
                set_aside(&dir, &name)?;
                place(&dir, &file)?;
            }
            Ok(true)
        })
        .await
    }

    /// Compares all mailboxes with the journal by content, whatever their stamps say.
    pub async fn verify(&self) -> Result<Swept, WorkspaceError> {
        let mut swept = Swept::default();
        let directory = self.hub().directory().await?;
        let agents = directory.agents().map(|agent| agent.id.clone()).filter(|id| id.realm.is_none());
        for agent in agents.chain([AgentId::human()]) {
            let (tree, name) = (self.tree().clone(), agent.name.clone());
            let dir = match blocking(move || Ok(tree.make_folder(Section::Inbox, &name)?)).await {
                Ok(dir) => dir,
                Err(WorkspaceError::File(error @ FileError::NotADirectory { .. })) => {
                    self.report_folder(agent.name.as_str(), error.to_string()).await?;
                    continue;
                }
                Err(other) => return Err(other),
            };
            for waiting in self.hub().waiting(agent.clone()).await? {
                let name = ids::file_of(&waiting);
                let looked = dir.clone();
                let there = blocking(move || Ok(looked.stat(&name)?.is_some())).await?;
                let repaired = if there {
                    self.compare(&agent, waiting.id, &dir).await?
                } else {
                    self.restore(&agent, waiting.id, &dir).await?
                };
                swept.restored += usize::from(repaired);
            }
        }
        swept.add(self.sweep().await?);
        Ok(swept)
    }
}

/// Whether this is what a power failure leaves of a file: nothing, its beginning, or zeros.
fn is_torn(found: &[u8], expected: &[u8]) -> bool {
    expected.starts_with(found) || found.iter().all(|byte| *byte == 0)
}

/// The state of a delivery that was made before the database was lost.
pub(crate) fn restored_state(archived: bool, seen: bool, superseded: bool) -> DeliveryState {
    match (archived, superseded, seen) {
        (true, true, _) => DeliveryState::Expired,
        (true, false, _) => DeliveryState::Acknowledged,
        (false, _, true) => DeliveryState::Seen,
        (false, _, false) => DeliveryState::Delivered,
    }
}
