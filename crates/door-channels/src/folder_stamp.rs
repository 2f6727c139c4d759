//! Folder stamps, which tell from a folder's metadata whether it has to be listed again.

use jiff::{SignedDuration, Timestamp};
use switchboard_sys::files::{Dir, DirStat, FileError};
use switchboard_sys::platform::{self, Filesystem};

use crate::config::{Config, Detection};

/// Timestamp granularity of file systems, in nanoseconds. Two changes within it may have the same time.
const TICK: i128 = 50_000_000;

/// How long an unchanged stamp is trusted if another machine may change the folder. Network clients cache folder times
/// for up to a minute.
const TRUST_FOR: SignedDuration = SignedDuration::from_secs(30);

/// Metadata of a folder before it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    stamp: DirStat,
    at: Timestamp,
    /// True if every change of the folder changes the stamp.
    is_reliable: bool,
}

impl FolderStamp {
    /// Reads the stamp. Call it before the listing, so that a concurrent change is listed twice rather than missed.
    pub(crate) fn at(dir: &Dir, now: Timestamp, config: &Config) -> Result<Self, FileError> {
        let is_reliable =
            config.detection == Detection::Automatic && platform::filesystem(dir.path()) == Filesystem::Local;
        Ok(Self { stamp: dir.dir_stat()?, at: now, is_reliable })
    }

    /// Returns true if the folder has not changed since an earlier stamp.
    pub(crate) fn is_unchanged_since(&self, earlier: Option<&Self>) -> bool {
        let is_believed =
            |earlier: &Self| self.is_reliable || self.at.duration_since(earlier.at).abs() < TRUST_FOR;
        earlier.is_some_and(|earlier| earlier.stamp == self.stamp && is_believed(earlier))
    }

    /// Returns true if any further change will have another stamp.
    pub(crate) fn is_settled(&self) -> bool {
        self.at.as_nanosecond() - self.stamp.mtime_ns.max(self.stamp.ctime_ns) > TICK
    }
}

#[cfg(test)]
#[path = "folder_stamp_tests.rs"]
mod tests;
