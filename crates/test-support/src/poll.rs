//! Polling with a timeout, for conditions that depend on another process.

use std::time::{Duration, Instant};

/// Time limit for conditions that should become true.
///
/// It is long enough for a two-core machine that runs all other tests at the same time, and short enough for a failing
/// test.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Poll interval.
const PAUSE: Duration = Duration::from_millis(5);

/// Polls until `look` returns a value; panics with `what` after [`TIMEOUT`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(TIMEOUT, look).unwrap_or_else(|| panic!("waited {TIMEOUT:?} in vain: {what}"))
}

/// Polls until `look` returns a value; returns `None` after the time limit.
pub fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
