//! Detection of the end of the parent process.

use std::time::Duration;

use rustix::process::getppid;
use tokio::time::{MissedTickBehavior, interval};

/// Poll interval. The server has to exit within two seconds, of which one remains for this, so two polls fit.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits until the current parent process has ended.
///
/// The end of stdin usually indicates the same, except when the parent was killed and another of its children still
/// holds the pipe. On all Unix systems, a process whose parent ends gets a new parent. There is no event for that, so
/// this function polls. Only the direct parent is watched: an ancestor may end for good reasons, for example a launcher
/// that starts an editor in the background.
pub(crate) fn wait_for_exit() -> impl Future<Output = ()> {
    // Read the parent's pid immediately, not at the first poll of the future, because the parent could have changed by
    // then.
    let parent = getppid();
    async move {
        if parent.is_none() {
            // In a container, the parent can be a process outside the PID namespace, which has no pid here.
            return std::future::pending().await;
        }
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while getppid() == parent {
            ticks.tick().await;
        }
    }
}
