//! Lock directory that is compatible with Node's `proper-lockfile`, so that both exclude each other.
//!
//! The lock on `state.json` is the empty directory `state.json.lock`. The process that creates the directory holds the
//! lock, refreshes its modification time every few seconds (heartbeat), and removes it. A lock whose time is older than
//! ten seconds is stale. Switchboard also writes `state.json.lock-holder`, so that the lock of a Switchboard process
//! that has exited is taken over at once.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FlockOperation, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::files::{DIR_FLAGS, Dir, DirStat, Durability, FileError, check_name};
use crate::process_identity::ProcessIdentity;

/// Age at which a lock is stale: the default of `proper-lockfile`.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// Minimum delay between two tries. A lock is usually held for milliseconds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// Maximum delay before the first retry.
///
/// Delays are random (jitter), so that waiting processes do not retry at the same time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Bound up to which the maximum delay doubles (exponential backoff).
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Maximum size of a holder file. A host name, three numbers and separators need less.
const HOLDER_LIMIT: u64 = 4096;

/// Timeout and refresh interval of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockOptions {
    /// Timeout for acquiring the lock.
    pub wait: Duration,
    /// Interval at which a held lock is refreshed.
    pub refresh: Duration,
}

impl Default for LockOptions {
    /// Returns a timeout longer than a lock takes to become stale, and the refresh interval of `proper-lockfile`.
    fn default() -> Self {
        Self { wait: Duration::from_secs(15), refresh: STALE_AFTER / 2 }
    }
}

/// Error of acquiring a lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another holder kept the lock until the timeout.
    #[error("{} is held by {} (waited {:.1} s)", .path.display(), .holder.as_deref().unwrap_or("another program"), .waited.as_secs_f64())]
    Busy {
        /// The lock directory.
        path: PathBuf,
        /// Time spent waiting.
        waited: Duration,
        /// The holder, if it is a Switchboard process.
        holder: Option<String>,
    },
    /// The lock could not be created or examined.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// A held lock, which is released on drop.
