//! The door at work: watches, sweeps, delivers, keeps house, until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::Door;
use switchboard_hub::Outbound;
use switchboard_sys::platform;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::delivery;
use crate::error::WorkspaceError;
use crate::housekeeping::rest_after;
use crate::own_files::OwnFiles;
use crate::tree::Section;
use crate::watcher::MailboxWatcher;
use crate::workspace::{Workspace, blocking};

/// How long to gather file events before looking: one message makes several.
const GATHER: Duration = Duration::from_millis(5);

/// For how many times its own length a look is followed by none: however large the mailboxes are, looking
/// at them takes a tenth of one core at most. The files of our own deliveries are hints as well.
const REST: u32 = 9;

/// The longest such rest: a look that took in thousands of files was long for a good reason, and whoever
/// dropped the next one does not wait for nine times as long.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// How soon to look again at files that may still be being written.
const SETTLING: Duration = Duration::from_millis(200);

/// How often to keep house.
const HOUSEKEEPING: Duration = Duration::from_mins(1);

/// How often to look who is there, which a file tells: senders are told since when somebody idles.
const STATE: Duration = Duration::from_secs(5);

/// Under this topic the hub remembers the boot of the machine in which the files were last compared.
const BOOT: &str = "boot";

/// The same for each mailbox: a process that ends before all are compared leaves only the others to the next one.
const BOOT_OF_MAILBOX: &str = "boot.mailbox";

/// How long a command delivers what others have left, while its caller waits.
const COMMAND_DRAIN: Duration = Duration::from_secs(1);

