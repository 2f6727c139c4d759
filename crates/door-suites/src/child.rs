//! A child MCP server and the way to it.
//!
//! [`Child`] is a handle: nothing runs until the first request. Requests go out and answers come back as raw JSON,
//! so that nothing a child says is lost. However many ask, the child is started once; it is stopped when nobody
//! asks any more, started again after it ended, and left alone for a while when it does not start.

mod connection;
mod downloaders;
mod envelope;
mod error;
mod fair_queue;
mod frames;
mod http;
mod input;
mod log;
mod meta;
mod net;
mod object;
mod opening;
mod pipe;
mod recovery;
mod server_requests;
mod shared;
mod sse;
mod start;
mod status;
mod stdio;
mod transport;
mod ws;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::connection::{Connection, EndKind};
pub use self::error::ChildError;
use self::fair_queue::{FairQueue, QueueFull, Slot};
pub use self::log::log_name;
use self::object::raw;
use self::recovery::{Gate, Recovery};
use self::shared::Shared;
pub use self::shared::{ChildOptions, RecoveryRules};
use self::start::Starter;
use self::status::count;
pub use self::status::{ChildEvent, ChildState, ChildStatus, Counts, InitializeResult, ListKind};
use crate::host::{Caller, Host};
use crate::spec::ChildSpec;

/// How many items of a list are taken. A server with more has lost count of them.
const LIST_CAP: usize = 50_000;

/// How many pages of a list are read. Pages may be empty, and then nothing else would end the list.
const PAGE_CAP: usize = 2_000;

/// A list as it was read.
#[derive(Debug, Default)]
pub struct Listing {
    /// The items, in the child's order.
    pub items: Vec<Box<RawValue>>,
    /// True when the child has more than the limits allow.
    pub is_cut: bool,
}

/// A child. Cheap to clone; the child is stopped when the last clone is dropped.
#[derive(Clone)]
pub struct Child(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    starter: Starter,
    state: Mutex<State>,
    turns: FairQueue,
}

struct State {
    now: Now,
    recovery: Recovery,
    last_error: Option<String>,
    /// It is over for good: nothing starts it again.
    is_closed: bool,
}

enum Now {
    Stopped,
    Starting { outcome: watch::Receiver<Option<Started>>, off: CancellationToken, is_probe: bool },
    Running(Arc<Connection>),
}

type Started = Result<Arc<Connection>, ChildError>;

impl Child {
    /// A child that logs to `<name>.log` in the folder, if there is one.
    pub fn new(spec: Arc<ChildSpec>, log: Option<Dir>) -> Self {
        Self::with(spec, ChildOptions { log, ..ChildOptions::default() })
    }

    /// A child with all that can be set.
    pub fn with(spec: Arc<ChildSpec>, options: ChildOptions) -> Self {
        let turns = FairQueue::new(spec.limits.concurrency, options.queue);
        let shared = Arc::new(Shared::new(spec, options));
        let starter = Starter::new(Arc::clone(&shared));
        let state =
            State { now: Now::Stopped, recovery: Recovery::default(), last_error: None, is_closed: false };
        Self(Arc::new(Inner { shared, starter, state: Mutex::new(state), turns }))
    }

    /// What it was made from.
    pub fn spec(&self) -> &Arc<ChildSpec> {
        &self.0.shared.spec
    }

    /// Sends one request and returns the answer as it came. Starts the child if need be.
    ///
    /// Nothing is sent twice: when the child ends before it answers, that is the error. The one exception is an
    /// HTTP server that no longer knows the session, and so cannot have acted on the request.
    pub async fn request(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        caller: &Caller,
    ) -> Result<Box<RawValue>, ChildError> {
        let _turn = self.0.turn(caller).await?;
        let used = self.connection(caller).await?;
        let limit = self.spec().limits.rpc;
        match used.0.exchange(method, params.as_deref(), caller, limit).await {
            Err(ChildError::SessionEnded { .. }) => {
                let used = self.reopen(used, caller).await?;
                used.0.exchange(method, params.as_deref(), caller, limit).await
            }
            answer => answer,
        }
    }

    /// The items of a list, as [`list_all`](Self::list_all) reads them.
    pub async fn list(&self, what: ListKind, caller: &Caller) -> Result<Vec<Box<RawValue>>, ChildError> {
        self.list_all(what, caller).await.map(|listing| listing.items)
    }

