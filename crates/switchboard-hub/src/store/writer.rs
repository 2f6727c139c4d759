//! The single writer: many submitters share one transaction, and many transactions one sync (group commit).
//!
//! It runs on a thread of its own, or on the event loop of a short command.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_core::{Directory, Door, Message, RoutingRules};
use switchboard_sys::blocking;
use switchboard_sys::clock::timestamp_from_micros;
use switchboard_sys::files::Dir;
use tokio::sync::{mpsc, oneshot};

use crate::change_signal::ChangeSignal;
use crate::config::HubConfig;
use crate::delivery::outbox::{self, Doors, PendingHandoff};
use crate::directory;
use crate::error::{HubError, is_damage, is_suspicious};
use crate::events::{Events, HubEvent};
use crate::journal::chain::{self, RowHash};
use crate::store::batch::BatchQueue;
use crate::store::binding;
use crate::store::cache::{CacheVersion, WriterCache};
use crate::store::catch_panic::catch_panic;
use crate::store::commit::{Batch, Committer};
use crate::store::degraded;
use crate::store::open_store::OpenStore;
use crate::store::recover;
use crate::store::rollback::AppendedEntry;
use crate::store::rows::Inserts;
use crate::store::side_files::{self, WalWatch};
use crate::store::wal_monitor::{WalMonitor, is_short_read};

/// Most jobs that wait for the writer. A submitter beyond that waits for a slot: it has no answer yet, so
/// nothing is lost, and memory stays bounded.
const QUEUE: usize = 1024;

/// A handle on the writer thread.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Command>,
}

/// A started writer.
#[derive(Debug)]
pub(crate) enum RunningWriter {
    /// On a thread of its own.
    Thread(thread::JoinHandle<()>),
    /// On the event loop: see [`blocking::run_inline`].
    Task(tokio::task::JoinHandle<()>),
}

impl RunningWriter {
    /// Waits until the writer has ended.
    pub(crate) async fn join(self) {
        // A panic of the writer was logged when it happened.
        match self {
            Self::Thread(thread) => drop(tokio::task::spawn_blocking(move || thread.join()).await),
            Self::Task(task) => drop(task.await),
        }
    }
}

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
struct JobOptions {
    needs_sync: bool,
    on_failure: OnFailure,
}

/// Work of a job. Boxed, so that the code around it exists once for each result and not for each closure.
type Work<T> = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send>;

/// Job whose submitter waits for its result.
struct QueuedJob<T> {
    options: JobOptions,
    work: Option<Work<T>>,
    result: Option<Result<T, HubError>>,
    reply: oneshot::Sender<Result<T, HubError>>,
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
    answer: oneshot::Receiver<Result<T, HubError>>,
}

impl<T> Pending<T> {
    /// Waits for the result, which is on disk then.
    pub(crate) async fn result(self) -> Result<T, HubError> {
        self.answer.await.map_err(|_| HubError::Closed)?
    }
}

/// Open transaction as a job sees it, with the effects that follow its commit.
pub(crate) struct Transaction<'t> {
    pub(crate) db: &'t Connection,
    pub(crate) inserts: Inserts<'t>,
    pub(crate) config: &'t HubConfig,
    pub(crate) directory: &'t mut CachedDirectory,
    pub(crate) doors: &'t Doors,
    pub(crate) now: Timestamp,
    /// Doors with older waiting deliveries: new ones must not overtake them.
    pub(crate) waiting: Vec<Door>,
    /// Earliest due time of a delivery at the doors that are open here.
    pub(crate) next_due: Timestamp,
    /// True if only jobs ran that report their own effects, as messages and outcomes of deliveries do. Any
    /// other job may have changed whatever the writer caches, and made anything due.
    is_plain: bool,
    /// Tail of the journal, once it was read.
    tail: Option<JournalTail>,
    /// Index of the running job in its batch.
    job: usize,
    /// True while agents may be missing after a recovery.
    is_rebuilding: bool,
    pub(crate) post_commit: PostCommit,
    /// Error for which SQLite rolled the whole transaction back.
    failure: Option<Arc<rusqlite::Error>>,
}

impl Transaction<'_> {
    /// Returns the next sequence number; none is assigned twice.
    pub(crate) fn next_seq(&mut self) -> rusqlite::Result<i64> {
        let end = self.tail()?;
        let seq = end.next;
        self.tail = Some(JournalTail { next: seq + 1, ..end });
        Ok(seq)
    }

    /// Schedules a delivery, in whole microseconds as the journal stores times.
    pub(crate) fn due_at(&mut self, time: Timestamp) {
        self.next_due = self.next_due.min(timestamp_from_micros(time.as_microsecond()));
    }

    /// Appends a message to the journal.
    pub(crate) fn append(&mut self, seq: i64, message: &Message, digest: &[u8; 32]) -> rusqlite::Result<()> {
        let end = self.tail()?;
        let chain = self.inserts.message(seq, message, self.now, digest, &end.chain)?;
        self.tail = Some(JournalTail { last: seq, chain, ..end });
        self.post_commit.appended.push(AppendedEntry { job: self.job, seq, id: message.id });
        Ok(())
    }

    /// Returns the number of the last message of the journal; 0 if it is empty.
    pub(crate) fn last_seq(&mut self) -> rusqlite::Result<i64> {
        Ok(self.tail()?.last)
    }

    /// Reads the tail of the journal. `floor` is the highest number that a recovery could not copy.
    fn tail(&mut self) -> rusqlite::Result<JournalTail> {
        if let Some(end) = self.tail {
            return Ok(end);
        }
        let end = self
            .db
            .prepare_cached(
                "SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'floor'), 0), \
                 (SELECT max(seq) FROM messages), (SELECT chain FROM messages ORDER BY seq DESC LIMIT 1)",
            )?
            .query_row([], |row| {
                let (floor, last): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
                let last = last.unwrap_or(0);
                // An unreadable hash is damage of one row, which the audit reports.
                let chain = row.get(2).unwrap_or(chain::GENESIS);
                Ok(JournalTail { next: last.max(floor) + 1, last, chain })
            })?;
        self.tail = Some(end);
        Ok(end)
    }
}