/// Keeps a workspace going until `shutdown`: ingests, delivers, repairs and keeps house. Delivers what is due before it returns.
pub async fn run(
    workspace: Workspace,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), WorkspaceError> {
    let deliveries = Box::pin(run_deliveries(&workspace, outbound, shutdown.clone()));
    let intake = async {
        match shutdown.run_until_cancelled(Box::pin(ingest(&workspace))).await {
            Some(result) => result,
            // The deliveries end it.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = deliveries => Ok(()),
        result = intake => result,
    }
}

/// Delivers until `shutdown`, and then what is due.
pub async fn run_deliveries(workspace: &Workspace, outbound: Outbound, shutdown: CancellationToken) {
    let deliveries = Box::pin(delivery::run(workspace, outbound));
    workspace.hub().run_door(Door::Workspace, deliveries, shutdown).await;
}

impl Workspace {
    /// Delivers what is due to mailboxes: after a sender that was killed there may be no other process to do it.
    pub async fn drain_deliveries(&self) -> Result<(), WorkspaceError> {
        if self.hub().disk_trouble().is_none() {
            let outbound = self.hub().open_door(Door::Workspace).await?;
            let deliveries = Box::pin(delivery::run(self, outbound));
            self.hub().drain_door(Door::Workspace, deliveries, COMMAND_DRAIN).await;
        }
        Ok(())
    }

    /// The same at the end of a command, where a process that has ended left mail in the queue.
    pub(crate) async fn drain_orphaned_deliveries(&self) {
        if self.hub().has_opened_door() {
            return;
        }
        let delivered = match self.hub().has_abandoned_deliveries(Door::Workspace).await {
            Ok(true) => self.drain_deliveries().await,
            found => found.map(drop).map_err(WorkspaceError::from),
        };
        if let Err(error) = delivered {
            tracing::debug!(%error, "mail that another process left is not delivered yet");
        }
    }
}

/// Ingests dropped files, with housekeeping beside it: a dropped file does not wait for the end of a round.
async fn ingest(workspace: &Workspace) -> Result<(), WorkspaceError> {
    tokio::select! {
        result = look_at_mailboxes(workspace) => result,
        () = keep_in_order(workspace) => Ok(()),
    }
}

async fn look_at_mailboxes(workspace: &Workspace) -> Result<(), WorkspaceError> {
    // Watch first, then look: what comes between the two is seen twice rather than never.
    let hints = Arc::new(Notify::new());
    let root = workspace.tree().root().clone();
    if let Err(error) = blocking(move || Ok(root.make_subdir(Section::Inbox.as_str())?)).await {
        tracing::warn!(error = %error, "there are no mailboxes");
    }
    let mut watch = MailboxWatcher::begin(workspace, &hints);
    let inbox = workspace.tree().root().path().join(Section::Inbox.as_str());
    let config = workspace.config();
    let rescan = if platform::is_network_filesystem(&inbox) { config.rescan_network } else { config.rescan };
    let mut state = Instant::now();
    let mut is_rebuilding = false;
    loop {
        let began = Instant::now();
        watch = watch.follow(workspace).await?;
        is_rebuilding |= workspace.hub().consume_recovery();
        if is_rebuilding {
            is_rebuilding = !read_back(workspace).await;
        }
        let pause = match workspace.scan().await {
            Ok(scanned) if scanned.settling > 0 => SETTLING,
            Ok(_) => rescan,
            Err(error) if error.is_end() => return Err(error),
            Err(error) => {
                tracing::warn!(error = %error, "the mailboxes could not be read");
                rescan
            }
        };
        if state <= Instant::now() {
            state = Instant::now() + STATE;
            if let Err(error) = workspace.import_state().await {
                tracing::warn!(error = %error, "who is there could not be read");
            }
        }
        let rested = Instant::now() + (began.elapsed() * REST).min(LONGEST_REST);
        let hinted = async {
            if tokio::time::timeout(pause, hints.notified()).await.is_ok() {
                tokio::time::sleep_until(rested.max(Instant::now() + GATHER)).await;
            }
        };
        tokio::select! {
            () = hinted => {}
            // Until then agents are unknown.
            () = workspace.hub().wait_for_recovery() => {}
        }
    }
}

/// Compares the files after a power failure, and keeps house.
async fn keep_in_order(workspace: &Workspace) {
    let mut is_compared = false;
    loop {
        if !is_compared {
            // A disk that fails now may be well again in a while.
            let compared = after_power_failure(workspace).await;
            is_compared = compared.is_ok();
            if let Err(error) = compared {
                tracing::warn!(error = %error, "the mailboxes could not be compared");
            }
        }
        if let Err(error) = workspace.run_housekeeping().await {
            tracing::warn!(error = %error, "housekeeping failed");
        }
        tokio::time::sleep(if is_compared { HOUSEKEEPING } else { workspace.config().rescan }).await;
    }
}

/// Reads back what files say of messages that the journal has lost while this process had it open; false where that must be
/// tried again.
async fn read_back(workspace: &Workspace) -> bool {
    let done = crate::rebuild::read_back(workspace).await;
    if let Err(error) = &done {
        tracing::error!(%error, "not all messages could be read back from their files");
    }
    done.is_ok()
}

/// After a power failure files may be missing, empty or torn, which no stamp tells: compare them all.
async fn after_power_failure(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let Some(boot) = platform::boot_id() else { return workspace.verify_throttled(REST).await.map(drop) };
    let hub = workspace.hub();
    let is_noted = |notes: &[(String, String)], key: &str| {
        notes.iter().any(|(noted, last)| noted == key && *last == boot)
    };
    if is_noted(&hub.notes(Door::Workspace, BOOT).await?, "id") {
        return Ok(());
    }
    workspace.finish_renaming().await?;
    let note = |topic, key| hub.put_note(Door::Workspace, topic, key, Some(boot.clone()));
    let compared = hub.notes(Door::Workspace, BOOT_OF_MAILBOX).await?;
    for folder in workspace.mailbox_folders().await? {
        if is_noted(&compared, &folder) {
            continue;
        }
        let began = Instant::now();
        workspace.verify_mailbox(&folder).await?;
        let took = began.elapsed();
        note(BOOT_OF_MAILBOX, folder).await?;
        rest_after(took * REST).await;
    }
    Ok(note(BOOT, "id".to_owned()).await?)
}

/// Whether an event says that a mailbox may have changed by somebody else's hand. Our own reading makes events
/// too, and so do our deliveries and files that are still being written under another name.
pub(crate) fn is_hint(event: &notify::Event, own_files: &OwnFiles) -> bool {
    let is_temp = |path: &std::path::PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(switchboard_sys::files::is_in_the_making)
    };
    let only_temps = !event.paths.is_empty() && event.paths.iter().all(is_temp);
    let is_ours = || match event.paths.as_slice() {
        [file] => event.kind.is_create() && own_files.is_awaited(file),
        _ => false,
    };
    event.need_rescan() || (!event.kind.is_access() && !only_temps && !is_ours())
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
