//! The handle to the hub: opening and closing, submission, doors and change notification.

mod adoption;
mod coordination;
mod directory;
mod display_lease;
mod doors;
mod messages;
mod notes;
mod pending_submit;
mod relay;
mod submit_leased;
mod unread_reminders;
mod view;

pub use self::notes::Notes;
pub use self::pending_submit::Queued;
pub use self::view::View;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use serde_json::Map;
use switchboard_core::{Address, AgentId, Door, IdClock, Kind, MessageId, NativeId};
use switchboard_sys::blocking;
use switchboard_sys::disk::{self, DiskFault};
use switchboard_sys::files::Dir;
use switchboard_sys::platform::{self, Filesystem};
use switchboard_sys::service_lease::{self, LeaseKey, ServiceLease};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::display_lease::DisplayLease;
use crate::change_signal::{ChangeSignal, POLL_INTERVAL, SLOW_POLL_INTERVAL, SignalWatcher};
use crate::config::HubConfig;
use crate::delivery::outbox::{self, Doors, Outbound};
use crate::delivery::unread_reminders::start_reminding;
use crate::error::{HubError, is_damage, is_suspicious};
use crate::events::{Events, HubEvent};
use crate::journal::extent::Extent;
use crate::journal::maintenance;
use crate::journal::reads;
use crate::journal::search;
use crate::journal::submit::{self, Accepted, Draft, Prepared, RelayedMessage};
use crate::presence::PresenceBoard;
use crate::store::binding::HubKey;
use crate::store::degraded;
use crate::store::open::set_busy_wait;
use crate::store::open_store::OpenStore;
use crate::store::readers::Readers;
use crate::store::recover::{self, DATABASE, DatabaseState, Opened};
use crate::store::wal_monitor::is_short_read;
use crate::store::writer::{CachedDirectory, RunningWriter, Setup, Transaction, Writer};

pub use self::coordination::Selection;

/// Interval at which a hub with an open door looks for retries, expired messages and leases of dead processes.
const TICK: Duration = Duration::from_secs(1);

/// Delay before a short command starts to watch other processes, which takes a thread and a file watcher. Its
/// own work takes a few milliseconds.
const WATCH_DELAY: Duration = Duration::from_millis(20);

/// The running hub. Cloning it is shallow: clones share one state.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    config: HubConfig,
    folder: Dir,
    writer: Writer,
    running_writer: Mutex<Option<RunningWriter>>,
    store: Arc<OpenStore>,
    directory: Mutex<CachedDirectory>,
    doors: Doors,
    events: Events,
    signal: ChangeSignal,
    signal_watcher: Mutex<Option<SignalWatcher>>,
    presence: PresenceBoard,
    ids: Mutex<IdClock>,
    following: AtomicBool,
    ticking: AtomicBool,
    changed_mail: AtomicBool,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    moved_aside: Option<PathBuf>,
    quarantined: Option<PathBuf>,
    planted: Vec<PathBuf>,
    is_local: bool,
}

/// Tells when the journal may have changed, whichever process changed it.
pub struct Changes {
    signal: watch::Receiver<u64>,
    pause: Duration,
    /// The hub, until it watches other processes.
    unwatched: Option<Hub>,
}

impl Changes {
    /// Returns after a write, or after a quarter of a second where file events may be missed, or two seconds
    /// where they hardly can: the caller then polls.
    pub async fn next(&mut self) {
        // The sender lives as long as the hub; without it, the pause still holds.
        let changed = tokio::time::timeout(self.pause, self.signal.changed()).await;
        if changed.is_err()
            && let Some(hub) = self.unwatched.take()
        {
            self.pause = hub.start_watching();
        }
    }
}

impl Hub {
    /// Opens the hub in its folder, which must exist. Other processes may have it open as well.
    pub async fn open(config: HubConfig) -> Result<Self, HubError> {
        blocking::run(move || Self::open_blocking(config)).await.map_err(|_| HubError::Closed)?
    }

