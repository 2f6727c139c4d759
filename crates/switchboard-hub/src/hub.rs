//! The handle on everything: opening and closing, the way in and out, and what the rest stands on.

mod adoption;
mod doors;
mod leased;
mod link;
mod mail;
mod notes;
mod people;
mod queued;
mod showing;
mod unseen;
mod view;
mod work;

pub use self::notes::Notes;
pub use self::queued::Queued;
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
use switchboard_sys::disk::{self, DiskTrouble};
use switchboard_sys::files::Dir;
use switchboard_sys::platform::{self, Filesystem};
use switchboard_sys::service_lease::{self, LeaseKey, ServiceLease};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::showing::DisplayLease;
use crate::bell::{Bell, Ear, LOOK_EVERY, LOOK_SELDOM};
use crate::config::HubConfig;
use crate::error::{HubError, is_damage, is_suspicious};
use crate::events::{Events, HubEvent};
use crate::extent::Extent;
use crate::maintenance;
use crate::outbox::{self, Doors, Outbound};
use crate::presence::PresenceBoard;
use crate::reads;
use crate::store::binding::HubKey;
use crate::store::cut_log::is_short_read;
use crate::store::degraded;
use crate::store::open::wait_for_others;
use crate::store::open_store::OpenStore;
use crate::store::readers::Readers;
use crate::store::recover::{self, DATABASE, DatabaseState, Opened};
use crate::store::search;
use crate::store::writer::{CachedDirectory, Running, Setup, Work, Writer};
use crate::submit::{self, Accepted, Draft, Prepared, RelayedMessage};
use crate::unseen::begin as begin_judging;

pub use self::work::Selection;

/// How often a hub with an open door looks for retries, expired mail and leases of the dead.
const TICK: Duration = Duration::from_secs(1);

/// How long a short command waits for its own work before it starts to listen to other processes, which takes a thread and
/// a watch on a file. Its own work takes a few milliseconds.
const UNTIL_LISTENING: Duration = Duration::from_millis(20);

/// The running hub. Clones are handles on the same one.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    config: HubConfig,
    folder: Dir,
    writer: Writer,
    running_writer: Mutex<Option<Running>>,
    store: Arc<OpenStore>,
    directory: Mutex<CachedDirectory>,
    doors: Doors,
    events: Events,
    bell: Bell,
    ear: Mutex<Option<Ear>>,
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
    heard: watch::Receiver<u64>,
    pause: Duration,
    /// The hub, while it does not listen to other processes yet.
    deaf: Option<Hub>,
}

