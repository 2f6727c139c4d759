//! The handle on everything.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_core::{
    AgentId, AgentRecord, Delivery, DeliveryState, Directory, Door, Heartbeat, IdClock, MessageId, Name,
    Presence, Receipt, Route, TeamRecord,
};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bell::{Bell, Ear, LOOK_EVERY};
use crate::config::HubConfig;
use crate::directory::{self, Registration};
use crate::error::{HubError, is_suspicious};
use crate::events::{Events, HubEvent};
use crate::files::Dir;
use crate::maintenance;
use crate::outbox::{self, Doors, Outbound};
use crate::presence::PresenceBoard;
use crate::reads::{self, Mail, MailboxQuery, Page, Waiting};
use crate::service::{self, Service};
use crate::store::open::open_for_reading;
use crate::store::recover::{self, DATABASE, DatabaseState, Opened};
use crate::store::rows::Stored;
use crate::store::search;
use crate::store::writer::{CachedDirectory, Setup, Work, Writer};
use crate::submit::{self, Accepted, Draft, Prepared};

/// Most reading connections kept open; a further reader opens one of its own and closes it again.
const READERS: usize = 4;

/// How often a hub with an open door looks for retries, expired mail and leases of the dead.
const TICK: Duration = Duration::from_secs(1);

/// The running hub. Clones are handles on the same one.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    config: HubConfig,
    folder: Dir,
    database: PathBuf,
    writer: Writer,
    writer_thread: Mutex<Option<JoinHandle<()>>>,
    readers: Mutex<Vec<Connection>>,
    directory: Mutex<CachedDirectory>,
    doors: Doors,
    events: Events,
    bell: Bell,
    ear: Mutex<Option<Ear>>,
    presence: PresenceBoard,
    ids: Mutex<IdClock>,
    following: AtomicBool,
    ticking: AtomicBool,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    moved_aside: Option<PathBuf>,
    /// Held shared for as long as the hub is open: see `recover`.
    _lock: File,
}

/// Tells when the journal may have changed, whichever process changed it.
pub struct Changes {
    heard: watch::Receiver<u64>,
}

impl Changes {
    /// Returns when something was written, or after a quarter of a second: look and ask again.
    pub async fn next(&mut self) {
        // The far end lives as long as the hub; without it the pause still holds.
        let _ = tokio::time::timeout(LOOK_EVERY, self.heard.changed()).await;
    }
}

impl Hub {
    /// Opens the hub in its folder, which must exist. Other processes may have it open as well.
    pub async fn open(config: HubConfig) -> Result<Self, HubError> {
        tokio::task::spawn_blocking(move || Self::open_blocking(config))
            .await
            .map_err(|_| HubError::Closed)?
    }

