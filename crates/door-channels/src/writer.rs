//! Putting a message into a channel so that no post ever overwrites another, and each sender's order stays.
//!
//! The four digits of a name are a counter under a clock that never goes back: the second, then the number
//! within it. A file gets its name by `link`, which fails where the name is taken, whoever took it; then the
//! next number is tried. No lock is needed, so nothing is left behind by whoever dies.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use switchboard_core::Name;
use switchboard_sys::files::{Created, Dir, Durability, FileError};

use crate::ids::{MessageName, PER_SECOND, file_name, number_of, second_of};
use crate::wire::{ChannelMessage, iso};

/// The moment of the last post of each agent in each channel, by this process.
#[derive(Debug, Default)]
pub(crate) struct ChannelWriter {
    last: Mutex<HashMap<(Name, String), MessageTime>>,
}

/// A moment of the clock that never goes back: a time, and which message of its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageTime {
    at: Timestamp,
    number: u32,
}

impl MessageTime {
    fn first(at: Timestamp) -> Self {
        Self { at, number: 0 }
    }

    /// The next moment at `now`: later than this one by name as well as by time.
    fn next(self, now: Timestamp) -> Self {
        let at = self.at.max(now);
        if at.as_second() > self.at.as_second() { Self::first(at) } else { Self { at, ..self }.skip(1) }
    }

    /// So many messages further on; beyond the last number of a second it is the next second.
    fn skip(self, by: u32) -> Self {
        let number = self.number.saturating_add(by);
        if number < PER_SECOND {
            return Self { number, ..self };
        }
        let next = Timestamp::from_second(self.at.as_second()).unwrap_or(self.at);
        Self::first(next.saturating_add(SignedDuration::from_secs(1)).unwrap_or(next))
    }
}

impl ChannelWriter {
    /// Whether this process has posted for an agent in a channel, and so knows what its next message comes after.
    pub(crate) fn has_posted(&self, channel: &Name, agent: &str) -> bool {
        self.last.lock().contains_key(&(channel.clone(), agent.to_owned()))
    }

    /// Has the next message of an agent come after one that another process wrote, of which the name is known.
    pub(crate) fn resume_after(&self, channel: &Name, agent: &str, id: &str) {
        let (Some(second), Some(number)) = (second_of(id), number_of(id)) else { return };
        // When within the second is not in the name; the end of it comes after everything.
        let at = second.saturating_add(SignedDuration::from_millis(999)).unwrap_or(second);
        self.last.lock().entry((channel.clone(), agent.to_owned())).or_insert(MessageTime { at, number });
    }

    /// Writes a message under the next free name of its agent, and sets its id and time to it.
    ///
    /// The file and its name are on disk on return. Blocks.
    pub(crate) fn post(
        &self,
        dir: &Dir,
        channel: &Name,
        agent: &str,
        now: Timestamp,
        message: &mut ChannelMessage,
    ) -> Result<(), FileError> {
        loop {
            self.name(dir, channel, agent, now, message)?;
            let name = file_name(&message.id);
            if dir.create_new(&name, &message.to_bytes(), Durability::Synced)? == Created::Created {
                return Ok(());
            }
        }
    }

    /// Sets a message's id and time to the next that this process has not used and that look free. Whether the
    /// name is free shows when the file is made.
    pub(crate) fn name(
        &self,
        dir: &Dir,
        channel: &Name,
        agent: &str,
        now: Timestamp,
        message: &mut ChannelMessage,
    ) -> Result<(), FileError> {
        let key = (channel.clone(), agent.to_owned());
        let mut last = self.last.lock();
        let next = last.get(&key).map_or(MessageTime::first(now), |last| last.next(now));
        let stamp = find_free(dir, agent, next)?;
        set_name(message, agent, stamp);
        last.insert(key, stamp);
        Ok(())
    }
}

fn set_name(message: &mut ChannelMessage, agent: &str, stamp: MessageTime) {
    let name = MessageName { second: stamp.at.as_second(), agent: agent.to_owned(), number: stamp.number };
    message.id = name.id();
    message.timestamp = iso(stamp.at);
}

/// The first number from `stamp` on after which no other is taken, as far as a few looks can tell: others of
/// the same agent count from 0 in every second. Looks at single names, since listing a channel takes time in
/// proportion to its whole history.
fn find_free(dir: &Dir, agent: &str, stamp: MessageTime) -> Result<MessageTime, FileError> {
    let is_taken = |stamp: MessageTime| {
        let name =
            MessageName { second: stamp.at.as_second(), agent: agent.to_owned(), number: stamp.number };
        dir.stat(&file_name(&name.id())).map(|found| found.is_some())
    };
    if !is_taken(stamp)? {
        return Ok(stamp);
    }
    let (mut taken, mut step) = (stamp, 1);
    let mut free = taken.skip(step);
    while is_taken(free)? {
        step *= 2;
        (taken, free) = (free, free.skip(step));
    }
    // Between the two lies the end of what is taken.
    while taken.skip(1) != free && taken.at == free.at {
        let middle = taken.skip((free.number - taken.number) / 2);
        if is_taken(middle)? { taken = middle } else { free = middle }
    }
    Ok(free)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
