//! The one writer: many submitters share one transaction, and many transactions one wait for the disk.
//!
//! It runs on a thread of its own, or on the event loop of a short command.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_core::{Directory, Door, Links, Message};
use switchboard_sys::blocking;
use switchboard_sys::clock::from_micros;
use switchboard_sys::files::Dir;
use tokio::sync::{mpsc, oneshot};

use crate::bell::Bell;
use crate::config::HubConfig;
use crate::directory;
use crate::error::{HubError, is_damage, is_suspicious};
use crate::events::{Events, HubEvent};
use crate::outbox::{self, Doors, Ready};
use crate::store::binding;
use crate::store::caught::caught;
use crate::store::chain::{self, RowHash};
use crate::store::cut_log::{LogMonitor, is_short_read};
use crate::store::degraded;
use crate::store::finish::{Batch, Finisher};
use crate::store::gather::Gather;
use crate::store::memory::{Mark, Memory};
use crate::store::open_store::OpenStore;
use crate::store::recover;
use crate::store::refused::Appended;
use crate::store::rows::Inserts;
use crate::store::side_files::{self, LogWatch};

/// Most jobs that wait for the writer. A submitter beyond that waits for a place: it has not been told
/// anything yet, so nothing is lost, and memory stays bounded.
const QUEUE: usize = 1024;

/// A handle on the writer thread.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Command>,
}

/// A started writer.
#[derive(Debug)]
pub(crate) enum Running {
    /// On a thread of its own.
    Thread(thread::JoinHandle<()>),
    /// On the event loop: see [`blocking::run_inline`].
    Task(tokio::task::JoinHandle<()>),
}

impl Running {
    /// Returns once the writer has ended.
    pub(crate) async fn join(self) {
        // A panic of the writer was reported when it happened.
        match self {
            Self::Thread(thread) => drop(tokio::task::spawn_blocking(move || thread.join()).await),
            Self::Task(task) => drop(task.await),
        }
    }
}

/// What the writer is told.
pub(crate) enum Command {
    Run(Box<dyn Job>),
    Stop,
}

/// Work for the writer: run inside the transaction, told how that ended.
pub(crate) trait Job: Send {
    /// Whether the submitter is told "on disk" and must be able to rely on it.
    fn must_last(&self) -> bool;
    /// Whether it submits a message, which is taken back where the submitter is told that it was not accepted. Anything
    /// else may be done again without harm.
    fn is_submission(&self) -> bool;
    fn run(&mut self, tx: &mut Work<'_>);
    fn finish(self: Box<Self>, failure: Option<HubError>);
}

/// What has to be undone when a job fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Whatever it had written by then. Every page it touches is copied first.
    Writes,
    /// Nothing: it fails before it writes, or because the database itself does.
    Nothing,
}

/// How a job wants to be treated.
#[derive(Debug, Clone, Copy)]
struct Terms {
    must_last: bool,
    undo: Undo,
}

/// A job whose submitter waits for its result.
struct Awaited<T, F> {
    terms: Terms,
    work: Option<F>,
    result: Option<Result<T, HubError>>,
    reply: oneshot::Sender<Result<T, HubError>>,
}

