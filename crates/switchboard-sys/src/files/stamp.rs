//! What tells one state of a file or directory from another.

use rustix::fs::Stat;

use super::kind;

/// A file's content with the stamp that the file had before it was read.
///
/// A file that changes during or after the reading shows another stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// What the file holds.
    pub bytes: Vec<u8>,
    /// Which file it was.
    pub stamp: FileStamp,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// The file's number in its file system.
    pub inode: u64,
    /// Its length in bytes.
    pub len: u64,
    /// When its content last changed, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// The user that it belongs to.
    pub uid: u32,
    /// Whether it is a regular file, rather than a directory, link, pipe, socket or device.
    pub is_regular: bool,
}

/// What tells one state of a directory from another without listing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirStamp {
    /// The directory's number in its file system.
    pub inode: u64,
    /// When a name in it last changed, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// When it or its attributes last changed, in nanoseconds since 1970; nobody can set this back.
    pub ctime_ns: i128,
}

impl FileStamp {
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

impl DirStamp {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// One number for a file time, whose parts differ in width between systems.
fn nanoseconds(seconds: impl Into<i128>, nanoseconds: impl Into<i128>) -> i128 {
    seconds.into() * 1_000_000_000 + nanoseconds.into()
}
