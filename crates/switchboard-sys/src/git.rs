//! Git commands that run no program that the repository configures.
//!
//! The settings of a repository can name programs: a file system monitor, hooks, pagers and diff drivers. None of these
//! programs may run only because Switchboard inspects a cloned repository.

use std::path::Path;

use crate::process::Spawn;

/// Returns a Git command for a folder, with hooks disabled. [`Spawn::args`] adds the subcommand.
pub fn command(folder: &Path) -> Spawn {
    query(folder).args(["-c", "core.hooksPath=/dev/null"])
}

/// Returns a Git command that can query the hook settings themselves. Such a query runs no hooks.
pub fn query(folder: &Path) -> Spawn {
    Spawn::new("git")
        .args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "diff.external=", "-c", "core.pager=cat"])
        .cwd(folder)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_PAGER", "cat")
}
