//! One connection to a child: sends requests and dispatches answers.
//!
//! Independent of the transport. Request ids are our own numbers, so a child can only answer a request that it
//! received: every answer is matched by id or dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};
use switchboard_sys::clock::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::envelope::{self, Incoming};
use super::error::ChildError;
use super::meta::Meta;
use super::server_requests::ServerRequests;
use super::shared::Shared;
use super::status::{ChildEvent, InitializeResult, ListKind, count};
use super::transport::{Outgoing, SendOutcome, Transport};
use crate::host::{Caller, ClientRef, Host, RpcError};

/// Most queued progress notifications per call. When the queue is full the next one is dropped and counted: a later one
/// supersedes it.
const PROGRESS_QUEUE: usize = 64;

/// Progress can extend a call to at most this multiple of its limit.
const MAX_EXTENSION: u32 = 10;

/// Longest wait for the end of a stream after the answer arrived on it.
const STREAM_DRAIN: Duration = Duration::from_millis(500);

/// Spin time while waiting for an answer, used if the previous answer arrived as fast. Suspending and waking the task
/// takes longer than an answer from a child's memory.
const SPIN: Duration = Duration::from_micros(250);

/// Most clients that are tracked as recipients of requests outside any call.
const MAX_HOSTS: usize = 256;

/// A connection to a child, over any transport.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) transport: Transport,
    /// Process id, if the child is our own process.
    pub(super) pid: Option<u32>,
    pub(super) since: Timestamp,
    pub(super) server_requests: ServerRequests,
    opened: OnceLock<(Arc<InitializeResult>, Meta)>,
    calls: Mutex<Calls>,
    hosts: Mutex<Vec<Weak<dyn Host>>>,
    /// Fires when the connection has ended.
    end: CancellationToken,
    /// True once anything was received.
    has_output: AtomicBool,
    /// True if the last answer arrived within the spin time.
    is_quick: AtomicBool,
    in_use: AtomicUsize,
    last_used: Mutex<Instant>,
}

#[derive(Default)]
struct Calls {
    last: u64,
    pending: HashMap<u64, Pending>,
    ending: Option<Ending>,
}

/// How and why a connection ended.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) cause: String,
    pub(super) kind: EndKind,
}

/// Who ended the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    /// Switchboard stopped it.
    Wanted,
    /// The child ended it.
    Crash,
    /// The child sent invalid data, so it gets no graceful shutdown.
    Fault,
}

