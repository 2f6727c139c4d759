//! Housekeeping: archives expired messages, writes missing receipts, and once a day compares every mailbox with the
//! journal. `retention` removes what is old.
//!
//! Every long-running process of a workspace (`serve`, a session) calls it each minute; a lease lets one of them run
//! it. A round takes bounded time however large the journal and the mailboxes are. Only the daily comparison takes
//! longer; it pauses between mailboxes.

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

/// Topic of notes: the journal number up to which every receipt exists.
const RECEIPTS: &str = "receipts";

/// Journal messages per page.
const PAGE: usize = 500;

/// Journal pages that one round checks for receipts: some 100 ms. More than that in a minute is left to later rounds.
const PAGES_PER_ROUND: usize = 20;

/// Expired deliveries whose files one round archives.
const EXPIRED_PER_ROUND: usize = 1000;

/// Age of a message from which a missing receipt counts as lost.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

/// Topic of notes: when all mailboxes were last compared.
const COMPARED: &str = "compared";

/// Interval of the comparison of all mailboxes. It finds changes that neither a folder's fingerprint nor an event
/// shows; `doctor` finds them too.
const COMPARE_EVERY: SignedDuration = SignedDuration::from_hours(24);

impl Workspace {
    /// Runs one round of housekeeping, unless another process runs one now.
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

    /// Removes partial files of killed writers from the workspace's root folder, where almost all files are created. It
    /// holds few files, so every round can list it.
    async fn remove_stale_temps(&self) -> Result<(), WorkspaceError> {
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || Ok(tree.root().clear_stale_temps(now).map(drop)?)).await
    }

    /// Archives expired messages, writes missing receipts, compares all mailboxes and removes partial files. Removes no
    /// mail.
    pub async fn run_maintenance(&self) -> Result<(), WorkspaceError> {
        self.expire_messages().await?;
        self.complete_receipts().await?;
        self.compare_all(0).await
    }

    /// Acquires the housekeeping lease, and retries while a command finishes its small round.
    async fn wait_for_lease(&self) -> Result<Option<ServiceLease>, WorkspaceError> {
        for _ in 0..3 {
            if let Some(lease) = self.housekeeping_lease().await? {
                return Ok(Some(lease));
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.housekeeping_lease().await
    }

    /// Acquires the housekeeping lease; `None` while another process holds it.
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
        // A time in the future was written before the clock was set back.
        Ok(last.is_none_or(|last| self.hub().now().duration_since(last).abs() >= COMPARE_EVERY))
    }

    /// Compares all mailboxes by name and removes partial files of killed writers, with a pause after each folder.
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
    /// A shorter pause costs more than it saves.
    const SHORTEST: Duration = Duration::from_millis(5);
    if pause >= SHORTEST {
        sleep(pause).await;
    }
}

impl Workspace {
    /// Writes receipts that are missing because a process was killed or the disk was full.
    ///
    /// Reads the journal once, page by page, and only messages older than [`SETTLED`]: each message is checked once,
    /// and no process that is about to write the receipt itself is raced.
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
                // A fault in one sender's folder must not stop the receipts of others.
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
                // An error of the check appears again, and is logged, when the receipt is written.
                if !has_receipt(&tree, message).unwrap_or(false) {
                    missing.push(message.id);
                }
            }
            Ok(missing)
        })
        .await
    }
}

/// True if the sender has a receipt.
fn has_receipt(tree: &Tree, message: &Message) -> Result<bool, WorkspaceError> {
    let Some(folder) = tree.folder(Section::Outbox, message.from.name.as_str())? else { return Ok(false) };
    Ok(folder.stat(&receipts::file_name(&ids::native_id(message)))?.is_some())
}

#[cfg(test)]
#[path = "housekeeping_tests.rs"]
mod tests;
