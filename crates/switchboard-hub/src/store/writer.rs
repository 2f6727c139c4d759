//! The single writer: many jobs share one transaction, and many transactions share one sync (group commit).
//!
//! The writer runs on its own thread, or on the event loop of a short command.

mod job;
mod transaction;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_sys::blocking;
use switchboard_sys::files::Dir;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::job::{Command, Job, OnFailure, Pending};
use self::job::{JobOptions, QueuedJob, Work};
pub(crate) use self::transaction::{CachedDirectory, JournalTail, PostCommit, Transaction};
use crate::change_signal::ChangeSignal;
use crate::config::HubConfig;
use crate::delivery::outbox::{self, Doors};
use crate::error::{HubError, is_damage, is_suspicious};
use crate::events::Events;
use crate::store::batch::BatchQueue;
use crate::store::binding;
use crate::store::cache::{CacheVersion, WriterCache};
use crate::store::catch_panic::catch_panic;
use crate::store::commit::{Batch, Committer};
use crate::store::degraded;
use crate::store::open_store::OpenStore;
use crate::store::recover;
use crate::store::rows::Inserts;
use crate::store::side_files::{self, WalWatch};
use crate::store::wal_monitor::{WalMonitor, is_short_read};

/// Maximum number of jobs in the writer's queue.
///
/// A submitter beyond that waits for a slot (backpressure): it has no answer yet, so nothing is lost, and memory stays
/// bounded.
const QUEUE: usize = 1024;

/// Handle to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Command>,
}

/// Running writer, on a thread or on the event loop.
#[derive(Debug)]
pub(crate) enum RunningWriter {
    /// The writer runs on its own thread.
    Thread(thread::JoinHandle<()>),
    /// The writer runs on the event loop: see [`blocking::run_inline`].
    Task(tokio::task::JoinHandle<()>),
}

impl RunningWriter {
    /// Waits until the writer has ended.
    pub(crate) async fn join(self) {
        // The result is ignored, because a panic of the writer was logged when it happened.
        match self {
            Self::Thread(thread) => drop(tokio::task::spawn_blocking(move || thread.join()).await),
            Self::Task(task) => drop(task.await),
        }
    }
}

/// Shared state that the writer needs to run.
pub(crate) struct Setup {
    pub(crate) path: PathBuf,
    pub(crate) folder: Dir,
    pub(crate) config: HubConfig,
    pub(crate) doors: Doors,
    pub(crate) events: Events,
    pub(crate) signal: ChangeSignal,
    pub(crate) store: Arc<OpenStore>,
}

impl Setup {
    /// Opens another connection, after verifying that the database is still bound.
    ///
    /// The database and its log have to be those that are bound to this user.
    pub(crate) fn open_database(&self) -> Result<Connection, HubError> {
        let key = self.config.key.as_ref();
        binding::verify(&self.folder, key)?;
        side_files::verify(&self.folder, key)?;
        recover::open_verified(&self.folder, &self.path, key)
    }

    /// Returns the file name of SQLite's log.
    pub(crate) fn log_name(&self) -> String {
        format!("{}-wal", self.path.file_name().unwrap_or_default().to_string_lossy())
    }
}