impl<T, F> Job for Awaited<T, F>
where
    T: Send,
    F: FnOnce(&mut Work<'_>) -> Result<T, HubError> + Send,
{
    fn must_last(&self) -> bool {
        self.terms.must_last
    }

    fn is_submission(&self) -> bool {
        self.terms.must_last && self.terms.undo == Undo::Nothing
    }

    fn run(&mut self, tx: &mut Work<'_>) {
        let undo = self.terms.undo;
        tx.is_plain &= undo == Undo::Nothing;
        let result = self.work.take().map(|work| match undo {
            Undo::Writes => savepoint(tx, work),
            Undo::Nothing => bare(tx, work),
        });
        self.result = result.map(|result| match result {
            Err(HubError::Unresolved(_)) if tx.is_rebuilding => Err(HubError::Rebuilding),
            result => result,
        });
    }

    fn finish(self: Box<Self>, failure: Option<HubError>) {
        let Self { result, reply, .. } = *self;
        let answer = failure.map_or_else(|| result.unwrap_or(Err(HubError::Closed)), Err);
        // Whoever asked may have gone; the work is done all the same.
        let _ = reply.send(answer);
    }
}

/// Work that was queued and whose result is still to come.
pub(crate) struct Pending<T> {
    answer: oneshot::Receiver<Result<T, HubError>>,
}

impl<T> Pending<T> {
    /// The result, once it is on disk.
    pub(crate) async fn result(self) -> Result<T, HubError> {
        self.answer.await.map_err(|_| HubError::Closed)?
    }
}

/// What a job sees: the open transaction, and a place for what must happen after it is on disk.
pub(crate) struct Work<'t> {
    pub(crate) db: &'t Connection,
    pub(crate) inserts: Inserts<'t>,
    pub(crate) config: &'t HubConfig,
    pub(crate) directory: &'t mut CachedDirectory,
    pub(crate) doors: &'t Doors,
    pub(crate) now: Timestamp,
    /// The doors for which older deliveries wait: what comes now must not overtake them.
    pub(crate) waiting: Vec<Door>,
    /// When a delivery is due at the earliest, at the doors that are open here. None is before that.
    pub(crate) next_due: Timestamp,
    /// Whether nothing ran but what says itself what follows from it, as messages and outcomes of deliveries do. Any
    /// other job may have changed whatever the writer remembers, and made anything due.
    is_plain: bool,
    /// The end of the journal, once somebody has asked.
    end: Option<End>,
    /// The number of the job that runs, within its batch.
    job: usize,
    /// True while agents may be missing after a recovery.
    is_rebuilding: bool,
    pub(crate) after: After,
    /// Why SQLite gave up the whole transaction, where it did.
    lost: Option<Arc<rusqlite::Error>>,
}

impl Work<'_> {
    /// A number above everything that was ever given out.
    pub(crate) fn next_seq(&mut self) -> rusqlite::Result<i64> {
        let end = self.end()?;
        let seq = end.next;
        self.end = Some(End { next: seq + 1, ..end });
        Ok(seq)
    }

    /// Notes that a delivery is due at a time, as the journal has it: in whole microseconds.
    pub(crate) fn due_at(&mut self, time: Timestamp) {
        self.next_due = self.next_due.min(from_micros(time.as_microsecond()));
    }

    /// Writes a message into the journal, behind the last one.
    pub(crate) fn append(&mut self, seq: i64, message: &Message, digest: &[u8; 32]) -> rusqlite::Result<()> {
        let end = self.end()?;
        let chain = self.inserts.message(seq, message, self.now, digest, &end.chain)?;
        self.end = Some(End { last: seq, chain, ..end });
        self.after.appended.push(Appended { job: self.job, seq, id: message.id });
        Ok(())
    }

    /// The number of the last message of the journal; 0 where there is none.
    pub(crate) fn last_seq(&mut self) -> rusqlite::Result<i64> {
        Ok(self.end()?.last)
    }

    /// The end of the journal. `floor` is what a recovery could not take over.
    fn end(&mut self) -> rusqlite::Result<End> {
        if let Some(end) = self.end {
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
                // A hash that cannot be read is damage of one row, and told of by the audit.
                let chain = row.get(2).unwrap_or(chain::GENESIS);
                Ok(End { next: last.max(floor) + 1, last, chain })
            })?;
        self.end = Some(end);
        Ok(end)
    }
}

/// Where the journal ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// The number of the next message.
    next: i64,
    /// The number and the hash of the last one.
    last: i64,
    chain: RowHash,
}

/// What happens once the transaction is on disk, and not before.
#[derive(Default)]
pub(crate) struct After {
    pub(crate) events: Vec<HubEvent>,
    pub(crate) handoffs: Vec<Ready>,
    /// What was written into the journal.
    pub(crate) appended: Vec<Appended>,
    /// Whether anything was written at all.
    pub(crate) changed: bool,
}

/// The directory as of one version; another process may have written a later one.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedDirectory {
    version: Option<i64>,
    pub(crate) value: Arc<Directory>,
    /// What the owner of this hub has joined. It is set and not stored, so it is part of every version.
    links: Arc<Links>,
}

impl CachedDirectory {
    /// Nothing read yet.
    pub(crate) fn with(links: Arc<Links>) -> Self {
        Self { links, ..Self::default() }
    }

