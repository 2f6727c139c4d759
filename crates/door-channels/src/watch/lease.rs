//! One message, one answer: which watcher is at which message, in the shared folder.
//!
//! A claim is a file `signals/claims/{agent}/{message}.json`, made under a name that was free, so that of all
//! watchers of an agent, on whichever hosts, one has it. The answer is written into the claim before it is
//! posted, under the very name it will have: whoever takes over from one that died posts that, and finds it
//! where it was posted already.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use switchboard_sys::files::{Created, Dir, Durability, FileError};
use switchboard_sys::lock::{DirLock, LockError, LockOptions};
use switchboard_sys::owner::Owner;

use crate::wire::{ChannelMessage, pretty};

/// Larger than any answer that is posted.
const LIMIT: u64 = 32 << 20;

/// For how long a claim that is done with is kept: messages that old are not answered any more.
const KEPT: SignedDuration = SignedDuration::from_hours(24 * 7);

/// For how long to wait while somebody else takes the same claim over.
const TURN: Duration = Duration::from_secs(2);

/// Whoever shares the folder must be able to see who is at what.
const MODE: u32 = 0o644;

/// What is known of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LeaseFile {
    /// The process that has it.
    owner: String,
    /// Tells this claim from any other on the same message.
    token: String,
    /// When it counts as abandoned, wherever its process is.
    until: Timestamp,
    /// Whether the message is done with.
    done: bool,
    /// The answer, once there is one.
    reply: Option<Box<ChannelMessage>>,
}

/// The right to answer one message.
#[derive(Debug)]
pub(super) struct AnswerLease {
    dir: Dir,
    name: String,
    file: LeaseFile,
}

/// What became of an attempt to take a message on.
#[derive(Debug)]
pub(super) enum Acquisition {
    /// It is ours.
    Acquired(AnswerLease),
    /// Another watcher is at it.
    Busy,
    /// It has been answered.
    Done,
}

impl AnswerLease {
    /// Takes a message on, for as long as a call of the program may take. Blocks.
    ///
    /// `watcher` tells one watcher from all others. It is at one message at a time, so that a claim of its own that it did
    /// not give back is one that it lost, as where the folder was unmounted meanwhile.
    pub(super) fn acquire(
        dir: &Dir,
        message: &str,
        now: Timestamp,
        lease: SignedDuration,
        watcher: &str,
    ) -> Result<Acquisition, FileError> {
        let name = format!("{message}.json");
        let mut file = LeaseFile {
            owner: Owner::this_process().to_string(),
            token: format!("{watcher}-{:032x}", fastrand::u128(..)),
            until: now.saturating_add(lease).unwrap_or(now),
            done: false,
            reply: None,
        };
        loop {
            // A claim that a power failure takes is made again; an answer that was posted is found then.
            if dir.create_new(&name, &pretty(&file), Durability::Later)? == Created::Created {
                return Ok(Acquisition::Acquired(Self { dir: dir.clone(), name, file }));
            }
            match read_state(dir, &name, now, watcher)? {
                None => {}
                Some(LeaseState::Held) => return Ok(Acquisition::Busy),
                Some(LeaseState::Done) => return Ok(Acquisition::Done),
                Some(LeaseState::Abandoned(_)) => break,
            }
        }
        // Taking over is looking and writing, and nobody must come between the two.
        let _turn = match DirLock::acquire(dir, &name, LockOptions { wait: TURN, ..LockOptions::default() }) {
            Ok(turn) => turn,
            Err(LockError::Busy { .. }) => return Ok(Acquisition::Busy),
            Err(LockError::Io(error)) => return Err(error),
        };
        match read_state(dir, &name, now, watcher)? {
            Some(LeaseState::Abandoned(reply)) => file.reply = reply,
            Some(LeaseState::Done) => return Ok(Acquisition::Done),
            // Given back or taken a moment ago: the next look will tell.
            Some(LeaseState::Held) | None => return Ok(Acquisition::Busy),
        }
        dir.replace(&name, &pretty(&file), MODE)?;
        Ok(Acquisition::Acquired(Self { dir: dir.clone(), name, file }))
    }

    /// The answer that whoever had this before had come to.
    pub(super) fn reply(&self) -> Option<&ChannelMessage> {
        self.file.reply.as_deref()
    }

    /// Writes the answer down before it is posted; false where the claim was lost. Blocks.
    pub(super) fn store_answer(&mut self, reply: ChannelMessage) -> Result<bool, FileError> {
        self.file.reply = Some(Box::new(reply));
        self.write(Durability::Synced)
    }

    /// Notes that the message is done with. Blocks.
    pub(super) fn complete(mut self) -> Result<(), FileError> {
        self.file.done = true;
        // The answer is in the channel now, and a claim is kept for its name alone.
        self.file.reply = None;
        self.write(Durability::Later).map(drop)
    }

    /// Gives the message back, to be taken on again. Blocks.
    pub(super) fn release(self) -> Result<(), FileError> {
        if self.is_held()? {
            self.dir.remove(&self.name)?;
        }
        Ok(())
    }

    /// Whether nobody has taken it over: this process may have been asleep for longer than the lease.
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

/// How a claim stands that somebody made.
enum LeaseState {
    Held,
    Done,
    /// Nobody is at it any more; the answer, where there was one.
    Abandoned(Option<Box<ChannelMessage>>),
}

/// How the claim of this name stands; nothing where there is none.
fn read_state(dir: &Dir, name: &str, now: Timestamp, watcher: &str) -> Result<Option<LeaseState>, FileError> {
    let Some(found) = dir.read(name, LIMIT)? else { return Ok(None) };
    let is_own = |lease: &LeaseFile| lease.token.split_once('-').is_some_and(|(by, _)| by == watcher);
    Ok(Some(match serde_json::from_slice::<LeaseFile>(&found.bytes) {
        Ok(lease) if lease.done => LeaseState::Done,
        Ok(lease) if is_own(&lease) || is_abandoned(&lease, now) => LeaseState::Abandoned(lease.reply),
        Ok(_) => LeaseState::Held,
        // One that cannot be read is nobody's.
        Err(_) => LeaseState::Abandoned(None),
    }))
}

/// Whether nobody is at it any more: its process has ended on this host, or its time is over.
fn is_abandoned(lease: &LeaseFile, now: Timestamp) -> bool {
    lease.until <= now || lease.owner.parse::<Owner>().is_ok_and(|owner| owner.is_gone())
}

/// Removes what is so old that its message is not answered any more, and what a watcher that was killed left unfinished.
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
