//! Repair: rewrites missing, torn or replaced message files from the journal.
//!
//! This is the other direction of reconciliation; [`intake`](crate::intake) ingests new files into the journal.

use switchboard_core::{AgentId, Message, MessageId, Name};
use switchboard_sys::files::{FileError, Moved};

use crate::delivery::{Expected, move_aside, write_file};
use crate::error::WorkspaceError;
use crate::ids;
use crate::intake::{Mailbox, single_file_error};
use crate::mailbox::move_file;
use crate::tree::Section;
use crate::workspace::{Workspace, blocking};

impl Workspace {
    /// Repairs the file of one waiting message, or returns why the repair failed.
    ///
    /// A failed repair does not affect other files.
    pub(crate) async fn repair(
        &self,
        mailbox: &Mailbox,
        id: MessageId,
        is_there: bool,
    ) -> Result<Result<bool, String>, WorkspaceError> {
        let repaired =
            if is_there { self.compare(mailbox, id).await } else { self.restore(mailbox, id).await };
        match repaired {
            Ok(repaired) => Ok(Ok(repaired)),
            Err(error) => single_file_error(error).map(Err),
        }
    }

    /// Builds the expected mailbox file of a message.
    pub(crate) async fn expected_file(
        &self,
        mailbox: &Mailbox,
        message: &Message,
    ) -> Result<Expected, WorkspaceError> {
        let reply_to = self.reply_name(message).await?;
        Ok(Expected::new(message, &mailbox.agent, reply_to, mailbox.directory.clone()))
    }

    /// Rewrites a waiting message's file, unless the reader has moved it to the archive.
    async fn restore(&self, mailbox: &Mailbox, id: MessageId) -> Result<bool, WorkspaceError> {
        let agent = &mailbox.agent;
        let Some((stored, receipt)) = self.hub().journal().receipt(id).await? else { return Ok(false) };
        // Another process may have acknowledged the message after the listing.
        let still_waits = receipt.deliveries.iter().any(|d| &d.agent == agent && d.state.is_waiting());
        if !still_waits {
            return Ok(false);
        }
        let file = self.expected_file(mailbox, &stored.message).await?.file;
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
        if self.move_from_other_folder(mailbox, ids::file_name(&file.id)).await? {
            return Ok(true);
        }
        tracing::warn!(file = %file.id, agent = %agent, "a waiting message's file was missing and is written again");
        let dir = mailbox.dir.clone();
        blocking(move || Ok(write_file(&dir, &dir, &file)?)).await?;
        Ok(true)
    }

    /// Moves a file into the inbox folder of the reader's current name.
    ///
    /// The file comes from a folder under a former name or another spelling.
    async fn move_from_other_folder(&self, mailbox: &Mailbox, name: String) -> Result<bool, WorkspaceError> {
        let (tree, own) = (self.tree().clone(), mailbox.dir.clone());
        let (agent, directory) = (mailbox.agent.clone(), mailbox.directory.clone());
        blocking(move || {
            for folder in tree.folders(Section::Inbox)? {
                let Ok(owner) = Name::parse(&folder) else { continue };
                if folder == agent.name.as_str() || directory.canonical(&AgentId::local(owner)) != agent {
                    continue;
                }
                if let Ok(Some(dir)) = tree.own_folder(Section::Inbox, &folder)
                    && move_file(&dir, &own, &name)? == Moved::Moved
                {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Replaces a waiting message's file whose content differs from the accepted message.
    async fn compare(&self, mailbox: &Mailbox, id: MessageId) -> Result<bool, WorkspaceError> {
        let Some(stored) = self.hub().journal().message(id).await? else { return Ok(false) };
        let expected = self.expected_file(mailbox, &stored.message).await?;
        let (dir, agent, limit) = (mailbox.dir.clone(), mailbox.agent.clone(), self.config().file_limit);
        blocking(move || {
            let name = ids::file_name(&expected.file.id);
            let bytes = expected.file.to_bytes();
            let torn = match dir.read(&name, limit.max(bytes.len() as u64)) {
                Ok(None) => return Ok(false),
                Ok(Some(found)) if found.bytes == bytes || expected.matches(&found.bytes) => {
                    return Ok(false);
                }
                Ok(Some(found)) => is_torn(&found.bytes, &bytes),
                Err(FileError::TooLarge { .. }) => false,
                Err(error) => return Err(error.into()),
            };
            // A torn file of Switchboard contains nothing new and is replaced; any other file is moved aside and so
            // retained.
            if torn {
                tracing::warn!(file = %expected.file.id, %agent, "a damaged message file is written again");
                dir.replace(&name, &bytes, 0o600)?;
            } else {
                move_aside(&dir, &name)?;
                write_file(&dir, &dir, &expected.file)?;
            }
            Ok(true)
        })
        .await
    }
}

/// Returns true if a file is torn, as after a power failure.
///
/// A torn file is empty, truncated or filled with zeros.
fn is_torn(found: &[u8], expected: &[u8]) -> bool {
    expected.starts_with(found) || found.iter().all(|byte| *byte == 0)
}