    fn open_blocking(config: HubConfig) -> Result<Self, HubError> {
        let folder = Dir::open_root(&config.folder)?;
        let io = |action: &'static str, name: &str| {
            let path = folder.path().join(name);
            move |source| switchboard_sys::files::FileError::Io { action, path, source }
        };
        let key = config.key.as_ref();
        let opened = recover::lock_and_open(&folder, key).or_else(|why| degraded::open(&folder, key, why));
        let (lock, Opened { connection, moved_aside, quarantined, planted }) = opened?;
        let signal = ChangeSignal::open(&folder)?;
        let (doors, events) = (Doors::new(config.clock.clone()), Events::new());
        let database = folder.path().join(DATABASE);
        let connection = Arc::new(Mutex::new(connection));
        let mut readers = Readers::of(database.clone()).bound(folder.clone(), config.key.clone());
        if blocking::is_inline() {
            readers = readers.share_with_writer(connection.clone());
        }
        let store = Arc::new(OpenStore::new(&folder, readers, lock));
        let setup = Setup {
            path: database,
            folder: folder.clone(),
            config: config.clone(),
            doors: doors.clone(),
            events: events.clone(),
            signal: signal.clone(),
            store: store.clone(),
        };
        let (writer, running) =
            Writer::start(connection, setup).map_err(io("start the writer of", DATABASE))?;
        doors.attach(writer.clone());
        let is_local = !platform::is_network_filesystem(folder.path());
        let directory = CachedDirectory::with(config.links.clone());
        let inner = Inner {
            config,
            folder,
            writer,
            running_writer: Mutex::new(Some(running)),
            store,
            directory: Mutex::new(directory),
            doors,
            events,
            signal,
            signal_watcher: Mutex::default(),
            presence: PresenceBoard::default(),
            ids: Mutex::default(),
            following: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            changed_mail: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            moved_aside,
            quarantined,
            planted,
            is_local,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Checks the database in a folder without opening the hub; changes nothing.
    pub async fn check(folder: Dir, key: Option<HubKey>, extent: Extent) -> Result<DatabaseState, HubError> {
        let check = move || recover::check(&folder, key.as_ref(), extent);
        blocking::run(check).await.map_err(|_| HubError::Closed)?
    }

    /// Makes the next process that opens the hub check the database as closely as [`Hub::check`] does, and move
    /// a damaged one aside.
    pub fn mark_suspect(folder: &Dir) {
        recover::mark_suspect(folder);
    }

    /// Accepts no more work, finishes what was queued, and closes the database.
    pub async fn shut_down(&self) {
        self.index_portion().await;
        self.inner.shutdown.cancel();
        self.inner.doors.close();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.writer.stop().await;
        let running = self.inner.running_writer.lock().take();
        if let Some(running) = running {
            running.join().await;
        }
        self.inner.store.readers.close();
    }

    /// Reports why the store cannot be written now; `None` if it can. Reads work either way.
    pub fn disk_trouble(&self) -> Option<DiskFault> {
        disk::probe(&self.inner.folder)
    }

    /// True once after each recovery of the store, so that doors read back what their files hold.
    pub fn consume_recovery(&self) -> bool {
        self.inner.store.consume_recovery()
    }

    /// Waits for a recovery of the store; [`Hub::consume_recovery`] then returns true.
    pub async fn wait_for_recovery(&self) {
        self.inner.store.wait_for_recovery().await;
    }

    /// True while agents may be missing after a recovery of the store.
    pub fn is_rebuilding(&self) -> bool {
        self.inner.store.is_rebuilding()
    }

    /// Leases a service exclusively, or fails with its holder.
    pub fn lease_service(&self, name: &str) -> Result<ServiceLease, HubError> {
        Ok(service_lease::acquire(&self.inner.folder, name, None)?)
    }

    /// Leases a service for a session. A lease that was acquired with the same key is taken over, although its
    /// process still exists: it may be stopped.
    pub fn lease_service_with(&self, name: &str, key: &LeaseKey) -> Result<ServiceLease, HubError> {
        Ok(service_lease::acquire(&self.inner.folder, name, Some(key))?)
    }

    /// Acquires a shared lease on a service, which excludes an exclusive one; `None` if another process holds
    /// it exclusively.
    pub fn share_service(&self, name: &str) -> Result<Option<ServiceLease>, HubError> {
        Ok(service_lease::acquire_shared(&self.inner.folder, name)?)
    }

    /// Describes the process that runs a service; `None` if none does.
    pub fn service_holder(&self, name: &str) -> Result<Option<String>, HubError> {
        Ok(service_lease::holder(&self.inner.folder, name)?)
    }

    /// The settings that it was opened with.
    pub fn config(&self) -> &HubConfig {
        &self.inner.config
    }

    /// The folder with the database.
    pub fn folder(&self) -> &Dir {
        &self.inner.folder
    }

    /// Returns the time of the hub's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.config.clock.now()
    }