    /// Reads the directory again where another process, or this one, has changed it. Says whether it has been changed.
    pub(crate) fn refresh(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let version = directory::version(db)?;
        if self.version == Some(version) {
            return Ok(false);
        }
        let mut value = directory::load(db)?;
        value.set_links(self.links.clone());
        self.value = Arc::new(value);
        self.version = Some(version);
        Ok(true)
    }
}

/// Everything the writer thread needs.
pub(crate) struct Setup {
    pub(crate) path: PathBuf,
    pub(crate) folder: Dir,
    pub(crate) config: HubConfig,
    pub(crate) doors: Doors,
    pub(crate) events: Events,
    pub(crate) bell: Bell,
    pub(crate) store: Arc<OpenStore>,
}

impl Setup {
    /// Opens the database once more, where it and its log are still those that are bound to this user.
    pub(crate) fn open_database(&self) -> Result<Connection, HubError> {
        let key = self.config.key.as_ref();
        binding::verify(&self.folder, key)?;
        side_files::verify(&self.folder, key)?;
        recover::open_verified(&self.folder, &self.path, key)
    }

    /// What SQLite calls its log, in the same folder.
    pub(crate) fn log_name(&self) -> String {
        format!("{}-wal", self.path.file_name().unwrap_or_default().to_string_lossy())
    }
}

impl Writer {
    /// Starts the writer on an open database; it ends at [`Writer::stop`].
    pub(crate) fn start(
        connection: Arc<Mutex<Connection>>,
        setup: Setup,
    ) -> std::io::Result<(Self, Running)> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = WriterLoop::new(connection, Arc::new(setup));
        let running = if blocking::is_inline() {
            Running::Task(tokio::spawn(writer.run_inline(queue)))
        } else {
            let thread = thread::Builder::new().name("switchboard-writer".into());
            Running::Thread(thread.spawn(move || writer.run(queue))?)
        };
        Ok((Self { jobs }, running))
    }

    /// Runs `work` in the next transaction and returns once that is on disk.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Result<T, HubError> + Send + 'static,
    {
        self.enqueue(work, Terms { must_last: true, undo: Undo::Writes }).await?.result().await
    }

    /// Queues the submission of a message, which needs no undoing. What is queued one after the other is done in that order, and
    /// much of it at once.
    pub(crate) async fn queue<T, F>(&self, work: F) -> Result<Pending<T>, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Result<T, HubError> + Send + 'static,
    {
        self.enqueue(work, Terms { must_last: true, undo: Undo::Nothing }).await
    }

    /// Queues `work` that needs no undoing, and whose loss in a power failure would only have it done
    /// again: it does not wait for the disk by itself, so that nobody else waits for it either. A crash
    /// of the process loses nothing.
    pub(crate) async fn queue_repeatable<T, F>(&self, work: F) -> Result<Pending<T>, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Result<T, HubError> + Send + 'static,
    {
        self.enqueue(work, Terms { must_last: false, undo: Undo::Nothing }).await
    }

    async fn enqueue<T, F>(&self, work: F, terms: Terms) -> Result<Pending<T>, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Awaited { terms, work: Some(work), result: None, reply });
        self.jobs.send(Command::Run(job)).await.map_err(|_| HubError::Closed)?;
        Ok(Pending { answer })
    }

    /// Queues `work` without waiting for it. Dropped when the queue is full, so only for work that
    /// something else repeats: a lease runs out by itself, the next tick comes in a second.
    pub(crate) fn post<F>(&self, work: F)
    where
        F: FnOnce(&mut Work<'_>) -> Result<(), HubError> + Send + 'static,
    {
        let (reply, _) = oneshot::channel();
        let terms = Terms { must_last: false, undo: Undo::Writes };
        let job = Box::new(Awaited { terms, work: Some(work), result: None, reply });
        let _ = self.jobs.try_send(Command::Run(job));
    }

    /// Whether jobs wait: then a transaction is still to begin, which looks for what is due by itself.
    pub(crate) fn has_queued(&self) -> bool {
        self.jobs.capacity() < self.jobs.max_capacity()
    }

    /// Ends the writer thread once it has done what was queued before.
    pub(crate) async fn stop(&self) {
        let _ = self.jobs.send(Command::Stop).await;
    }
}

