//! Where the suites of a workspace keep what is theirs.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use switchboard_sys::files::{Dir, FileError};

/// Where things are. What a workspace holds may come from anyone; what decides about it is the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuitePaths {
    /// The folder that holds `.switchboard`.
    pub workspace: PathBuf,
    /// The user's own settings: `~/.config/switchboard`.
    pub config: PathBuf,
    /// What can be had again: `~/.cache/switchboard`.
    pub cache: PathBuf,
}

impl SuitePaths {
    /// The places of a workspace whose user has none: nothing is trusted, and nothing is kept.
    pub fn without_home(workspace: PathBuf) -> Self {
        // Nothing can be made below a device.
        let nowhere = PathBuf::from("/dev/null/switchboard");
        Self { workspace, config: nowhere.clone(), cache: nowhere }
    }

    /// The workspace's path without links, by which decisions about it are kept.
    pub fn workspace_key(&self) -> String {
        let path = self.workspace.canonicalize().unwrap_or_else(|_| self.workspace.clone());
        path.to_string_lossy().into_owned()
    }

    /// A short stand-in for the workspace's path, for the names of folders.
    pub fn workspace_hash(&self) -> String {
        hex(&Sha256::digest(self.workspace_key()))[..16].to_owned()
    }

    /// Where the file of a child is that we put into the workspace.
    pub fn child_file(&self, name: &str) -> PathBuf {
        PathBuf::from(self.workspace_key()).join(".switchboard/mcps").join(name).join(".mcp.json")
    }

    /// The folder of the children's logs, made where it is missing.
    pub fn create_logs(&self) -> Result<Dir, FileError> {
        make(&self.cache)?.make_subdir("logs")?.make_subdir(&self.workspace_hash())
    }

    /// The folder of what is known of the children without starting them, made where it is missing.
    pub fn create_catalogues(&self) -> Result<Dir, FileError> {
        make(&self.cache)?.make_subdir("catalogues")?.make_subdir(&self.workspace_hash())
    }

    /// The folder where is counted what suites save, made where it is missing.
    pub(crate) fn create_savings(&self) -> Result<Dir, FileError> {
        make(&self.cache)?.make_subdir("savings")
    }

    /// The folder of the children's logs, where there is one.
    pub fn logs(&self) -> Result<Option<Dir>, FileError> {
        below(&self.cache, &["logs", &self.workspace_hash()])
    }

    /// The folder of the pins, where there is one.
    pub(crate) fn pins(&self) -> Result<Option<Dir>, FileError> {
        below(&self.config, &["pins", &self.workspace_hash()])
    }

    /// The folder of the pins, made where it is missing.
    pub(crate) fn create_pins(&self) -> Result<Dir, FileError> {
        make(&self.config)?.make_subdir("pins")?.make_subdir(&self.workspace_hash())
    }
}

/// Opens a folder of the user's, and makes it first, for its owner alone, where it is missing.
pub(crate) fn make(path: &Path) -> Result<Dir, FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| FileError::Io { action: "make", path: path.to_owned(), source })?;
    Dir::open_root(path)
}

/// Opens a folder of the user's, where there is one.
pub(crate) fn open(path: &Path) -> Result<Option<Dir>, FileError> {
    if path.is_dir() { Dir::open_root(path).map(Some) } else { Ok(None) }
}

fn below(path: &Path, names: &[&str]) -> Result<Option<Dir>, FileError> {
    let mut folder = open(path)?;
    for name in names {
        folder = match folder {
            Some(folder) => folder.subdir(name)?,
            None => return Ok(None),
        };
    }
    Ok(folder)
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
