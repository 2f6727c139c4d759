//! Git commands that run nothing of the repository's choice.
//!
//! A repository's own settings name programs: a monitor of the file system, hooks, pagers and drivers for diffs. None of
//! them is to run because Switchboard looks at a repository that somebody cloned.

use std::path::Path;

use crate::process::Spawn;

/// A Git command in a folder, without hooks. Its own words are added with [`Spawn::args`].
pub fn command(folder: &Path) -> Spawn {
    query(folder).args(["-c", "core.hooksPath=/dev/null"])
}

/// The same for a question about the hooks themselves, which runs none.
pub fn query(folder: &Path) -> Spawn {
    Spawn::new("git")
        .args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "diff.external=", "-c", "core.pager=cat"])
        .cwd(folder)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_PAGER", "cat")
}
