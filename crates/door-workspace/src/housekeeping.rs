//! Housekeeping: what expired goes to the archive, forgotten receipts are written, and once a day every mailbox is
//! compared with the journal, whatever the stamps of the folders say. `retention` removes what is old.
//!
//! Every process that keeps a workspace going (`serve`, a session) calls it each minute; a lease has one of them do it.
//! A round takes bounded time, however large the journal and the mailboxes are, except for the daily comparison, which
//! rests between two mailboxes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, Message, MessageId};
use switchboard_hub::{HubError, Stored};
use switchboard_sys::service_lease::ServiceLease;
use tokio::time::{Instant, sleep};

use crate::error::WorkspaceError;
use crate::ids;
use crate::intake::own_fault;
use crate::receipts;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// The lease on housekeeping.
const SERVICE: &str = "housekeeping";

/// Under this topic the hub remembers up to which message every receipt is there.
const RECEIPTS: &str = "receipts";

/// Messages of one page of the journal.
const PAGE: usize = 500;

/// Pages of the journal that one round compares with the receipts: some 100 ms. More than that in a minute is compared
/// in later rounds.
const PAGES: usize = 20;

/// Expired deliveries whose files one round archives.
const EXPIRED: usize = 1000;

/// How old a message is before a missing receipt counts as forgotten.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

/// Under this topic the hub remembers when all mailboxes were last compared.
const COMPARED: &str = "compared";

/// How often all mailboxes are compared, whatever their stamps say. A change that no stamp and no event shows is noticed
/// then, or by `doctor`.
const COMPARE_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// For how many times its own length the comparison of one mailbox is followed by a rest: a tenth of one core.
const REST: u32 = 9;

