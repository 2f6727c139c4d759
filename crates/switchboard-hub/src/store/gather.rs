//! Which jobs share a transaction.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::store::writer::{Command, Job};

/// Most jobs in one transaction. Few enough that under load one batch is on its way to the disk while the
/// next is worked at, many enough to share what a transaction costs.
const BATCH: usize = 32;

/// How many jobs are worth a second thread, which waits for the disk while they are worked at. Fewer share a transaction
/// once the writer has waited itself, and that is quicker than to wake somebody for each.
const MANY: usize = 4;

/// How long what nobody was promised waits for a message to share a transaction with, while messages come one upon the
/// other. The outcome of a delivery would otherwise have a transaction to itself, which costs as much as the message's.
const PATIENCE: Duration = Duration::from_millis(2);

/// Takes the jobs that wait, as many at a time as are to be done together.
pub(crate) struct Gather {
    queue: mpsc::Receiver<Command>,
    waker: Waker,
    patience: Duration,
    /// When the last two messages were taken, the later one first.
    recent: [Option<Instant>; 2],
    is_stopping: bool,
}

impl Gather {
    /// For the thread that this is called on.
    pub(crate) fn new(queue: mpsc::Receiver<Command>) -> Self {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        Self { queue, waker, patience: PATIENCE, recent: [None; 2], is_stopping: false }
    }

    /// The next jobs to share a transaction; none once the writer is to stop.
    pub(crate) fn next(&mut self) -> Vec<Box<dyn Job>> {
        let mut jobs = Vec::new();
        self.take(&mut jobs, None);
        self.take_at_hand(&mut jobs);
        let now = Instant::now();
        if self.recent[1].is_some_and(|earlier| now < earlier + self.patience) {
            let end = now + self.patience;
            while !jobs.iter().any(|job| job.must_last()) && self.take(&mut jobs, Some(end)) {}
            self.take_at_hand(&mut jobs);
        }
        for _ in jobs.iter().filter(|job| job.must_last()).take(2) {
            self.recent = [Some(now), self.recent[0]];
        }
        jobs
    }

    /// The same for a writer on the event loop, which has nothing to wait for but the next job.
    pub(crate) async fn next_inline(&mut self) -> Vec<Box<dyn Job>> {
        let mut jobs = Vec::new();
        if !self.is_stopping {
            match self.queue.recv().await {
                Some(command) => self.add(command, &mut jobs),
                None => self.is_stopping = true,
            }
        }
        self.take_at_hand(&mut jobs);
        jobs
    }

    /// Whether many more jobs wait.
    pub(crate) fn has_many(&self) -> bool {
        self.queue.len() >= MANY
    }

    /// Takes what lies ready.
    fn take_at_hand(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        while !self.is_stopping
            && jobs.len() < BATCH
            && let Ok(command) = self.queue.try_recv()
        {
            self.add(command, jobs);
        }
    }

    /// Waits for one more, no longer than until `end`; says whether there was one.
    fn take(&mut self, jobs: &mut Vec<Box<dyn Job>>, end: Option<Instant>) -> bool {
        if self.is_stopping || jobs.len() >= BATCH {
            return false;
        }
        loop {
            // Woken also by chance, the thread looks again.
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

/// Wakes the thread that waits for jobs.
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
#[path = "gather_tests.rs"]
mod tests;
