//! Client for one child MCP server.
//!
//! [`Child`] is a handle; no process runs until the first request. Requests and responses are forwarded as raw JSON, so
//! that no field is lost. Concurrent callers share one start. An idle child is stopped, and a crashed child is
//! restarted with backoff. After repeated failed starts, a circuit breaker rejects requests until its next trial start.

mod connection;
mod downloaders;
mod envelope;
mod error;
mod fair_queue;
mod frames;
mod handshake;
mod http;
mod input_required;
mod log;
mod meta;
mod net;
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
use switchboard_core::json::to_raw;
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
use self::recovery::{Gate, Recovery};
use self::shared::Shared;
pub use self::shared::{ChildOptions, RecoveryRules};
use self::start::Starter;
use self::status::count;
pub use self::status::{ChildEvent, ChildState, ChildStatus, Counts, InitializeResult, ListKind};
use crate::host::{Caller, Host};
use crate::spec::ChildSpec;

/// Maximum number of items read from one list. A server with more items is most likely broken.
const LIST_CAP: usize = 50_000;

/// Maximum number of pages read from one list. Terminates the loop if a server keeps returning empty pages.
const PAGE_CAP: usize = 2_000;

/// A complete list read from the child, page by page.
#[derive(Debug, Default)]
pub struct Listing {
    /// The items, in the order in which the child listed them.
    pub items: Vec<Box<RawValue>>,
    /// True if the list was truncated at the limits.
    pub is_cut: bool,
}

/// Handle for a child. Cheap to clone; the child is stopped when the last clone is dropped.
#[derive(Clone)]
pub struct Child(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    starter: Starter,
    state: Mutex<State>,
    queue: FairQueue,
}

struct State {
    now: Lifecycle,
    recovery: Recovery,
    last_error: Option<String>,
    /// True after [`Child::close`]: the child must not be started again.
    is_closed: bool,
}

enum Lifecycle {
    Stopped,
    Starting { outcome: watch::Receiver<Option<Started>>, cancel: CancellationToken, is_probe: bool },
    Running(Arc<Connection>),
}

type Started = Result<Arc<Connection>, ChildError>;

impl Child {
    /// Creates a handle for a child. If a `log` folder is given, the child's output is logged to `<name>.log` in it.
    pub fn new(spec: Arc<ChildSpec>, log: Option<Dir>) -> Self {
        Self::with_options(spec, ChildOptions { log, ..ChildOptions::default() })
    }

    /// Creates a handle with explicit options.
    pub fn with_options(spec: Arc<ChildSpec>, options: ChildOptions) -> Self {
        let queue = FairQueue::new(spec.limits.concurrency, options.queue);
        let shared = Arc::new(Shared::new(spec, options));
        let starter = Starter::new(Arc::clone(&shared));
        let state = State {
            now: Lifecycle::Stopped,
            recovery: Recovery::default(),
            last_error: None,
            is_closed: false,
        };
        Self(Arc::new(Inner { shared, starter, state: Mutex::new(state), queue }))
    }

    /// Returns the child's spec.
    pub fn spec(&self) -> &Arc<ChildSpec> {
        &self.0.shared.spec
    }

    /// Sends one request and returns the raw response. Starts the child if needed.
    ///
    /// A request is not retried if the child ends before it responds, because the request may have taken effect. The
    /// only exception is an HTTP server that has dropped the session: it cannot have processed the request.
    pub async fn request(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        caller: &Caller,
    ) -> Result<Box<RawValue>, ChildError> {
        let _slot = self.0.acquire_slot(caller).await?;
        let used = self.connection(caller).await?;
        let limit = self.spec().limits.rpc;
        match used.0.exchange(method, params.as_deref(), caller, limit).await {
            Err(ChildError::SessionEnded { .. }) => {
                let used = self.reconnect(used, caller).await?;
                used.0.exchange(method, params.as_deref(), caller, limit).await
            }
            answer => answer,
        }
    }

    /// Lists all items of a kind, like [`list_all`](Self::list_all), but without the truncation flag.
    pub async fn list(&self, kind: ListKind, caller: &Caller) -> Result<Vec<Box<RawValue>>, ChildError> {
        self.list_all(kind, caller).await.map(|listing| listing.items)
    }

