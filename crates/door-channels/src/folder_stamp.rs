//! Whether a folder needs to be listed again, by one look at the folder itself.

use jiff::{SignedDuration, Timestamp};
use switchboard_sys::files::{Dir, DirStamp, FileError};
use switchboard_sys::platform::{self, Filesystem};

use crate::config::{Config, Detection};

/// Younger than this tick of the file system, in nanoseconds, a further change may carry the same time.
const TICK: i128 = 50_000_000;

/// How long an unchanged stamp is believed where another machine may have changed the folder: a client keeps the
/// times of a folder for up to a minute, and shows them although they are old.
const TRUST_FOR: SignedDuration = SignedDuration::from_secs(30);

/// A folder as it was before it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    stamp: DirStamp,
    at: Timestamp,
    /// Whether every change shows in the stamp.
    is_reliable: bool,
}

impl FolderStamp {
    /// To be taken before the folder is listed: what comes between the two is listed twice rather than never.
    pub(crate) fn at(dir: &Dir, now: Timestamp, config: &Config) -> Result<Self, FileError> {
        let is_reliable =
            config.detection == Detection::Automatic && platform::filesystem(dir.path()) == Filesystem::Local;
        Ok(Self { stamp: dir.stamp()?, at: now, is_reliable })
    }

    /// Whether nothing has changed since an earlier look.
    pub(crate) fn is_unchanged_since(&self, earlier: Option<&Self>) -> bool {
        let is_believed =
            |earlier: &Self| self.is_reliable || self.at.duration_since(earlier.at).abs() < TRUST_FOR;
        earlier.is_some_and(|earlier| earlier.stamp == self.stamp && is_believed(earlier))
    }

    /// Whether a further change is sure to have another stamp.
    pub(crate) fn is_settled(&self) -> bool {
        self.at.as_nanosecond() - self.stamp.mtime_ns.max(self.stamp.ctime_ns) > TICK
    }
}

#[cfg(test)]
#[path = "folder_stamp_tests.rs"]
mod tests;
