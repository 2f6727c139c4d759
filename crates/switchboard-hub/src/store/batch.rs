//! Batching of jobs: decides which jobs share a transaction (group commit).

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::store::writer::{Command, Job};

/// Maximum number of jobs in one transaction.
///
/// The number is small enough that under load one batch is synced while the next one runs, and large enough to share
/// the cost of a transaction.
const BATCH: usize = 32;

/// Number of queued jobs from which on a second thread syncs the log.
///
/// The writer continues meanwhile. Fewer jobs share a transaction after the writer's own sync, which is faster than
/// waking a thread for each.
const BUSY_AT: usize = 4;

/// Under load, maximum delay of a job that need not be durable.
///
/// The delay lets the job share a transaction with a message. The outcome of a delivery would otherwise get its own
/// transaction, which costs as much as the message's.
const MAX_DELAY: Duration = Duration::from_millis(2);

/// Queue that receives jobs in batches, one batch per transaction.
pub(crate) struct BatchQueue {
    queue: mpsc::Receiver<Command>,
    waker: Waker,
    max_delay: Duration,
    /// Arrival times of the last two messages, the more recent one first.
    recent: [Option<Instant>; 2],
    is_stopping: bool,
}

impl BatchQueue {
    /// Creates the queue, which the calling thread will read.
    pub(crate) fn new(queue: mpsc::Receiver<Command>) -> Self {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        Self { queue, waker, max_delay: MAX_DELAY, recent: [None; 2], is_stopping: false }
    }

    /// Receives the next batch of jobs; returns an empty batch once the writer has to stop.
    pub(crate) fn next(&mut self) -> Vec<Box<dyn Job>> {
        let mut jobs = Vec::new();
        self.receive(&mut jobs, None);
        self.drain_ready(&mut jobs);
        let now = Instant::now();
        if self.recent[1].is_some_and(|earlier| now < earlier + self.max_delay) {
            let end = now + self.max_delay;
            while !jobs.iter().any(|job| job.needs_sync()) && self.receive(&mut jobs, Some(end)) {}
            self.drain_ready(&mut jobs);
        }
        for _ in jobs.iter().filter(|job| job.needs_sync()).take(2) {
            self.recent = [Some(now), self.recent[0]];
        }
        jobs
    }

    /// Receives the next batch on the event loop. Waits for the first job only, not for further jobs to share the
    /// transaction.
    pub(crate) async fn next_inline(&mut self) -> Vec<Box<dyn Job>> {
        let mut jobs = Vec::new();
        if !self.is_stopping {
            match self.queue.recv().await {
                Some(command) => self.add(command, &mut jobs),
                None => self.is_stopping = true,
            }
        }
        self.drain_ready(&mut jobs);
        jobs
    }

    /// Returns true if so many jobs are queued that a sync thread pays off.
    pub(crate) fn is_busy(&self) -> bool {
        self.queue.len() >= BUSY_AT
    }

    /// Receives the jobs that are already queued, up to the maximum batch size.
    fn drain_ready(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        while !self.is_stopping
            && jobs.len() < BATCH
            && let Ok(command) = self.queue.try_recv()
        {
            self.add(command, jobs);
        }
    }

    /// Waits until `end` for one more job; returns true if a job arrived.
    fn receive(&mut self, jobs: &mut Vec<Box<dyn Job>>, end: Option<Instant>) -> bool {
        if self.is_stopping || jobs.len() >= BATCH {
            return false;
        }
        loop {
            // A wake-up can be spurious, so the thread polls the queue again.
            match self.queue.poll_recv(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(command)) => {
                    self.add(command, jobs);
                    return !self.is_stopping;
                }
                Poll::Ready(None) => {
                    self.is_stopping = true;
                    return false;
                }
                Poll::Pending => {}
            }
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }

    fn add(&mut self, command: Command, jobs: &mut Vec<Box<dyn Job>>) {
        match command {
            Command::Run(job) => jobs.push(job),
            Command::Stop => self.is_stopping = true,
        }
    }
}

/// Waker that unparks the thread that waits for jobs.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
