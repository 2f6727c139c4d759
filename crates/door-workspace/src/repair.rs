//! Waiting messages whose mailbox file is gone, torn or replaced: the journal has them, so the file is
//! written again.

use switchboard_core::{AgentId, Message, MessageId, Name};
use switchboard_sys::files::{FileError, Moved};

use crate::delivery::{Expected, place, set_aside};
use crate::error::WorkspaceError;
use crate::ids;
use crate::intake::{Mailbox, own_fault};
use crate::mailbox::bring;
use crate::tree::Section;
use crate::workspace::{Workspace, blocking};

impl Workspace {
    /// Puts one waiting message's file right, or says what is in the way. That stops none of its neighbours.
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
            Err(error) => own_fault(error).map(Err),
        }
    }

    /// A message's file as it should be in this mailbox.
    pub(crate) async fn expected(
        &self,
        mailbox: &Mailbox,
        message: &Message,
    ) -> Result<Expected, WorkspaceError> {
        let reply_to = self.reply_name(message).await?;
        Ok(Expected::new(message, &mailbox.agent, reply_to, mailbox.directory.clone()))
    }

    /// Writes a waiting message's file again, unless its reader has moved it to the archive.
    async fn restore(&self, mailbox: &Mailbox, id: MessageId) -> Result<bool, WorkspaceError> {
        let agent = &mailbox.agent;
        let Some((stored, receipt)) = self.hub().receipt(id).await? else { return Ok(false) };
        // Acknowledged by another process between the listing and now.
        let still_waits = receipt.deliveries.iter().any(|d| &d.agent == agent && d.state.is_waiting());
        if !still_waits {
            return Ok(false);
        }
        let file = self.expected(mailbox, &stored.message).await?.file;
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
        if self.bring_from_elsewhere(mailbox, ids::file_name(&file.id)).await? {
            return Ok(true);
        }
        tracing::warn!(file = %file.id, agent = %agent, "a waiting message's file was gone and is written again");
        let dir = mailbox.dir.clone();
        blocking(move || Ok(place(&dir, &dir, &file)?)).await?;
        Ok(true)
    }

    /// Brings a file home that lies under a former name of its reader, or under another spelling of it.
    async fn bring_from_elsewhere(&self, mailbox: &Mailbox, name: String) -> Result<bool, WorkspaceError> {
        let (tree, own) = (self.tree().clone(), mailbox.dir.clone());
        let (agent, directory) = (mailbox.agent.clone(), mailbox.directory.clone());
        blocking(move || {
            for folder in tree.folders(Section::Inbox)? {
                let Ok(owner) = Name::parse(&folder) else { continue };
                if folder == agent.name.as_str() || directory.canonical(&AgentId::local(owner)) != agent {
                    continue;
                }
                if let Ok(Some(dir)) = tree.own_folder(Section::Inbox, &folder)
                    && bring(&dir, &own, &name)? == Moved::Moved
                {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Puts a waiting message's file right where its content is not what was accepted.
    async fn compare(&self, mailbox: &Mailbox, id: MessageId) -> Result<bool, WorkspaceError> {
        let Some(stored) = self.hub().message(id).await? else { return Ok(false) };
        let expected = self.expected(mailbox, &stored.message).await?;
        let (dir, agent, limit) = (mailbox.dir.clone(), mailbox.agent.clone(), self.config().file_limit);
        blocking(move || {
            let name = ids::file_name(&expected.file.id);
            let bytes = expected.file.to_bytes();
            let torn = match dir.read(&name, limit.max(bytes.len() as u64)) {
                Ok(None) => return Ok(false),
                Ok(Some(found)) if found.bytes == bytes || expected.is_met_by(&found.bytes) => {
                    return Ok(false);
                }
                Ok(Some(found)) => is_torn(&found.bytes, &bytes),
                Err(FileError::TooLarge { .. }) => false,
                Err(error) => return Err(error.into()),
            };
            // What a power failure leaves of our own file holds nothing new; anything else is kept.
            if torn {
                tracing::warn!(file = %expected.file.id, %agent, "a damaged message file is written again");
                dir.replace(&name, &bytes, 0o600)?;
            } else {
                set_aside(&dir, &name)?;
                place(&dir, &dir, &expected.file)?;
            }
            Ok(true)
        })
        .await
    }
}

/// Whether this is what a power failure leaves of a file: nothing, its beginning, or zeros.
fn is_torn(found: &[u8], expected: &[u8]) -> bool {
    expected.starts_with(found) || found.iter().all(|byte| *byte == 0)
}
