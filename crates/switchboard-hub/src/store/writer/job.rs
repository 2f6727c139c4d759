//! Jobs of the writer thread: options, savepoints and results.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{JournalTail, Transaction};
use crate::error::HubError;

/// Command to the writer.
pub(crate) enum Command {
    Run(Box<dyn Job>),
    Stop,
}

/// Job of the writer, which runs inside the transaction and is completed with its outcome.
pub(crate) trait Job: Send {
    /// Returns true if the submitter is told "on disk", so that a sync is required.
    fn needs_sync(&self) -> bool;
    /// Returns true if the job submits a message.
    ///
    /// A submission is rolled back if the submitter is told that it was not accepted. Any other job can be repeated
    /// without harm.
    fn is_submission(&self) -> bool;
    fn run(&mut self, tx: &mut Transaction<'_>);
    fn finish(self: Box<Self>, failure: Option<HubError>);
}

/// Handling of the writes of a job that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The job's writes are rolled back to a savepoint.
    ///
    /// SQLite first copies every page that the job modifies.
    RollBack,
    /// There is nothing to roll back: the job fails before it writes, or because the database itself fails.
    LeaveAsIs,
}

/// Options of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobOptions {
    pub(super) needs_sync: bool,
    pub(super) on_failure: OnFailure,
}

/// Closure that a job runs.
///
/// It is boxed, so that the code around it is compiled once per result type instead of once per closure.
pub(super) type Work<T> = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send>;

/// Job whose submitter waits for its result.
pub(super) struct QueuedJob<T> {
    pub(super) options: JobOptions,
    pub(super) work: Option<Work<T>>,
    pub(super) result: Option<Result<T, HubError>>,
    pub(super) reply: oneshot::Sender<Result<T, HubError>>,
}

impl<T: Send> Job for QueuedJob<T> {
    fn needs_sync(&self) -> bool {
        self.options.needs_sync
    }

    fn is_submission(&self) -> bool {
        self.options.needs_sync && self.options.on_failure == OnFailure::LeaveAsIs
    }

    fn run(&mut self, tx: &mut Transaction<'_>) {
        let on_failure = self.options.on_failure;
        tx.is_plain &= on_failure == OnFailure::LeaveAsIs;
        let result = self.work.take().map(|work| {
            let savepoint = Savepoint::begin(tx, on_failure)?;
            let result = work(tx);
            match savepoint.end(tx, result.as_ref().err()) {
                Ok(()) => result,
                Err(failure) => Err(failure),
            }
        });
        self.result = result.map(|result| match result {
            Err(HubError::Unresolved(_)) if tx.is_rebuilding => Err(HubError::Rebuilding),
            result => result,
        });
    }

    fn finish(self: Box<Self>, failure: Option<HubError>) {
        let Self { result, reply, .. } = *self;
        let answer = failure.map_or_else(|| result.unwrap_or(Err(HubError::Closed)), Err);
        // The submitter may be gone; the work is done anyway.
        let _ = reply.send(answer);
    }
}

/// Queued job whose result is pending.
pub(crate) struct Pending<T> {
    pub(super) answer: oneshot::Receiver<Result<T, HubError>>,
}

impl<T> Pending<T> {
    /// Waits for the result. An accepted submission is on disk by then; a repeatable job need not be.
    pub(crate) async fn result(self) -> Result<T, HubError> {
        self.answer.await.map_err(|_| HubError::Closed)?
    }
}

/// Savepoint before one job, to which a failed job is rolled back.
///
/// If the database itself fails, the whole transaction is lost.
struct Savepoint {
    on_failure: OnFailure,
    events: usize,
    handoffs: usize,
    appended: usize,
    tail: Option<JournalTail>,
}

impl Savepoint {
    /// Starts a job with a savepoint if needed; fails if the transaction is already lost.
    fn begin(tx: &Transaction<'_>, on_failure: OnFailure) -> Result<Self, HubError> {
        if let Some(failure) = &tx.failure {
            return Err(failure.clone().into());
        }
        if on_failure == OnFailure::RollBack {
            tx.db.prepare_cached("SAVEPOINT job")?.execute([])?;
        }
        Ok(Self {
            on_failure,
            events: tx.post_commit.events.len(),
            handoffs: tx.post_commit.handoffs.len(),
            appended: tx.post_commit.appended.len(),
            tail: tx.tail,
        })
    }

    /// Ends the job with its error, if any. Fails if the transaction is lost.
    fn end(self, tx: &mut Transaction<'_>, error: Option<&HubError>) -> Result<(), HubError> {
        if self.on_failure == OnFailure::LeaveAsIs {
            // Such a job fails before it writes, or because the database itself fails.
            if let Some(failure) = error.and_then(HubError::of_database) {
                tx.failure = Some(failure.clone());
            }
            return Ok(());
        }
        if tx.db.is_autocommit() {
            // On a full or failing disk, SQLite rolls back the whole transaction, not just this job.
            let failure = match error {
                Some(
                    HubError::Store { source } | HubError::NoSpace { source } | HubError::ReadOnly { source },
                ) => source.clone(),
                _ => Arc::new(rusqlite::Error::InvalidQuery),
            };
            tx.failure = Some(failure.clone());
            return Err(failure.into());
        }
        if error.is_some() {
            tx.post_commit.events.truncate(self.events);
            tx.post_commit.handoffs.truncate(self.handoffs);
            tx.post_commit.appended.truncate(self.appended);
            tx.tail = self.tail;
            tx.db.prepare_cached("ROLLBACK TO job")?.execute([])?;
        }
        tx.db.prepare_cached("RELEASE job")?.execute([])?;
        Ok(())
    }
}
