//! Folders used by the suites of a workspace.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use switchboard_sys::files::{Dir, FileError};

/// Folders of a workspace and its user.
///
/// Anyone may have written the files of a workspace, so decisions about them are stored in the user's folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuitePaths {
    /// Folder that contains `.switchboard`.
    pub workspace: PathBuf,
    /// Folder of the user's settings: `~/.config/switchboard`.
    pub config: PathBuf,
    /// Folder of data that can be rebuilt: `~/.cache/switchboard`.
    pub cache: PathBuf,
}

impl SuitePaths {
    /// Creates the paths for a user without a home folder. Nothing is trusted, and nothing is stored.
    pub fn without_home(workspace: PathBuf) -> Self {
        // Below a device file, no folder can be created.
        let nowhere = PathBuf::from("/dev/null/switchboard");
        Self { workspace, config: nowhere.clone(), cache: nowhere }
    }

    /// Returns the workspace's canonical path, under which decisions about the workspace are stored.
    pub fn workspace_key(&self) -> String {
        let path = self.workspace.canonicalize().unwrap_or_else(|_| self.workspace.clone());
        path.to_string_lossy().into_owned()
    }

    /// Returns a short hash of the workspace's path, for folder names.
    pub fn workspace_hash(&self) -> String {
        hex(&Sha256::digest(self.workspace_key()))[..16].to_owned()
    }

    /// Returns the path of a child's file inside the workspace.
    pub fn child_file(&self, name: &str) -> PathBuf {
        PathBuf::from(self.workspace_key()).join(".switchboard/mcps").join(name).join(".mcp.json")
    }

    /// Opens the folder of the children's logs; creates the folder if missing.
    pub fn create_logs(&self) -> Result<Dir, FileError> {
        create_dir(&self.cache)?.ensure_subdir("logs")?.ensure_subdir(&self.workspace_hash())
    }

    /// Opens the folder of cached catalogues; creates the folder if missing.
    pub fn create_catalogues(&self) -> Result<Dir, FileError> {
        create_dir(&self.cache)?.ensure_subdir("catalogues")?.ensure_subdir(&self.workspace_hash())
    }

    /// Opens the folder of the usage counters; creates the folder if missing.
    pub(crate) fn create_savings(&self) -> Result<Dir, FileError> {
        create_dir(&self.cache)?.ensure_subdir("savings")
    }

    /// Opens the folder of the children's logs, if it exists.
    pub fn logs(&self) -> Result<Option<Dir>, FileError> {
        open_nested(&self.cache, &["logs", &self.workspace_hash()])
    }

    /// Opens the folder of the pins, if it exists.
    pub(crate) fn pins(&self) -> Result<Option<Dir>, FileError> {
        open_nested(&self.config, &["pins", &self.workspace_hash()])
    }

    /// Opens the folder of the pins; creates the folder if missing.
    pub(crate) fn create_pins(&self) -> Result<Dir, FileError> {
        create_dir(&self.config)?.ensure_subdir("pins")?.ensure_subdir(&self.workspace_hash())
    }
}

/// Opens a folder of the user; creates the folder with mode 0700 if missing.
pub(crate) fn create_dir(path: &Path) -> Result<Dir, FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| FileError::Io { action: "make", path: path.to_owned(), source })?;
    Dir::open_root(path)
}

/// Opens a folder of the user, if it exists.
pub(crate) fn open_dir(path: &Path) -> Result<Option<Dir>, FileError> {
    if path.is_dir() { Dir::open_root(path).map(Some) } else { Ok(None) }
}

fn open_nested(path: &Path, names: &[&str]) -> Result<Option<Dir>, FileError> {
    let mut folder = open_dir(path)?;
    for name in names {
        folder = match folder {
            Some(folder) => folder.subdir(name)?,
            None => return Ok(None),
        };
    }
    Ok(folder)
}

/// Encodes bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
