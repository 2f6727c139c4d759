//! Commit completion: sync the log, then complete the jobs, in the order of the commits.
//!
//! SQLite commits without a sync (`synchronous=NORMAL`), and this module syncs instead, with one `fdatasync` of
//! the log. The guarantee is the same, but while a batch is being synced the writer runs the next one, and one
//! sync serves all batches that were committed before it started. A log that another process checkpointed into
//! the database was synced by that process.
//!
//! A reader of the journal may see a message slightly before it is durable. After a power failure that message
//! may be gone; its sender was never told that it was accepted. If the sync fails, the message is rolled back:
//! see `store::rollback`. If the rollback fails too, its sender is told that the outcome is unknown.

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use switchboard_core::MessageId;

use crate::error::HubError;
use crate::store::recover;
use crate::store::rollback::{AppendedEntry, rewrite, roll_back};
use crate::store::writer::{Job, PostCommit, Setup};

/// Most committed batches that wait for a sync. Beyond that the writer blocks until one is done.
const BATCHES: usize = 4;

/// A committed transaction: its jobs and what follows them.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) after: PostCommit,
    /// True if a submitter is told "on disk".
    needs_sync: bool,
    /// Number of rollbacks before the transaction: it may depend on data that was rolled back since.
    pub(crate) rollback_epoch: u64,
}

impl Batch {
    /// Creates a batch. One that changed nothing is on disk already, but the answer to a submission may depend
    /// on an earlier transaction that is not, as with a duplicate.
    pub(crate) fn new(jobs: Vec<Box<dyn Job>>, after: PostCommit, rollback_epoch: u64) -> Self {
        let needs_sync =
            jobs.iter().any(|job| if after.changed { job.needs_sync() } else { job.is_submission() });
        Self { jobs, after, needs_sync, rollback_epoch }
    }
}

/// Completes batches, on the writer's own thread or on a sync thread.
pub(crate) struct Committer {
    inner: Arc<Inner>,
    /// Started on first use: with one sender at a time it is never needed.
    sync_thread: Option<SyncThread>,
}

struct SyncThread {
    batches: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

struct Inner {
    setup: Arc<Setup>,
    /// The log, opened for syncing only. It stays the same file while the writer's connection is open.
    log: Mutex<Option<File>>,
    /// Batches that the thread has received and not completed.
    in_progress: AtomicUsize,
    /// True if the disk has failed and the writer has not checked since.
    failed: AtomicBool,
    /// True if the disk has failed and the log was not rewritten completely since.
    is_broken: AtomicBool,
    /// Entries that still have to be rolled back.
    refused: Mutex<Vec<AppendedEntry>>,
    /// Number of rollbacks.
    rollback_epoch: AtomicU64,
}

/// Result of a repair.
struct RepairOutcome {
    /// Entries that had to stay in the journal, if the rest could be rolled back.
    retained: rusqlite::Result<HashSet<MessageId>>,
    /// Whether the journal is on disk.
    on_disk: rusqlite::Result<()>,
}

impl Committer {
    pub(crate) fn of(setup: Arc<Setup>) -> Self {
        let inner = Arc::new(Inner {
            setup,
            log: Mutex::default(),
            in_progress: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            refused: Mutex::default(),
            rollback_epoch: AtomicU64::new(0),
        });
        Self { inner, sync_thread: None }
    }

    /// Completes a batch after those before it. `is_busy` says that the writer has more work meanwhile;
    /// otherwise a switch to another thread would only cost time.
    pub(crate) fn finish(&mut self, batch: Batch, is_busy: bool) {
        let is_needed = is_busy || self.inner.in_progress.load(Ordering::Acquire) > 0;
        if is_needed && self.sync_thread.is_none() {
            self.sync_thread = SyncThread::start(self.inner.clone())
                .inspect_err(|error| tracing::warn!(%error, "the writer waits for the disk itself"))
                .ok();
        }
        match &self.sync_thread {
            Some(SyncThread { batches, .. }) if is_needed => {
                self.inner.in_progress.fetch_add(1, Ordering::AcqRel);
                // The thread ends only after this sender is dropped.
                let _ = batches.send(batch);
            }
            _ => self.inner.finish(vec![batch]),
        }
    }

    /// True once after each failure of the disk.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.failed.swap(false, Ordering::AcqRel)
    }

    /// Returns the number of rollbacks, for a transaction that is open.
    pub(crate) fn rollback_epoch(&self) -> u64 {
        self.inner.rollback_epoch.load(Ordering::Acquire)
    }

    /// Repairs what a disk failure has left undone, before anything else is written.
    pub(crate) fn repair(&self) -> Result<(), Arc<rusqlite::Error>> {
        if !self.inner.is_broken.load(Ordering::Acquire) {
            return Ok(());
        }
        let RepairOutcome { retained, on_disk } = self.inner.repair(Vec::new());
        retained.map_err(Arc::new)?;
        on_disk.map_err(Arc::new)
    }

    /// Closes the log, which the connection may be about to replace.
    pub(crate) fn close_log(&self) {
        *self.inner.log.lock() = None;
    }

    /// Waits until all batches are completed.
    pub(crate) fn join(self) {
        if let Some(SyncThread { batches, thread }) = self.sync_thread {
            drop(batches);
            let _ = thread.join();
        }
    }
}

impl SyncThread {
    fn start(inner: Arc<Inner>) -> std::io::Result<Self> {
        let (batches, waiting) = sync_channel(BATCHES);
        let work = move || inner.run(&waiting);
        let thread = thread::Builder::new().name("switchboard-disk".into()).spawn(work)?;
        Ok(Self { batches, thread })
    }
}