///
/// A background thread refreshes the lock. If this process was suspended for longer than the stale age, another process
/// may have taken the lock over: [`is_held`](Self::is_held) checks that.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct DirLock {
    lock_path: LockPath,
    /// The lock directory. While it is open, no other directory can get its inode number.
    handle: Dir,
    refresher: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl DirLock {
    /// Acquires the lock on a file in a directory, whether or not that file exists.
    ///
    /// The call blocks for up to `options.wait`, so async code calls it on a blocking thread.
    pub fn acquire(dir: &Dir, name: &str, options: LockOptions) -> Result<Self, LockError> {
        check_name(name)?;
        let lock_path = LockPath::new(dir.clone(), name);
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(handle) = lock_path.try_create()? {
                return Self::hold(lock_path, handle, options.refresh);
            }
            let Some(found) = lock_path.stat()? else { continue };
            if lock_path.is_abandoned(&found) && lock_path.remove_abandoned()? {
                continue;
            }
            let Some(left) = options.wait.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                let holder = lock_path.holder_of(&found).map(|owner| owner.to_string());
                return Err(LockError::Busy { path: lock_path.path(), waited: start.elapsed(), holder });
            };
            thread::sleep(random_between(SHORTEST_PAUSE, pause).min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns true if the lock is still ours. Check this before the final step of long work.
    pub fn is_held(&self) -> bool {
        self.lock_path.is_current(&self.handle)
    }

    fn hold(lock_path: LockPath, handle: Dir, refresh: Duration) -> Result<Self, LockError> {
        // The guard is created first, so that a failure below releases the lock.
        let mut lock = Self { lock_path: lock_path.clone(), handle: handle.clone(), refresher: None };
        lock_path.write_holder(&handle);
        let (stop, stopped) = sync_channel(0);
        let refresh_loop = move || {
            while stopped.recv_timeout(refresh) == Err(RecvTimeoutError::Timeout) {
                lock_path.refresh(&handle);
            }
        };
        let thread = thread::Builder::new().name("lock-refresh".to_owned()).spawn(refresh_loop);
        let thread = thread.map_err(lock.lock_path.dir.io_error("keep", &lock.lock_path.lock_name))?;
        lock.refresher = Some((stop, thread));
        Ok(lock)
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.refresher.take() {
            drop(stop);
            // The thread returns nothing, and a panic in it was already reported.
            let _ = thread.join();
        }
        if self.is_held() {
            self.lock_path.release();
        }
    }
}

/// Path of a lock, held or not.
#[derive(Debug, Clone)]
struct LockPath {
    dir: Dir,
    lock_name: String,
    holder_name: String,
}

impl LockPath {
    fn new(dir: Dir, name: &str) -> Self {
        Self { dir, lock_name: format!("{name}.lock"), holder_name: format!("{name}.lock-holder") }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(&self.lock_name)
    }

    /// Creates the lock directory and opens it. Returns `None` if it already exists.
    fn try_create(&self) -> Result<Option<Dir>, FileError> {
        // The mode is the same as in Node, so the creator's umask decides.
        match rustix::fs::mkdirat(self.dir.as_fd(), &*self.lock_name, Mode::from_bits_truncate(0o777)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(self.dir.io_error("make", &self.lock_name)(error)),
        }
        // If the directory is missing, another process has already removed it, and the lock is not ours.
        self.dir.subdir(&self.lock_name).inspect_err(|_| self.remove_dir(&self.lock_name))
    }

    fn stat(&self) -> Result<Option<DirStat>, FileError> {
        self.dir.subdir_stat(&self.lock_name)
    }

    /// Returns true if `handle` is still the lock's directory.
    fn is_current(&self, handle: &Dir) -> bool {
        match (handle.dir_stat(), self.stat()) {
            (Ok(ours), Ok(Some(found))) => ours.inode == found.inode,
            _ => false,
        }
    }

    /// Refreshes our own lock.
    ///
    /// The refresh goes through the handle, so that it never affects another holder's lock.
    fn refresh(&self, handle: &Dir) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        match rustix::fs::futimens(handle.as_fd(), &Timestamps { last_access: now, last_modification: now }) {
            Ok(()) if self.is_current(handle) => self.write_holder(handle),
            Ok(()) => tracing::warn!(lock = %self.path().display(), "the lock was lost"),
            Err(error) => tracing::warn!(lock = %self.path().display(), %error, "cannot keep the lock fresh"),
        }
    }

    /// Writes the holder file. The lock is valid without this file, so a failure only delays a takeover.
    fn write_holder(&self, handle: &Dir) {
        let written = handle.dir_stat().and_then(|stat| {
            let text = format!("{}\n{}\n", ProcessIdentity::this_process(), identity(&stat));
            self.dir.replace_with(&self.holder_name, text.as_bytes(), 0o644, Durability::Unsynced)
        });
        if let Err(error) = written {
            tracing::debug!(lock = %self.path().display(), %error, "cannot write down who holds the lock");
        }
    }

    /// Returns the Switchboard process that holds this lock according to the holder file.
    ///
    /// Returns `None` if another program holds the lock.
    fn holder_of(&self, lock: &DirStat) -> Option<ProcessIdentity> {
        let contents = self.dir.read(&self.holder_name, HOLDER_LIMIT).ok().flatten()?;
        let (owner, of_lock) = str::from_utf8(&contents.bytes).ok()?.trim_end().split_once('\n')?;
        owner.parse().ok().filter(|_| of_lock == identity(lock))
    }

    /// Returns true if the lock is stale or its holder has exited.
    fn is_abandoned(&self, lock: &DirStat) -> bool {
        is_stale(lock) || self.holder_of(lock).is_some_and(|owner| owner.has_exited())
    }

    /// Removes an abandoned lock.
    ///
    /// Returns false if another process is removing the lock, or if the lock is not abandoned. The lock is first
    /// renamed, which only one process can do, and then checked again under its new name, because a fresh lock may have
    /// replaced it since the first check.
    fn remove_abandoned(&self) -> Result<bool, FileError> {
        // If the file system cannot lock a directory, only the check after the rename protects a fresh lock.
        let exclusion = self.lock_takeover();
        if matches!(exclusion, Err(Errno::WOULDBLOCK)) {
            return Ok(false);
        }
        let Some(before) = self.stat()? else { return Ok(true) };
        if !self.is_abandoned(&before) {
            return Ok(false);
        }
        let renamed = format!("{}.stale-{:016x}", self.lock_name, fastrand::u64(..));
        match rustix::fs::renameat(self.dir.as_fd(), &*self.lock_name, self.dir.as_fd(), &*renamed) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(self.dir.io_error("take over", &self.lock_name)(error)),
        }
        let is_same =
            self.dir.subdir_stat(&renamed)?.is_some_and(|after| identity(&after) == identity(&before));
        if !is_same && self.restore(&renamed) {
            return Ok(false);
        }
        self.remove_dir(&renamed);
        Ok(true)
    }

    /// Excludes other Switchboard processes from taking over a lock in this directory.
    ///
    /// The exclusion lasts while the handle lives. Without it, two concurrent takeovers could each remove the other's
    /// fresh lock.
    fn lock_takeover(&self) -> Result<OwnedFd, Errno> {
        // A separate handle is needed, because clones of one handle share its lock.
        let handle = rustix::fs::openat(self.dir.as_fd(), ".", DIR_FLAGS, Mode::empty())?;
        rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
        Ok(handle)
    }

    /// Restores the name of a renamed lock.
    ///
    /// Returns false if that name is in use again, or if the file system cannot rename without replacing.
    fn restore(&self, renamed: &str) -> bool {
        let dir = self.dir.as_fd();
        rustix::fs::renameat_with(dir, renamed, dir, &*self.lock_name, RenameFlags::NOREPLACE).is_ok()
    }

    /// Removes our lock. The holder file is removed first, while no other process can write one.
    fn release(&self) {
        if let Err(error) = self.dir.remove(&self.holder_name) {
            tracing::debug!(%error, "cannot remove the name of the lock's holder");
        }
        self.remove_dir(&self.lock_name);
    }

    fn remove_dir(&self, name: &str) {
        match rustix::fs::unlinkat(self.dir.as_fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                let path = self.dir.path().join(name);
                tracing::warn!(lock = %path.display(), %error, "cannot remove the lock");
            }
        }
    }
}

/// Returns the identity of a lock directory: inode number and modification time.
///
/// The inode alone is not enough, because a new directory often gets the inode of the last removed one.
fn identity(stat: &DirStat) -> String {
    format!("{} {}", stat.inode, stat.mtime_ns)
}

/// Returns true if a lock is stale by its age. A time in the future counts as now.
#[expect(clippy::disallowed_methods, reason = "the age of a lock counts from the clock that set its time")]
fn is_stale(lock: &DirStat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let set_at = u128::try_from(lock.mtime_ns).unwrap_or_default();
    set_at + STALE_AFTER.as_nanos() < now.as_nanos()
}

fn random_between(shortest: Duration, longest: Duration) -> Duration {
    shortest + longest.saturating_sub(shortest).mul_f64(fastrand::f64())
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
