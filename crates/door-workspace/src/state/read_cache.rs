//! Cache of `state.json`, so that an unchanged file is not read again.
//!
//! Every tool call reads the file several times, and other programs may change it between two reads. So a fingerprint
//! of the file validates the cache, never its age.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use switchboard_sys::clock::Clock;
use switchboard_sys::files::FileStat;

/// Upper bound of the timestamp granularity of file systems, in nanoseconds.
///
/// A file that changed less than this time before the read may change again without a new timestamp, so its content is
/// not cached.
const TICK: i128 = 50_000_000;

/// Cache of the last content read. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadCache {
    cached: Arc<Mutex<Option<Reading>>>,
}

#[derive(Debug)]
struct Reading {
    stamp: FileStat,
    state: Arc<Map<String, Value>>,
}

impl ReadCache {
    /// Returns the cached content if the file's fingerprint is unchanged.
    pub(super) fn get(&self, stamp: FileStat) -> Option<Arc<Map<String, Value>>> {
        let cached = self.cached.lock();
        cached.as_ref().filter(|reading| reading.stamp == stamp).map(|reading| reading.state.clone())
    }

    /// Stores content that was read from the file with this fingerprint.
    pub(super) fn store(&self, stamp: FileStat, state: &Arc<Map<String, Value>>) {
        // Compare with the system clock, which also sets file times; tests may set the hub's clock.
        let age = Clock::system().now().as_nanosecond() - stamp.mtime_ns;
        let reading = Reading { stamp, state: state.clone() };
        *self.cached.lock() = (age > TICK).then_some(reading);
    }
}

#[cfg(test)]
#[path = "read_cache_tests.rs"]
mod tests;
