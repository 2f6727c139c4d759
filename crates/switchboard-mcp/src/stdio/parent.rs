//! Noticing that the program which started us is gone.

use std::time::Duration;

use rustix::process::getppid;
use tokio::time::{MissedTickBehavior, interval};

/// How often to look. Twice within the second that is left of the two in which the server has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Ends when the process that is our parent now has ended.
///
/// The end of stdin tells the same in most cases, but not where the parent was killed and another of its
/// children still holds the pipe. A process whose parent ends gets another one, on every Unix; there is no
/// event for it, so this is found by looking. Only the parent itself is watched: an ancestor further up may
/// end for good reasons, as a launcher does that starts an editor in the background.
pub(crate) fn wait_for_exit() -> impl Future<Output = ()> {
    // Asked at once, not when somebody begins to wait: by then it may be another.
    let parent = getppid();
    async move {
        if parent.is_none() {
            // Inside a container the parent can be a process outside, which has no number here.
            return std::future::pending().await;
        }
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while getppid() == parent {
            ticks.tick().await;
        }
    }
}
