//! Answer leases, which ensure that each message gets one answer from all watchers that share the folder.
//!
//! A lease is a file `signals/claims/{agent}/{message}.json`. Only one process can create the file, so of all watchers
//! of an agent, on any host, only one holds the lease. The answer is stored in the lease before it is posted, with its
//! final id. A watcher that takes over from a dead one posts that answer, or finds it already posted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use switchboard_sys::files::{Created, Dir, Durability, FileError};
use switchboard_sys::lock::{DirLock, LockError, LockOptions};
use switchboard_sys::process_identity::ProcessIdentity;

use crate::wire::{ChannelMessage, pretty};

/// Maximum size of a lease file, larger than any answer.
const LIMIT: u64 = 32 << 20;

/// How long completed leases are retained. Older messages are not answered any more.
const KEPT: SignedDuration = SignedDuration::from_hours(24 * 7);

/// Timeout of the lock under which another process takes over the same lease.
const TURN: Duration = Duration::from_secs(2);

/// File mode of leases, which everyone who shares the folder must be able to read.
const MODE: u32 = 0o644;

/// Content of a lease file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LeaseFile {
    /// Process that holds the lease.
    owner: String,
    /// Unique token that distinguishes this lease from any other on the message.
    token: String,
    /// Time at which the lease expires, on any host.
    until: Timestamp,
    /// True once the message is handled.
    done: bool,
    /// The answer, once it is stored.
    reply: Option<Box<ChannelMessage>>,
}

/// Exclusive right to answer one message.
#[derive(Debug)]
pub(super) struct AnswerLease {
    dir: Dir,
    name: String,
    file: LeaseFile,
}

/// Result of an attempt to acquire a lease.
#[derive(Debug)]
pub(super) enum Acquisition {
    /// This watcher holds the lease.
    Acquired(AnswerLease),
    /// Another watcher holds the lease.
    Busy,
    /// The message has been answered.
    Done,
}

impl AnswerLease {
    /// Acquires the lease on a message for the duration `lease`, the longest run of the program. Blocks.
    ///
    /// `watcher` identifies the watcher. A watcher answers one message at a time, so an unreleased lease of its own is
    /// one that it lost, for example when the folder was unmounted.
    pub(super) fn acquire(
        dir: &Dir,
        message: &str,
        now: Timestamp,
        lease: SignedDuration,
        watcher: &str,
    ) -> Result<Acquisition, FileError> {
        let name = format!("{message}.json");
        let mut file = LeaseFile {
            owner: ProcessIdentity::this_process().to_string(),
            token: format!("{watcher}-{:032x}", fastrand::u128(..)),
            until: now.saturating_add(lease).unwrap_or(now),
            done: false,
            reply: None,
        };
        loop {
            // Written without fsync: a lease lost in a power failure is acquired again, and an answer that was already
            // posted is found then.
            if dir.create_new(&name, &pretty(&file), Durability::Unsynced)? == Created::Created {
                return Ok(Acquisition::Acquired(Self { dir: dir.clone(), name, file }));
            }
            match read_state(dir, &name, now, watcher)? {
                None => {}
                Some(LeaseState::Held) => return Ok(Acquisition::Busy),
                Some(LeaseState::Done) => return Ok(Acquisition::Done),
                Some(LeaseState::Abandoned(_)) => break,
            }
        }
        // Taking over a lease reads and then writes the file, so it needs a lock.
        let _turn = match DirLock::acquire(dir, &name, LockOptions { wait: TURN, ..LockOptions::default() }) {
            Ok(turn) => turn,
            Err(LockError::Busy { .. }) => return Ok(Acquisition::Busy),
            Err(LockError::Io(error)) => return Err(error),
        };
        match read_state(dir, &name, now, watcher)? {
            Some(LeaseState::Abandoned(reply)) => file.reply = reply,
            Some(LeaseState::Done) => return Ok(Acquisition::Done),
            // The lease was released or acquired by another process a moment ago; the next round decides.
            Some(LeaseState::Held) | None => return Ok(Acquisition::Busy),
        }
        dir.replace(&name, &pretty(&file), MODE)?;
        Ok(Acquisition::Acquired(Self { dir: dir.clone(), name, file }))
    }

    /// Returns the answer that the previous holder of the lease stored.
    pub(super) fn reply(&self) -> Option<&ChannelMessage> {
        self.file.reply.as_deref()
    }

    /// Stores the answer before it is posted; returns false if the lease was lost. Blocks.
    pub(super) fn store_answer(&mut self, reply: ChannelMessage) -> Result<bool, FileError> {
        self.file.reply = Some(Box::new(reply));
        self.write(Durability::Synced)
    }

    /// Marks the message as handled. Blocks.
    pub(super) fn complete(mut self) -> Result<(), FileError> {
        self.file.done = true;
        // Remove the answer, which is now in the channel; only the completed lease is still needed.
        self.file.reply = None;
        self.write(Durability::Unsynced).map(drop)
    }

    /// Releases the lease, so that the message can be answered later. Blocks.
    pub(super) fn release(self) -> Result<(), FileError> {
        if self.is_held()? {
            self.dir.remove(&self.name)?;
        }
        Ok(())
    }

    /// Returns true if no other process took over the lease: this process may have been suspended for longer than the
    /// lease.
    fn is_held(&self) -> Result<bool, FileError> {
        let found = self.dir.read(&self.name, LIMIT)?;
        let found = found.and_then(|found| serde_json::from_slice::<LeaseFile>(&found.bytes).ok());
        Ok(found.is_some_and(|found| found.token == self.file.token))
    }

    fn write(&self, durability: Durability) -> Result<bool, FileError> {
        let is_held = self.is_held()?;
        if is_held {
            self.dir.replace_with(&self.name, &pretty(&self.file), MODE, durability)?;
        }
        Ok(is_held)
    }
}

/// State of an existing lease.
enum LeaseState {
    Held,
    Done,
    /// No process holds the lease any more; contains the stored answer, if any.
    Abandoned(Option<Box<ChannelMessage>>),
}

/// Reads the state of a lease; returns `None` if it does not exist.
fn read_state(dir: &Dir, name: &str, now: Timestamp, watcher: &str) -> Result<Option<LeaseState>, FileError> {
    let Some(found) = dir.read(name, LIMIT)? else { return Ok(None) };
    let is_own = |lease: &LeaseFile| lease.token.split_once('-').is_some_and(|(by, _)| by == watcher);
    Ok(Some(match serde_json::from_slice::<LeaseFile>(&found.bytes) {
        Ok(lease) if lease.done => LeaseState::Done,
        Ok(lease) if is_own(&lease) || is_abandoned(&lease, now) => LeaseState::Abandoned(lease.reply),
        Ok(_) => LeaseState::Held,
        // A lease that cannot be parsed has no holder.
        Err(_) => LeaseState::Abandoned(None),
    }))
}

/// Returns true if the lease has expired, or its holder's process on this host has ended.
fn is_abandoned(lease: &LeaseFile, now: Timestamp) -> bool {
    lease.until <= now || lease.owner.parse::<ProcessIdentity>().is_ok_and(|owner| owner.has_exited())
}

/// Removes leases of messages that are too old to be answered, and temporary files of killed watchers.
pub(super) fn clear_old(dir: &Dir, now: Timestamp) -> Result<(), FileError> {
    dir.clear_stale_temps(now)?;
    let oldest = now.as_nanosecond().saturating_sub(KEPT.as_nanos());
    for name in dir.names()? {
        if dir.stat(&name)?.is_some_and(|lease| lease.is_regular && lease.mtime_ns < oldest) {
            dir.remove(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
