//! Main loop of the door: watches and scans mailboxes, delivers, and runs housekeeping until shutdown.

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::Door;
use switchboard_hub::Outbound;
use switchboard_sys::debounce::{Debounce, Debouncer, REST_FACTOR};
use switchboard_sys::platform;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::delivery;
use crate::error::WorkspaceError;
use crate::housekeeping::sleep_unless_short;
use crate::tree::Section;
use crate::watcher::MailboxWatcher;
use crate::workspace::{Workspace, blocking};

/// Delay before the next scan while a file may be in the middle of a write.
const SETTLING_RESCAN: Duration = Duration::from_millis(200);

/// Interval between housekeeping rounds.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_mins(1);

/// Poll interval for heartbeats in `state.json`.
///
/// The heartbeats show how long a recipient has been idle, which receipts report to senders.
const STATE_INTERVAL: Duration = Duration::from_secs(5);

/// Notes topic: the machine's boot id at the last comparison of all files.
const BOOT: &str = "boot";

/// Notes topic: the machine's boot id at the last comparison of each mailbox.
///
/// If a process ends during the comparison, the next process compares only the remaining mailboxes.
const BOOT_OF_MAILBOX: &str = "boot.mailbox";

/// Time limit for a command to deliver messages that other processes left in the queue.
///
/// The caller of the command waits for as long.
const COMMAND_DRAIN: Duration = Duration::from_secs(1);

