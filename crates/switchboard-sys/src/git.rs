//! Git commands that run no program of the repository's choice.
//!
//! The settings of a repository can name programs: a file system monitor, hooks, pagers and diff drivers. None of them
//! may run because Switchboard inspects a cloned repository.

use std::path::Path;

use crate::process::Spawn;

/// Returns a Git command for a folder, without hooks. [`Spawn::args`] adds the subcommand.
pub fn command(folder: &Path) -> Spawn {
    query(folder).args(["-c", "core.hooksPath=/dev/null"])
}

/// Returns a Git command that queries the hook settings themselves, and runs no hooks.
pub fn query(folder: &Path) -> Spawn {
    Spawn::new("git")
        .args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "diff.external=", "-c", "core.pager=cat"])
        .cwd(folder)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_PAGER", "cat")
}
