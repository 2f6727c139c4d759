//! Temporary files: their names, and the cleanup of stale ones.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Dir, Durability, FileError, is_same};
use crate::{platform, process_identity};

/// Prefix of the name of an unfinished file.
const TEMP_PREFIX: &str = ".tmp-";

/// Age at which any temporary file is stale, because no write takes an hour.
const TEMP_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// A temporary file, which is removed on drop.
pub(super) struct Temp<'dir> {
    dir: &'dir Dir,
    pub(super) name: String,
    pub(super) file: File,
    is_renamed: bool,
}

impl<'dir> Temp<'dir> {
    pub(super) fn write(dir: &'dir Dir, bytes: &[u8], durability: Durability) -> Result<Self, FileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = temp_name();
        // The name has 64 random bits and our own pid, so a collision is reported as an error instead of retried.
        let handle = rustix::fs::openat(&dir.handle, &*name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(dir.io_error("create", &name))?;
        let mut temp = Self { dir, name, file: File::from(handle), is_renamed: false };
        temp.file.write_all(bytes).map_err(dir.io_error("write", &temp.name))?;
        temp.sync(durability)?;
        Ok(temp)
    }

    pub(super) fn sync(&self, durability: Durability) -> Result<(), FileError> {
        match durability {
            Durability::Synced => self.file.sync_all().map_err(self.dir.io_error("sync", &self.name)),
            Durability::Unsynced => Ok(()),
        }
    }

    /// Returns true if `name` is a name of this file.
    pub(super) fn has_name(&self, name: &str) -> bool {
        match (rustix::fs::fstat(&self.file), self.dir.raw_stat(name)) {
            (Ok(ours), Ok(Some(found))) => is_same(&ours, &found),
            _ => false,
        }
    }

    /// Disarms the removal on drop, because the file no longer has its temporary name.
    pub(super) fn forget(mut self) {
        self.is_renamed = true;
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        // A file that cannot be removed now is removed later as a stale one.
        if !self.is_renamed {
            let _ = rustix::fs::unlinkat(&self.dir.handle, &*self.name, AtFlags::empty());
        }
    }
}

impl Dir {
    /// Removes the stale temporary files of killed writers. Returns the number of removed files.
    ///
    /// A file is stale if its writer ran on this host and has exited, or if it is older than an hour. For writers on
    /// other hosts only the age counts.
    pub fn clear_stale_temps(&self, now: Timestamp) -> Result<usize, FileError> {
        let oldest = (now.as_nanosecond()).saturating_sub(TEMP_LIFETIME.as_nanos());
        let mut cleared = 0;
        for name in self.names()?.iter().filter(|name| is_temp(name)) {
            let Some(stamp) = self.stat(name)? else { continue };
            if stamp.is_regular
                && (stamp.mtime_ns < oldest || has_writer_exited(name))
                && self.remove(name)?
            {
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    /// Removes temporary files from a folder that other programs use. Returns the number of removed files.
    ///
    /// Only files with a name of this program are removed, and only if the writer ran on this host and has exited. Age
    /// is not evidence in such a folder.
    pub fn clear_abandoned_temps(&self) -> Result<usize, FileError> {
        let mut cleared = 0;
        for name in self.names()?.iter().filter(|name| is_temp(name) && has_writer_exited(name)) {
            if self.stat(name)?.is_some_and(|stamp| stamp.is_regular) && self.remove(name)? {
                cleared += 1;
            }
        }
        Ok(cleared)
    }
}

/// Returns true for the name of a temporary file, which only its writer may use.
pub fn is_temp(name: &str) -> bool {
    name.starts_with(TEMP_PREFIX)
}

/// Returns a temporary name of the form `.tmp-<pid>-<host>-<random>`.
///
/// A later process can check by the name whether the writer still runs.
pub(super) fn temp_name() -> String {
    let (pid, host, random) = (std::process::id(), host_hash(), fastrand::u64(..));
    format!("{TEMP_PREFIX}{pid}-{host}-{random:016x}")
}

pub(super) fn has_writer_exited(temp: &str) -> bool {
    let mut parts = temp.trim_start_matches(TEMP_PREFIX).split('-');
    let pid = parts.next().and_then(|pid| pid.parse().ok());
    let is_from_here = parts.next().is_some_and(|host| host == host_hash());
    is_from_here && pid.is_some_and(|pid| platform::process_started(pid).is_none())
}

/// Returns a short hash of this host's name. The name itself may contain any character.
pub(super) fn host_hash() -> String {
    let mut hasher = DefaultHasher::new();
    process_identity::this_host().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