/// Runs one job that leaves nothing behind when it fails. Should the database fail, all is lost.
fn bare<T>(
    tx: &mut Work<'_>,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, HubError>,
) -> Result<T, HubError> {
    if let Some(lost) = &tx.lost {
        return Err(lost.clone().into());
    }
    let result = work(tx);
    if let Some(lost) = result.as_ref().err().and_then(HubError::of_database) {
        tx.lost = Some(lost.clone());
    }
    result
}

/// Runs one job so that its failure undoes only its own changes.
fn savepoint<T>(
    tx: &mut Work<'_>,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, HubError>,
) -> Result<T, HubError> {
    if let Some(lost) = &tx.lost {
        return Err(lost.clone().into());
    }
    let (events, handoffs, end) = (tx.after.events.len(), tx.after.handoffs.len(), tx.end);
    let appended = tx.after.appended.len();
    tx.db.prepare_cached("SAVEPOINT job")?.execute([])?;
    let result = work(tx);
    if tx.db.is_autocommit() {
        // On a full disk or a failing one SQLite undoes everything, not just this job.
        let lost = match result {
            Err(
                HubError::Store { source } | HubError::NoSpace { source } | HubError::ReadOnly { source },
            ) => source,
            _ => Arc::new(rusqlite::Error::InvalidQuery),
        };
        tx.lost = Some(lost.clone());
        return Err(lost.into());
    }
    if result.is_err() {
        tx.after.events.truncate(events);
        tx.after.handoffs.truncate(handoffs);
        tx.after.appended.truncate(appended);
        tx.end = end;
        tx.db.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    tx.db.prepare_cached("RELEASE job")?.execute([])?;
    result
}

/// The writer between two transactions.
struct WriterLoop {
    /// Shared with readers on the same thread, if any; otherwise the writer's alone.
    connection: Arc<Mutex<Connection>>,
    directory: CachedDirectory,
    memory: Option<Memory>,
    log: LogWatch,
    monitor: LogMonitor,
    setup: Arc<Setup>,
    finisher: Finisher,
}

impl WriterLoop {
    fn new(connection: Arc<Mutex<Connection>>, setup: Arc<Setup>) -> Self {
        Self {
            connection,
            directory: CachedDirectory::with(setup.config.links.clone()),
            memory: None,
            log: LogWatch::begin(setup.folder.path().join(setup.log_name())),
            monitor: LogMonitor::begin(&setup),
            finisher: Finisher::of(setup.clone()),
            setup,
        }
    }

    /// Runs on the calling thread until the writer is stopped.
    fn run(mut self, queue: mpsc::Receiver<Command>) {
        let mut gather = Gather::new(queue);
        loop {
            let jobs = gather.next();
            if jobs.is_empty() {
                break;
            }
            self.commit(jobs, || gather.has_many());
        }
        self.end();
    }

    /// The same on the event loop.
    async fn run_inline(mut self, queue: mpsc::Receiver<Command>) {
        let mut gather = Gather::new(queue);
        loop {
            let jobs = gather.next_inline().await;
            if jobs.is_empty() {
                break;
            }
            self.commit(jobs, || false);
        }
        self.end();
    }

    /// Commits jobs in one transaction and has them finished. `is_busy` says whether many more jobs wait by then.
    fn commit(&mut self, mut jobs: Vec<Box<dyn Job>>, is_busy: impl FnOnce() -> bool) {
        if let Err(error) = self.finisher.mend() {
            tracing::warn!(error = %error, "the journal cannot be written yet");
            for job in jobs {
                job.finish(Some(error.clone().into()));
            }
            return;
        }
        let mut connection = self.connection.lock();
        if let Err(error) = degraded::regain(&mut connection, &self.setup) {
            for job in jobs {
                job.finish(Some(error.again()));
            }
            return;
        }
        match self.monitor.check(&mut connection, &self.setup, &self.finisher) {
            Ok(false) => {}
            Ok(true) => {
                self.memory = None;
                self.directory = CachedDirectory::with(self.setup.config.links.clone());
            }
            Err(error) => {
                for job in jobs {
                    job.finish(Some(error.again()));
                }
                return;
            }
        }
        let mut age = 0;
        let begun = || age = self.finisher.age();
        let done = caught(|| {
            transaction(&connection, &mut self.directory, &mut self.memory, &mut jobs, &self.setup, begun)
        });
        match done {
            Ok(after) => {
                let in_place = self.log.checkpoint_if_displaced(&connection);
                let noted = in_place.and_then(|()| self.monitor.note(&connection, &self.setup, &after));
                // What follows may read.
                drop(connection);
                if let Err(error) = noted {
                    let source = Arc::new(error);
                    for job in jobs {
                        job.finish(Some(HubError::OutcomeUnknown { source: source.clone() }));
                    }
                    return;
                }
                self.finisher.finish(Batch::new(jobs, after, age), is_busy());
            }
            Err(error) => {
                drop(connection);
                tracing::warn!(error = %error, "the journal could not be written");
                if is_suspicious(&error) {
                    recover::mark_suspect(&self.setup.folder);
                }
                if is_damage(&error) || is_short_read(&error) {
                    self.setup.store.suspect_log();
                }
                for job in jobs {
                    job.finish(Some(error.clone().into()));
                }
                self.open_again();
            }
        }
        if self.finisher.has_failed() {
            self.memory = None;
            self.open_again();
        }
    }

    /// After a failed write or fsync the old connection's idea of the file is not to be trusted.
    fn open_again(&mut self) {
        self.directory = CachedDirectory::with(self.setup.config.links.clone());
        // Lets go of the lock; SQLite may have done so itself.
        let mut connection = self.connection.lock();
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        match self.setup.open_database() {
            Ok(fresh) => *connection = fresh,
            Err(error) => tracing::warn!(error = %error, "the journal could not be opened again"),
        }
        self.finisher.forget_log();
    }

    fn end(self) {
        self.finisher.end();
        let connection = self.connection.lock();
        if let Err(error) = self.log.checkpoint_if_displaced(&connection) {
            tracing::warn!(%error, "what is in the log that was removed may be lost");
        }
        self.monitor.end(&connection, &self.setup);
    }
}

/// Runs the jobs in one transaction; what they leave to be done is returned once it is committed. `begun` runs as soon
/// as nobody else can write.
fn transaction(
    connection: &Connection,
    directory: &mut CachedDirectory,
    memory: &mut Option<Memory>,
    jobs: &mut [Box<dyn Job>],
    setup: &Setup,
    begun: impl FnOnce(),
) -> Result<After, Arc<rusqlite::Error>> {
    let changes = connection.total_changes();
    // Where this fails on the way, `run` rolls back, and nothing is remembered.
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    begun();
    let mark = Mark::now(connection, &setup.doors)?;
    let known = memory.take().filter(|memory| memory.mark == mark);
    if known.is_none() {
        directory.refresh(connection)?;
    }
    let mut tx = Work {
        db: connection,
        inserts: Inserts::prepare(connection)?,
        config: &setup.config,
        directory,
        doors: &setup.doors,
        now: setup.config.clock.now(),
        waiting: Vec::new(),
        next_due: known.map_or(Timestamp::MIN, |known| known.next_due),
        is_plain: true,
        end: known.and_then(|known| known.end),
        job: 0,
        is_rebuilding: setup.store.is_rebuilding(),
        after: After::default(),
        lost: None,
    };
    // What has waited goes before what comes now.
    if tx.next_due <= tx.now {
        outbox::claim_due(&mut tx)?;
    }
    for (number, job) in jobs.iter_mut().enumerate() {
        tx.job = number;
        job.run(&mut tx);
    }
    if let Some(lost) = tx.lost {
        return Err(lost);
    }
    if tx.next_due <= tx.now || !tx.is_plain {
        outbox::claim_due(&mut tx)?;
    }
    let remembered = tx.is_plain.then_some(Memory { mark, end: tx.end, next_due: tx.next_due });
    let mut after = tx.after;
    drop(tx.inserts);
    connection.prepare_cached("COMMIT")?.execute([])?;
    *memory = remembered;
    after.changed = connection.total_changes() != changes;
    Ok(after)
}

impl After {
    /// Tells this process.
    pub(crate) fn happen(self, setup: &Setup) {
        for event in self.events {
            setup.events.send(event);
        }
        for ready in self.handoffs {
            ready.send();
        }
    }
}
