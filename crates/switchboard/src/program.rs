//! Path and name of this program, as written into files such as clients' settings.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Name of the executable.
const NAME: &str = "switchboard";

/// Returns the absolute path of this program, for files that belong to this user only.
pub(crate) fn own_path() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().map_err(anyhow::Error::from)?)
}

/// Returns the program name for files to be committed: the bare name if `PATH` finds this very file, otherwise its
/// path.
pub(crate) fn shared_name() -> Result<PathBuf, Failure> {
    let own = own_path()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(if finds(&path, &own) { PathBuf::from(NAME) } else { own })
}

/// Returns true if the first program named `switchboard` on a search path is this file. Relative entries are skipped.
fn finds(search_path: &std::ffi::OsStr, own: &Path) -> bool {
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    let folders = std::env::split_paths(search_path).filter(|folder| folder.is_absolute());
    let first = folders.map(|folder| folder.join(NAME)).find(is_program);
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    first.is_some_and(|first| identity(&first).is_some() && identity(&first) == identity(own))
}
