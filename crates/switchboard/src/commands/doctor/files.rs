//! Checks of the workspace's files: whether they match the journal, and which user owns them.

use std::os::unix::fs::PermissionsExt;

use door_workspace::{Finding, Workspace, inspect_extent};
use switchboard_hub::{Extent, NEWEST};

use super::{Check, Progress, Status};
use crate::failure::Failure;

/// Files between two progress updates.
const STEP: usize = 100;

pub(super) async fn check_files(
    workspace: &Workspace,
    fix: bool,
    extent: Extent,
    is_writable: bool,
    progress: &Progress,
) -> Result<Vec<Check>, Failure> {
    let compared = |count: usize| {
        if count.is_multiple_of(STEP) {
            progress.step(format!("comparing files: {count}"));
        }
    };
    let found = inspect_extent(workspace, extent, &compared).await?;
    if fix {
        repair(workspace, &found).await?;
    }
    let left = if fix { inspect_extent(workspace, extent, &compared).await? } else { found.clone() };
    let mut checks: Vec<Check> = found
        .iter()
        .filter(|finding| !left.iter().any(|left| left.is_same_issue(finding)))
        .map(|finding| Check { status: Status::Fixed, hint: None, ..describe(finding) })
        .collect();
    checks.extend(left.iter().map(describe));
    // If the disk is not writable, mailbox files may be missing, so the mailboxes are not reported as correct.
    if checks.is_empty() && is_writable {
        let agree = if workspace.hub().database().is_covered_by(extent).await? {
            "mailboxes and journal agree; no other user can write to them".to_owned()
        } else {
            format!("mailboxes have the newest {NEWEST} messages; no other user can write to them")
        };
        checks.push(Check::new("files", Status::Ok, agree));
    }
    Ok(checks)
}

fn describe(finding: &Finding) -> Check {
    use Status::{Fail, Warn};
    match finding {
        Finding::MissingFile { path } => {
            Check::new("files", Fail, format!("{path} is missing, but its message is pending"))
        }
        Finding::ChangedFile { path } => {
            Check::new("files", Fail, format!("{path} differs from the accepted message"))
                .hint("`--fix` renames the changed file and writes the message again")
        }
        Finding::NotIngested { path, reason } => {
            let reason = reason.as_deref().unwrap_or("it has not been scanned yet");
            Check::new("files", Warn, format!("{path} was not ingested: {reason}"))
        }
        Finding::Unusable { path, problem } => {
            Check::new("files", Fail, format!("{path} cannot be used: {problem}"))
                .hint("move the file or folder at this path aside")
        }
        Finding::StaleTemp { path } => Check::new("files", Warn, format!("{path} is an unfinished file")),
        Finding::Exposed { path, problem } => Check::new("permissions", Fail, format!("{path} {problem}"))
            .hint("`--fix` makes it private to its owner"),
        Finding::Readable { path, problem } => Check::new("permissions", Warn, format!("{path} {problem}"))
            .hint("`--fix` makes it private to its owner"),
        Finding::DamagedState { problem } => {
            Check::new("state", Fail, format!("state.json cannot be read: {problem}"))
                .hint("`--fix` moves it aside and writes a new one from the journal")
        }
        Finding::StaleLock { path } => {
            Check::new("locks", Warn, format!("{path} is a lock whose owner has ended"))
        }
        Finding::NetworkMount => Check::new("files", Warn, "the workspace lies on a network mount")
            .hint("it works, but changes made on other machines are found every few seconds only"),
    }
}

async fn repair(workspace: &Workspace, found: &[Finding]) -> Result<(), Failure> {
    workspace.verify_mailboxes().await?;
    workspace.run_maintenance().await?;
    for finding in found {
        match finding {
            // Acquiring a lock takes over a stale lock and then releases it, so rewriting the state also clears stale
            // locks.
            Finding::DamagedState { .. } | Finding::StaleLock { .. } => workspace.rewrite_state().await?,
            Finding::Exposed { path, .. } | Finding::Readable { path, .. } => {
                restrict_permissions(workspace, path);
            }
            _ => {}
        }
    }
    Ok(())
}

fn restrict_permissions(workspace: &Workspace, path: &str) {
    let root = workspace.tree().root().path();
    let path = if path == ".switchboard" { root.to_owned() } else { root.join(path) };
    // Symbolic links are skipped: changing their permissions would change their target.
    let Ok(found) = std::fs::symlink_metadata(&path) else { return };
    let mode = if found.is_dir() { 0o700 } else { 0o600 };
    if !found.file_type().is_symlink()
        && let Err(error) = std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
    {
        tracing::warn!(path = %path.display(), error = %error, "the permissions could not be changed");
    }
}
