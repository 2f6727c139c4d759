//! Housekeeping: expiry, missing receipts, and a daily reconciliation of mailboxes with the journal.
//!
//! Every long-running process of a workspace (`serve`, a session) starts a round each minute; a lease ensures that only
//! one of them runs it. A round archives expired messages and writes missing receipts, and `retention` removes old
//! files. The duration of a round does not depend on the size of the journal and the mailboxes, except for the daily
//! comparison of every mailbox, which pauses between mailboxes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, Message, MessageId};
use switchboard_hub::{HubError, Stored};
use switchboard_sys::debounce::REST_FACTOR;
use switchboard_sys::service_lease::ServiceLease;
use tokio::time::{Instant, sleep};

use crate::error::WorkspaceError;
use crate::ids;
use crate::intake::single_file_error;
use crate::receipts;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// Service name of the housekeeping lease.
const LEASE_NAME: &str = "housekeeping";

/// Notes topic: the journal number up to which every receipt exists.
const RECEIPTS: &str = "receipts";

/// Journal messages per page.
const PAGE: usize = 500;

/// Maximum number of journal pages that one round checks for receipts.
///
/// This takes some 100 ms. If more pages accumulate within a minute, later rounds check them.
const PAGES_PER_ROUND: usize = 20;

/// Maximum number of expired deliveries whose files one round archives.
const EXPIRED_PER_ROUND: usize = 1000;

/// Minimum age of a message whose missing receipt counts as lost.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

/// Notes topic: the time when all mailboxes were last compared with the journal.
const COMPARED: &str = "compared";

/// Interval between comparisons of all mailboxes with the journal.
///
/// A comparison finds changes that neither a folder's fingerprint nor a file event shows. `doctor` finds them too.
const COMPARE_EVERY: SignedDuration = SignedDuration::from_hours(24);

impl Workspace {
    /// Runs one round of housekeeping, unless another process is already running one.
    pub async fn run_housekeeping(&self) -> Result<(), WorkspaceError> {
        let Some(_lease) = self.wait_for_lease().await? else { return Ok(()) };
        self.remove_stale_temps().await?;
        self.expire_messages().await?;
        self.complete_receipts().await?;
        if self.is_comparison_due().await? {
            self.compare_all(REST_FACTOR).await?;
            self.remove_all_leftovers().await?;
        }
        self.retention_round().await
    }

    async fn remove_all_leftovers(&self) -> Result<(), WorkspaceError> {
        for section in [Section::Archive, Section::Outbox] {
            let tree = self.tree().clone();
            for folder in blocking(move || Ok(tree.folders(section)?)).await? {
                let began = Instant::now();
                self.remove_leftovers(section, &folder).await?;
                sleep_unless_short(began.elapsed() * REST_FACTOR).await;
            }
        }
        Ok(())
    }

