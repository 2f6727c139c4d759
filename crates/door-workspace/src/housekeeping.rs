//! What a long-running hub does every minute: expired mail to the archive, old things out.

use jiff::{SignedDuration, Timestamp};
use switchboard_hub::files::FileError;

use crate::error::WorkspaceError;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

impl Workspace {
    /// Archives what has expired and removes what is older than the retention settings allow.
    pub async fn keep_house(&self) -> Result<(), WorkspaceError> {
        for delivery in self.hub().expire_due().await? {
            let archived = self.archive(&delivery.agent, delivery.message).await;
            if let Err(error) = archived.and(self.write_receipt(delivery.message).await) {
                tracing::warn!(error = %error, "an expired message could not be put away");
            }
        }
        // What the hub let expire by itself, and whatever the stamps of the folders did not show.
        self.sweep_all().await?;
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
        let tree = self.tree().clone();
        blocking(move || {
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
