//! Files in the making: their names, and what becomes of those that were never finished.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Dir, Durability, FileError, is_same};
use crate::{owner, platform};

/// How a name begins while its file is still being written.
const TEMP_PREFIX: &str = ".tmp-";

/// The age at which a temporary file is given up, whoever made it: no write takes an hour.
const TEMP_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// A file in the making, which disappears with this value.
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
        // 64 random bits under our own pid: a name that is taken is an error, not a case to handle.
        let handle = rustix::fs::openat(&dir.handle, &*name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(dir.io("create", &name))?;
        let mut temp = Self { dir, name, file: File::from(handle), is_renamed: false };
        temp.file.write_all(bytes).map_err(dir.io("write", &temp.name))?;
        temp.sync(durability)?;
        Ok(temp)
    }

    pub(super) fn sync(&self, durability: Durability) -> Result<(), FileError> {
        match durability {
            Durability::Synced => self.file.sync_all().map_err(self.dir.io("sync", &self.name)),
            Durability::Later => Ok(()),
        }
    }

    /// Whether `name` leads to this very file.
    pub(super) fn has_name(&self, name: &str) -> bool {
        match (rustix::fs::fstat(&self.file), self.dir.raw_stat(name)) {
            (Ok(ours), Ok(Some(found))) => is_same(&ours, &found),
            _ => false,
        }
    }

    /// Lets go of the file, which no longer has its temporary name.
    pub(super) fn forget(mut self) {
        self.is_renamed = true;
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is cleared as stale later.
        if !self.is_renamed {
            let _ = rustix::fs::unlinkat(&self.dir.handle, &*self.name, AtFlags::empty());
        }
    }
}

impl Dir {
    /// Removes the unfinished files of writers that were killed, and says how many there were.
    ///
    /// A writer of this host is known to be gone when its process is; of others only the age tells.
    pub fn clear_stale_temps(&self, now: Timestamp) -> Result<usize, FileError> {
        let oldest = (now.as_nanosecond()).saturating_sub(TEMP_LIFETIME.as_nanos());
        let mut cleared = 0;
        for name in self.names()?.iter().filter(|name| is_temp(name)) {
            let Some(stamp) = self.stat(name)? else { continue };
            if stamp.is_regular && (stamp.mtime_ns < oldest || writer_is_gone(name)) && self.remove(name)? {
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    /// The same in a folder that is not ours, where age alone tells nothing: what a writer of this host has left whose name
    /// says that it is of this program, and whose process is gone.
    pub fn clear_abandoned_temps(&self) -> Result<usize, FileError> {
        let mut cleared = 0;
        for name in self.names()?.iter().filter(|name| is_temp(name) && writer_is_gone(name)) {
            if self.stat(name)?.is_some_and(|stamp| stamp.is_regular) && self.remove(name)? {
                cleared += 1;
            }
        }
        Ok(cleared)
    }
}

/// Whether a name is that of a file in the making, which nobody but its writer should look at.
pub fn is_temp(name: &str) -> bool {
    name.starts_with(TEMP_PREFIX)
}

/// `.tmp-<pid>-<host>-<random>`: enough to tell later whether the writer still runs.
pub(super) fn temp_name() -> String {
    let (pid, host, random) = (std::process::id(), host_mark(), fastrand::u64(..));
    format!("{TEMP_PREFIX}{pid}-{host}-{random:016x}")
}

pub(super) fn writer_is_gone(temp: &str) -> bool {
    let mut parts = temp.trim_start_matches(TEMP_PREFIX).split('-');
    let pid = parts.next().and_then(|pid| pid.parse().ok());
    let is_from_here = parts.next().is_some_and(|host| host == host_mark());
    is_from_here && pid.is_some_and(|pid| platform::process_started(pid).is_none())
}

/// A short stand-in for this host's name, which may hold anything.
pub(super) fn host_mark() -> String {
    let mut hasher = DefaultHasher::new();
    owner::this_host().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