    /// Removes temporary files of killed writers from the workspace's root folder.
    ///
    /// Almost all files are created in the root folder. Because it holds few files, every round can list it.
    async fn remove_stale_temps(&self) -> Result<(), WorkspaceError> {
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || Ok(tree.root().clear_stale_temps(now).map(drop)?)).await
    }

    /// Archives expired messages, writes missing receipts, compares all mailboxes and removes temporary files.
    ///
    /// Does not remove messages.
    pub async fn run_maintenance(&self) -> Result<(), WorkspaceError> {
        self.expire_messages().await?;
        self.complete_receipts().await?;
        self.compare_all(0).await
    }

    /// Acquires the housekeeping lease, with retries while another process finishes a short round.
    async fn wait_for_lease(&self) -> Result<Option<ServiceLease>, WorkspaceError> {
        for _ in 0..3 {
            if let Some(lease) = self.housekeeping_lease().await? {
                return Ok(Some(lease));
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.housekeeping_lease().await
    }

    /// Acquires the housekeeping lease; returns `None` while another process holds it.
    pub(crate) async fn housekeeping_lease(&self) -> Result<Option<ServiceLease>, WorkspaceError> {
        let hub = self.hub().clone();
        blocking(move || match hub.services().lease(LEASE_NAME) {
            Ok(lease) => Ok(Some(lease)),
            Err(HubError::ServiceTaken { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Archives expired messages and writes receipts for their senders.
    pub async fn expire_messages(&self) -> Result<(), WorkspaceError> {
        self.hub().deliveries().expire_due().await?;
        for (agent, message) in self.hub().mailboxes().expired_unarchived(EXPIRED_PER_ROUND).await? {
            let filed = self.archive(&agent, message).await.and(self.write_receipt(message).await);
            match filed {
                Ok(()) => self.hub().mailboxes().mark_archived(&agent, message).await?,
                Err(error) => tracing::warn!(error = %error, "an expired message could not be archived"),
            }
        }
        Ok(())
    }

    async fn is_comparison_due(&self) -> Result<bool, WorkspaceError> {
        let last = self.hub().notes(Door::Workspace).get(COMPARED, "at").await?;
        let last = last.and_then(|last| last.parse::<Timestamp>().ok());
        // If the recorded time is in the future, the clock was set back after the time was written.
        Ok(last.is_none_or(|last| self.hub().now().duration_since(last).abs() >= COMPARE_EVERY))
    }

    /// Compares all mailboxes with the journal by name and removes temporary files of killed writers.
    ///
    /// After each folder, the comparison pauses for `pause` × the duration.
    async fn compare_all(&self, pause: u32) -> Result<(), WorkspaceError> {
        self.scan_all(pause).await?;
        self.remove_stale_temps().await?;
        let now = self.hub().now();
        for section in [Section::Inbox, Section::Archive, Section::Outbox] {
            let tree = self.tree().clone();
            for folder in blocking(move || Ok(tree.folders(section)?)).await? {
                let (tree, began) = (self.tree().clone(), Instant::now());
                blocking(move || {
                    if let Ok(Some(dir)) = tree.folder(section, &folder) {
                        dir.clear_stale_temps(now)?;
                    }
                    Ok(())
                })
                .await?;
                sleep_unless_short(began.elapsed() * pause).await;
            }
        }
        let at = self.hub().now().to_string();
        Ok(self.hub().notes(Door::Workspace).put(COMPARED, "at".to_owned(), Some(at)).await?)
    }
}

/// Sleeps, unless the pause is too short to be worth a timer.
pub(crate) async fn sleep_unless_short(pause: Duration) {
    /// Minimum pause; a shorter one costs more than it saves.
    const SHORTEST: Duration = Duration::from_millis(5);
    if pause >= SHORTEST {
        sleep(pause).await;
    }
}

impl Workspace {
    /// Writes receipts that are missing because a process was killed or the disk was full.
    ///
    /// Reads the journal page by page and stores the position, so that each message is checked once. Messages younger
    /// than [`SETTLED`] are skipped, to avoid a race with a process that is about to write the receipt itself.
    async fn complete_receipts(&self) -> Result<(), WorkspaceError> {
        let noted = self.hub().notes(Door::Workspace).get(RECEIPTS, "seq").await?;
        let first: i64 = noted.and_then(|seq| seq.parse().ok()).unwrap_or(0);
        let settled = self.hub().now().saturating_sub(SETTLED).map_err(|_| WorkspaceError::Closed)?;
        let mut cursor = first;
        for _ in 0..PAGES_PER_ROUND {
            let page = match self.hub().journal().entries(cursor, PAGE).await {
                Err(HubError::CursorExpired { oldest, .. }) => {
                    cursor = oldest - 1;
                    continue;
                }
                page => page?,
            };
            let old: Vec<Stored> =
                page.items.into_iter().take_while(|stored| stored.accepted_at < settled).collect();
            let Some(last) = old.last().map(|stored| stored.seq) else { break };
            for id in
                self.find_missing_receipts(old.into_iter().map(|stored| stored.message).collect()).await?
            {
                // An error in one sender's folder must not stop the receipts of other senders.
                if let Err(error) = self.write_receipt(id).await {
                    tracing::warn!(error = %single_file_error(error)?, message = %id, "a receipt could not be written");
                }
            }
            cursor = last;
            if !page.more {
                break;
            }
        }
        if cursor > first {
            self.hub()
                .notes(Door::Workspace)
                .put(RECEIPTS, "seq".to_owned(), Some(cursor.to_string()))
                .await?;
        }
        Ok(())
    }

    /// Returns the messages that have no receipt file.
    async fn find_missing_receipts(&self, messages: Vec<Message>) -> Result<Vec<MessageId>, WorkspaceError> {
        let tree = self.tree().clone();
        blocking(move || {
            let mut missing = Vec::new();
            for message in messages.iter().filter(|message| message.from.realm.is_none()) {
                // If the check fails, report the receipt as missing: writing it fails with the same error, which is
                // then logged.
                if !has_receipt(&tree, message).unwrap_or(false) {
                    missing.push(message.id);
                }
            }
            Ok(missing)
        })
        .await
    }
}

/// Returns true if the receipt file of a message exists in its sender's outbox.
fn has_receipt(tree: &Tree, message: &Message) -> Result<bool, WorkspaceError> {
    let Some(folder) = tree.folder(Section::Outbox, message.from.name.as_str())? else { return Ok(false) };
    Ok(folder.stat(&receipts::file_name(&ids::native_id(message)))?.is_some())
}

#[cfg(test)]
#[path = "housekeeping_tests.rs"]
mod tests;
