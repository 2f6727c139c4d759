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
            self.archive(&delivery.agent, delivery.message).await?;
            self.write_receipt(delivery.message).await?;
        }
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

fn remove_older(tree: &Tree, section: Section, before: Timestamp) -> Result<usize, FileError> {
    let mut removed = 0;
    for folder in tree.folders(section)? {
        let Ok(Some(dir)) = tree.folder(section, &folder) else { continue };
        for name in dir.names()? {
            let old = dir
                .stat(&name)?
                .is_some_and(|stamp| stamp.is_regular && stamp.mtime_ns < before.as_nanosecond());
            if old && dir.remove(&name)? {
                removed += 1;
            }
        }
    }
    Ok(removed)
}