    /// Lists all items of a kind, page by page, up to the limits.
    ///
    /// The list is empty if the child does not declare the capability. Starts the child if needed, but does not restart
    /// a child that ends between two pages.
    pub async fn list_all(&self, kind: ListKind, caller: &Caller) -> Result<Listing, ChildError> {
        let used = self.connection(caller).await?;
        match self.read_pages(&used, kind, caller).await {
            Err(ChildError::SessionEnded { .. }) => {
                let used = self.reconnect(used, caller).await?;
                self.read_pages(&used, kind, caller).await
            }
            listed => listed,
        }
    }

    async fn read_pages(
        &self,
        used: &ConnectionGuard,
        kind: ListKind,
        caller: &Caller,
    ) -> Result<Listing, ChildError> {
        let opened = used.0.initialized().ok_or_else(|| used.0.disconnected_error())?;
        // Always request tools: some servers have tools without declaring the capability.
        if kind != ListKind::Tools && opened.capabilities.get(kind.capability()).is_none() {
            return Ok(Listing::default());
        }
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let mut cursor: Option<String> = None;
        // All pages together must not exceed the size limit of one message.
        let mut room = self.0.shared.options.message_cap;
        for _ in 0..PAGE_CAP {
            let params = cursor.as_ref().map(|cursor| to_raw(&serde_json::json!({ "cursor": cursor })));
            let slot = self.0.acquire_slot(caller).await?;
            let page =
                used.0.exchange(kind.method(), params.as_deref(), caller, self.spec().limits.rpc).await;
            drop(slot);
            let page = match page {
                Err(ChildError::Rpc(error)) if error.code == envelope::code::METHOD_NOT_FOUND => {
                    return Ok(Listing { items, is_cut: false });
                }
                page => page?,
            };
            let Some((page, next)) = handshake::parse_page(&page, kind.member()) else {
                let (method, member) = (kind.method(), kind.member());
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
                return Ok(self.warn_if_cut(kind, Listing { items, is_cut }));
            }
            if items.len() >= LIST_CAP || room == 0 {
                break;
            }
            cursor = next;
        }
        items.truncate(LIST_CAP);
        Ok(self.warn_if_cut(kind, Listing { items, is_cut: true }))
    }

    fn warn_if_cut(&self, kind: ListKind, listing: Listing) -> Listing {
        if listing.is_cut {
            let (child, read) = (&self.spec().name, listing.items.len());
            tracing::warn!(child, list = kind.member(), read, "truncated a list that is too long");
        }
        listing
    }

    /// Opens a new connection after the session of the old connection has expired.
    async fn reconnect(&self, used: ConnectionGuard, caller: &Caller) -> Result<ConnectionGuard, ChildError> {
        used.0.end("its session had ended", EndKind::Wanted);
        self.0.record_end(&mut self.0.state.lock(), &used.0);
        drop(used);
        self.connection(caller).await
    }

    /// Starts the child if needed and returns its `initialize` result.
    pub async fn open(&self, caller: &Caller) -> Result<Arc<InitializeResult>, ChildError> {
        let used = self.connection(caller).await?;
        used.0.initialized().ok_or_else(|| used.0.disconnected_error())
    }

    /// Returns the `initialize` result if the child is running.
    pub fn initialized(&self) -> Option<Arc<InitializeResult>> {
        match &self.0.state.lock().now {
            Lifecycle::Running(connection) => connection.initialized(),
            _ => None,
        }
    }

    /// Returns the child's state, counters and last error.
    pub fn status(&self) -> ChildStatus {
        let state = self.0.state.lock();
        let now = match &state.now {
            Lifecycle::Starting { .. } => ChildState::Starting,
            Lifecycle::Running(connection) => ChildState::Running {
                pid: connection.pid,
                since: connection.since,
                in_flight: connection.in_use(),
            },
            Lifecycle::Stopped => match state.recovery.waits(Instant::now()) {
                None => ChildState::NotStarted,
                Some((wait, reason)) => {
                    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
                    let now = Clock::system().now();
                    let until = now.checked_add(wait).unwrap_or(now);
                    ChildState::Backoff { until, reason: reason.to_owned() }
                }
            },
        };
        let last_error = state.last_error.clone();
        ChildStatus { state: now, counts: self.0.shared.counters.read(), last_error }
    }

    /// Returns the last stderr and log lines, oldest first, with secrets redacted.
    pub fn last_lines(&self) -> Vec<String> {
        self.0.shared.log.tail()
    }

    /// Subscribes to the child's events. A receiver that lags behind gets an error that it missed events.
    pub fn events(&self) -> broadcast::Receiver<ChildEvent> {
        self.0.shared.events()
    }