impl Writer {
    /// Starts the writer on an open database; it ends at [`Writer::stop`].
    pub(crate) fn start(
        connection: Arc<Mutex<Connection>>,
        setup: Setup,
    ) -> std::io::Result<(Self, RunningWriter)> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = WriterLoop::new(connection, Arc::new(setup));
        let running = if blocking::is_inline() {
            RunningWriter::Task(tokio::spawn(writer.run_inline(queue)))
        } else {
            let thread = thread::Builder::new().name("switchboard-writer".into());
            RunningWriter::Thread(thread.spawn(move || writer.run(queue))?)
        };
        Ok((Self { jobs }, running))
    }

    /// Runs `work` in the next transaction; returns once the transaction is on disk.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let options = JobOptions { needs_sync: true, on_failure: OnFailure::RollBack };
        self.enqueue(Box::new(work), options).await?.result().await
    }

    /// Queues the submission of a message, which needs no rollback of its own.
    ///
    /// Jobs run in the order in which they were queued, many of them in one transaction.
    pub(crate) async fn queue<T, F>(&self, work: F) -> Result<Pending<T>, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let options = JobOptions { needs_sync: true, on_failure: OnFailure::LeaveAsIs };
        self.enqueue(Box::new(work), options).await
    }

    /// Queues `work` that needs no rollback and can be repeated after a power failure.
    ///
    /// The work does not wait for a sync of its own, so it delays no other job. A crash of the process loses nothing.
    pub(crate) async fn queue_repeatable<T, F>(&self, work: F) -> Result<Pending<T>, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let options = JobOptions { needs_sync: false, on_failure: OnFailure::LeaveAsIs };
        self.enqueue(Box::new(work), options).await
    }

    async fn enqueue<T: Send + 'static>(
        &self,
        work: Work<T>,
        options: JobOptions,
    ) -> Result<Pending<T>, HubError> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(QueuedJob { options, work: Some(work), result: None, reply });
        self.jobs.send(Command::Run(job)).await.map_err(|_| HubError::Closed)?;
        Ok(Pending { answer })
    }

    /// Queues `work` without waiting for it. The work is dropped if the queue is full.
    ///
    /// Use this only for work that is repeated anyway: a lease expires by itself, and the next tick comes in a second.
    pub(crate) fn post<F>(&self, work: F)
    where
        F: FnOnce(&mut Transaction<'_>) -> Result<(), HubError> + Send + 'static,
    {
        let (reply, _) = oneshot::channel();
        let options = JobOptions { needs_sync: false, on_failure: OnFailure::RollBack };
        let job = Box::new(QueuedJob { options, work: Some(Box::new(work)), result: None, reply });
        let _ = self.jobs.try_send(Command::Run(job));
    }

    /// Returns true if jobs are queued. The transaction that they start checks for due deliveries itself.
    pub(crate) fn has_queued(&self) -> bool {
        self.jobs.capacity() < self.jobs.max_capacity()
    }

    /// Stops the writer after it has completed the jobs that are already queued.
    pub(crate) async fn stop(&self) {
        let _ = self.jobs.send(Command::Stop).await;
    }
}

/// State of the writer between two transactions.
struct WriterLoop {
    /// Connection of the writer, shared only with readers on the same thread, if there are any.
    connection: Arc<Mutex<Connection>>,
    directory: CachedDirectory,
    cache: Option<WriterCache>,
    log: WalWatch,
    monitor: WalMonitor,
    setup: Arc<Setup>,
    committer: Committer,
}

impl WriterLoop {
    fn new(connection: Arc<Mutex<Connection>>, setup: Arc<Setup>) -> Self {
        Self {
            connection,
            directory: CachedDirectory::with(setup.config.links.clone()),
            cache: None,
            log: WalWatch::start(setup.folder.path().join(setup.log_name())),
            monitor: WalMonitor::start(&setup),
            committer: Committer::of(setup.clone()),
            setup,
        }
    }

    /// Runs the writer on the calling thread until it is stopped.
    fn run(mut self, queue: mpsc::Receiver<Command>) {
        let mut batches = BatchQueue::new(queue);
        loop {
            let jobs = batches.next();
            if jobs.is_empty() {
                break;
            }
            self.commit(jobs, || batches.is_busy());
        }
        self.end();
    }

    /// Runs the writer on the event loop until it is stopped.
    async fn run_inline(mut self, queue: mpsc::Receiver<Command>) {
        let mut batches = BatchQueue::new(queue);
        loop {
            let jobs = batches.next_inline().await;
            if jobs.is_empty() {
                break;
            }
            self.commit(jobs, || false);
        }
        self.end();
    }