/// A request that waits for its answer.
struct Pending {
    answer: oneshot::Sender<Result<Box<RawValue>, RpcError>>,
    progress: Option<mpsc::Sender<Box<RawValue>>>,
    host: Option<Arc<dyn Host>>,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, transport: Transport, pid: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            transport,
            pid,
            since: Clock::system().now(),
            server_requests: ServerRequests::default(),
            opened: OnceLock::new(),
            calls: Mutex::default(),
            hosts: Mutex::default(),
            end: CancellationToken::new(),
            has_output: AtomicBool::new(false),
            is_quick: AtomicBool::new(true),
            in_use: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        })
    }

    /// Sends a request and waits for the answer, at most for `limit`. Progress and requests to the client extend the
    /// limit.
    ///
    /// If the wait ends without an answer, even because the future is dropped, the child gets a cancellation.
    pub(super) async fn call(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        caller: &Caller,
        limit: Duration,
    ) -> Result<Box<RawValue>, ChildError> {
        let (sender, mut progress) = match &caller.progress_token {
            Some(_) => Some(mpsc::channel(PROGRESS_QUEUE)).unzip(),
            None => (None, None),
        };
        let (answer, mut answered) = oneshot::channel();
        let id = self.register(Pending { answer, progress: sender, host: caller.host.clone() })?;
        let mut waiting = CancelOnDrop { connection: self, id, method, is_over: false };
        let params = self.meta().apply(params, caller, caller.progress_token.is_some().then_some(id));
        let body = envelope::request(id, method, params.as_deref());
        count(&self.shared.counters.calls);

        let outgoing = Outgoing { body, id: Some(id), method, params: params.as_deref() };
        let mut carried = match self.transport.send(self, outgoing) {
            SendOutcome::Done => None,
            SendOutcome::Failed(error) => return Err(self.end_error_or(error)),
            SendOutcome::InFlight(future) => Some(future),
        };
        let started = Instant::now();
        if matches!(self.transport, Transport::Pipe(_)) && self.is_quick.load(Ordering::Relaxed) {
            spin_until_answered(&answered).await;
        }
        let mut deadline = started + limit;
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    waiting.is_over = true;
                    self.is_quick.store(started.elapsed() < SPIN, Ordering::Relaxed);
                    if let Some(carried) = carried {
                        // Reading a stream to its end makes its connection reusable for the next request.
                        tokio::spawn(timeout(STREAM_DRAIN, carried));
                    }
                    self.drain_progress(progress, caller).await;
                    return match answer {
                        Ok(outcome) => outcome.map_err(ChildError::Rpc),
                        Err(_) => Err(self.disconnected_error()),
                    };
                }
                () = caller.cancelled.cancelled() => {
                    count(&self.shared.counters.cancelled);
                    return Err(ChildError::Cancelled);
                }
                Some(note) = next(&mut progress) => {
                    deadline = (Instant::now() + limit).min(started + limit * MAX_EXTENSION);
                    relay_progress(caller, &note).await;
                }
                done = poll_sending(&mut carried) => {
                    carried = None;
                    // The answer may have arrived with the last chunk.
                    if let Err(error) = done && answered.is_empty() {
                        // An error is an answer as well: there is nothing to cancel.
                        waiting.is_over = matches!(error, ChildError::Rpc(_) | ChildError::SessionEnded { .. });
                        return Err(self.end_error_or(error));
                    }
                }
                () = sleep_until(deadline) => {
                    if self.server_requests.has_open() && started.elapsed() < limit * MAX_EXTENSION {
                        deadline = Instant::now() + limit;
                        continue;
                    }
                    count(&self.shared.counters.timeouts);
                    return Err(ChildError::Timeout {
                        child: self.shared.name().to_owned(),
                        method: method.to_owned(),
                        after: started.elapsed(),
                    });
                }
            }
        }
    }

    /// Sends a message that needs no answer. A failure is only logged, since the child has ended then.
    pub(super) fn send(self: &Arc<Self>, method: &str, body: Vec<u8>) {
        let connection = Arc::clone(self);
        let outgoing = Outgoing { body, id: None, method, params: None };
        match self.transport.send(self, outgoing) {
            SendOutcome::Done => {}
            SendOutcome::Failed(error) => tracing::debug!(child = self.shared.name(), %error, "not sent"),
            SendOutcome::InFlight(future) => {
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection.end.cancelled() => {}
                        sent = future => if let Err(error) = sent {
                            tracing::debug!(child = connection.shared.name(), %error, "not sent");
                        }
                    }
                });
            }
        }
    }

    /// Sends a notification.
    pub(super) fn notify(self: &Arc<Self>, method: &str, params: Option<&RawValue>) {
        self.send(method, envelope::notification(method, params));
    }

    /// Handles a received body; returns true if it was JSON-RPC.
    ///
    /// `via` is the request whose own stream carried it, for transports with such streams.
    pub(super) fn receive(self: &Arc<Self>, body: &[u8], via: Option<u64>) -> bool {
        if body.first() == Some(&b'[') {
            let Some(batch) = envelope::parse_batch(body) else { return false };
            // One invalid message must not suppress the others.
            let strange = batch.iter().filter(|one| !self.receive_one(one.get().as_bytes(), via)).count();
            return strange == 0;
        }
        self.receive_one(body, via)
    }

    fn receive_one(self: &Arc<Self>, body: &[u8], via: Option<u64>) -> bool {
        match Incoming::parse(body) {
            None => return false,
            Some(Incoming::Answer { id, outcome }) => {
                let pending = id.and_then(|id| self.calls.lock().pending.remove(&id));
                match pending {
                    // The caller may just have been dropped; then the answer is discarded.
                    Some(pending) => drop(pending.answer.send(outcome.map(RawValue::to_owned))),
                    None => count(&self.shared.counters.stray_answers),
                }
            }
            Some(Incoming::Request { id, method, params }) => self.handle_request(id, &method, params, via),
            Some(Incoming::Notification { method, params }) => self.handle_notification(&method, params, via),
        }
        true
    }

    fn handle_notification(self: &Arc<Self>, method: &str, params: Option<&RawValue>, via: Option<u64>) {
        let params = || params.map_or_else(|| to_raw(&RawObject::default()), RawValue::to_owned);
        match method {
            "notifications/progress" => self.handle_progress(&params()),
            "notifications/message" => self.publish_to_client("notifications/message", params(), via),
            "notifications/elicitation/complete" => {
                self.publish_to_client("notifications/elicitation/complete", params(), via);
            }
            "notifications/resources/updated" => self.shared.publish(ChildEvent::ResourceUpdated(params())),
            "notifications/tools/list_changed" => self.shared.list_changed(ListKind::Tools),
            "notifications/prompts/list_changed" => self.shared.list_changed(ListKind::Prompts),
            "notifications/resources/list_changed" => {
                self.shared.list_changed(ListKind::Resources);
                self.shared.list_changed(ListKind::ResourceTemplates);
            }
            "notifications/cancelled" => self.server_requests.cancel(&params()),
            _ => tracing::debug!(child = self.shared.name(), method, "ignored a notification"),
        }
    }

    /// Publishes a notification to the client that a request would go to. If that is ambiguous it is dropped, since it
    /// may be about another client's work.
    fn publish_to_client(&self, method: &'static str, params: Box<RawValue>, via: Option<u64>) {
        match self.host_for(via) {
            Ok(host) => {
                self.shared.publish(ChildEvent::Notification { method, params, to: ClientRef::of(&host) });
            }
            Err(clients) => {
                tracing::debug!(
                    child = self.shared.name(),
                    method,
                    clients,
                    "dropped a notification: no single client is its recipient"
                );
            }
        }
    }

    fn handle_progress(&self, params: &RawValue) {
        let id = RawObject::parse(params).and_then(|params| envelope::number(params.get("progressToken")));
        let Some(id) = id else { return };
        let calls = self.calls.lock();
        if let Some(progress) = calls.pending.get(&id).and_then(|pending| pending.progress.as_ref())
            && progress.try_send(params.to_owned()).is_err()
        {
            count(&self.shared.counters.dropped_progress);
        }
    }

    /// Relays queued progress before the answer, so that the client gets them in order.
    async fn drain_progress(&self, progress: Option<mpsc::Receiver<Box<RawValue>>>, caller: &Caller) {
        let Some(mut progress) = progress else { return };
        while let Ok(note) = progress.try_recv() {
            relay_progress(caller, &note).await;
        }
    }

    /// Returns the `initialize` result, if the handshake is complete.
    pub(super) fn initialized(&self) -> Option<Arc<InitializeResult>> {
        self.opened.get().map(|(opened, _)| Arc::clone(opened))
    }

    /// Stores the result of the handshake and selects the `_meta` format of later requests.
    pub(super) fn set_initialized(&self, opened: InitializeResult, meta: Meta) {
        let _ = self.opened.set((Arc::new(opened), meta));
    }

    /// Returns the `_meta` format of this connection's protocol revision.
    pub(super) fn meta(&self) -> Meta {
        self.opened.get().map(|(_, meta)| *meta).unwrap_or_default()
    }

    /// Ends the connection, once, and fails all pending requests.
    pub(super) fn end(&self, cause: impl Into<String>, kind: EndKind) {
        let pending = {
            let mut calls = self.calls.lock();
            if calls.ending.is_some() {
                return;
            }
            let cause = self.shared.log.clean(&cause.into());
            calls.ending = Some(Ending { cause, kind });
            std::mem::take(&mut calls.pending)
        };
        // Pending requests read `ending` once their sender is dropped.
        drop(pending);
        self.end.cancel();
        self.server_requests.cancel_all();
    }

    /// Returns how the connection ended, if it did.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.calls.lock().ending.clone()
    }

    /// Waits until the connection has ended.
    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Builds the error for requests that were pending when the connection ended.
    pub(super) fn disconnected_error(&self) -> ChildError {
        let cause = self.ending().map_or_else(|| "it sent no answer".to_owned(), |ending| ending.cause);
        ChildError::Disconnected {
            child: self.shared.name().to_owned(),
            cause,
            last_line: self.shared.log.last(),
        }
    }

    /// Returns the client that a child's request is for: by the request whose stream carried it, by the calls in
    /// flight, or because only one client exists. The error is the number of candidates.
    pub(super) fn host_for(&self, via: Option<u64>) -> Result<Arc<dyn Host>, usize> {
        let calls = self.calls.lock();
        if let Some(host) = via.and_then(|id| calls.pending.get(&id)?.host.clone()) {
            return Ok(host);
        }
        let mut found: Vec<Arc<dyn Host>> = Vec::new();
        for host in calls.pending.values().filter_map(|pending| pending.host.as_ref()) {
            if !found.iter().any(|known| is_same(known, host)) {
                found.push(Arc::clone(host));
            }
        }
        drop(calls);
        if found.is_empty() {
            found = self.hosts.lock().iter().filter_map(Weak::upgrade).collect();
        }
        match found.as_slice() {
            [host] => Ok(Arc::clone(host)),
            hosts => Err(hosts.len()),
        }
    }

    /// Tracks a client that uses the child.
    pub(super) fn register_host(&self, caller: &Caller) {
        let Some(host) = &caller.host else { return };
        let mut hosts = self.hosts.lock();
        if hosts.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(host))) {
            return;
        }
        hosts.retain(|known| known.strong_count() > 0);
        // With more clients, the recipient of a request would be ambiguous anyway.
        if hosts.len() < MAX_HOSTS {
            hosts.push(Arc::downgrade(host));
        }
    }

    /// True if the client has used the child.
    pub(super) fn has_host(&self, host: &Arc<dyn Host>) -> bool {
        self.hosts.lock().iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(host)))
    }

    /// Records that something was received.
    pub(super) fn mark_output(&self) {
        self.has_output.store(true, Ordering::Relaxed);
    }

    /// True if anything was received.
    pub(super) fn has_output(&self) -> bool {
        self.has_output.load(Ordering::Relaxed)
    }

    /// Marks the start of a use; prevents an idle stop.
    pub(super) fn acquire(&self) {
        self.in_use.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the end of a use.
    pub(super) fn release(&self) {
        *self.last_used.lock() = Instant::now();
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of current uses.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns the time of the last use.
    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }

    /// True if this request still waits for its answer.
    pub(super) fn awaits(&self, id: Option<u64>) -> bool {
        id.is_some_and(|id| self.calls.lock().pending.contains_key(&id))
    }

    /// Allocates an id for a request whose answer is not tracked.
    pub(super) fn next_id(&self) -> u64 {
        let mut calls = self.calls.lock();
        calls.last += 1;
        calls.last
    }

    fn register(&self, pending: Pending) -> Result<u64, ChildError> {
        let mut calls = self.calls.lock();
        if calls.ending.is_some() {
            drop(calls);
            return Err(self.disconnected_error());
        }
        calls.last += 1;
        let id = calls.last;
        calls.pending.insert(id, pending);
        Ok(id)
    }

    /// Returns the error, or the more informative reason why the connection ended.
    fn end_error_or(&self, error: ChildError) -> ChildError {
        if self.ending().is_some() { self.disconnected_error() } else { error }
    }
}