    /// Returns how many tool-list changes the child has announced. Counts immediately, whereas [`ChildEvent`]s are
    /// debounced.
    pub fn tool_changes(&self) -> u64 {
        self.0.shared.tool_changes.load(Ordering::Relaxed)
    }

    /// Notifies the child that this client's roots changed, if the child is running and has served the client.
    pub fn roots_changed(&self, host: &Arc<dyn Host>) {
        let running = match &self.0.state.lock().now {
            Lifecycle::Running(connection) => Arc::clone(connection),
            _ => return,
        };
        if running.has_host(host) {
            running.notify("notifications/roots/list_changed", None);
        }
    }

    /// Stops the child permanently; later requests fail.
    pub async fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.stop().await;
    }

    /// Stops the child and all its descendants, and returns when they have ended. The next request starts the child
    /// again.
    pub async fn stop(&self) {
        let was = std::mem::replace(&mut self.0.state.lock().now, Lifecycle::Stopped);
        match was {
            Lifecycle::Stopped => {}
            Lifecycle::Starting { mut outcome, cancel, .. } => {
                cancel.cancel();
                // This cannot hang: the start task either sends an outcome or has already ended.
                let _ = outcome.wait_for(Option::is_some).await;
            }
            Lifecycle::Running(connection) => {
                connection.end("it was stopped", EndKind::Wanted);
            }
        }
        self.0.shared.wait_stopped().await;
    }

    /// Returns a connection; opens one, or waits for the start in progress, if there is none.
    async fn connection(&self, caller: &Caller) -> Result<ConnectionGuard, ChildError> {
        let mut outcome = {
            let mut state = self.0.state.lock();
            match &state.now {
                Lifecycle::Running(connection) if connection.ending().is_none() => {
                    return Ok(ConnectionGuard::new(connection, caller));
                }
                Lifecycle::Starting { is_probe: true, .. } => {
                    return Err(self.0.circuit_open(&state, state.recovery.failed_starts(), Duration::ZERO));
                }
                Lifecycle::Starting { outcome, .. } => outcome.clone(),
                Lifecycle::Running(connection) => {
                    let connection = Arc::clone(connection);
                    self.0.record_end(&mut state, &connection);
                    self.0.start(&mut state, caller)?
                }
                Lifecycle::Stopped => self.0.start(&mut state, caller)?,
            }
        };
        let started = tokio::select! {
            biased;
            () = caller.cancelled.cancelled() => return Err(ChildError::Cancelled),
            started = outcome.wait_for(Option::is_some) => started.ok().and_then(|started| started.clone()),
        };
        match started {
            Some(Ok(connection)) => Ok(ConnectionGuard::new(&connection, caller)),
            Some(Err(error)) => Err(error),
            None => Err(self.0.shared.cannot_start("its start was interrupted", "call again")),
        }
    }
}

