//! The lock that Node's `proper-lockfile` uses, so that both sides exclude each other.
//!
//! The lock on `state.json` is the empty directory `state.json.lock`. Whoever makes it holds the
//! lock, sets its time anew every few seconds, and removes it. One whose time is older than ten
//! seconds belongs to nobody. Holders of our own also write `state.json.lock-holder`, so that the
//! lock of a process that is gone is taken over at once.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FlockOperation, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::files::{DIR_FLAGS, Dir, DirStamp, Durability, FileError, check_name};
use crate::owner::Owner;

/// The age at which a lock belongs to nobody: the default of `proper-lockfile`.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// The shortest pause between two tries: a lock is usually held for milliseconds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// The longest first pause. Pauses are drawn at random so that those who wait do not come at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The bound up to which the longest pause doubles.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// More than any holder file has: a host name, three numbers and the signs between them.
const HOLDER_LIMIT: u64 = 4096;

/// How long to wait for a lock, and how often to keep it fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockOptions {
    /// How long to try before giving up.
    pub wait: Duration,
    /// How often the time of a held lock is set anew.
    pub refresh: Duration,
}

impl Default for LockOptions {
    /// Waits longer than a lock takes to become stale, and refreshes as often as `proper-lockfile`.
    fn default() -> Self {
        Self { wait: Duration::from_secs(15), refresh: STALE_AFTER / 2 }
    }
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Someone else held the lock all the time.
    #[error("{} is held by {} (waited {:.1} s)", .path.display(), .holder.as_deref().unwrap_or("another program"), .waited.as_secs_f64())]
    Busy {
        /// The directory that is the lock.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
        /// The owner, when it is one of our own.
        holder: Option<String>,
    },
    /// The lock could not be made or examined.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// A lock that is held until this value is dropped.
///
/// A background thread keeps it fresh. When this process was suspended for longer than a lock
/// lives, someone else may have taken it over: [`is_held`](Self::is_held) tells.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct DirLock {
    place: Place,
    /// The lock directory itself. While it is open, no other directory can get its inode number.
    handle: Dir,
    refresher: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl DirLock {
    /// Acquires the lock on a file in a directory, whether or not that file exists.
    ///
    /// Blocks for up to `options.wait`: async code calls this on a blocking thread.
    pub fn acquire(dir: &Dir, name: &str, options: LockOptions) -> Result<Self, LockError> {
        check_name(name)?;
        let place = Place::new(dir.clone(), name);
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(handle) = place.try_make()? {
                return Self::hold(place, handle, options.refresh);
            }
            let Some(found) = place.stamp()? else { continue };
            if place.is_abandoned(&found) && place.take_over()? {
                continue;
            }
            let Some(left) = options.wait.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                let holder = place.holder_of(&found).map(|owner| owner.to_string());
                return Err(LockError::Busy { path: place.path(), waited: start.elapsed(), holder });
            };
            thread::sleep(random_between(SHORTEST_PAUSE, pause).min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether the lock is still ours. Worth asking before the last step of a long piece of work.
    pub fn is_held(&self) -> bool {
        self.place.is_at(&self.handle)
    }

    fn hold(place: Place, handle: Dir, refresh: Duration) -> Result<Self, LockError> {
        // Made first, so that a failure below releases the lock.
        let mut lock = Self { place: place.clone(), handle: handle.clone(), refresher: None };
        place.write_holder(&handle);
        let (stop, stopped) = sync_channel(0);
        let keep_fresh = move || {
            while stopped.recv_timeout(refresh) == Err(RecvTimeoutError::Timeout) {
                place.refresh(&handle);
            }
        };
        let thread = thread::Builder::new().name("lock-refresh".to_owned()).spawn(keep_fresh);
        let thread = thread.map_err(lock.place.dir.io("keep", &lock.place.lock_name))?;
        lock.refresher = Some((stop, thread));
        Ok(lock)
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.refresher.take() {
            drop(stop);
            // The thread has nothing to say, and a panic in it was already reported.
            let _ = thread.join();
        }
        if self.is_held() {
            self.place.release();
        }
    }
}

/// Where a lock is, held or not.
#[derive(Debug, Clone)]
struct Place {
    dir: Dir,
    lock_name: String,
    holder_name: String,
}

impl Place {
    fn new(dir: Dir, name: &str) -> Self {
        Self { dir, lock_name: format!("{name}.lock"), holder_name: format!("{name}.lock-holder") }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(&self.lock_name)
    }

    /// Makes the lock directory and opens it; `None` when it is there already.
    fn try_make(&self) -> Result<Option<Dir>, FileError> {
        // The mode is the one that Node uses: the umask of whoever makes it decides.
        match rustix::fs::mkdirat(self.dir.as_fd(), &*self.lock_name, Mode::from_bits_truncate(0o777)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(self.dir.io("make", &self.lock_name)(error)),
        }
        // When it is gone again, someone has removed it at once, and then it is not ours.
        self.dir.subdir(&self.lock_name).inspect_err(|_| self.remove_dir(&self.lock_name))
    }

    fn stamp(&self) -> Result<Option<DirStamp>, FileError> {
        self.dir.subdir_stamp(&self.lock_name)
    }

    /// Whether the lock is this very directory.
    fn is_at(&self, handle: &Dir) -> bool {
        match (handle.stamp(), self.stamp()) {
            (Ok(ours), Ok(Some(found))) => ours.inode == found.inode,
            _ => false,
        }
    }

    /// Sets the time of our own lock anew, which touches nobody else's even when ours was lost.
    fn refresh(&self, handle: &Dir) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        match rustix::fs::futimens(handle.as_fd(), &Timestamps { last_access: now, last_modification: now }) {
            Ok(()) if self.is_at(handle) => self.write_holder(handle),
            Ok(()) => tracing::warn!(lock = %self.path().display(), "the lock was lost"),
            Err(error) => tracing::warn!(lock = %self.path().display(), %error, "cannot keep the lock fresh"),
        }
    }

    /// Writes down who holds the lock. The lock holds without it, so that a failure only costs time.
    fn write_holder(&self, handle: &Dir) {
        let written = handle.stamp().and_then(|stamp| {
            let text = format!("{}\n{}\n", Owner::this_process(), mark(&stamp));
            self.dir.replace_with(&self.holder_name, text.as_bytes(), 0o644, Durability::Later)
        });
        if let Err(error) = written {
            tracing::debug!(lock = %self.path().display(), %error, "cannot write down who holds the lock");
        }
    }

    /// The owner that wrote down that it holds this very lock; `None` for anyone else's.
    fn holder_of(&self, lock: &DirStamp) -> Option<Owner> {
        let contents = self.dir.read(&self.holder_name, HOLDER_LIMIT).ok().flatten()?;
        let (owner, of_lock) = str::from_utf8(&contents.bytes).ok()?.trim_end().split_once('\n')?;
        owner.parse().ok().filter(|_| of_lock == mark(lock))
    }

    /// Whether the lock belongs to nobody: its time is old, or its owner is gone.
    fn is_abandoned(&self, lock: &DirStamp) -> bool {
        is_stale(lock) || self.holder_of(lock).is_some_and(|owner| owner.is_gone())
    }

    /// Removes an abandoned lock; `false` when someone else is about to, or it is not abandoned.
    ///
    /// The lock is first renamed, which only one can do, and looked at again under its new name: it
    /// may have been replaced by a fresh one since it was found to be abandoned.
    fn take_over(&self) -> Result<bool, FileError> {
        // Where the file system cannot lock a directory, the look after the renaming has to do.
        let turn = self.take_turn();
        if matches!(turn, Err(Errno::WOULDBLOCK)) {
            return Ok(false);
        }
        let Some(before) = self.stamp()? else { return Ok(true) };
        if !self.is_abandoned(&before) {
            return Ok(false);
        }
        let aside = format!("{}.stale-{:016x}", self.lock_name, fastrand::u64(..));
        match rustix::fs::renameat(self.dir.as_fd(), &*self.lock_name, self.dir.as_fd(), &*aside) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(self.dir.io("take over", &self.lock_name)(error)),
        }
        let is_same = self.dir.subdir_stamp(&aside)?.is_some_and(|after| mark(&after) == mark(&before));
        if !is_same && self.put_back(&aside) {
            return Ok(false);
        }
        self.remove_dir(&aside);
        Ok(true)
    }