/// Guard of a pending request: sends a cancellation if dropped without an answer.
struct CancelOnDrop<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
    method: &'a str,
    is_over: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let was_pending = self.connection.calls.lock().pending.remove(&self.id).is_some();
        // MCP forbids cancelling `initialize`, and `server/discover` has no such notification.
        let is_opening = matches!(self.method, "initialize" | "server/discover");
        if was_pending && !self.is_over && !is_opening {
            let params =
                to_raw(&serde_json::json!({"requestId": self.id, "reason": "the caller stopped waiting"}));
            self.connection.notify("notifications/cancelled", Some(&params));
        }
    }
}

/// Relays progress under the caller's own token.
async fn relay_progress(caller: &Caller, note: &RawValue) {
    if let (Some(host), Some(token), Some(mut params)) =
        (&caller.host, &caller.progress_token, RawObject::parse(note))
    {
        params.set("progressToken", token.clone());
        host.notify("notifications/progress", Some(params.to_raw())).await;
    }
}

/// Spins until the answer arrives or the spin time is over, yielding to other tasks.
async fn spin_until_answered<T>(answered: &oneshot::Receiver<T>) {
    let started = std::time::Instant::now();
    while answered.is_empty() && started.elapsed() < SPIN {
        tokio::task::yield_now().await;
    }
}

async fn next(progress: &mut Option<mpsc::Receiver<Box<RawValue>>>) -> Option<Box<RawValue>> {
    match progress {
        Some(progress) => progress.recv().await,
        None => None,
    }
}

async fn poll_sending(carried: &mut Option<super::transport::SendFuture>) -> Result<(), ChildError> {
    match carried {
        Some(carried) => carried.await,
        None => std::future::pending().await,
    }
}

fn is_same(one: &Arc<dyn Host>, other: &Arc<dyn Host>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