    fn open_blocking(config: HubConfig) -> Result<Self, HubError> {
        let folder = Dir::open_root(&config.folder)?;
        let io = |action: &'static str, name: &str| {
            let path = folder.path().join(name);
            move |source| crate::files::FileError::Io { action, path, source }
        };
        let lock = folder.open_own("hub.lock")?;
        lock.lock_shared().map_err(io("lock", "hub.lock"))?;
        let Opened { connection, moved_aside } = recover::open_or_recover(&folder, &lock)?;
        let bell = Bell::open(&folder)?;
        let (doors, events) = (Doors::new(config.clock.clone()), Events::new());
        let database = folder.path().join(DATABASE);
        let setup = Setup {
            path: database.clone(),
            folder: folder.clone(),
            config: config.clone(),
            doors: doors.clone(),
            events: events.clone(),
            bell: bell.clone(),
        };
        let (writer, thread) =
            Writer::start(connection, setup).map_err(io("start the writer of", DATABASE))?;
        doors.attach(writer.clone());
        let inner = Inner {
            config,
            folder,
            database,
            writer,
            writer_thread: Mutex::new(Some(thread)),
            readers: Mutex::default(),
            directory: Mutex::default(),
            doors,
            events,
            bell,
            ear: Mutex::default(),
            presence: PresenceBoard::default(),
            ids: Mutex::default(),
            following: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            moved_aside,
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Looks at the database in a folder without opening the hub; changes nothing.
    pub async fn check(folder: Dir) -> Result<DatabaseState, HubError> {
        let check = move || recover::check(&folder);
        tokio::task::spawn_blocking(check).await.map_err(|_| HubError::Closed)?
    }

    /// Stops taking work, finishes what was taken, and lets go of the database.
    pub async fn shut_down(&self) {
        self.inner.shutdown.cancel();
        self.inner.doors.close();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.writer.stop().await;
        let thread = self.inner.writer_thread.lock().take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        self.inner.readers.lock().clear();
    }

    /// Takes no further deliveries; those already handed over can still be reported on.
    pub fn close_doors(&self) {
        self.inner.doors.close();
    }

    /// Takes the right to be the one process that runs a service, or says who has it.
    pub fn claim_service(&self, name: &'static str) -> Result<Service, HubError> {
        service::claim(&self.inner.folder, name)
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

    /// Where a damaged database was moved to when this hub was opened.
    pub fn moved_aside(&self) -> Option<&PathBuf> {
        self.inner.moved_aside.as_ref()
    }

    /// A new id, greater than all before it from this process.
    pub fn next_id(&self) -> MessageId {
        self.inner.ids.lock().next(self.now(), fastrand::u128(..))
    }

    /// Takes a message in. It is on disk when this returns `Ok`, and was not accepted otherwise.
    pub async fn submit(&self, draft: Draft) -> Result<Accepted, HubError> {
        let config = &self.inner.config;
        let prepared = Prepared::new(draft, config.body_limit, config.metadata_limit)?;
        self.write(move |tx| submit::submit(tx, prepared)).await
    }

    /// Takes many messages in, in this order, with few waits for the disk. Each has its own answer.
    pub async fn submit_all(&self, drafts: Vec<Draft>) -> Vec<Result<Accepted, HubError>> {
        let config = &self.inner.config;
        let mut pending = Vec::with_capacity(drafts.len());
        for draft in drafts {
            pending.push(match Prepared::new(draft, config.body_limit, config.metadata_limit) {
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

    /// Registers an agent, or adds to what is known of it.
    pub async fn register(&self, new: Registration) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::register(tx, new)).await
    }

    /// Removes an agent; its mail stays. False where it was not known.
    pub async fn deregister(&self, name: Name) -> Result<bool, HubError> {
        self.inner.presence.forget(&AgentId::local(name.clone()));
        self.write(move |tx| directory::deregister(tx, &name)).await
    }

    /// Takes away one way to reach an agent.
    pub async fn remove_route(&self, name: Name, route: Route) -> Result<(), HubError> {
        self.write(move |tx| directory::remove_route(tx, &name, &route)).await
    }

    /// Gives an agent another name; the old one goes on leading to it.
    pub async fn rename(&self, from: Name, to: Name) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::rename(tx, &from, &to)).await
    }

    /// Makes a team, or changes its title.
    pub async fn create_team(
        &self,
        id: Name,
        title: Option<String>,
        composite: bool,
    ) -> Result<TeamRecord, HubError> {
        self.write(move |tx| directory::create_team(tx, id, title, composite)).await
    }

    /// Puts an agent into a team, or out of any.
    pub async fn assign(&self, agent: Name, team: Option<Name>) -> Result<AgentRecord, HubError> {
        self.write(move |tx| directory::assign(tx, &agent, team.as_ref())).await
    }

    /// Everyone who is known, as of now.
    pub async fn directory(&self) -> Result<Arc<Directory>, HubError> {
        let hub = self.clone();
        self.read(move |db| {
            let mut cached = hub.inner.directory.lock();
            cached.refresh(db)?;
            Ok(cached.value.clone())
        })
        .await
    }

    /// Notes a sign of life of an agent.
    pub fn announce(&self, agent: AgentId, status: &str, message: Option<&str>) {
        let beat = Heartbeat {
            agent: agent.clone(),
            at: self.now(),
            status: status.to_owned(),
            message: message.map(str::to_owned),
        };
        self.hear(beat);
    }

    /// Takes over a sign of life that was given elsewhere, at the time it was given.
    pub fn hear(&self, beat: Heartbeat) {
        let agent = beat.agent.clone();
        self.inner.presence.hear(beat);
        self.inner.events.send(HubEvent::Presence(Box::new(self.presence(&agent))));
    }

    /// Whether an agent is awake, as far as this process has heard.
    pub fn presence(&self, agent: &AgentId) -> Presence {
        self.inner.presence.of(agent, self.now(), self.inner.config.presence)
    }

    /// Opens a door: from now on this process works off that door's deliveries.
    pub async fn open_door(&self, door: Door) -> Result<Outbound, HubError> {
        let outbound = self.inner.doors.open(door);
        self.write(|tx| outbox::bound_times(tx).and_then(|()| outbox::release_gone(tx))).await?;
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
        self.inner.ear.lock().get_or_insert_with(|| self.inner.bell.hear_others());
        Changes { heard: self.inner.bell.listen() }
    }

    /// The message of this id.
    pub async fn message(&self, id: MessageId) -> Result<Option<Stored>, HubError> {
        self.read(move |db| reads::message(db, id)).await
    }

    /// A message with what its sender may be told.
    pub async fn receipt(&self, id: MessageId) -> Result<Option<(Stored, Receipt)>, HubError> {
        self.read(move |db| reads::receipt(db, id)).await
    }

    /// The messages that a protocol (or any, for `None`) calls by this id: scope and message, newest first.
    pub async fn by_native(
        &self,
        door: Option<Door>,
        id: &str,
    ) -> Result<Vec<(String, MessageId)>, HubError> {
        let id = id.to_owned();
        self.read(move |db| reads::by_native(db, door, &id)).await
    }

    /// A page of an agent's mailbox.
    pub async fn mailbox(&self, query: MailboxQuery) -> Result<Page<Mail>, HubError> {
        let now = self.now();
        self.read(move |db| {
            let agent = directory::canonical(db, &query.agent)?;
            reads::mailbox(db, &MailboxQuery { agent, ..query }, now)
        })
        .await
    }

    /// How many messages wait for an agent; counting stops at `most`.
    pub async fn unread(&self, agent: AgentId, most: usize) -> Result<usize, HubError> {
        let now = self.now();
        self.read(move |db| reads::unread(db, &directory::canonical(db, &agent)?, most, now)).await
    }

    /// Everything that must have a file in an agent's mailbox folder.
    pub async fn waiting(&self, agent: AgentId) -> Result<Vec<Waiting>, HubError> {
        self.read(move |db| reads::waiting(db, &directory::canonical(db, &agent)?)).await
    }

    /// A page of the journal after a cursor, in order of acceptance.
    pub async fn journal(&self, after: i64, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::journal(db, after, limit)).await
    }

    /// The last messages of the journal, oldest first.
    pub async fn newest(&self, count: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::newest(db, count)).await
    }

