//! Why a file or directory could not be used.

use std::io;
use std::path::PathBuf;

/// Why a file or directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The name is empty, a path, or one that every directory has.
    #[error("`{}` is not a file name", .name.escape_debug())]
    BadName {
        /// The name as given.
        name: String,
    },
    /// Something else is where a directory should be.
    #[error("{} is not a directory but a {found}", .path.display())]
    NotADirectory {
        /// Where it is.
        path: PathBuf,
        /// What is there instead.
        found: &'static str,
    },
    /// Something else is where a regular file should be.
    #[error("{} is not a file but a {found}", .path.display())]
    NotAFile {
        /// Where it is.
        path: PathBuf,
        /// What is there instead.
        found: &'static str,
    },
    /// The file holds more than the reader wants.
    #[error("{} has {size} bytes, more than the {limit} allowed", .path.display())]
    TooLarge {
        /// Where it is.
        path: PathBuf,
        /// Its size, as far as it was seen.
        size: u64,
        /// What the reader allows.
        limit: u64,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FileError {
    /// The same error once more, for each of several callers.
    #[must_use]
    pub fn again(&self) -> Self {
        match self {
            Self::BadName { name } => Self::BadName { name: name.clone() },
            Self::NotADirectory { path, found } => Self::NotADirectory { path: path.clone(), found },
            Self::NotAFile { path, found } => Self::NotAFile { path: path.clone(), found },
            Self::TooLarge { path, size, limit } => {
                Self::TooLarge { path: path.clone(), size: *size, limit: *limit }
            }
            Self::Io { action, path, source } => {
                let code = source.raw_os_error().map(io::Error::from_raw_os_error);
                let source = code.unwrap_or_else(|| io::Error::new(source.kind(), source.to_string()));
                Self::Io { action, path: path.clone(), source }
            }
        }
    }

    /// Whether the disk, or the user's share of it, is full: the same call can succeed later.
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// Whether the disk is read-only, or the permissions are: the same call can succeed later.
    pub fn is_read_only(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), ReadOnlyFilesystem | PermissionDenied))
    }

    /// Whether the disk is full or read-only, so that nothing can be written. What is there can still be read.
    pub fn is_disk(&self) -> bool {
        self.is_no_space() || self.is_read_only()
    }
}
