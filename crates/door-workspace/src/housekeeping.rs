//! What a long-running hub does every minute: expired mail to the archive, old things out.

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, MessageId};
use switchboard_hub::HubError;
use switchboard_hub::files::FileError;

use crate::error::WorkspaceError;
use crate::intake::own_fault;
use crate::receipts;
use crate::tree::{Folders, Section, Tree};
use crate::workspace::{Workspace, blocking};

/// Under this topic the hub remembers up to which message every receipt is there.
const RECEIPTS: &str = "receipts";

/// How many messages are looked at before that is noted.
const PAGE: usize = 500;

/// How old a message is before a missing receipt counts as forgotten.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

impl Workspace {
    /// Puts everything in order, and removes what is older than the retention settings allow.
    pub async fn keep_house(&self) -> Result<(), WorkspaceError> {
        self.tidy_up().await?;
        self.remove_old().await
    }

    /// Archives what has expired, writes what is missing and clears away what was never finished. No mail is removed.
    pub async fn tidy_up(&self) -> Result<(), WorkspaceError> {
        self.expire().await?;
        self.complete_receipts().await?;
        // What the hub let expire by itself, and whatever the stamps of the folders did not show.
        self.sweep_all().await?;
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || {
            tree.root().clear_stale_temps(now)?;
            for section in [Section::Inbox, Section::Archive, Section::Outbox] {
                for folder in tree.folders(section)? {
                    if let Ok(Some(dir)) = tree.folder(section, &folder) {
                        dir.clear_stale_temps(now)?;
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// Ends what has expired: it goes to the archive, and its sender is told.
    pub async fn expire(&self) -> Result<(), WorkspaceError> {
        for delivery in self.hub().expire_due().await? {
            let archived = self.archive(&delivery.agent, delivery.message).await;
            if let Err(error) = archived.and(self.write_receipt(delivery.message).await) {
                tracing::warn!(error = %error, "an expired message could not be put away");
            }
        }
        Ok(())
    }

    /// Removes what is older than the retention settings allow.
    async fn remove_old(&self) -> Result<(), WorkspaceError> {
        let (now, keep) = (self.hub().now(), self.config().retention);
        let before = |keep: Option<SignedDuration>| keep.and_then(|keep| now.checked_sub(keep).ok());
        for (section, before) in
            [(Section::Archive, before(keep.archive)), (Section::Outbox, before(keep.receipts))]
        {
            if let Some(before) = before {
                let tree = self.tree().clone();
                let removed = blocking(move || Ok(remove_older(&tree, section, before)?)).await?;
                if removed > 0 {
                    tracing::info!(removed, section = section.as_str(), "removed old files");
                }
            }
        }
        if let Some(before) = before(keep.journal) {
            let removed = self.hub().prune(before).await?;
            if removed > 0 {
                tracing::info!(removed, "removed old messages from the journal");
            }
        }
        Ok(())
    }
}

impl Workspace {
    /// Writes receipts that a process did not get to: it was killed, or the disk was full.
    ///
    /// Goes through the journal once, a page at a time and behind the present, so that no message is
    /// looked at twice and nobody is overtaken who is about to write the receipt himself.
    async fn complete_receipts(&self) -> Result<(), WorkspaceError> {
        let notes = self.hub().notes(Door::Workspace, RECEIPTS).await?;
        let mut cursor: i64 = notes.first().and_then(|(_, seq)| seq.parse().ok()).unwrap_or(0);
        let settled = self.hub().now().saturating_sub(SETTLED).map_err(|_| WorkspaceError::Closed)?;
        loop {
            let page = match self.hub().journal(cursor, PAGE).await {
                Err(HubError::CursorExpired { oldest, .. }) => {
                    cursor = oldest - 1;
                    continue;
                }
                page => page?,
            };
            let first = cursor;
            for stored in page.items.iter().take_while(|stored| stored.accepted_at < settled) {
                // One sender's folder in trouble does not keep the others from being told.
                if let Err(error) = self.write_first_receipt(stored.message.id).await {
                    let (error, sender) = (own_fault(error)?, &stored.message.from);
                    tracing::warn!(%error, %sender, "a receipt could not be written");
                }
                cursor = stored.seq;
            }
            if cursor > first {
                self.hub()
                    .note(Door::Workspace, RECEIPTS, "seq".to_owned(), Some(cursor.to_string()))
                    .await?;
            }
            if !page.more || cursor == first {
                return Ok(());
            }
        }
    }

    /// Writes a message's receipt if it has none and something can be said.
    async fn write_first_receipt(&self, id: MessageId) -> Result<(), WorkspaceError> {
        let Some((stored, receipt)) = self.hub().receipt(id).await? else { return Ok(()) };
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || {
            if !receipts::is_written(&tree, &stored.message)? {
                receipts::write(&mut Folders::new(&tree), &stored.message, &receipt, now)?;
            }
            Ok(())
        })
        .await
    }
}

/// The time counts from when a file was put there, not from when it was first written.
fn remove_older(tree: &Tree, section: Section, before: Timestamp) -> Result<usize, FileError> {
    use std::os::unix::fs::MetadataExt;
    let mut removed = 0;
    for folder in tree.folders(section)? {
        let Ok(Some(dir)) = tree.folder(section, &folder) else { continue };
        for name in dir.names()? {
            let Ok(found) = std::fs::symlink_metadata(dir.path().join(&name)) else { continue };
            let since = found.mtime().max(found.ctime());
            if found.is_file() && since < before.as_second() && dir.remove(&name)? {
                removed += 1;
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
#[path = "housekeeping_tests.rs"]
mod tests;