impl Changes {
    /// Returns when something was written, or after a quarter of a second where that may go unheard, and two
    /// seconds where it hardly can: look and ask again.
    pub async fn next(&mut self) {
        // The far end lives as long as the hub; without it the pause still holds.
        let changed = tokio::time::timeout(self.pause, self.heard.changed()).await;
        if changed.is_err()
            && let Some(hub) = self.deaf.take()
        {
            self.pause = hub.listen_for_changes();
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
        let bell = Bell::open(&folder)?;
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
            bell: bell.clone(),
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
            bell,
            ear: Mutex::default(),
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

    /// Looks at the database in a folder without opening the hub; changes nothing.
    pub async fn check(folder: Dir, key: Option<HubKey>, extent: Extent) -> Result<DatabaseState, HubError> {
        let check = move || recover::check(&folder, key.as_ref(), extent);
        blocking::run(check).await.map_err(|_| HubError::Closed)?
    }

    /// Has the next one that opens the hub look as closely as [`Hub::check`] does, and move a damaged database aside.
    pub fn mark_suspect(folder: &Dir) {
        recover::mark_suspect(folder);
    }

    /// Stops taking work, finishes what was taken, and lets go of the database.
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

    /// What keeps the store from being written now; `None` where it can be. Everything in it can be read all the same.
    pub fn disk_trouble(&self) -> Option<DiskTrouble> {
        disk::probe(&self.inner.folder)
    }

    /// Whether the store was recovered since this was last asked, so that doors should read back what their files hold.
    pub fn consume_recovery(&self) -> bool {
        self.inner.store.consume_recovery()
    }

    /// Returns once the store was recovered; [`Hub::consume_recovery`] then says so.
    pub async fn wait_for_recovery(&self) {
        self.inner.store.wait_for_recovery().await;
    }

    /// True while agents may be missing after a recovery of the store.
    pub fn is_rebuilding(&self) -> bool {
        self.inner.store.is_rebuilding()
    }

    /// Takes the right to be the one process that runs a service, or says who has it.
    pub fn lease_service(&self, name: &str) -> Result<ServiceLease, HubError> {
        Ok(service_lease::claim(&self.inner.folder, name, None)?)
    }

    /// Claims a service for a session. A lease that was claimed with the same key is taken over, although its process is
    /// still there: it may be stopped.
    pub fn lease_service_with(&self, name: &str, key: &LeaseKey) -> Result<ServiceLease, HubError> {
        Ok(service_lease::claim(&self.inner.folder, name, Some(key))?)
    }

    /// Takes a share in a service, which keeps everybody from having it alone; nothing where somebody has.
    pub fn share_service(&self, name: &str) -> Result<Option<ServiceLease>, HubError> {
        Ok(service_lease::share(&self.inner.folder, name)?)
    }

    /// Who runs a service now, in words; `None` where nobody does.
    pub fn service_holder(&self, name: &str) -> Result<Option<String>, HubError> {
        Ok(service_lease::holder(&self.inner.folder, name)?)
    }

    /// The settings it was opened with.
    pub fn config(&self) -> &HubConfig {
        &self.inner.config
    }

    /// The folder that holds the database.
    pub fn folder(&self) -> &Dir {
        &self.inner.folder
    }

    /// The time, by the hub's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.config.clock.now()
    }

    /// Whether the folder is on a disk of this machine, so that a look at a file takes microseconds.
    pub fn is_local(&self) -> bool {
        self.inner.is_local
    }

    /// Where a database from elsewhere was moved to when this hub was opened.
    pub fn quarantined(&self) -> Option<&PathBuf> {
        self.inner.quarantined.as_ref()
    }

    /// Where a damaged database was moved to when this hub was opened.
    pub fn moved_aside(&self) -> Option<&PathBuf> {
        self.inner.moved_aside.as_ref()
    }

    /// A new id, greater than all before it from this process.
    pub fn next_id(&self) -> MessageId {
        self.inner.ids.lock().next(self.now(), fastrand::u128(..))
    }

    /// A plain message that is written now and came by no route: its door calls it by the hub's own id, and nobody vouches for
    /// its sender yet.
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

    /// Takes a message in. It is on disk when this returns `Ok`, and was not accepted otherwise.
    pub async fn submit(&self, draft: Draft) -> Result<Accepted, HubError> {
        self.queue(draft).await?.accepted().await
    }

    /// Queues a message for the journal. What is queued one after the other is journaled in that order.
    pub async fn queue(&self, draft: Draft) -> Result<Queued, HubError> {
        let config = &self.inner.config;
        self.queue_one(Prepared::new(draft, config.body_limit, config.metadata_limit)?).await
    }

    /// The same for what a door has to say in the hub's own name, [`crate::HUB_NAME`], which nobody else writes under.
    pub async fn submit_as_hub(&self, draft: Draft) -> Result<Accepted, HubError> {
        let config = &self.inner.config;
        let prepared = Prepared::new(draft, config.body_limit, config.metadata_limit)?;
        self.queue_one(prepared.in_the_hubs_name()).await?.accepted().await
    }

    async fn queue_one(&self, prepared: Prepared) -> Result<Queued, HubError> {
        self.note_changed_mail();
        let pending = self.inner.writer.queue(move |tx| submit::submit(tx, prepared)).await?;
        Ok(Queued { hub: self.clone(), pending })
    }

    /// Whether this process has taken in, shown or ended a message.
    pub fn has_changed_mail(&self) -> bool {
        self.inner.changed_mail.load(Ordering::Relaxed)
    }

    fn note_changed_mail(&self) {
        self.inner.changed_mail.store(true, Ordering::Relaxed);
    }

    /// Takes many messages in, in this order, with few waits for the disk. Each has its own answer.
    pub async fn submit_all(&self, drafts: Vec<Draft>) -> Vec<Result<Accepted, HubError>> {
        let config = &self.inner.config;
        let prepare = |draft| Prepared::new(draft, config.body_limit, config.metadata_limit);
        self.submit_prepared(drafts.into_iter().map(prepare)).await
    }

    /// The same for messages that other hubs passed on.
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

    /// Opens a door: from now on this process works off that door's deliveries.
    pub async fn open_door(&self, door: Door) -> Result<Outbound, HubError> {
        let doors = self.inner.doors.clone();
        let opening = self.write(move |tx| {
            outbox::bound_times(tx)?;
            outbox::release_gone(tx)?;
            begin_judging(tx)?;
            // Not before: what was queued last would be handed over before what had been taken by a process that is gone.
            Ok(doors.open(door))
        });
        let outbound = match opening.await {
            // The tick does the rest, once the disk can be written again.
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

    /// Subscribes to what happens. The first subscriber makes the hub follow the other processes too.
    pub async fn subscribe(&self) -> Result<broadcast::Receiver<HubEvent>, HubError> {
        let events = self.inner.events.subscribe();
        if !self.inner.following.swap(true, Ordering::Relaxed) {
            let last = self.read(reads::last).await;
            // The next subscriber tries again.
            let last = last.inspect_err(|_| self.inner.following.store(false, Ordering::Relaxed))?;
            let (hub, changes) = (self.clone(), self.changes());
            let following = async move { hub.follow(changes, last).await };
            let shutdown = self.inner.shutdown.clone();
            self.inner.tasks.spawn(async move { shutdown.run_until_cancelled_owned(following).await });
        }
        Ok(events)
    }

    /// Tells when the journal may have changed, whichever process changed it.
    pub fn changes(&self) -> Changes {
        let heard = self.inner.bell.listen();
        if blocking::is_inline() {
            return Changes { heard, pause: UNTIL_LISTENING, deaf: Some(self.clone()) };
        }
        Changes { heard, pause: self.listen_for_changes(), deaf: None }
    }

    /// Begins to hear other processes; returns how long to wait for them until the next look.
    fn listen_for_changes(&self) -> Duration {
        let is_sure =
            self.listen_to_the_bell() && platform::filesystem(self.inner.folder.path()) == Filesystem::Local;
        if is_sure { LOOK_SELDOM } else { LOOK_EVERY }
    }

    /// Begins to hear other processes, where this one does not already; says whether it does.
    fn listen_to_the_bell(&self) -> bool {
        self.inner.ear.lock().get_or_insert_with(|| self.inner.bell.hear_others()).hears()
    }

    async fn tick(&self) {
        if blocking::is_inline() {
            // Most short commands have ended by then.
            tokio::time::sleep(TICK).await;
        }
        let mut beat = tokio::time::interval(TICK);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // What this process writes itself is looked through by the transaction that writes it.
        self.listen_to_the_bell();
        let mut heard = self.inner.bell.listen_to_others();
        for round in 0_u64.. {
            while tokio::select! { _ = beat.tick() => false, rung = heard.changed() => rung.is_ok() } {
                self.claim_if_due().await;
            }
            // Even an empty job makes the writer look for what is due.
            self.inner.writer.post(move |tx| {
                outbox::expire_due(tx, 256)?;
                if round % 10 == 0 {
                    outbox::bound_times(tx)?;
                    outbox::release_gone(tx)?;
                }
                Ok(())
            });
            self.tell_unseen().await;
            let missing = match self.glance(search::missing) {
                Some(missing) => missing,
                None => self.read(search::missing).await.unwrap_or(0),
            };
            if missing >= search::STEP || (missing > 0 && round % 5 == 0) {
                self.inner.writer.post(|tx| search::catch_up(tx, search::STEP).map(drop));
            }
        }
    }

    /// Makes the writer look when another process has left something for a door that is open here.
    /// Only then: the write lock is left to those who have something to write.
    async fn claim_if_due(&self) {
        if self.inner.writer.has_queued() {
            return;
        }
        let (doors, now) = (self.inner.doors.all_open(), self.now());
        let is_due = move |db: &Connection| outbox::is_due(db, &doors, now);
        let is_due = match self.glance(&is_due) {
            Some(is_due) => is_due,
            None => self.read(is_due).await.unwrap_or(false),
        };
        if is_due {
            self.inner.writer.post(|_| Ok(()));
        }
    }

    /// Turns what any process appended to the journal into events.
    async fn follow(&self, mut changes: Changes, mut last: i64) {
        loop {
            changes.next().await;
            // In steps, so that a reader is never handed more than its buffer holds at once.
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
        F: FnOnce(&mut Work<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let result = self.inner.writer.write(work).await;
        self.note_damage(&result);
        result
    }

    /// Runs `work` on a reading connection, away from the tasks that must not wait.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, HubError> + Send + 'static,
    {
        let hub = self.clone();
        blocking::run(move || hub.read_blocking(work)).await.map_err(|_| HubError::Closed)?
    }

    /// Runs `work` at once on this thread, where nothing can keep it waiting; otherwise the answer is `None`,
    /// also where it fails, and [`Hub::read`] is to be asked.
    ///
    /// For looks at a few rows, which take a tenth of the time that it takes to have another thread look. A
    /// reader waits for no writer; it could wait for a process that opens or closes the database, and that
    /// SQLite is told not to do here.
    fn glance<T>(&self, work: impl FnOnce(&Connection) -> Result<T, HubError>) -> Option<T> {
        if !self.inner.is_local {
            return None;
        }
        let glanced = self.inner.store.readers.lend_at_once(|connection| {
            wait_for_others(connection, false).ok()?;
            let result = work(connection).ok();
            wait_for_others(connection, true).ok()?;
            result
        });
        glanced.flatten()
    }

    /// Runs `work` on a reading connection, on a thread that may wait.
    fn read_blocking<T>(&self, work: impl FnOnce(&Connection) -> Result<T, HubError>) -> Result<T, HubError> {
        let store = &self.inner.store;
        store.place.check()?;
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
            // Even an empty job makes the writer look at its files.
            self.inner.writer.post(|_| Ok(()));
        }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