    /// True if the folder is on a local disk, so that a file access takes microseconds.
    pub fn is_local(&self) -> bool {
        self.inner.is_local
    }

    /// Path that a foreign database was moved to when this hub was opened.
    pub fn quarantined(&self) -> Option<&PathBuf> {
        self.inner.quarantined.as_ref()
    }

    /// Path that a damaged database was moved to when this hub was opened.
    pub fn moved_aside(&self) -> Option<&PathBuf> {
        self.inner.moved_aside.as_ref()
    }

    /// Returns a new message id, greater than all earlier ones of this process.
    pub fn next_id(&self) -> MessageId {
        self.inner.ids.lock().next(self.now(), fastrand::u128(..))
    }

    /// Creates a draft with the current time, no route and the hub's own id as native id. Its sender is not
    /// verified yet.
    pub fn draft(
        &self,
        door: Door,
        from: AgentId,
        to: Address,
        kind: Kind,
        body: impl Into<String>,
    ) -> Draft {
        let id = self.next_id();
        Draft {
            id,
            from,
            to,
            kind,
            body: body.into(),
            in_reply_to: None,
            sent_at: self.now(),
            expires_at: None,
            metadata: Map::new(),
            native: NativeId { door, scope: String::new(), id: id.to_string() },
            key: None,
            native_is_id: true,
            verified: false,
            route: None,
            signed: None,
            allow_unregistered: false,
            restored: None,
        }
    }

    /// Submits a message. It is on disk when this returns `Ok`; otherwise it was not accepted.
    pub async fn submit(&self, draft: Draft) -> Result<Accepted, HubError> {
        self.queue(draft).await?.accepted().await
    }

    /// Queues a message for the journal. Messages are journaled in the order in which they were queued.
    pub async fn queue(&self, draft: Draft) -> Result<Queued, HubError> {
        let config = &self.inner.config;
        self.queue_one(Prepared::new(draft, config.body_limit, config.metadata_limit)?).await
    }

    /// Submits a message in the hub's own name, [`crate::HUB_NAME`], which is reserved.
    pub async fn submit_as_hub(&self, draft: Draft) -> Result<Accepted, HubError> {
        let config = &self.inner.config;
        let prepared = Prepared::new(draft, config.body_limit, config.metadata_limit)?;
        self.queue_one(prepared.in_hub_name()).await?.accepted().await
    }

    async fn queue_one(&self, prepared: Prepared) -> Result<Queued, HubError> {
        self.note_changed_mail();
        let pending = self.inner.writer.queue(move |tx| submit::submit(tx, prepared)).await?;
        Ok(Queued { hub: self.clone(), pending })
    }

    /// True if this process has accepted, displayed or ended a message.
    pub fn has_changed_mail(&self) -> bool {
        self.inner.changed_mail.load(Ordering::Relaxed)
    }

    fn note_changed_mail(&self) {
        self.inner.changed_mail.store(true, Ordering::Relaxed);
    }

    /// Submits many messages in order, with few waits for the disk. Each has its own result.
    pub async fn submit_all(&self, drafts: Vec<Draft>) -> Vec<Result<Accepted, HubError>> {
        let config = &self.inner.config;
        let prepare = |draft| Prepared::new(draft, config.body_limit, config.metadata_limit);
        self.submit_prepared(drafts.into_iter().map(prepare)).await
    }