/// Runs the door until `shutdown`: ingests, delivers, repairs and runs housekeeping.
///
/// Delivers all due messages before it returns.
pub async fn run(
    workspace: Workspace,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), WorkspaceError> {
    let deliveries = Box::pin(run_deliveries(&workspace, outbound, shutdown.clone()));
    let intake = async {
        match shutdown.run_until_cancelled(Box::pin(ingest(&workspace))).await {
            Some(result) => result,
            // Wait for the delivery loop, which ends this function.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = deliveries => Ok(()),
        result = intake => result,
    }
}

/// Delivers messages until `shutdown`, then drains the due deliveries.
pub async fn run_deliveries(workspace: &Workspace, outbound: Outbound, shutdown: CancellationToken) {
    let deliveries = Box::pin(delivery::run(workspace, outbound));
    workspace.hub().deliveries().run_door(Door::Workspace, deliveries, shutdown).await;
}

impl Workspace {
    /// Delivers all messages that are due to mailboxes.
    ///
    /// If a sender's process was killed, there may be no other process that delivers its messages.
    pub async fn drain_deliveries(&self) -> Result<(), WorkspaceError> {
        if self.hub().database().disk_trouble().is_none() {
            let outbound = self.hub().deliveries().open_door(Door::Workspace).await?;
            let deliveries = Box::pin(delivery::run(self, outbound));
            self.hub().deliveries().drain_door(Door::Workspace, deliveries, COMMAND_DRAIN).await;
        }
        Ok(())
    }

    /// Redelivers orphaned messages, which an ended process left in the queue. Called at the end of a command.
    pub(crate) async fn drain_orphaned_deliveries(&self) {
        if self.hub().deliveries().has_opened_door() {
            return;
        }
        let delivered = match self.hub().deliveries().has_abandoned(Door::Workspace).await {
            Ok(true) => self.drain_deliveries().await,
            found => found.map(drop).map_err(WorkspaceError::from),
        };
        if let Err(error) = delivered {
            tracing::debug!(%error, "mail that another process left is not delivered yet");
        }
    }
}

/// Ingests files and runs housekeeping concurrently.
///
/// A new file therefore does not wait for a housekeeping round to end.
async fn ingest(workspace: &Workspace) -> Result<(), WorkspaceError> {
    tokio::select! {
        result = scan_mailboxes(workspace) => result,
        () = maintain(workspace) => Ok(()),
    }
}

async fn scan_mailboxes(workspace: &Workspace) -> Result<(), WorkspaceError> {
    // Start the watcher before the first scan, so that a change in between is seen twice rather than never.
    let hints = Arc::new(Notify::new());
    let root = workspace.tree().root().clone();
    if let Err(error) = blocking(move || Ok(root.ensure_subdir(Section::Inbox.as_str())?)).await {
        tracing::warn!(error = %error, "the inbox folder could not be created");
    }
    let mut watch = MailboxWatcher::start(workspace, &hints);
    let inbox = workspace.tree().root().path().join(Section::Inbox.as_str());
    let config = workspace.config();
    let rescan = if platform::is_network_filesystem(&inbox) { config.rescan_network } else { config.rescan };
    let mut state = Instant::now();
    let mut is_rebuilding = false;
    let mut debouncer = Debouncer::new(Debounce::SCANNED_FOLDERS);
    loop {
        let began = Instant::now();
        watch = watch.follow(workspace).await?;
        is_rebuilding |= workspace.hub().database().consume_recovery();
        if is_rebuilding {
            is_rebuilding = !rebuild_journal(workspace).await;
        }
        let pause = match workspace.scan().await {
            Ok(scanned) if scanned.settling > 0 => SETTLING_RESCAN,
            Ok(_) => rescan,
            Err(error) if error.is_end() => return Err(error),
            Err(error) => {
                tracing::warn!(error = %error, "the mailboxes could not be read");
                rescan
            }
        };
        if state <= Instant::now() {
            state = Instant::now() + STATE_INTERVAL;
            if let Err(error) = workspace.import_state().await {
                tracing::warn!(error = %error, "state.json could not be imported");
            }
        }
        debouncer.record_round(began);
        let hinted = async {
            if tokio::time::timeout(pause, hints.notified()).await.is_ok() {
                debouncer.wait().await;
            }
        };
        tokio::select! {
            () = hinted => {}
            // Wake up at once for a recovery: agents are unknown until the journal is rebuilt.
            () = workspace.hub().database().wait_for_recovery() => {}
        }
    }
}

/// Verifies the mailboxes after a reboot, then runs housekeeping at intervals.
async fn maintain(workspace: &Workspace) {
    let mut is_compared = false;
    loop {
        if !is_compared {
            // If the verification fails, retry later: a disk error may be temporary.
            let compared = verify_after_reboot(workspace).await;
            is_compared = compared.is_ok();
            if let Err(error) = compared {
                tracing::warn!(error = %error, "the mailboxes could not be compared");
            }
        }
        if let Err(error) = workspace.run_housekeeping().await {
            tracing::warn!(error = %error, "housekeeping failed");
        }
        tokio::time::sleep(if is_compared { HOUSEKEEPING_INTERVAL } else { workspace.config().rescan }).await;
    }
}

/// Rebuilds messages from files after the journal lost them while this process had it open.
///
/// Returns false if the rebuild must be retried.
async fn rebuild_journal(workspace: &Workspace) -> bool {
    let done = crate::rebuild::rebuild_journal(workspace).await;
    if let Err(error) = &done {
        tracing::error!(%error, "not all messages could be rebuilt from their files");
    }
    done.is_ok()
}

/// Verifies all mailboxes after a reboot.
///
/// A power failure may leave files missing, empty or torn, which a fingerprint does not show.
async fn verify_after_reboot(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let Some(boot) = platform::boot_id() else {
        return workspace.verify_throttled(REST_FACTOR).await.map(drop);
    };
    let hub = workspace.hub();
    let is_noted = |notes: &[(String, String)], key: &str| {
        notes.iter().any(|(noted, last)| noted == key && *last == boot)
    };
    if is_noted(&hub.notes(Door::Workspace).all(BOOT).await?, "id") {
        return Ok(());
    }
    workspace.finish_renaming().await?;
    let note = |topic, key| hub.notes(Door::Workspace).put(topic, key, Some(boot.clone()));
    let compared = hub.notes(Door::Workspace).all(BOOT_OF_MAILBOX).await?;
    for folder in workspace.mailbox_folders().await? {
        if is_noted(&compared, &folder) {
            continue;
        }
        let began = Instant::now();
        workspace.verify_mailbox(&folder).await?;
        let took = began.elapsed();
        note(BOOT_OF_MAILBOX, folder).await?;
        sleep_unless_short(took * REST_FACTOR).await;
    }
    Ok(note(BOOT, "id".to_owned()).await?)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
