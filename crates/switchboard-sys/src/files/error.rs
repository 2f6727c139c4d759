//! Errors of file operations.

use std::io;
use std::path::PathBuf;

/// Error of an operation on a file or directory.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The name is empty, a path, `.` or `..`.
    #[error("`{}` is not a file name", .name.escape_debug())]
    BadName {
        /// The name as given.
        name: String,
    },
    /// The path is not a directory.
    #[error("{} is not a directory but a {found}", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
        /// The actual file type.
        found: &'static str,
    },
    /// The path is not a regular file.
    #[error("{} is not a file but a {found}", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The actual file type.
        found: &'static str,
    },
    /// The file exceeds the reader's limit.
    #[error("{} has {size} bytes, more than the {limit} allowed", .path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// Size of the file, as far as it was read.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A system call failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The attempted operation, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl FileError {
    /// Duplicates the error, so that it can be reported to several callers.
    #[must_use]
    pub fn duplicate(&self) -> Self {
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

    /// Returns true if the disk or the user's quota is full. The same call can succeed later.
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// Returns true if the disk is read-only or the permissions deny writing. The same call can succeed later.
    pub fn is_read_only(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), ReadOnlyFilesystem | PermissionDenied))
    }

    /// Returns true if the disk is full or read-only, so that nothing can be written. Existing files can still be read.
    pub fn is_disk(&self) -> bool {
        self.is_no_space() || self.is_read_only()
    }
}
