//! What follows a commit: the wait for the disk, then everybody who waits for it, in the order of the commits.
//!
//! SQLite commits without waiting for the disk (`synchronous=NORMAL`) and this waits instead, with one
//! `fdatasync` of the log. The promise is the same, but while a batch is on its way to the disk the writer
//! works at the next one, and one wait serves all batches that were committed before it began. A log that was
//! written back into the database by another process was waited for by that process.
//!
//! Whoever reads the journal may see a message that moment earlier. After a power failure it may not have been sent;
//! its sender was never told that it was. Where the wait fails, the message is taken back: see `store::refused`. Where
//! even that fails, its sender is told that nobody knows.

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
use crate::store::refused::{Appended, take_back, write_anew};
use crate::store::writer::{After, Job, Setup};

/// Most committed batches that wait for the disk. The writer waits for a place beyond that.
const BATCHES: usize = 4;

/// What one transaction did, once it is committed.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) after: After,
    /// Whether a submitter is told "on disk".
    must_last: bool,
    /// How often something had been taken back, as of the transaction: it may rest on what was taken back since.
    pub(crate) age: u64,
}

impl Batch {
    /// A batch that changed nothing is on disk already. The answer to a submission may rest on a transaction before it that is
    /// not, as with a duplicate.
    pub(crate) fn new(jobs: Vec<Box<dyn Job>>, after: After, age: u64) -> Self {
        let must_last =
            jobs.iter().any(|job| if after.changed { job.must_last() } else { job.is_submission() });
        Self { jobs, after, must_last, age }
    }
}

/// Finishes batches, on the writer's own thread or beside it.
pub(crate) struct Finisher {
    inner: Arc<Inner>,
    /// Started when it is first needed: with one sender at a time it never is.
    beside: Option<Beside>,
}

struct Beside {
    batches: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

struct Inner {
    setup: Arc<Setup>,
    /// The log, open for waiting only. It stays the same file while the writer's connection is open.
    log: Mutex<Option<File>>,
    /// How many batches were given to the thread and are not finished.
    under_way: AtomicUsize,
    /// Whether the disk has failed and the writer has not asked since.
    failed: AtomicBool,
    /// Whether the disk has failed and not everything in the log has been written anew.
    is_broken: AtomicBool,
    /// What is still to be taken back.
    refused: Mutex<Vec<Appended>>,
    /// How often something was taken back.
    age: AtomicU64,
}

/// What an attempt to mend came to.
struct Mended {
    /// What had to stay in the journal, where the rest could be taken back.
    kept: rusqlite::Result<HashSet<MessageId>>,
    /// Whether the journal is on disk.
    on_disk: rusqlite::Result<()>,
}

impl Finisher {
    pub(crate) fn of(setup: Arc<Setup>) -> Self {
        let inner = Arc::new(Inner {
            setup,
            log: Mutex::default(),
            under_way: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            refused: Mutex::default(),
            age: AtomicU64::new(0),
        });
        Self { inner, beside: None }
    }

    /// Finishes a batch after those before it. `is_busy` says that the writer has much else to do meanwhile; where it has
    /// not, waking another thread would only cost time.
    pub(crate) fn finish(&mut self, batch: Batch, is_busy: bool) {
        let is_needed = is_busy || self.inner.under_way.load(Ordering::Acquire) > 0;
        if is_needed && self.beside.is_none() {
            self.beside = Beside::start(self.inner.clone())
                .inspect_err(|error| tracing::warn!(%error, "the writer waits for the disk itself"))
                .ok();
        }
        match &self.beside {
            Some(Beside { batches, .. }) if is_needed => {
                self.inner.under_way.fetch_add(1, Ordering::AcqRel);
                // The thread ends only after this sender is gone.
                let _ = batches.send(batch);
            }
            _ => self.inner.finish(vec![batch]),
        }
    }

    /// Whether the disk has failed since this was last asked.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.failed.swap(false, Ordering::AcqRel)
    }

    /// How often something was taken back, for a transaction that is open.
    pub(crate) fn age(&self) -> u64 {
        self.inner.age.load(Ordering::Acquire)
    }

    /// Puts right what the disk has left undone, where it has, before anything else is written.
    pub(crate) fn mend(&self) -> Result<(), Arc<rusqlite::Error>> {
        if !self.inner.is_broken.load(Ordering::Acquire) {
            return Ok(());
        }
        let Mended { kept, on_disk } = self.inner.mend(Vec::new());
        kept.map_err(Arc::new)?;
        on_disk.map_err(Arc::new)
    }

    /// Lets go of the log, which the connection may be about to leave.
    pub(crate) fn forget_log(&self) {
        *self.inner.log.lock() = None;
    }

