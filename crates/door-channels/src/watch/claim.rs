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
struct ClaimFile {
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
pub(super) struct Claim {
    dir: Dir,
    name: String,
    file: ClaimFile,
}

/// What became of an attempt to take a message on.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is ours.
    Ours(Claim),
    /// Another watcher is at it.
    Busy,
    /// It has been answered.
    Done,
}

impl Claim {
    /// Takes a message on, for as long as a call of the program may take. Blocks.
    ///
    /// `watcher` tells one watcher from all others. It is at one message at a time, so that a claim of its own that it did
    /// not give back is one that it lost, as where the folder was unmounted meanwhile.
    pub(super) fn take(
        dir: &Dir,
        message: &str,
        now: Timestamp,
        lease: SignedDuration,
        watcher: &str,
    ) -> Result<Taken, FileError> {
        let name = format!("{message}.json");
        let mut file = ClaimFile {
            owner: Owner::this_process().to_string(),
            token: format!("{watcher}-{:032x}", fastrand::u128(..)),
            until: now.saturating_add(lease).unwrap_or(now),
            done: false,
            reply: None,
        };
        loop {
            // A claim that a power failure takes is made again; an answer that was posted is found then.
            if dir.create_new(&name, &pretty(&file), Durability::Later)? == Created::Created {
                return Ok(Taken::Ours(Self { dir: dir.clone(), name, file }));
            }
            match standing(dir, &name, now, watcher)? {
                None => {}
                Some(Standing::Held) => return Ok(Taken::Busy),
                Some(Standing::Done) => return Ok(Taken::Done),
                Some(Standing::Abandoned(_)) => break,
            }
        }
        // Taking over is looking and writing, and nobody must come between the two.
        let _turn = match DirLock::acquire(dir, &name, LockOptions { wait: TURN, ..LockOptions::default() }) {
            Ok(turn) => turn,
            Err(LockError::Busy { .. }) => return Ok(Taken::Busy),
            Err(LockError::Io(error)) => return Err(error),
        };
        match standing(dir, &name, now, watcher)? {
            Some(Standing::Abandoned(reply)) => file.reply = reply,
            Some(Standing::Done) => return Ok(Taken::Done),
            // Given back or taken a moment ago: the next look will tell.
            Some(Standing::Held) | None => return Ok(Taken::Busy),
        }
        dir.replace(&name, &pretty(&file), MODE)?;
        Ok(Taken::Ours(Self { dir: dir.clone(), name, file }))
    }

    /// The answer that whoever had this before had come to.
    pub(super) fn reply(&self) -> Option<&ChannelMessage> {
        self.file.reply.as_deref()
    }

    /// Writes the answer down before it is posted; false where the claim was lost. Blocks.
    pub(super) fn answer(&mut self, reply: ChannelMessage) -> Result<bool, FileError> {
        self.file.reply = Some(Box::new(reply));
        self.write(Durability::Synced)
    }

    /// Notes that the message is done with. Blocks.
    pub(super) fn done(mut self) -> Result<(), FileError> {
        self.file.done = true;
        // The answer is in the channel now, and a claim is kept for its name alone.
        self.file.reply = None;
        self.write(Durability::Later).map(drop)
    }

    /// Gives the message back, to be taken on again. Blocks.
    pub(super) fn give_back(self) -> Result<(), FileError> {
        if self.is_held()? {
            self.dir.remove(&self.name)?;
        }
        Ok(())
    }

    /// Whether nobody has taken it over: this process may have been asleep for longer than the lease.
    fn is_held(&self) -> Result<bool, FileError> {
        let found = self.dir.read(&self.name, LIMIT)?;
        let found = found.and_then(|found| serde_json::from_slice::<ClaimFile>(&found.bytes).ok());
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
enum Standing {
    Held,
    Done,
    /// Nobody is at it any more; the answer, where there was one.
    Abandoned(Option<Box<ChannelMessage>>),
}

/// How the claim of this name stands; nothing where there is none.
fn standing(dir: &Dir, name: &str, now: Timestamp, watcher: &str) -> Result<Option<Standing>, FileError> {
    let Some(found) = dir.read(name, LIMIT)? else { return Ok(None) };
    let is_own = |claim: &ClaimFile| claim.token.split_once('-').is_some_and(|(by, _)| by == watcher);
    Ok(Some(match serde_json::from_slice::<ClaimFile>(&found.bytes) {
        Ok(claim) if claim.done => Standing::Done,
        Ok(claim) if is_own(&claim) || is_abandoned(&claim, now) => Standing::Abandoned(claim.reply),
        Ok(_) => Standing::Held,
        // One that cannot be read is nobody's.
        Err(_) => Standing::Abandoned(None),
    }))
}

/// Whether nobody is at it any more: its process has ended on this host, or its time is over.
fn is_abandoned(claim: &ClaimFile, now: Timestamp) -> bool {
    claim.until <= now || claim.owner.parse::<Owner>().is_ok_and(|owner| owner.is_gone())
}

/// Removes what is so old that its message is not answered any more, and what a watcher that was killed left unfinished.
pub(super) fn clear_old(dir: &Dir, now: Timestamp) -> Result<(), FileError> {
    dir.clear_stale_temps(now)?;
    let oldest = now.as_nanosecond().saturating_sub(KEPT.as_nanos());
    for name in dir.names()? {
        if dir.stat(&name)?.is_some_and(|claim| claim.is_regular && claim.mtime_ns < oldest) {
            dir.remove(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