    /// All items of a list, page by page, up to the limits. Empty when the child said that it has no such list. Starts
    /// the child if need be, but not again when it ends meanwhile.
    pub async fn list_all(&self, what: ListKind, caller: &Caller) -> Result<Listing, ChildError> {
        let used = self.connection(caller).await?;
        match self.list_by(&used, what, caller).await {
            Err(ChildError::SessionEnded { .. }) => {
                let used = self.reopen(used, caller).await?;
                self.list_by(&used, what, caller).await
            }
            listed => listed,
        }
    }

    async fn list_by(&self, used: &Used, what: ListKind, caller: &Caller) -> Result<Listing, ChildError> {
        let opened = used.0.initialized().ok_or_else(|| used.0.gone_error())?;
        // Tools are asked for in any case: some servers have them and do not say so.
        if what != ListKind::Tools && opened.capabilities.get(what.capability()).is_none() {
            return Ok(Listing::default());
        }
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let mut cursor: Option<String> = None;
        // All pages together may be as large as one message.
        let mut room = self.0.shared.options.message_cap;
        for _ in 0..PAGE_CAP {
            let params = cursor.as_ref().map(|cursor| raw(&serde_json::json!({ "cursor": cursor })));
            let turn = self.0.turn(caller).await?;
            let page =
                used.0.exchange(what.method(), params.as_deref(), caller, self.spec().limits.rpc).await;
            drop(turn);
            let page = match page {
                Err(ChildError::Rpc(error)) if error.code == envelope::code::METHOD_NOT_FOUND => {
                    return Ok(Listing { items, is_cut: false });
                }
                page => page?,
            };
            let Some((page, next)) = opening::read_page(&page, what.member()) else {
                let (method, member) = (what.method(), what.member());
                let message =
                    format!("`{}` answered `{method}` without a list of `{member}`", self.spec().name);
                let error =
                    crate::host::RpcError { code: envelope::code::INTERNAL, message, data: Some(page) };
                return Err(ChildError::Rpc(error));
            };
            room = room.saturating_sub(page.iter().map(|item| item.get().len()).sum());
            items.extend(page);
            if next.is_none() || next == cursor {
                let is_cut = items.len() > LIST_CAP;
                items.truncate(LIST_CAP);
                return Ok(self.told_if_cut(what, Listing { items, is_cut }));
            }
            if items.len() >= LIST_CAP || room == 0 {
                break;
            }
            cursor = next;
        }
        items.truncate(LIST_CAP);
        Ok(self.told_if_cut(what, Listing { items, is_cut: true }))
    }

    fn told_if_cut(&self, what: ListKind, listing: Listing) -> Listing {
        if listing.is_cut {
            let (child, read) = (&self.spec().name, listing.items.len());
            tracing::warn!(child, list = what.member(), read, "a list is too long and was read only in part");
        }
        listing
    }

    /// A new connection in place of one whose session is over.
    async fn reopen(&self, used: Used, caller: &Caller) -> Result<Used, ChildError> {
        used.0.end("its session was over", EndKind::Wanted);
        self.0.note_end(&mut self.0.state.lock(), &used.0);
        drop(used);
        self.connection(caller).await
    }

    /// What it said when it was opened; starts it if need be.
    pub async fn open(&self, caller: &Caller) -> Result<Arc<InitializeResult>, ChildError> {
        let used = self.connection(caller).await?;
        used.0.initialized().ok_or_else(|| used.0.gone_error())
    }

    /// What it said when it was opened, if it runs.
    pub fn initialized(&self) -> Option<Arc<InitializeResult>> {
        match &self.0.state.lock().now {
            Now::Running(connection) => connection.initialized(),
            _ => None,
        }
    }

    /// How it fares.
    pub fn status(&self) -> ChildStatus {
        let state = self.0.state.lock();
        let now = match &state.now {
            Now::Starting { .. } => ChildState::Starting,
            Now::Running(connection) => ChildState::Running {
                pid: connection.pid,
                since: connection.since,
                in_flight: connection.in_use(),
            },
            Now::Stopped => match state.recovery.waits(Instant::now()) {
                None => ChildState::NotStarted,
                Some((wait, reason)) => {
                    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
                    let now = Clock::system().now();
                    let until = now.checked_add(wait).unwrap_or(now);
                    ChildState::Waiting { until, reason: reason.to_owned() }
                }
            },
        };
        let last_error = state.last_error.clone();
        ChildStatus { state: now, counts: self.0.shared.counters.read(), last_error }
    }

    /// The last lines that it wrote beside its protocol, oldest first, without secrets.
    pub fn last_lines(&self) -> Vec<String> {
        self.0.shared.log.tail()
    }