    /// Keeps others of us from taking over a lock in this directory for as long as the handle lives.
    ///
    /// Two that take over at once could each remove the other's fresh lock.
    fn take_turn(&self) -> Result<OwnedFd, Errno> {
        // A handle of its own, because those who share one also share its lock.
        let handle = rustix::fs::openat(self.dir.as_fd(), ".", DIR_FLAGS, Mode::empty())?;
        rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
        Ok(handle)
    }

    /// Gives a lock its name back, unless that name is taken again or the file system cannot tell.
    fn put_back(&self, aside: &str) -> bool {
        let dir = self.dir.as_fd();
        rustix::fs::renameat_with(dir, aside, dir, &*self.lock_name, RenameFlags::NOREPLACE).is_ok()
    }

    /// Removes a lock that is ours. The holder file goes first, while nobody else can write it.
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

/// What tells one lock directory from another: its inode number and its time.
///
/// The number alone would not do, because a new directory often gets the number of the last one
/// that was removed.
fn mark(stamp: &DirStamp) -> String {
    format!("{} {}", stamp.inode, stamp.mtime_ns)
}

/// Whether a lock's time is so old that it belongs to nobody. A time yet to come is as good as now.
#[expect(clippy::disallowed_methods, reason = "the age of a lock counts from the clock that set its time")]
fn is_stale(lock: &DirStamp) -> bool {
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