    /// Submits messages that other hubs have relayed.
    pub async fn submit_relayed(&self, passed: Vec<RelayedMessage>) -> Vec<Result<Accepted, HubError>> {
        let config = &self.inner.config;
        let prepare = |passed| Prepared::relayed(passed, config.body_limit, config.metadata_limit);
        self.submit_prepared(passed.into_iter().map(prepare)).await
    }

    async fn submit_prepared(
        &self,
        messages: impl Iterator<Item = Result<Prepared, HubError>>,
    ) -> Vec<Result<Accepted, HubError>> {
        self.note_changed_mail();
        let mut pending = Vec::with_capacity(messages.size_hint().0);
        for prepared in messages {
            pending.push(match prepared {
                Ok(prepared) => self.inner.writer.queue(move |tx| submit::submit(tx, prepared)).await,
                Err(error) => Err(error),
            });
        }
        let mut answers = Vec::with_capacity(pending.len());
        for pending in pending {
            let answer = match pending {
                Ok(pending) => pending.result().await,
                Err(error) => Err(error),
            };
            self.note_damage(&answer);
            answers.push(answer);
        }
        answers
    }

    /// Opens a door: from now on this process makes that door's deliveries.
    pub async fn open_door(&self, door: Door) -> Result<Outbound, HubError> {
        let doors = self.inner.doors.clone();
        let opening = self.write(move |tx| {
            outbox::clamp_future_times(tx)?;
            outbox::release_orphaned(tx)?;
            start_reminding(tx)?;
            // The order matters: a door that opens first would get what was queued last before the deliveries
            // of dead processes.
            Ok(doors.open(door))
        });
        let outbound = match opening.await {
            // The tick catches up once the disk can be written again.
            Err(error) if error.is_disk() => {
                tracing::warn!(%error, %door, "nothing can be delivered yet");
                self.inner.doors.open(door)
            }
            opened => opened?,
        };
        if !self.inner.ticking.swap(true, Ordering::Relaxed) {
            let hub = self.clone();
            let ticking = async move { hub.tick().await };
            let shutdown = self.inner.shutdown.clone();
            self.inner.tasks.spawn(async move { shutdown.run_until_cancelled_owned(ticking).await });
        }
        Ok(outbound)
    }

    /// Subscribes to events. The first subscriber makes the hub watch the other processes too.
    pub async fn subscribe(&self) -> Result<broadcast::Receiver<HubEvent>, HubError> {
        let events = self.inner.events.subscribe();
        if !self.inner.following.swap(true, Ordering::Relaxed) {
            let last = self.read(reads::last).await;
            // The next subscriber retries.
            let last = last.inspect_err(|_| self.inner.following.store(false, Ordering::Relaxed))?;
            let (hub, changes) = (self.clone(), self.changes());
            let following = async move { hub.publish_accepted(changes, last).await };
            let shutdown = self.inner.shutdown.clone();
            self.inner.tasks.spawn(async move { shutdown.run_until_cancelled_owned(following).await });
        }
        Ok(events)
    }

    /// Returns a watcher of changes to the journal by any process.
    pub fn changes(&self) -> Changes {
        let signal = self.inner.signal.subscribe();
        if blocking::is_inline() {
            return Changes { signal, pause: WATCH_DELAY, unwatched: Some(self.clone()) };
        }
        Changes { signal, pause: self.start_watching(), unwatched: None }
    }