    /// What it makes known from now on. A receiver that is far behind is told that it missed some.
    pub fn events(&self) -> broadcast::Receiver<ChildEvent> {
        self.0.shared.events()
    }

    /// How often it announced that its list of tools changed. [`ChildEvent`] tells the same later and less often.
    pub fn tool_changes(&self) -> u64 {
        self.0.shared.tool_changes.load(Ordering::Relaxed)
    }

    /// Tells it that what this client answered to `roots/list` is no longer so, if it runs and knows the client.
    pub fn roots_changed(&self, host: &Arc<dyn Host>) {
        let running = match &self.0.state.lock().now {
            Now::Running(connection) => Arc::clone(connection),
            _ => return,
        };
        if running.knows(host) {
            running.notify("notifications/roots/list_changed", None);
        }
    }

    /// Stops it for good.
    pub async fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.stop().await;
    }

    /// Stops it, with everything that it started, and returns when all of it is gone. The next request starts it
    /// again.
    pub async fn stop(&self) {
        let was = std::mem::replace(&mut self.0.state.lock().now, Now::Stopped);
        match was {
            Now::Stopped => {}
            Now::Starting { mut outcome, off, .. } => {
                off.cancel();
                // The start ends by saying so, or its task is gone already.
                let _ = outcome.wait_for(Option::is_some).await;
            }
            Now::Running(connection) => {
                connection.end("it was stopped", EndKind::Wanted);
            }
        }
        self.0.shared.gone().await;
    }

    /// The connection, which is made if there is none.
    async fn connection(&self, caller: &Caller) -> Result<Used, ChildError> {
        let mut outcome = {
            let mut state = self.0.state.lock();
            match &state.now {
                Now::Running(connection) if connection.ending().is_none() => {
                    return Ok(Used::new(connection, caller));
                }
                Now::Starting { is_probe: true, .. } => {
                    return Err(self.0.circuit_open(&state, state.recovery.failed_starts(), Duration::ZERO));
                }
                Now::Starting { outcome, .. } => outcome.clone(),
                Now::Running(connection) => {
                    let connection = Arc::clone(connection);
                    self.0.note_end(&mut state, &connection);
                    self.0.begin(&mut state, caller)?
                }
                Now::Stopped => self.0.begin(&mut state, caller)?,
            }
        };
        let started = tokio::select! {
            biased;
            () = caller.cancelled.cancelled() => return Err(ChildError::Cancelled),
            started = outcome.wait_for(Option::is_some) => started.ok().and_then(|started| started.clone()),
        };
        match started {
            Some(Ok(connection)) => Ok(Used::new(&connection, caller)),
            Some(Err(error)) => Err(error),
            None => Err(self.0.shared.cannot_start("its start was broken off", "call again")),
        }
    }
}

