//! Event loops for HTTP connections, each on a thread of its own.
//!
//! A connection stays on its loop, and a session on the loop of its first request. Thus the calls of a session begin in the
//! order in which they came, while those of other sessions run on other cores.

use std::num::NonZero;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// More loops gain nothing: one writer thread serves them all.
const MAX_LOOPS: usize = 4;

/// How long blocking work may go on at the end.
const GRACE: Duration = Duration::from_secs(1);

/// A loop for each core. They end with this value.
#[derive(Debug)]
pub struct EventLoops {
    loops: Vec<(Handle, JoinHandle<()>)>,
    stopping: CancellationToken,
}

impl EventLoops {
    /// Starts them. `waiting_threads` is how many threads of each loop may wait for files and for the database.
    pub fn start(waiting_threads: usize) -> std::io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let mut started = Self { loops: Vec::new(), stopping: CancellationToken::new() };
        for _ in 0..cores.min(MAX_LOOPS) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(waiting_threads)
                .thread_name("switchboard-http")
                .build()?;
            let (handle, stopping) = (runtime.handle().clone(), started.stopping.clone());
            let thread = thread::Builder::new().name("switchboard-http".to_owned()).spawn(move || {
                runtime.block_on(stopping.cancelled());
                runtime.shutdown_timeout(GRACE);
            })?;
            started.loops.push((handle, thread));
        }
        Ok(started)
    }

    /// What starts tasks on each.
    pub fn handles(&self) -> Vec<Handle> {
        self.loops.iter().map(|(handle, _)| handle.clone()).collect()
    }

    /// Ends them, and with them all tasks that were started there.
    pub async fn end(mut self) {
        self.stopping.cancel();
        let loops = std::mem::take(&mut self.loops);
        let joined = tokio::task::spawn_blocking(move || {
            for (_, thread) in loops {
                // A panic was reported when it happened.
                let _ = thread.join();
            }
        });
        let _ = joined.await;
    }
}

impl Drop for EventLoops {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}
