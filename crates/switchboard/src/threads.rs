//! Separate threads for a door that works hard for strangers.

use std::num::NonZero;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Most threads: their results are written by one other thread, which is busy long before more could be.
const MOST: usize = 4;

/// Threads for blocking work on files.
const WAITING_THREADS: usize = 4;

/// How long pending writes may take at the end.
const GRACE: Duration = Duration::from_secs(1);

/// A second runtime with a thread per core. Dropping it ends the threads.
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

    /// Returns the handle that spawns tasks on them.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }

    /// Ends them once no write is pending.
    pub(crate) async fn end(mut self) {
        if let Some(runtime) = self.0.take() {
            // It blocks, which a task must not do.
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
