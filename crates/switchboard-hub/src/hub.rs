//! Handle to the hub: opens and closes it, and gives access to its parts.

mod agents;
mod breakers;
mod changes;
mod claims;
mod database;
mod deliveries;
mod directory;
mod display_lease;
mod foreign_database;
mod journal;
mod mailboxes;
mod native_ids;
mod notes;
mod pending_submit;
mod relay;
mod services;
mod submission;
mod tick;
mod unread_reminders;
mod view;

pub use self::agents::Agents;
pub use self::breakers::{Breakers, Selection};
pub use self::changes::Changes;
pub use self::claims::Claims;
pub use self::database::Database;
pub use self::deliveries::Deliveries;
pub use self::display_lease::DisplayLease;
pub use self::journal::Journal;
pub use self::mailboxes::Mailboxes;
pub use self::native_ids::NativeIds;
pub use self::notes::{Notes, NotesTransaction};
pub use self::pending_submit::Queued;
pub use self::relay::Relay;
pub use self::services::Services;
pub use self::view::View;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_core::{Door, IdClock};
use switchboard_sys::blocking;
use switchboard_sys::files::Dir;
use switchboard_sys::platform;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::change_signal::{ChangeSignal, SignalWatcher};
use crate::config::HubConfig;
use crate::delivery::outbox::Doors;
use crate::error::{HubError, is_damage, is_suspicious};
use crate::events::Events;
use crate::presence::PresenceBoard;
use crate::store::degraded;
use crate::store::open::set_busy_wait;
use crate::store::open_store::OpenStore;
use crate::store::readers::Readers;
use crate::store::recover::{self, DATABASE, Opened};
use crate::store::wal_monitor::is_short_read;
use crate::store::writer::{CachedDirectory, RunningWriter, Setup, Transaction, Writer};

/// Handle to the running hub. Cloning it is shallow: clones share one state.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

/// Boxed closure that runs on a read connection.
type ReadWork<T> = Box<dyn FnOnce(&Connection) -> Result<T, HubError> + Send>;

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

impl Hub {
    /// Opens the hub in its folder, which must exist.
    ///
    /// Other processes may have the hub open as well.
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
        let opened =
            recover::lock_and_open(&folder, key).or_else(|reason| degraded::open(&folder, key, reason));
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

    /// Shuts the hub down: refuses new work, finishes queued work, and closes the database.
    pub async fn shut_down(&self) {
        self.journal().index_portion().await;
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

    /// Returns access to the journal of accepted messages.
    pub fn journal(&self) -> Journal<'_> {
        Journal { hub: self }
    }

    /// Returns access to native ids, the message ids in the protocols of the doors.
    pub fn native_ids(&self) -> NativeIds<'_> {
        NativeIds { hub: self }
    }

    /// Returns access to the agents' mailboxes and to what their readers have seen.
    pub fn mailboxes(&self) -> Mailboxes<'_> {
        Mailboxes { hub: self }
    }

    /// Returns access to agents, teams and peers, with their presence and activity.
    pub fn agents(&self) -> Agents<'_> {
        Agents { hub: self }
    }

    /// Returns access to task claims and file reservations.
    pub fn claims(&self) -> Claims<'_> {
        Claims { hub: self }
    }

    /// Returns access to the circuit breakers and the messages that they stop.
    pub fn breakers(&self) -> Breakers<'_> {
        Breakers { hub: self }
    }

    /// Returns access to deliveries and the doors that make them.
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries { hub: self }
    }

    /// Returns access to the relay of messages to linked hubs.
    pub fn relay(&self) -> Relay<'_> {
        Relay { hub: self }
    }

    /// Returns access to the notes of a door, which are its persistent key-value state.
    pub fn notes(&self, door: Door) -> Notes<'_> {
        Notes { hub: self, door }
    }

    /// Returns access to the leases of services.
    pub fn services(&self) -> Services<'_> {
        Services { hub: self }
    }

    /// Returns access to the database file, its health and its recovery.
    pub fn database(&self) -> Database<'_> {
        Database { hub: self }
    }

    /// Returns the settings with which the hub was opened.
    pub fn config(&self) -> &HubConfig {
        &self.inner.config
    }

    /// Returns the folder that contains the database.
    pub fn folder(&self) -> &Dir {
        &self.inner.folder
    }

    /// Returns the time of the hub's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.config.clock.now()
    }

    /// Returns true if the folder is on a local disk, where a file access takes microseconds.
    pub fn is_local(&self) -> bool {
        self.inner.is_local
    }

    /// Returns true if this process has accepted, displayed or ended a message.
    pub fn has_changed_mail(&self) -> bool {
        self.inner.changed_mail.load(Ordering::Relaxed)
    }

    fn note_changed_mail(&self) {
        self.inner.changed_mail.store(true, Ordering::Relaxed);
    }

    /// Runs `work` in the next write transaction.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, HubError> + Send + 'static,
    {
        let result = self.inner.writer.write(work).await;
        self.note_damage(&result);
        result
    }

    /// Runs `work` on a read connection, outside the async threads.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, HubError> + Send + 'static,
    {
        self.read_boxed(Box::new(work)).await
    }

    /// Implements [`Hub::read`], compiled once per result type instead of once per closure.
    async fn read_boxed<T: Send + 'static>(&self, work: ReadWork<T>) -> Result<T, HubError> {
        let hub = self.clone();
        blocking::run(move || hub.read_blocking(work)).await.map_err(|_| HubError::Closed)?
    }

    /// Runs `work` inline on this thread if nothing can block it.
    ///
    /// Returns `None` if something can block it, or if it fails; the caller then uses [`Hub::read`].
    ///
    /// This is for reads of a few rows, which take a tenth of the time of a switch to another thread. A reader never
    /// waits for the writer, but could wait for a process that opens or closes the database, so SQLite's busy wait is
    /// off here.
    fn try_read<T>(&self, work: &dyn Fn(&Connection) -> Result<T, HubError>) -> Option<T> {
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

    /// Runs `work` on a read connection, on a thread that is allowed to block.
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
            // Any job, even an empty one, makes the writer check its files.
            self.inner.writer.post(|_| Ok(()));
        }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
