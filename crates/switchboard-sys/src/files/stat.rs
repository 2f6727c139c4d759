//! Stat values of files and directories, by which changes are detected.

use rustix::fs::Stat;

use super::kind;

/// Content of a file, with the file's stat from before the read.
///
/// If the file changes during or after the read, the stat on disk differs from this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The content.
    pub bytes: Vec<u8>,
    /// Stat of the file before it was read.
    pub stat: FileStat,
}

/// Stat of a file, by which a change is detected without reading the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStat {
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub len: u64,
    /// Modification time of the content, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Owner of the file.
    pub uid: u32,
    /// True for a regular file; false for a directory, symbolic link, pipe, socket or device.
    pub is_regular: bool,
}

/// Stat of a directory, by which a change is detected without listing the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirStat {
    /// Inode number.
    pub inode: u64,
    /// Modification time of the directory's entries, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Change time of the directory's entries or attributes, in nanoseconds since 1970.
    ///
    /// Unlike `mtime_ns`, no program can set this time.
    pub ctime_ns: i128,
}

impl FileStat {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            len: u64::try_from(stat.st_size).unwrap_or_default(),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            uid: stat.st_uid,
            is_regular: kind(stat).is_file(),
        }
    }
}

impl DirStat {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// Combines the parts of a file time, whose integer types differ between systems.
fn nanoseconds(seconds: impl Into<i128>, nanoseconds: impl Into<i128>) -> i128 {
    seconds.into() * 1_000_000_000 + nanoseconds.into()
}
