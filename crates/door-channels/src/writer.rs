//! Writer of channel messages, which overwrites no file and preserves the order of each sender.
//!
//! The four digits of a name are a counter under a monotonic clock: the second, then the number within it. A file gets
//! its name by a hard link, which fails if the name exists; then the next number is tried. No lock is needed, so a
//! writer that dies leaves no lock behind.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use switchboard_core::Name;
use switchboard_sys::files::{Created, Dir, Durability, FileError};

use crate::ids::{MessageName, PER_SECOND, file_name, number_of, second_of};
use crate::wire::{ChannelMessage, iso};

/// Writer of channel messages, with each agent's last message time in each channel, in this process.
#[derive(Debug, Default)]
pub(crate) struct ChannelWriter {
    last: Mutex<HashMap<(Name, String), MessageTime>>,
}

/// Monotonic time of a message: a time, and a number within its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageTime {
    at: Timestamp,
    number: u32,
}

impl MessageTime {
    fn first(at: Timestamp) -> Self {
        Self { at, number: 0 }
    }

    /// Returns the next message time at `now`, later than this one by name and by time.
    fn next(self, now: Timestamp) -> Self {
        let at = self.at.max(now);
        if at.as_second() > self.at.as_second() { Self::first(at) } else { Self { at, ..self }.skip(1) }
    }

    /// Adds `by` to the number. After the last number of a second, the next second begins.
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
    /// Returns true if this process has posted for the agent in the channel. Only then does it know the last message
    /// time.
    pub(crate) fn has_posted(&self, channel: &Name, agent: &str) -> bool {
        self.last.lock().contains_key(&(channel.clone(), agent.to_owned()))
    }

    /// Makes an agent's next message sort after the message `id`, which another process wrote.
    pub(crate) fn resume_after(&self, channel: &Name, agent: &str, id: &str) {
        let (Some(second), Some(number)) = (second_of(id), number_of(id)) else { return };
        // The name has no fraction of the second, so assume the end of the second, which sorts after every message in
        // it.
        let at = second.saturating_add(SignedDuration::from_millis(999)).unwrap_or(second);
        self.last.lock().entry((channel.clone(), agent.to_owned())).or_insert(MessageTime { at, number });
    }

    /// Writes a message under the agent's next free name, and sets its id and time.
    ///
    /// On return the file and its name are on disk. Blocks.
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

    /// Sets a message's id and time to the next ones that are probably free. Creating the file shows whether they are.
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

/// Finds a free number from `stamp` on by doubling steps and bisection.
///
/// Other writers of the agent count from 0 in every second, so many numbers may be taken. Checks single names, because
/// listing a channel takes time in proportion to its history.
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
    // Bisect between the last taken and the first free number.
    while taken.skip(1) != free && taken.at == free.at {
        let middle = taken.skip((free.number - taken.number) / 2);
        if is_taken(middle)? { taken = middle } else { free = middle }
    }
    Ok(free)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
