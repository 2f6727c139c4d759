//! Checks of the workspace's disk: whether it is writable, and which deliveries wait for it.

use door_workspace::{Tree, Workspace};
use switchboard_core::Door;
use switchboard_hub::Extent;
use switchboard_sys::disk::{DiskFault, DiskFaultKind, probe};

use super::{Check, Status};
use crate::failure::Failure;

/// Reports a disk that is not writable: the disk of the store, or that of the mailboxes if they are on another one.
/// Returns no check if both are writable.
pub(super) fn check_disk(tree: &Tree) -> Vec<Check> {
    let store = probe(tree.root());
    let mailboxes = tree.root().subdir("inbox").ok().flatten().and_then(|inbox| probe(&inbox));
    let other = mailboxes.filter(|trouble| store.as_ref() != Some(trouble));
    store.iter().chain(&other).map(describe).collect()
}

fn describe(trouble: &DiskFault) -> Check {
    let hint = match trouble.kind {
        DiskFaultKind::ReadOnlyMount => "mount it writable; reading works meanwhile",
        DiskFaultKind::ReadOnlyFolder => "make it writable for this user; reading works meanwhile",
        DiskFaultKind::NoBytes => "free some space; delivery then resumes without a restart",
        DiskFaultKind::NoInodes => "remove files from it; delivery then resumes without a restart",
    };
    Check::new("disk", Status::Fail, format!("{trouble}; nothing can be sent or delivered")).hint(hint)
}

/// Reports how many deliveries wait for the disk; returns no check if none waits.
///
/// On a writable disk, a delivery waits if its last attempt failed, because no probe detects an exhausted quota. If the
/// disk is not writable, every pending delivery to a mailbox waits.
pub(super) async fn waiting(workspace: &Workspace, is_writable: bool) -> Result<Option<Check>, Failure> {
    let health = workspace.hub().database().health_of(Extent::Newest).await?;
    let all = health.pending.iter().find(|(door, _)| *door == Door::Workspace).map_or(0, |(_, count)| *count);
    let waiting = if is_writable { health.waiting_for_disk } else { all.max(health.waiting_for_disk) };
    let message = match waiting {
        0 => return Ok(None),
        1 => "1 delivery waits".to_owned(),
        count => format!("{count} deliveries wait"),
    };
    let check = Check::new("disk", Status::Fail, format!("{message} for the disk; none is lost"));
    Ok(Some(if is_writable {
        check.hint(
            "free space, or raise this user's quota; `switchboard receipt ID` names the file that failed",
        )
    } else {
        check
    }))
}