    /// Commits jobs in one transaction and completes them.
    ///
    /// `is_busy` tells whether many more jobs are queued by then.
    fn commit(&mut self, mut jobs: Vec<Box<dyn Job>>, is_busy: impl FnOnce() -> bool) {
        if let Err(error) = self.committer.repair() {
            tracing::warn!(error = %error, "the journal cannot be written yet");
            for job in jobs {
                job.finish(Some(error.clone().into()));
            }
            return;
        }
        let mut connection = self.connection.lock();
        if let Err(error) = degraded::regain(&mut connection, &self.setup) {
            for job in jobs {
                job.finish(Some(error.duplicate()));
            }
            return;
        }
        match self.monitor.check(&mut connection, &self.setup, &self.committer) {
            Ok(false) => {}
            Ok(true) => {
                self.cache = None;
                self.directory = CachedDirectory::with(self.setup.config.links.clone());
            }
            Err(error) => {
                for job in jobs {
                    job.finish(Some(error.duplicate()));
                }
                return;
            }
        }
        let mut rollback_epoch = 0;
        let on_begin = || rollback_epoch = self.committer.rollback_epoch();
        let done = catch_panic(|| {
            run_transaction(
                &connection,
                &mut self.directory,
                &mut self.cache,
                &mut jobs,
                &self.setup,
                on_begin,
            )
        });
        match done {
            Ok(after) => {
                let in_place = self.log.checkpoint_if_displaced(&connection);
                let noted =
                    in_place.and_then(|()| self.monitor.record_commit(&connection, &self.setup, &after));
                // The lock is released first, because the next steps may read.
                drop(connection);
                if let Err(error) = noted {
                    let source = Arc::new(error);
                    for job in jobs {
                        job.finish(Some(HubError::OutcomeUnknown { source: source.clone() }));
                    }
                    return;
                }
                self.committer.finish(Batch::new(jobs, after, rollback_epoch), is_busy());
            }
            Err(error) => {
                drop(connection);
                tracing::warn!(error = %error, "cannot write the journal");
                if is_suspicious(&error) {
                    recover::mark_suspect(&self.setup.folder);
                }
                if is_damage(&error) || is_short_read(&error) {
                    self.setup.store.suspect_log();
                }
                for job in jobs {
                    job.finish(Some(error.clone().into()));
                }
                self.reopen();
            }
        }
        if self.committer.has_failed() {
            self.cache = None;
            self.reopen();
        }
    }

    /// Reopens the connection after a failed write or fsync.
    ///
    /// The old connection's state of the file can no longer be trusted.
    fn reopen(&mut self) {
        self.directory = CachedDirectory::with(self.setup.config.links.clone());
        // The rollback releases the write lock; SQLite may already have rolled back itself.
        let mut connection = self.connection.lock();
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        match self.setup.open_database() {
            Ok(fresh) => *connection = fresh,
            Err(error) => tracing::warn!(error = %error, "cannot reopen the journal"),
        }
        self.committer.close_log();
    }

    fn end(self) {
        self.committer.join();
        let connection = self.connection.lock();
        if let Err(error) = self.log.checkpoint_if_displaced(&connection) {
            tracing::warn!(%error, "messages in the removed log may be lost");
        }
        self.monitor.finish(&connection, &self.setup);
    }
}

/// Runs the jobs in one transaction; returns their effects once it is committed.
///
/// `on_begin` runs as soon as no other process can write.
fn run_transaction(
    connection: &Connection,
    directory: &mut CachedDirectory,
    cache: &mut Option<WriterCache>,
    jobs: &mut [Box<dyn Job>],
    setup: &Setup,
    on_begin: impl FnOnce(),
) -> Result<PostCommit, Arc<rusqlite::Error>> {
    let changes = connection.total_changes();
    // If a later step fails, the caller reopens the connection, which rolls back, and nothing is cached.
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    on_begin();
    let version = CacheVersion::read(connection, &setup.doors)?;
    let cached = cache.take().filter(|cache| cache.version == version);
    if cached.is_none() {
        directory.refresh(connection)?;
    }
    let mut tx = Transaction {
        db: connection,
        inserts: Inserts::prepare(connection)?,
        config: &setup.config,
        directory,
        doors: &setup.doors,
        now: setup.config.clock.now(),
        waiting: Vec::new(),
        next_due: cached.map_or(Timestamp::MIN, |cached| cached.next_due),
        is_plain: true,
        tail: cached.and_then(|cached| cached.tail),
        job: 0,
        is_rebuilding: setup.store.is_rebuilding(),
        post_commit: PostCommit::default(),
        failure: None,
    };
    // Waiting deliveries are leased before new ones.
    if tx.next_due <= tx.now {
        outbox::lease_due(&mut tx)?;
    }
    for (number, job) in jobs.iter_mut().enumerate() {
        tx.job = number;
        job.run(&mut tx);
    }
    if let Some(failure) = tx.failure {
        return Err(failure);
    }
    if tx.next_due <= tx.now || !tx.is_plain {
        outbox::lease_due(&mut tx)?;
    }
    let next_cache = tx.is_plain.then_some(WriterCache { version, tail: tx.tail, next_due: tx.next_due });
    let mut after = tx.post_commit;
    drop(tx.inserts);
    connection.prepare_cached("COMMIT")?.execute([])?;
    *cache = next_cache;
    after.changed = connection.total_changes() != changes;
    Ok(after)
}