impl Inner {
    /// Waits for a request slot, at most for the duration of the request timeout.
    async fn acquire_slot(&self, caller: &Caller) -> Result<Slot<'_>, ChildError> {
        let busy = |waiting| ChildError::Busy { child: self.shared.name().to_owned(), waiting };
        tokio::select! {
            biased;
            () = caller.cancelled.cancelled() => Err(ChildError::Cancelled),
            slot = self.queue.acquire(caller) => slot.map_err(|QueueFull(waiting)| busy(waiting)),
            () = sleep(self.shared.spec.limits.rpc) => Err(busy(self.queue.waiting())),
        }
    }

    /// Starts the child in a separate task, which continues even if the caller is dropped.
    fn start(
        self: &Arc<Self>,
        state: &mut State,
        caller: &Caller,
    ) -> Result<watch::Receiver<Option<Started>>, ChildError> {
        if state.is_closed {
            return Err(self.shared.cannot_start("it was shut down", "start Switchboard again"));
        }
        let (wait, is_probe) = match state.recovery.gate(&self.shared.options.recovery, Instant::now()) {
            Gate::After(wait) => (wait, false),
            Gate::Probe => (Duration::ZERO, true),
            Gate::Shut { failures, retry_in } => return Err(self.circuit_open(state, failures, retry_in)),
        };
        let (tell, outcome) = watch::channel(None);
        let cancel = CancellationToken::new();
        state.now = Lifecycle::Starting { outcome: outcome.clone(), cancel: cancel.clone(), is_probe };
        let caller = Caller { host: caller.host.clone(), ..Caller::default() };
        let inner = Arc::clone(self);
        // Create the span here, so that its parent is the span of the caller that caused the start.
        let span = tracing::info_span!("child_start", child = self.shared.name());
        tokio::spawn(async move {
            let start = async {
                sleep(wait).await;
                // Wait for the previous instance: two instances at once could conflict over a file or a port.
                inner.shared.wait_stopped().await;
                inner.starter.start(&caller).await
            };
            let started = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                started = start.instrument(span) => Some(started),
            };
            let outcome = inner.finish_start(started, &cancel);
            let _ = tell.send(Some(outcome));
        });
        Ok(outcome)
    }

    /// Records the outcome of a start. Discards the connection if the start was cancelled in the meantime.
    fn finish_start(self: &Arc<Self>, started: Option<Started>, cancel: &CancellationToken) -> Started {
        let mut state = self.state.lock();
        let stopped = || self.shared.cannot_start("it was stopped while it started", "call again");
        let Some(started) = started else { return Err(stopped()) };
        if cancel.is_cancelled() {
            if let Ok(connection) = &started {
                connection.end("it was stopped", EndKind::Wanted);
            }
            return Err(stopped());
        }
        match &started {
            Ok(connection) => {
                count(&self.shared.counters.starts);
                state.recovery.started();
                state.now = Lifecycle::Running(Arc::clone(connection));
                tokio::spawn(supervise(Arc::downgrade(self), Arc::clone(connection)));
            }
            Err(error) => {
                count(&self.shared.counters.failed_starts);
                let (rules, reason) = (&self.shared.options.recovery, error.to_string());
                state.last_error = Some(reason.clone());
                state.recovery.start_failed(rules, Instant::now(), fastrand::f64(), reason);
                state.now = Lifecycle::Stopped;
            }
        }
        started
    }

    /// Records the end of a connection, as a crash unless Switchboard stopped it on purpose.
    ///
    /// Both a caller and [`supervise`] may notice the end. The first of them records it, so that no caller bypasses the
    /// backoff after a crash.
    fn record_end(&self, state: &mut State, connection: &Arc<Connection>) {
        let Some(ending) = connection.ending() else { return };
        if !matches!(&state.now, Lifecycle::Running(running) if Arc::ptr_eq(running, connection)) {
            return;
        }
        state.now = Lifecycle::Stopped;
        if ending.kind != EndKind::Wanted {
            count(&self.shared.counters.crashes);
            let ran = Clock::system().now().duration_since(connection.since);
            let ran = Duration::try_from(ran).unwrap_or_default();
            let rules = &self.shared.options.recovery;
            state.recovery.crashed(rules, Instant::now(), ran, fastrand::f64(), ending.cause.clone());
            state.last_error = Some(ending.cause);
        }
    }

    /// Stops a connection that has been idle for `idle`; otherwise returns when to check again.
    fn stop_if_idle(&self, connection: &Arc<Connection>, idle: Duration) -> Option<Instant> {
        let mut state = self.state.lock();
        let due = connection.last_used() + idle;
        let now = Instant::now();
        if connection.in_use() > 0 || now < due {
            return Some(due.max(now + idle / 10));
        }
        connection.end("it was idle", EndKind::Wanted);
        self.record_end(&mut state, connection);
        None
    }

    /// Records the end of a connection and publishes a `Stopped` event.
    fn handle_end(&self, connection: &Arc<Connection>) {
        self.record_end(&mut self.state.lock(), connection);
        if let Some(ending) = connection.ending() {
            self.shared.publish(ChildEvent::Stopped { reason: ending.cause });
        }
    }

    fn circuit_open(&self, state: &State, failures: u32, retry_in: Duration) -> ChildError {
        let cause = state.recovery.reason().to_owned();
        ChildError::CircuitOpen { child: self.shared.name().to_owned(), failures, retry_in, cause }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Lifecycle::Running(connection) = &self.state.lock().now {
            connection.end("it is no longer needed", EndKind::Wanted);
        }
    }
}

/// Supervises a connection: stops it when it is idle, and records its end.
async fn supervise(inner: Weak<Inner>, connection: Arc<Connection>) {
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
        inner.handle_end(&connection);
    }
}

/// RAII guard for a connection in use. Prevents the idle timeout from stopping it.
struct ConnectionGuard(Arc<Connection>);

impl ConnectionGuard {
    fn new(connection: &Arc<Connection>, caller: &Caller) -> Self {
        connection.acquire();
        connection.register_host(caller);
        Self(Arc::clone(connection))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.release();
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