    /// The conversation a message belongs to.
    pub async fn thread(&self, root: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::thread(db, root, limit)).await
    }

    /// The answers to a message.
    pub async fn replies(&self, id: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
        self.read(move |db| reads::replies(db, id, limit)).await
    }

    /// The newest messages that hold all of the words, older than `before`.
    pub async fn search(
        &self,
        words: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<Stored>, HubError> {
        if self.read(search::is_behind).await? {
            while self.write(search::catch_up).await? {}
        }
        let words = words.to_owned();
        self.read(move |db| reads::search(db, &words, before, limit)).await
    }

    /// Notes that an agent was shown these messages; returns those for which that is new.
    pub async fn mark_seen(&self, agent: AgentId, ids: Vec<MessageId>) -> Result<Vec<Delivery>, HubError> {
        self.write(move |tx| {
            let agent = tx.directory.value.canonical(&agent);
            maintenance::advance(tx, &agent, &ids, DeliveryState::Seen, None)
        })
        .await
    }

    /// Notes that an agent is done with a message; nothing is returned where that is old news.
    pub async fn acknowledge(
        &self,
        agent: AgentId,
        id: MessageId,
        note: Option<String>,
    ) -> Result<Option<Delivery>, HubError> {
        self.write(move |tx| {
            let agent = tx.directory.value.canonical(&agent);
            let delivery = maintenance::delivery_to(tx.db, id, &agent)?;
            if delivery.is_none() {
                return Err(HubError::NotTheRecipient { id, agent });
            }
            Ok(maintenance::advance(tx, &agent, &[id], DeliveryState::Acknowledged, note)?.pop())
        })
        .await
    }

    /// Ends the waiting messages of one kind from one sender to one recipient that came before
    /// `newer`; returns them.
    pub async fn supersede(&self, newer: MessageId) -> Result<Vec<Delivery>, HubError> {
        self.write(move |tx| maintenance::supersede(tx, newer)).await
    }

    /// Ends deliveries whose message lost its use; returns them.
    pub async fn expire_due(&self) -> Result<Vec<Delivery>, HubError> {
        self.write(|tx| outbox::expire_due(tx, usize::MAX)).await
    }

    /// Returns once no delivery of this message waits for a door that is open in this process.
    pub async fn settled(&self, id: MessageId) -> Result<Receipt, HubError> {
        let mut changes = self.changes();
        loop {
            let found = self.receipt(id).await?;
            let Some((_, receipt)) = found else {
                return Err(HubError::UnknownMessage { id: id.to_string() });
            };
            let waits = |d: &Delivery| {
                matches!(d.state, DeliveryState::Queued | DeliveryState::InFlight)
                    && self.inner.doors.is_open(d.route.door())
            };
            if !receipt.deliveries.iter().any(waits) {
                return Ok(receipt);
            }
            changes.next().await;
        }
    }

    /// What a door noted under a topic.
    pub async fn notes(&self, door: Door, topic: &'static str) -> Result<Vec<(String, String)>, HubError> {
        self.read(move |db| maintenance::notes(db, door, topic)).await
    }

    /// Notes something for the next run; `None` forgets it.
    pub async fn note(
        &self,
        door: Door,
        topic: &'static str,
        key: String,
        value: Option<String>,
    ) -> Result<(), HubError> {
        self.write(move |tx| maintenance::note(tx, door, topic, &key, value.as_deref())).await
    }

    /// Removes from the journal what everybody was done with before `before`; returns how many.
    pub async fn prune(&self, before: Timestamp) -> Result<usize, HubError> {
        self.write(move |tx| maintenance::prune(tx, before)).await
    }

    /// Looks the whole database over. Takes time in proportion to its size.
    pub async fn health(&self) -> Result<maintenance::Health, HubError> {
        self.read(maintenance::health).await
    }

    /// Whether the database is new, so that doors should read back what their files hold.
    pub async fn needs_rebuild(&self) -> Result<bool, HubError> {
        self.read(|db| maintenance::rebuilt(db).map(|rebuilt| !rebuilt)).await
    }

    /// Notes that the doors have read back what their files hold.
    pub async fn rebuilt(&self) -> Result<(), HubError> {
        self.write(maintenance::set_rebuilt).await
    }

    /// Puts a message back whose row is damaged, provided `draft` has the content its checksum tells of.
    pub async fn restore_damaged(&self, draft: Draft) -> Result<bool, HubError> {
        let prepared = Prepared::new(draft, usize::MAX, usize::MAX)?;
        self.write(move |tx| submit::restore(tx, prepared)).await
    }

    async fn tick(&self) {
        let mut beat = tokio::time::interval(TICK);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut heard = self.changes().heard;
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
            if round % 5 == 0 && self.read(search::is_behind).await.unwrap_or(false) {
                self.inner.writer.post(|tx| search::catch_up(tx).map(|_| ()));
            }
        }
    }

    /// Makes the writer look when another process has left something for a door that is open here.
    /// Only then: the write lock is left to those who have something to write.
    async fn claim_if_due(&self) {
        let (doors, now) = (self.inner.doors.all_open(), self.now());
        if self.read(move |db| outbox::is_due(db, &doors, now)).await.unwrap_or(false) {
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
        let result = tokio::task::spawn_blocking(move || hub.read_blocking(work)).await;
        let result = result.map_err(|_| HubError::Closed)?;
        self.note_damage(&result);
        result
    }

    fn read_blocking<T>(&self, work: impl FnOnce(&Connection) -> Result<T, HubError>) -> Result<T, HubError> {
        let kept = self.inner.readers.lock().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => open_for_reading(&self.inner.database)?,
        };
        let result = work(&connection);
        let mut readers = self.inner.readers.lock();
        if readers.len() < READERS {
            readers.push(connection);
        }
        result
    }

    fn note_damage<T>(&self, result: &Result<T, HubError>) {
        if let Err(HubError::Store { source }) = result
            && is_suspicious(source)
        {
            recover::suspect(&self.inner.folder);
        }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