    /// Returns once everything is finished.
    pub(crate) fn end(self) {
        if let Some(Beside { batches, thread }) = self.beside {
            drop(batches);
            let _ = thread.join();
        }
    }
}

impl Beside {
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
            let together: Vec<Batch> = std::iter::once(first).chain(batches.try_iter()).collect();
            let count = together.len();
            self.finish(together);
            self.under_way.fetch_sub(count, Ordering::AcqRel);
        }
    }

    fn finish(&self, batches: Vec<Batch>) {
        if let Err(error) = self.check(&batches) {
            tracing::warn!(error = %error, "the disk did not take the journal");
            self.failed.store(true, Ordering::Release);
            self.refuse(batches, &error);
            return;
        }
        if let Err(deleted) = self.setup.store.place.check() {
            for job in batches.into_iter().flat_map(|batch| batch.jobs) {
                job.finish(Some(deleted.again()));
            }
            return;
        }
        let mut changed = false;
        for Batch { jobs, after, .. } in batches {
            changed |= after.changed;
            after.happen(&self.setup);
            for job in jobs {
                job.finish(None);
            }
        }
        // The submitters before other processes: what they send next comes in while the bell rings.
        if changed {
            self.setup.bell.ring();
        }
    }

    /// Whether what was committed can be told.
    fn check(&self, batches: &[Batch]) -> Result<(), Arc<rusqlite::Error>> {
        let age = self.age.load(Ordering::Acquire);
        if self.is_broken.load(Ordering::Acquire) || batches.iter().any(|batch| batch.age != age) {
            return Err(Arc::new(not_on_disk("an earlier write has failed")));
        }
        if batches.iter().any(|batch| batch.must_last) {
            self.wait_for_disk().map_err(Arc::new)?;
        }
        Ok(())
    }

    /// Takes the messages of these batches back, and says so. What may not last is not handed over: its lease runs out,
    /// and then it is looked at again.
    fn refuse(&self, batches: Vec<Batch>, error: &Arc<rusqlite::Error>) {
        let submitted = |batch: &Batch, entry: &Appended| {
            batch.jobs.get(entry.job).is_some_and(|job| job.is_submission())
        };
        let refused = batches
            .iter()
            .flat_map(|batch| batch.after.appended.iter().filter(|entry| submitted(batch, entry)))
            .copied()
            .collect();
        let Mended { kept, on_disk } = self.mend(refused);
        for batch in batches {
            let appended = batch.after.appended;
            for (number, job) in batch.jobs.into_iter().enumerate() {
                let stays = |kept: &HashSet<MessageId>| {
                    appended.iter().any(|entry| entry.job == number && kept.contains(&entry.id))
                };
                let failure = match &kept {
                    _ if !job.is_submission() => Some(error.clone().into()),
                    Ok(kept) if !stays(kept) => Some(error.clone().into()),
                    Ok(_) if on_disk.is_ok() => None,
                    Ok(_) | Err(_) => Some(HubError::OutcomeUnknown { source: error.clone() }),
                };
                job.finish(failure);
            }
        }
        self.setup.bell.ring();
    }

    /// Takes back what is to be taken back, and has everything else in the log written anew.
    fn mend(&self, more: Vec<Appended>) -> Mended {
        let mut refused = self.refused.lock();
        self.is_broken.store(true, Ordering::Release);
        refused.extend(more);
        let mended = match self.setup.open_database() {
            Ok(mut db) => {
                let owner = self.setup.doors.owner();
                let next_age = || {
                    self.age.fetch_add(1, Ordering::AcqRel);
                };
                let kept = take_back(&mut db, &refused, owner, self.setup.config.clock.now(), next_age);
                if kept.is_ok() {
                    refused.clear();
                }
                let mut log = self.log.lock();
                *log = None;
                let fresh = self.setup.folder.open_own(&self.setup.log_name()).map_err(not_on_disk);
                let on_disk = fresh.and_then(|file| {
                    write_anew(&db, &file)?;
                    *log = Some(file);
                    Ok(())
                });
                Mended { kept, on_disk }
            }
            Err(error) => Mended { kept: Err(not_on_disk(&error)), on_disk: Err(not_on_disk(&error)) },
        };
        if mended.kept.is_ok() && mended.on_disk.is_ok() {
            self.is_broken.store(false, Ordering::Release);
        } else {
            // Should this process end before it is mended, the next one looks first.
            recover::mark_suspect(&self.setup.folder);
        }
        mended
    }

    fn wait_for_disk(&self) -> rusqlite::Result<()> {
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
pub(super) fn not_on_disk(error: impl std::fmt::Display) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}
