//! Name of this program in files for others.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Name of the executable.
const NAME: &str = "switchboard";

/// Returns the path of this program, for files of this user only.
pub(crate) fn own_path() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().map_err(anyhow::Error::from)?)
}

/// Returns this program's name for files to be committed: its bare name, if `PATH` finds this very file.
pub(crate) fn shared_name() -> Result<PathBuf, Failure> {
    let own = own_path()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(if finds(&path, &own) { PathBuf::from(NAME) } else { own })
}

/// True if the first program of our name on a search path is this file. Entries that depend on the current folder
/// are skipped.
fn finds(search_path: &std::ffi::OsStr, own: &Path) -> bool {
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    let folders = std::env::split_paths(search_path).filter(|folder| folder.is_absolute());
    let first = folders.map(|folder| folder.join(NAME)).find(is_program);
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    first.is_some_and(|first| identity(&first).is_some() && identity(&first) == identity(own))
}