impl Inner {
    /// Waits for a turn, no longer than a request may take.
    async fn turn(&self, caller: &Caller) -> Result<Slot<'_>, ChildError> {
        let busy = |waiting| ChildError::Busy { child: self.shared.name().to_owned(), waiting };
        tokio::select! {
            biased;
            () = caller.cancelled.cancelled() => Err(ChildError::Cancelled),
            turn = self.turns.take(caller) => turn.map_err(|QueueFull(waiting)| busy(waiting)),
            () = sleep(self.shared.spec.limits.rpc) => Err(busy(self.turns.waiting())),
        }
    }

    /// Begins a start in a task of its own: it goes on when the one who caused it has left.
    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        caller: &Caller,
    ) -> Result<watch::Receiver<Option<Started>>, ChildError> {
        if state.is_closed {
            return Err(self.shared.cannot_start("it was stopped for good", "start Switchboard again"));
        }
        let (wait, is_probe) = match state.recovery.gate(&self.shared.options.recovery, Instant::now()) {
            Gate::After(wait) => (wait, false),
            Gate::Probe => (Duration::ZERO, true),
            Gate::Shut { failures, retry_in } => return Err(self.circuit_open(state, failures, retry_in)),
        };
        let (tell, outcome) = watch::channel(None);
        let off = CancellationToken::new();
        state.now = Now::Starting { outcome: outcome.clone(), off: off.clone(), is_probe };
        let caller = Caller { host: caller.host.clone(), ..Caller::default() };
        let inner = Arc::clone(self);
        // Made here, where it is known who caused it.
        let span = tracing::info_span!("child_start", child = self.shared.name());
        tokio::spawn(async move {
            let start = async {
                sleep(wait).await;
                // Two of a child at once could quarrel over a file or a port.
                inner.shared.gone().await;
                inner.starter.start(&caller).await
            };
            let started = tokio::select! {
                biased;
                () = off.cancelled() => None,
                started = start.instrument(span) => Some(started),
            };
            let outcome = inner.settle(started, &off);
            let _ = tell.send(Some(outcome));
        });
        Ok(outcome)
    }

    /// Notes how a start went.
    fn settle(self: &Arc<Self>, started: Option<Started>, off: &CancellationToken) -> Started {
        let mut state = self.state.lock();
        let stopped = || self.shared.cannot_start("it was stopped while it started", "call again");
        let Some(started) = started else { return Err(stopped()) };
        if off.is_cancelled() {
            if let Ok(connection) = &started {
                connection.end("it was stopped", EndKind::Wanted);
            }
            return Err(stopped());
        }
        match &started {
            Ok(connection) => {
                count(&self.shared.counters.starts);
                state.recovery.started();
                state.now = Now::Running(Arc::clone(connection));
                tokio::spawn(watch_over(Arc::downgrade(self), Arc::clone(connection)));
            }
            Err(error) => {
                count(&self.shared.counters.failed_starts);
                let (rules, reason) = (&self.shared.options.recovery, error.to_string());
                state.last_error = Some(reason.clone());
                state.recovery.start_failed(rules, Instant::now(), fastrand::f64(), reason);
                state.now = Now::Stopped;
            }
        }
        started
    }

    /// Lets go of a connection that has ended; if nobody wanted that, it is a crash. Whoever finds it first, a
    /// caller or [`watch_over`], notes it, so that no caller gets past the wait after a crash.
    fn note_end(&self, state: &mut State, connection: &Arc<Connection>) {
        let Some(ending) = connection.ending() else { return };
        if !matches!(&state.now, Now::Running(running) if Arc::ptr_eq(running, connection)) {
            return;
        }
        state.now = Now::Stopped;
        if ending.kind != EndKind::Wanted {
            count(&self.shared.counters.crashes);
            let ran = Clock::system().now().duration_since(connection.since);
            let ran = Duration::try_from(ran).unwrap_or_default();
            let rules = &self.shared.options.recovery;
            state.recovery.crashed(rules, Instant::now(), ran, fastrand::f64(), ending.cause.clone());
            state.last_error = Some(ending.cause);
        }
    }

    /// Stops a connection that nobody used for so long; says when to look again otherwise.
    fn stop_if_idle(&self, connection: &Arc<Connection>, idle: Duration) -> Option<Instant> {
        let mut state = self.state.lock();
        let due = connection.last_used() + idle;
        let now = Instant::now();
        if connection.in_use() > 0 || now < due {
            return Some(due.max(now + idle / 10));
        }
        connection.end("nobody had called it for a while", EndKind::Wanted);
        self.note_end(&mut state, connection);
        None
    }

    /// Notes the end of a connection and makes it known.
    fn ended(&self, connection: &Arc<Connection>) {
        self.note_end(&mut self.state.lock(), connection);
        if let Some(ending) = connection.ending() {
            self.shared.tell(ChildEvent::Stopped { reason: ending.cause });
        }
    }

    fn circuit_open(&self, state: &State, failures: u32, retry_in: Duration) -> ChildError {
        let cause = state.recovery.reason().to_owned();
        ChildError::CircuitOpen { child: self.shared.name().to_owned(), failures, retry_in, cause }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Now::Running(connection) = &self.state.lock().now {
            connection.end("nobody needs it any more", EndKind::Wanted);
        }
    }
}

/// Stops a connection when it is idle, and notes its end.
async fn watch_over(inner: Weak<Inner>, connection: Arc<Connection>) {
    let idle = connection.shared.spec.limits.idle;
    let mut due = idle.map(|idle| Instant::now() + idle);
    loop {
        let is_due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = connection.ended() => break,
            () = is_due => {}
        }
        let Some(inner) = inner.upgrade() else { continue };
        due = idle.and_then(|idle| inner.stop_if_idle(&connection, idle));
    }
    if let Some(inner) = inner.upgrade() {
        inner.ended(&connection);
    }
}

/// A connection while somebody uses it.
struct Used(Arc<Connection>);

impl Used {
    fn new(connection: &Arc<Connection>, caller: &Caller) -> Self {
        connection.begin_use();
        connection.know(caller);
        Self(Arc::clone(connection))
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.end_use();
    }
}

#[cfg(test)]
mod guard_tests;
#[cfg(test)]
mod lifecycle_tests;
#[cfg(test)]
mod remote_tests;
#[cfg(test)]
mod test_child;
#[cfg(test)]
#[path = "child_tests.rs"]
mod tests;
