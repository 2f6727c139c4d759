//! Commit completion (group commit): syncs the log, then completes the jobs in the order of their commits.
//!
//! SQLite commits without a sync (`synchronous=NORMAL`), and this module syncs instead, with one `fdatasync` of the
//! log. The guarantee is the same, but the writer runs the next batch while one is being synced, and one sync serves
//! all batches that were committed before it started. If another process has checkpointed the log into the database,
//! that process has synced it.
//!
//! A reader of the journal may see a message slightly before it is durable. After a power failure that message may be
//! gone, but its sender was never told that it was accepted. If the sync fails, the message is rolled back: see
//! `store::rollback`. If the rollback fails too, the sender is told that the outcome is unknown.

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

/// Maximum number of committed batches that wait for a sync. Beyond that, the writer blocks until one is done.
const BATCHES: usize = 4;

/// Committed transaction: its jobs and the work that follows the commit.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) after: PostCommit,
    /// True if a submitter is told that its message is on disk.
    ///
    /// The batch then requires a sync.
    needs_sync: bool,
    /// Number of rollbacks before the transaction, which may depend on data that was rolled back since.
    pub(crate) rollback_epoch: u64,
}

impl Batch {
    /// Creates a batch.
    ///
    /// A batch without changes needs no sync of its own, but the answer to a submission may depend on an earlier
    /// transaction that is not on disk yet, as with a duplicate.
    pub(crate) fn new(jobs: Vec<Box<dyn Job>>, after: PostCommit, rollback_epoch: u64) -> Self {
        let needs_sync =
            jobs.iter().any(|job| if after.changed { job.needs_sync() } else { job.is_submission() });
        Self { jobs, after, needs_sync, rollback_epoch }
    }
}

/// Completes batches, on the writer's own thread or on a sync thread.
pub(crate) struct Committer {
    inner: Arc<Inner>,
    /// Sync thread, started on first use. With one sender at a time, it is never needed.
    sync_thread: Option<SyncThread>,
}

struct SyncThread {
    batches: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

struct Inner {
    setup: Arc<Setup>,
    /// The log, opened for syncing only. The file stays the same while the writer's connection is open.
    log: Mutex<Option<File>>,
    /// Number of batches that the sync thread has received and not completed.
    in_progress: AtomicUsize,
    /// True if the disk has failed since the writer last checked.
    failed: AtomicBool,
    /// True if the disk has failed and the log has not been completely rewritten since.
    is_broken: AtomicBool,
    /// Journal entries that still have to be rolled back.
    refused: Mutex<Vec<AppendedEntry>>,
    /// Number of rollbacks so far.
    rollback_epoch: AtomicU64,
}

/// Outcome of the repair after a disk failure.
struct RepairOutcome {
    /// Entries that had to stay in the journal, or the error if the rollback failed.
    retained: rusqlite::Result<HashSet<MessageId>>,
    /// Success if the journal is on disk, or the error.
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

    /// Completes a batch after all earlier ones.
    ///
    /// `is_busy` means that the writer has more work meanwhile; otherwise a switch to the sync thread would only cost
    /// time.
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
                // Sending cannot fail, because the thread ends only after this sender is dropped.
                let _ = batches.send(batch);
            }
            _ => self.inner.finish(vec![batch]),
        }
    }

    /// Returns true once after each failure of the disk.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.failed.swap(false, Ordering::AcqRel)
    }

    /// Returns the number of rollbacks so far, to be stored with an open transaction.
    pub(crate) fn rollback_epoch(&self) -> u64 {
        self.inner.rollback_epoch.load(Ordering::Acquire)
    }

    /// Repairs the journal after a disk failure, before anything else is written.
    pub(crate) fn repair(&self) -> Result<(), Arc<rusqlite::Error>> {
        if !self.inner.is_broken.load(Ordering::Acquire) {
            return Ok(());
        }
        let RepairOutcome { retained, on_disk } = self.inner.repair(Vec::new());
        retained.map_err(Arc::new)?;
        on_disk.map_err(Arc::new)
    }

    /// Closes the log file, which the connection may be about to replace.
    pub(crate) fn close_log(&self) {
        *self.inner.log.lock() = None;
    }

    /// Waits until all batches are completed and the sync thread has ended.
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
        // Jobs are completed before other processes are notified: the submitters' next jobs arrive while the
        // notification is sent.
        if changed {
            self.setup.signal.notify();
        }
    }

    /// Ensures that committed batches are durable; syncs the log if needed.
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

    /// Rolls back the messages of these batches and fails their jobs.
    ///
    /// Their deliveries are not handed over: the leases expire, and the deliveries are then checked again.
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

    /// Rolls back entries that are not durable, and rewrites the remaining log.
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
            // If this process ends before the repair, the next process that opens the hub checks the database first.
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
        // checkpointed it. Syncing a new log costs as much as syncing a message, and every start would pay for it.
        if file.metadata().map_err(not_on_disk)?.len() > 0 {
            file.sync_data().map_err(not_on_disk)?;
        }
        *log = Some(file);
        Ok(())
    }
}

/// Builds the error that SQLite itself would have reported for a failed sync.
pub(super) fn not_on_disk(error: impl std::fmt::Display) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}
