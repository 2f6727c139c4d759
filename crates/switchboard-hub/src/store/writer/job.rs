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

/// Job of the writer: runs inside the transaction, and is completed with its outcome.
pub(crate) trait Job: Send {
    /// True if the submitter is told "on disk" and must be able to rely on it.
    fn needs_sync(&self) -> bool;
    /// True if it submits a message, which is rolled back if the submitter is told that it was not accepted.
    /// Any other job can be repeated without harm.
    fn is_submission(&self) -> bool;
    fn run(&mut self, tx: &mut Transaction<'_>);
    fn finish(self: Box<Self>, failure: Option<HubError>);
}

/// Handling of a job that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Rolls back its writes. Every page that it touches is copied first.
    RollBack,
    /// Nothing to roll back: it fails before it writes, or because the database itself does.
    LeaveAsIs,
}

/// Options of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobOptions {
    pub(super) needs_sync: bool,
    pub(super) on_failure: OnFailure,
}

/// Work of a job. Boxed, so that the code around it exists once for each result and not for each closure.
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
        // The submitter may have gone away; the work is done all the same.
        let _ = reply.send(answer);
    }
}

/// Queued job whose result is pending.
pub(crate) struct Pending<T> {
    pub(super) answer: oneshot::Receiver<Result<T, HubError>>,
}

impl<T> Pending<T> {
    /// Waits for the result, which is on disk then.
    pub(crate) async fn result(self) -> Result<T, HubError> {
        self.answer.await.map_err(|_| HubError::Closed)?
    }
}

/// Start of one job, to which a failure rolls back; its database failure loses the whole transaction.
struct Savepoint {
    on_failure: OnFailure,
    events: usize,
    handoffs: usize,
    appended: usize,
    tail: Option<JournalTail>,
}

impl Savepoint {
    /// Starts a job, unless the transaction is already lost.
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
            // It fails before it writes, or because the database does.
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