impl Inner {
    fn run(&self, batches: &Receiver<Batch>) {
        while let Ok(first) = batches.recv() {
            let batches_ready: Vec<Batch> = std::iter::once(first).chain(batches.try_iter()).collect();
            let count = batches_ready.len();
            self.finish(batches_ready);
            self.in_progress.fetch_sub(count, Ordering::AcqRel);
        }
    }

    fn finish(&self, batches: Vec<Batch>) {
        if let Err(error) = self.ensure_durable(&batches) {
            tracing::warn!(error = %error, "the disk did not accept the journal");
            self.failed.store(true, Ordering::Release);
            self.fail_batches(batches, &error);
            return;
        }
        if let Err(deleted) = self.setup.store.database_file.check() {
            for job in batches.into_iter().flat_map(|batch| batch.jobs) {
                job.finish(Some(deleted.duplicate()));
            }
            return;
        }
        let mut changed = false;
        for Batch { jobs, after, .. } in batches {
            changed |= after.changed;
            after.publish(&self.setup);
            for job in jobs {
                job.finish(None);
            }
        }
        // Submitters come before other processes: their next jobs arrive while the notification is sent.
        if changed {
            self.setup.signal.notify();
        }
    }

    /// Checks that committed batches are durable, syncing the log if needed.
    fn ensure_durable(&self, batches: &[Batch]) -> Result<(), Arc<rusqlite::Error>> {
        let rollback_epoch = self.rollback_epoch.load(Ordering::Acquire);
        if self.is_broken.load(Ordering::Acquire)
            || batches.iter().any(|batch| batch.rollback_epoch != rollback_epoch)
        {
            return Err(Arc::new(not_on_disk("an earlier write has failed")));
        }
        if batches.iter().any(|batch| batch.needs_sync) {
            self.wait_for_disk().map_err(Arc::new)?;
        }
        Ok(())
    }

    /// Rolls back the messages of these batches and fails their jobs. Their deliveries are not handed over: the
    /// leases expire, and then the deliveries are checked again.
    fn fail_batches(&self, batches: Vec<Batch>, error: &Arc<rusqlite::Error>) {
        let submitted = |batch: &Batch, entry: &AppendedEntry| {
            batch.jobs.get(entry.job).is_some_and(|job| job.is_submission())
        };
        let refused = batches
            .iter()
            .flat_map(|batch| batch.after.appended.iter().filter(|entry| submitted(batch, entry)))
            .copied()
            .collect();
        let RepairOutcome { retained, on_disk } = self.repair(refused);
        for batch in batches {
            let appended = batch.after.appended;
            for (number, job) in batch.jobs.into_iter().enumerate() {
                let stays = |retained: &HashSet<MessageId>| {
                    appended.iter().any(|entry| entry.job == number && retained.contains(&entry.id))
                };
                let failure = match &retained {
                    _ if !job.is_submission() => Some(error.clone().into()),
                    Ok(retained) if !stays(retained) => Some(error.clone().into()),
                    Ok(_) if on_disk.is_ok() => None,
                    Ok(_) | Err(_) => Some(HubError::OutcomeUnknown { source: error.clone() }),
                };
                job.finish(failure);
            }
        }
        self.setup.signal.notify();
    }

    /// Rolls back entries that are not durable, and rewrites the rest of the log.
    fn repair(&self, more: Vec<AppendedEntry>) -> RepairOutcome {
        let mut refused = self.refused.lock();
        self.is_broken.store(true, Ordering::Release);
        refused.extend(more);
        let repaired = match self.setup.open_database() {
            Ok(mut db) => {
                let owner = self.setup.doors.owner();
                let bump_epoch = || {
                    self.rollback_epoch.fetch_add(1, Ordering::AcqRel);
                };
                let retained = roll_back(&mut db, &refused, owner, self.setup.config.clock.now(), bump_epoch);
                if retained.is_ok() {
                    refused.clear();
                }
                let mut log = self.log.lock();
                *log = None;
                let fresh = self.setup.folder.open_own(&self.setup.log_name()).map_err(not_on_disk);
                let on_disk = fresh.and_then(|file| {
                    rewrite(&db, &file)?;
                    *log = Some(file);
                    Ok(())
                });
                RepairOutcome { retained, on_disk }
            }
            Err(error) => {
                RepairOutcome { retained: Err(not_on_disk(&error)), on_disk: Err(not_on_disk(&error)) }
            }
        };
        if repaired.retained.is_ok() && repaired.on_disk.is_ok() {
            self.is_broken.store(false, Ordering::Release);
        } else {
            // If this process ends before the repair, the next one checks the database first.
            recover::mark_suspect(&self.setup.folder);
        }
        repaired
    }

    fn wait_for_disk(&self) -> rusqlite::Result<()> {
        let mut log = self.log.lock();
        let file = match log.take() {
            Some(file) => file,
            None => self.setup.folder.open_own(&self.setup.log_name()).map_err(not_on_disk)?,
        };
        // An empty log cannot lose anything: its former content is in the database, synced by the process that
        // checkpointed it. To sync a new log costs as much as to sync a message, and every start would pay for
        // it.
        if file.metadata().map_err(not_on_disk)?.len() > 0 {
            file.sync_data().map_err(not_on_disk)?;
        }
        *log = Some(file);
        Ok(())
    }
}

/// Builds the error that SQLite itself would have reported.
pub(super) fn not_on_disk(error: impl std::fmt::Display) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}