/// Tail of the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalTail {
    /// Number of the next message.
    next: i64,
    /// Number and hash of the last one.
    last: i64,
    chain: RowHash,
}

/// Effects that follow once the transaction is on disk.
#[derive(Default)]
pub(crate) struct PostCommit {
    pub(crate) events: Vec<HubEvent>,
    pub(crate) handoffs: Vec<PendingHandoff>,
    /// Entries that were appended to the journal.
    pub(crate) appended: Vec<AppendedEntry>,
    /// True if anything was written at all.
    pub(crate) changed: bool,
}

/// Cached directory of one version; another process may have written a later one.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedDirectory {
    version: Option<i64>,
    pub(crate) value: Arc<Directory>,
    /// Aliases and forwards from the settings. They are not stored, so they apply to every version.
    links: Arc<RoutingRules>,
}

impl CachedDirectory {
    /// Creates an empty cache.
    pub(crate) fn with(links: Arc<RoutingRules>) -> Self {
        Self { links, ..Self::default() }
    }

    /// Reloads the directory if any process has changed it. Returns true if it has changed.
    pub(crate) fn refresh(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let version = directory::version(db)?;
        if self.version == Some(version) {
            return Ok(false);
        }
        let mut value = directory::load(db)?;
        value.set_routing_rules(self.links.clone());
        self.value = Arc::new(value);
        self.version = Some(version);
        Ok(true)
    }
}

/// State that the writer needs.
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
    /// Opens the database once more, if it and its log are still those that are bound to this user.
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

    /// Runs `work` in the next transaction and returns once that is on disk.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let options = JobOptions { needs_sync: true, on_failure: OnFailure::RollBack };
        self.enqueue(Box::new(work), options).await?.result().await
    }

    /// Queues the submission of a message, which needs no rollback of its own. Jobs run in the order in which
    /// they were queued, many of them in one transaction.
    pub(crate) async fn queue<T, F>(&self, work: F) -> Result<Pending<T>, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let options = JobOptions { needs_sync: true, on_failure: OnFailure::LeaveAsIs };
        self.enqueue(Box::new(work), options).await
    }

    /// Queues `work` that needs no rollback and can be repeated after a power failure: it does not wait for a
    /// sync of its own, so it delays no other job. A crash of the process loses nothing.
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

    /// Queues `work` without waiting for it. Dropped if the queue is full, so only for work that is repeated
    /// anyway: a lease expires by itself, the next tick comes in a second.
    pub(crate) fn post<F>(&self, work: F)
    where
        F: FnOnce(&mut Transaction<'_>) -> Result<(), HubError> + Send + 'static,
    {
        let (reply, _) = oneshot::channel();
        let options = JobOptions { needs_sync: false, on_failure: OnFailure::RollBack };
        let job = Box::new(QueuedJob { options, work: Some(Box::new(work)), result: None, reply });
        let _ = self.jobs.try_send(Command::Run(job));
    }

    /// True if jobs wait: the transaction that they start looks for due deliveries itself.
    pub(crate) fn has_queued(&self) -> bool {
        self.jobs.capacity() < self.jobs.max_capacity()
    }

    /// Stops the writer once it has completed the jobs queued before.
    pub(crate) async fn stop(&self) {
        let _ = self.jobs.send(Command::Stop).await;
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

/// State of the writer between two transactions.
struct WriterLoop {
    /// Shared with readers on the same thread, if any; otherwise used by the writer alone.
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

    /// Runs on the calling thread until the writer is stopped.
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

    /// Runs on the event loop until the writer is stopped.
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

    /// Commits jobs in one transaction and completes them. `is_busy` says whether many more jobs wait by then.
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
                // The next steps may read.
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

    /// After a failed write or fsync, the old connection's state of the file cannot be trusted.
    fn reopen(&mut self) {
        self.directory = CachedDirectory::with(self.setup.config.links.clone());
        // Releases the lock; SQLite may have done so itself.
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

/// Runs the jobs in one transaction; returns their effects once it is committed. `on_begin` runs as soon as no
/// other process can write.
fn run_transaction(
    connection: &Connection,
    directory: &mut CachedDirectory,
    cache: &mut Option<WriterCache>,
    jobs: &mut [Box<dyn Job>],
    setup: &Setup,
    on_begin: impl FnOnce(),
) -> Result<PostCommit, Arc<rusqlite::Error>> {
    let changes = connection.total_changes();
    // If this fails on the way, `run` rolls back, and nothing is cached.
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
    // Waiting deliveries come before new ones.
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

impl PostCommit {
    /// Publishes events and handoffs within this process.
    pub(crate) fn publish(self, setup: &Setup) {
        for event in self.events {
            setup.events.send(event);
        }
        for ready in self.handoffs {
            ready.send();
        }
    }
}
