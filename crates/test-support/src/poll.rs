//! Polling with a timeout for something that another process does.

use std::time::{Duration, Instant};

/// Long enough for a machine of two cores that runs all other tests beside, short enough for a test that fails.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Poll interval.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until there is something; panics with `what` once [`TIMEOUT`] is over.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(TIMEOUT, look).unwrap_or_else(|| panic!("waited {TIMEOUT:?} in vain: {what}"))
}

/// Looks until there is something or the time is over.
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
