//! Threads of its own for a door that works hard for strangers.

use std::num::NonZero;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Most threads: what they find out is written down by one other, which is busy long before more could be.
const MOST: usize = 4;

/// How many threads may wait for files at once; what is beyond that waits its turn.
const WAITING_THREADS: usize = 4;

/// How long what is still being written may take at the end.
const GRACE: Duration = Duration::from_secs(1);

/// A runtime beside the program's own, with a thread for each core. It ends with this value.
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

    /// What starts tasks on them.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }

    /// Ends them once nothing is being written any more.
    pub(crate) async fn end(mut self) {
        if let Some(runtime) = self.0.take() {
            // It waits, which a task must not do.
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
