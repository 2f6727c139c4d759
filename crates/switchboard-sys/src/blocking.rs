//! Blocking work: on a thread pool, or inline in a short-lived command.
//!
//! A server runs file and database work off its event loop, because a slow disk must not block other clients. A command
//! such as `switchboard send` has no other clients: starting threads and switching between them would cost more than the
//! work.

use std::sync::atomic::{AtomicBool, Ordering};

/// Returns true if blocking work runs on the calling thread.
static IS_INLINE: AtomicBool = AtomicBool::new(false);

/// Error of blocking work that did not finish.
///
/// The work panicked, or the runtime shut down first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work was cancelled")]
pub struct Cancelled;

/// Switches all blocking work of this process to the calling thread.
///
/// This includes the writer of a hub that is opened later. The function is for a process that handles one request and
/// exits.
pub fn run_inline() {
    IS_INLINE.store(true, Ordering::Relaxed);
}

/// True if blocking work runs on the calling thread.
pub fn is_inline() -> bool {
    IS_INLINE.load(Ordering::Relaxed)
}

/// Runs blocking `work` without blocking the event loop of a server.
///
/// The work may wait for a file, a lock or the disk.
pub async fn run<T, F>(work: F) -> Result<T, Cancelled>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    run_boxed(Box::new(work)).await
}

/// Implements [`run`] for a boxed closure, so that it is compiled once per result type and not per closure.
async fn run_boxed<T: Send + 'static>(work: Box<dyn FnOnce() -> T + Send>) -> Result<T, Cancelled> {
    if is_inline() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| Cancelled)
}
