//! One connection to a child: sends requests and dispatches responses.
//!
//! This module is independent of the transport. Switchboard assigns the request ids, and each response is matched by id
//! or dropped, so a child can only answer requests that it has received.

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

/// Maximum number of queued progress notifications per call. When the queue is full, further notifications are dropped
/// and counted, since a later one will supersede them.
const PROGRESS_QUEUE: usize = 64;

/// Maximum extension of a call by progress notifications, as a multiple of its timeout.
const MAX_EXTENSION: u32 = 10;

/// Maximum time to drain a response stream after the answer has arrived on it.
const STREAM_DRAIN: Duration = Duration::from_millis(500);

/// Maximum time to spin while waiting for an answer.
///
/// Spinning is used only if the previous answer arrived within this time: suspending and waking the task takes longer
/// than a child needs to answer from memory.
const SPIN: Duration = Duration::from_micros(250);

/// Maximum number of clients tracked as possible recipients of a child's requests outside any call.
const MAX_HOSTS: usize = 256;

/// A connection to a child, over any transport.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) transport: Transport,
    /// Process id, if Switchboard started the child as a local process.
    pub(super) pid: Option<u32>,
    pub(super) since: Timestamp,
    pub(super) server_requests: ServerRequests,
    opened: OnceLock<(Arc<InitializeResult>, Meta)>,
    calls: Mutex<Calls>,
    hosts: Mutex<Vec<Weak<dyn Host>>>,
    /// Fires when the connection has ended.
    end: CancellationToken,
    /// True once the child has sent any output.
    has_output: AtomicBool,
    /// True if the last answer arrived within [`SPIN`].
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

/// Cause of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    /// Switchboard stopped the connection on purpose.
    Wanted,
    /// The child ended the connection unexpectedly.
    Crash,
    /// The child sent invalid data; it is killed without a grace period.
    Fault,
}

/// A request that is waiting for its answer.
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
    /// If the wait ends without an answer, the child is sent a cancellation. This also happens if the future is
    /// dropped.
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
                        // Read the stream to its end, so that its connection can be reused for the next request.
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
                    // The answer may have arrived with the last chunk, before the error.
                    if let Err(error) = done && answered.is_empty() {
                        // An error is also an answer, so there is no request left to cancel.
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

    /// Sends a message that expects no answer. A failure is only logged, because it means that the child has ended.
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

    /// Handles a received body; returns true if the body was valid JSON-RPC.
    ///
    /// `via` is the id of the request on whose response stream the body arrived, for transports with such streams.
    pub(super) fn receive(self: &Arc<Self>, body: &[u8], via: Option<u64>) -> bool {
        if body.first() == Some(&b'[') {
            let Some(batch) = envelope::parse_batch(body) else { return false };
            // One invalid message must not prevent the others from being handled.
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
                    // The send fails if the caller was just dropped; the answer is then discarded.
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

    /// Publishes a notification to the client that a request of the child would be sent to.
    ///
    /// An ambiguous notification is dropped, because it may concern another client's work.
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

    /// Relays the queued progress before the answer is returned, so that the client receives both in order.
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

    /// Stores the handshake result and selects the `_meta` format of later requests.
    pub(super) fn set_initialized(&self, opened: InitializeResult, meta: Meta) {
        let _ = self.opened.set((Arc::new(opened), meta));
    }

    /// Returns the `_meta` format of this connection's protocol revision.
    pub(super) fn meta(&self) -> Meta {
        self.opened.get().map(|(_, meta)| *meta).unwrap_or_default()
    }

    /// Ends the connection and fails all pending requests. Only the first call has an effect.
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
        // Drop the senders now: a pending request reads `ending` once its sender is dropped.
        drop(pending);
        self.end.cancel();
        self.server_requests.cancel_all();
    }

    /// Returns how and why the connection ended, if it has ended.
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

    /// Returns the client that should receive a message of the child.
    ///
    /// The client is determined by the request whose stream carried the message, otherwise by the calls in flight,
    /// otherwise because only one client uses the child. The error is the number of candidates.
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

    /// Adds the caller's client to the clients that use the child.
    pub(super) fn register_host(&self, caller: &Caller) {
        let Some(host) = &caller.host else { return };
        let mut hosts = self.hosts.lock();
        if hosts.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(host))) {
            return;
        }
        hosts.retain(|known| known.strong_count() > 0);
        // With more clients than this, the recipient of a request would be ambiguous anyway.
        if hosts.len() < MAX_HOSTS {
            hosts.push(Arc::downgrade(host));
        }
    }

    /// Returns true if the client has used the child.
    pub(super) fn has_host(&self, host: &Arc<dyn Host>) -> bool {
        self.hosts.lock().iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(host)))
    }

    /// Records that the child has sent some output.
    pub(super) fn mark_output(&self) {
        self.has_output.store(true, Ordering::Relaxed);
    }

    /// Returns true if anything was received from the child.
    pub(super) fn has_output(&self) -> bool {
        self.has_output.load(Ordering::Relaxed)
    }

    /// Increments the use count, which prevents an idle stop.
    pub(super) fn acquire(&self) {
        self.in_use.fetch_add(1, Ordering::Relaxed);
    }

    /// Decrements the use count.
    pub(super) fn release(&self) {
        *self.last_used.lock() = Instant::now();
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the use count.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns when the connection was last used.
    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }

    /// Returns true if this request is still waiting for its answer.
    pub(super) fn awaits(&self, id: Option<u64>) -> bool {
        id.is_some_and(|id| self.calls.lock().pending.contains_key(&id))
    }

    /// Allocates a request id without registering a pending request.
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

    /// Returns the reason why the connection ended, if it has ended, or else `error`.
    fn end_error_or(&self, error: ChildError) -> ChildError {
        if self.ending().is_some() { self.disconnected_error() } else { error }
    }
}

/// Guard of a pending request. Sends a cancellation if it is dropped without an answer.
struct CancelOnDrop<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
    method: &'a str,
    is_over: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let was_pending = self.connection.calls.lock().pending.remove(&self.id).is_some();
        // MCP forbids cancelling `initialize`, and `server/discover` has no cancellation notification.
        let is_opening = matches!(self.method, "initialize" | "server/discover");
        if was_pending && !self.is_over && !is_opening {
            let params =
                to_raw(&serde_json::json!({"requestId": self.id, "reason": "the caller stopped waiting"}));
            self.connection.notify("notifications/cancelled", Some(&params));
        }
    }
}

/// Relays a progress notification to the caller, under the caller's own progress token.
async fn relay_progress(caller: &Caller, note: &RawValue) {
    if let (Some(host), Some(token), Some(mut params)) =
        (&caller.host, &caller.progress_token, RawObject::parse(note))
    {
        params.set("progressToken", token.clone());
        host.notify("notifications/progress", Some(params.to_raw())).await;
    }
}

/// Spins until the answer arrives or [`SPIN`] has elapsed. Yields to other tasks in each iteration.
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
