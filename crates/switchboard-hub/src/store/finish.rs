//! What follows a commit: the wait for the disk, then everybody who waits for it, in the order of the commits.
//!
//! SQLite commits without waiting for the disk (`synchronous=NORMAL`) and this waits instead, with one
//! `fdatasync` of the log. The promise is the same, but while a batch is on its way to the disk the writer
//! works at the next one, and one wait serves all batches that were committed before it began. A log that was
//! written back into the database by another process was waited for by that process.
//!
//! Whoever reads the journal may see a message that moment earlier. After a power failure it may not have been sent;
//! its sender was never told that it was.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::error::HubError;
use crate::store::writer::{After, Job, Setup};

/// Most committed batches that wait for the disk. The writer waits for a place beyond that.
const BATCHES: usize = 4;

/// What one transaction did, once it is committed.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) after: After,
    /// Whether a submitter is told "on disk".
    pub(crate) must_last: bool,
}

/// Finishes batches, on the writer's own thread or beside it.
pub(crate) struct Finisher {
    inner: Arc<Inner>,
    beside: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

struct Inner {
    setup: Arc<Setup>,
    /// The log, open for waiting only. It stays the same file while the writer's connection is open.
    log: Mutex<Option<File>>,
    /// How many batches were given to the thread and are not finished.
    under_way: AtomicUsize,
    failed: AtomicBool,
}

impl Finisher {
    pub(crate) fn start(setup: Arc<Setup>) -> std::io::Result<Self> {
        let (log, failed) = (Mutex::default(), AtomicBool::new(false));
        let inner = Arc::new(Inner { setup, log, under_way: AtomicUsize::new(0), failed });
        let (beside, batches) = sync_channel(BATCHES);
        let working = inner.clone();
        let thread =
            thread::Builder::new().name("switchboard-disk".into()).spawn(move || working.run(&batches))?;
        Ok(Self { inner, beside, thread })
    }

    /// Finishes a batch after those before it. `more` says that the writer has something else to do meanwhile;
    /// where it has not, waking another thread would only cost time.
    pub(crate) fn finish(&self, batch: Batch, more: bool) {
        if !more && self.inner.under_way.load(Ordering::Acquire) == 0 {
            self.inner.finish(vec![batch]);
            return;
        }
        self.inner.under_way.fetch_add(1, Ordering::AcqRel);
        // The thread ends only after this sender is gone.
        let _ = self.beside.send(batch);
    }

    /// Whether the disk has failed since this was last asked.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.failed.swap(false, Ordering::AcqRel)
    }

    /// Lets go of the log, which the connection may be about to leave.
    pub(crate) fn forget_log(&self) {
        *self.inner.log.lock() = None;
    }

    /// Returns once everything is finished.
    pub(crate) fn end(self) {
        drop(self.beside);
        let _ = self.thread.join();
    }
}

impl Inner {
    fn run(&self, batches: &Receiver<Batch>) {
        while let Ok(first) = batches.recv() {
            let together: Vec<Batch> = std::iter::once(first).chain(batches.try_iter()).collect();
            let count = together.len();
            self.finish(together);
            self.under_way.fetch_sub(count, Ordering::AcqRel);
        }
    }

    fn finish(&self, batches: Vec<Batch>) {
        let must_last = batches.iter().any(|batch| batch.must_last);
        let failure = if must_last { self.wait_for_disk().err() } else { None };
        if let Some(error) = &failure {
            tracing::warn!(error = %error, "the disk did not take the journal");
            self.failed.store(true, Ordering::Release);
        }
        let mut changed = false;
        for Batch { jobs, after, .. } in batches {
            changed |= after.changed;
            // What may not last is not handed over: its lease runs out, and then it is looked at again.
            if failure.is_none() {
                after.happen(&self.setup);
            }
            for job in jobs {
                job.finish(failure.clone().map(HubError::from));
            }
        }
        // The submitters before other processes: what they send next comes in while the bell rings.
        if changed {
            self.setup.bell.ring();
        }
    }

    fn wait_for_disk(&self) -> Result<(), Arc<rusqlite::Error>> {
        let mut log = self.log.lock();
        let file = match log.take() {
            Some(file) => file,
            None => self.setup.folder.open_own(&self.setup.log_name()).map_err(not_on_disk)?,
        };
        // An empty log holds nothing that could be lost: what was in it is in the database, waited for by whoever put it
        // there. To wait for a log that was just made costs as much as for a message, and every start would pay for it.
        if file.metadata().map_err(not_on_disk)?.len() > 0 {
            file.sync_data().map_err(not_on_disk)?;
        }
        *log = Some(file);
        Ok(())
    }
}

/// The error that SQLite itself would have told.
fn not_on_disk(error: impl std::fmt::Display) -> Arc<rusqlite::Error> {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
    Arc::new(rusqlite::Error::SqliteFailure(code, Some(error.to_string())))
}
