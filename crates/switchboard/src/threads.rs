//! Separate threads for a door that does expensive work for strangers.

use std::num::NonZero;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum number of threads. Their results are written by a single other thread, which is saturated long before more
/// threads would help.
const MOST: usize = 4;

/// Threads for blocking work on files.
const WAITING_THREADS: usize = 4;

/// Timeout for pending writes at shutdown.
const GRACE: Duration = Duration::from_secs(1);

/// A second runtime with a thread per core, up to a maximum. Dropping it ends the threads.
#[derive(Debug)]
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    pub(crate) fn start(name: &str) -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.min(MOST))
            .max_blocking_threads(WAITING_THREADS)
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Returns the handle that spawns tasks on these threads.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }

    /// Shuts the threads down once no write is pending.
    pub(crate) async fn end(mut self) {
        if let Some(runtime) = self.0.take() {
            // The shutdown blocks, so it must not run in an async task.
            let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(GRACE)).await;
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
