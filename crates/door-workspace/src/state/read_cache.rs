//! The last reading of `state.json`: a file that has not changed since is not read again.
//!
//! Every tool call asks what the file says, several times, and other programs may change it between any two
//! of them. So what tells whether a reading still holds is the file's stamp, never its age.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use switchboard_sys::clock::Clock;
use switchboard_sys::files::FileStamp;

/// A file that was changed less than this before it was read may change once more without another time:
/// file systems count in ticks. Such a reading is not cached.
const TICK: i128 = 50_000_000;

/// The last reading. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadCache {
    cached: Arc<Mutex<Option<Reading>>>,
}

#[derive(Debug)]
struct Reading {
    stamp: FileStamp,
    state: Arc<Map<String, Value>>,
}

impl ReadCache {
    /// What the file says, where it is the one that was read.
    pub(super) fn get(&self, stamp: FileStamp) -> Option<Arc<Map<String, Value>>> {
        let cached = self.cached.lock();
        cached.as_ref().filter(|reading| reading.stamp == stamp).map(|reading| reading.state.clone())
    }

    /// Keeps what was just read from the file that had this stamp before.
    pub(super) fn store(&self, stamp: FileStamp, state: &Arc<Map<String, Value>>) {
        // By the system's clock, which the stamp is from as well; the hub's may be set by hand.
        let age = Clock::system().now().as_nanosecond() - stamp.mtime_ns;
        let reading = Reading { stamp, state: state.clone() };
        *self.cached.lock() = (age > TICK).then_some(reading);
    }
}

#[cfg(test)]
#[path = "read_cache_tests.rs"]
mod tests;
