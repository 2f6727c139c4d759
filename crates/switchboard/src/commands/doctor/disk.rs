//! The disk of the workspace: whether anything can be written, and what waits for it.

use door_workspace::{Tree, Workspace};
use switchboard_core::Door;
use switchboard_hub::disk::{DiskFault, DiskTrouble, probe};
use switchboard_hub::{DatabaseState, Extent};

use super::{Check, Status};
use crate::failure::Failure;

/// What is wrong with the disk of the store, or with that of the mailboxes where they are on another one: nothing is said
/// where both can be written.
pub(super) fn look(tree: &Tree) -> Vec<Check> {
    let store = probe(tree.root());
    let mailboxes = tree.root().subdir("inbox").ok().flatten().and_then(|inbox| probe(&inbox));
    let other = mailboxes.filter(|trouble| store.as_ref() != Some(trouble));
    store.iter().chain(&other).map(describe).collect()
}

fn describe(trouble: &DiskTrouble) -> Check {
    let hint = match trouble.fault {
        DiskFault::ReadOnlyMount => "mount it writable; what is there can be read meanwhile",
        DiskFault::ReadOnlyFolder => "make it writable for this user; what is there can be read meanwhile",
        DiskFault::NoBytes => "make room on it; everything goes on by itself then",
        DiskFault::NoInodes => "remove files from it; everything goes on by itself then",
    };
    Check::new("disk", Status::Fail, format!("{trouble}; nothing can be sent or delivered")).hint(hint)
}

/// How many deliveries wait for the disk: nothing is said where it can be written.
pub(super) async fn waiting(
    workspace: &Workspace,
    database: &DatabaseState,
) -> Result<Option<Check>, Failure> {
    if workspace.hub().disk_trouble().is_none() || *database != DatabaseState::Sound {
        return Ok(None);
    }
    let health = workspace.hub().health_of(Extent::Newest).await?;
    let waiting = health.pending.iter().find(|(door, _)| *door == Door::Workspace);
    Ok(waiting.map(|(_, count)| {
        let told = if *count == 1 { "1 delivery waits".into() } else { format!("{count} deliveries wait") };
        Check::new("disk", Status::Fail, format!("{told} for the disk; none is lost"))
    }))
}
