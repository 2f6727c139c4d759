//! Folder stamp: tells from the folder's metadata whether a new listing is needed.

use jiff::{SignedDuration, Timestamp};
use switchboard_sys::files::{Dir, DirStat, FileError};
use switchboard_sys::platform::{self, Filesystem};

use crate::config::{Config, Detection};

/// Timestamp granularity of file systems, in nanoseconds. A later change within it may have the same time.
const TICK: i128 = 50_000_000;

/// How long an unchanged stamp is trusted if another machine may change the folder: network clients cache
/// folder times for up to a minute.
const TRUST_FOR: SignedDuration = SignedDuration::from_secs(30);

/// Metadata of a folder before it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    stamp: DirStat,
    at: Timestamp,
    /// True if every change shows in the stamp.
    is_reliable: bool,
}

impl FolderStamp {
    /// Reads the stamp. Must precede the listing: a change between the two is then listed twice, not missed.
    pub(crate) fn at(dir: &Dir, now: Timestamp, config: &Config) -> Result<Self, FileError> {
        let is_reliable =
            config.detection == Detection::Automatic && platform::filesystem(dir.path()) == Filesystem::Local;
        Ok(Self { stamp: dir.dir_stat()?, at: now, is_reliable })
    }

    /// True if nothing has changed since an earlier stamp.
    pub(crate) fn is_unchanged_since(&self, earlier: Option<&Self>) -> bool {
        let is_believed =
            |earlier: &Self| self.is_reliable || self.at.duration_since(earlier.at).abs() < TRUST_FOR;
        earlier.is_some_and(|earlier| earlier.stamp == self.stamp && is_believed(earlier))
    }

    /// True if any further change will have another stamp.
    pub(crate) fn is_settled(&self) -> bool {
        self.at.as_nanosecond() - self.stamp.mtime_ns.max(self.stamp.ctime_ns) > TICK
    }
}

#[cfg(test)]
#[path = "folder_stamp_tests.rs"]
mod tests;