    /// Starts to watch other processes; returns the poll interval.
    fn start_watching(&self) -> Duration {
        let is_sure =
            self.watch_signal() && platform::filesystem(self.inner.folder.path()) == Filesystem::Local;
        if is_sure { SLOW_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    /// Starts to watch other processes unless it already does; true if file events are available.
    fn watch_signal(&self) -> bool {
        self.inner.signal_watcher.lock().get_or_insert_with(|| self.inner.signal.watch_others()).is_active()
    }

    async fn tick(&self) {
        if blocking::is_inline() {
            // Most short commands have ended before the first tick.
            tokio::time::sleep(TICK).await;
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The transactions of this process look for due deliveries themselves.
        self.watch_signal();
        let mut signal = self.inner.signal.subscribe_to_others();
        for round in 0_u64.. {
            while tokio::select! { _ = ticks.tick() => false, notified = signal.changed() => notified.is_ok() }
            {
                self.lease_due_deliveries().await;
            }
            // Even an empty job makes the writer look for due deliveries.
            self.inner.writer.post(move |tx| {
                outbox::expire_due(tx, 256)?;
                if round % 10 == 0 {
                    outbox::clamp_future_times(tx)?;
                    outbox::release_orphaned(tx)?;
                }
                Ok(())
            });
            self.send_unread_reminders().await;
            let missing = match self.try_read(search::missing) {
                Some(missing) => missing,
                None => self.read(search::missing).await.unwrap_or(0),
            };
            if missing >= search::STEP || (missing > 0 && round % 5 == 0) {
                self.inner.writer.post(|tx| search::catch_up(tx, search::STEP).map(drop));
            }
        }
    }

    /// Wakes the writer if another process has left a due delivery for a door that is open here. Otherwise the
    /// write lock stays free for processes that have something to write.
    async fn lease_due_deliveries(&self) {
        if self.inner.writer.has_queued() {
            return;
        }
        let (doors, now) = (self.inner.doors.all_open(), self.now());
        let is_due = move |db: &Connection| outbox::is_due(db, &doors, now);
        let is_due = match self.try_read(&is_due) {
            Some(is_due) => is_due,
            None => self.read(is_due).await.unwrap_or(false),
        };
        if is_due {
            self.inner.writer.post(|_| Ok(()));
        }
    }

    /// Publishes an event for each message that any process appended.
    async fn publish_accepted(&self, mut changes: Changes, mut last: i64) {
        loop {
            changes.next().await;
            // In pages, so that a subscriber never gets more events at once than its buffer holds.
            while let Ok(page) = self.read(move |db| maintenance::ids_after(db, last)).await {
                let Some((newest, _)) = page.last() else { break };
                last = *newest;
                for (seq, id) in page {
                    self.inner.events.send(HubEvent::Accepted { seq, id });
                }
            }
        }
    }

    /// Runs `work` in the next transaction of the writer.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let result = self.inner.writer.write(work).await;
        self.note_damage(&result);
        result
    }

    /// Runs `work` on a read connection, off the async threads.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, HubError> + Send + 'static,
    {
        let hub = self.clone();
        blocking::run(move || hub.read_blocking(work)).await.map_err(|_| HubError::Closed)?
    }

    /// Runs `work` inline on this thread if nothing can block it. `None` if something can, or if it fails: then
    /// the caller uses [`Hub::read`].
    ///
    /// For reads of a few rows, which take a tenth of the time of a switch to another thread. A reader never
    /// waits for the writer. It could wait for a process that opens or closes the database, so SQLite's busy
    /// wait is off here.
    fn try_read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, HubError>) -> Option<T> {
        if !self.inner.is_local {
            return None;
        }
        let found = self.inner.store.readers.try_lend(|connection| {
            set_busy_wait(connection, false).ok()?;
            let result = work(connection).ok();
            set_busy_wait(connection, true).ok()?;
            result
        });
        found.flatten()
    }

    /// Runs `work` on a read connection, on a thread that may block.
    fn read_blocking<T>(&self, work: impl FnOnce(&Connection) -> Result<T, HubError>) -> Result<T, HubError> {
        let store = &self.inner.store;
        store.database_file.check()?;
        let result = store.readers.lend(|connection| work(connection))?;
        self.note_damage(&result);
        result
    }

    fn note_damage<T>(&self, result: &Result<T, HubError>) {
        if let Err(HubError::Store { source }) = result
            && is_suspicious(source)
        {
            recover::mark_suspect(&self.inner.folder);
        }
        if let Err(HubError::Store { source }) = result
            && (is_damage(source) || is_short_read(source))
        {
            self.inner.store.suspect_log();
            // Even an empty job makes the writer check its files.
            self.inner.writer.post(|_| Ok(()));
        }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