impl Workspace {
    /// Keeps house, unless another process does so now.
    pub async fn run_housekeeping(&self) -> Result<(), WorkspaceError> {
        let Some(_lease) = self.wait_for_lease().await? else { return Ok(()) };
        self.clear_temps().await?;
        self.expire_messages().await?;
        self.complete_receipts().await?;
        if self.is_comparison_due().await? {
            self.compare_all(REST).await?;
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
                rest_after(began.elapsed() * REST).await;
            }
        }
        Ok(())
    }

    /// Removes the unfinished files of killed writers from the workspace's own folder, where almost all files are made. It
    /// holds few files, so that every round can list it.
    async fn clear_temps(&self) -> Result<(), WorkspaceError> {
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || Ok(tree.root().clear_stale_temps(now).map(drop)?)).await
    }

    /// Archives what has expired, writes what is missing and clears away what was never finished. No mail is removed.
    pub async fn run_maintenance(&self) -> Result<(), WorkspaceError> {
        self.expire_messages().await?;
        self.complete_receipts().await?;
        self.compare_all(0).await
    }

    /// The same right, with patience for a command that makes its small round.
    async fn wait_for_lease(&self) -> Result<Option<ServiceLease>, WorkspaceError> {
        for _ in 0..3 {
            if let Some(lease) = self.housekeeping_lease().await? {
                return Ok(Some(lease));
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.housekeeping_lease().await
    }

    /// The right to keep house in this workspace; nothing while another process has it.
    pub(crate) async fn housekeeping_lease(&self) -> Result<Option<ServiceLease>, WorkspaceError> {
        let hub = self.hub().clone();
        blocking(move || match hub.lease_service(SERVICE) {
            Ok(lease) => Ok(Some(lease)),
            Err(HubError::ServiceTaken { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Ends what has expired: it goes to the archive, and its sender is told.
    pub async fn expire_messages(&self) -> Result<(), WorkspaceError> {
        self.hub().expire_due().await?;
        for (agent, message) in self.hub().expired_unarchived(EXPIRED).await? {
            let filed = self.archive(&agent, message).await.and(self.write_receipt(message).await);
            match filed {
                Ok(()) => self.hub().mark_archived(&agent, message).await?,
                Err(error) => tracing::warn!(error = %error, "an expired message could not be put away"),
            }
        }
        Ok(())
    }

    async fn is_comparison_due(&self) -> Result<bool, WorkspaceError> {
        let last = self.hub().get_note(Door::Workspace, COMPARED, "at").await?;
        let last = last.and_then(|last| last.parse::<Timestamp>().ok());
        // One that lies ahead is from before the clock was set back.
        Ok(last.is_none_or(|last| self.hub().now().duration_since(last).abs() >= COMPARE_EVERY))
    }

    /// Compares all mailboxes by name and clears away what killed writers have left, with a rest after each folder.
    async fn compare_all(&self, rest: u32) -> Result<(), WorkspaceError> {
        self.scan_all(rest).await?;
        self.clear_temps().await?;
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
                rest_after(began.elapsed() * rest).await;
            }
        }
        let at = self.hub().now().to_string();
        Ok(self.hub().put_note(Door::Workspace, COMPARED, "at".to_owned(), Some(at)).await?)
    }
}

/// Rests, where that is worth a timer.
pub(crate) async fn rest_after(rest: Duration) {
    /// Shorter than this, a rest costs more than it spares.
    const SHORTEST: Duration = Duration::from_millis(5);
    if rest >= SHORTEST {
        sleep(rest).await;
    }
}

impl Workspace {
    /// Writes receipts that a process did not get to: it was killed, or the disk was full.
    ///
    /// Goes through the journal once, a page at a time and behind the present, so that no message is
    /// looked at twice and nobody is overtaken who is about to write the receipt himself.
    async fn complete_receipts(&self) -> Result<(), WorkspaceError> {
        let noted = self.hub().get_note(Door::Workspace, RECEIPTS, "seq").await?;
        let first: i64 = noted.and_then(|seq| seq.parse().ok()).unwrap_or(0);
        let settled = self.hub().now().saturating_sub(SETTLED).map_err(|_| WorkspaceError::Closed)?;
        let mut cursor = first;
        for _ in 0..PAGES {
            let page = match self.hub().journal(cursor, PAGE).await {
                Err(HubError::CursorExpired { oldest, .. }) => {
                    cursor = oldest - 1;
                    continue;
                }
                page => page?,
            };
            let old: Vec<Stored> =
                page.items.into_iter().take_while(|stored| stored.accepted_at < settled).collect();
            let Some(last) = old.last().map(|stored| stored.seq) else { break };
            for id in self.without_receipt(old.into_iter().map(|stored| stored.message).collect()).await? {
                // One sender's folder in trouble does not keep the others from being told.
                if let Err(error) = self.write_receipt(id).await {
                    tracing::warn!(error = %own_fault(error)?, message = %id, "a receipt could not be written");
                }
            }
            cursor = last;
            if !page.more {
                break;
            }
        }
        if cursor > first {
            self.hub()
                .put_note(Door::Workspace, RECEIPTS, "seq".to_owned(), Some(cursor.to_string()))
                .await?;
        }
        Ok(())
    }

    /// Which of these messages have no receipt file.
    async fn without_receipt(&self, messages: Vec<Message>) -> Result<Vec<MessageId>, WorkspaceError> {
        let tree = self.tree().clone();
        blocking(move || {
            let mut missing = Vec::new();
            for message in messages.iter().filter(|message| message.from.realm.is_none()) {
                // What cannot be looked at is said where the receipt is written.
                if !has_receipt(&tree, message).unwrap_or(false) {
                    missing.push(message.id);
                }
            }
            Ok(missing)
        })
        .await
    }
}

/// Whether the sender has been told the first outcome.
fn has_receipt(tree: &Tree, message: &Message) -> Result<bool, WorkspaceError> {
    let Some(folder) = tree.folder(Section::Outbox, message.from.name.as_str())? else { return Ok(false) };
    Ok(folder.stat(&receipts::file_name(&ids::native_id(message)))?.is_some())
}

#[cfg(test)]
#[path = "housekeeping_tests.rs"]
mod tests;
