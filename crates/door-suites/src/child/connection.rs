//! One connection to a child: requests out, answers back to whoever asked.
//!
//! The same for every transport. Requests are numbered by us, so that a child can answer only what it was
//! asked: an answer finds its request by our number or nobody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use switchboard_sys::clock::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::envelope::{self, Incoming};
use super::error::ChildError;
use super::meta::Meta;
use super::object::{Object, raw};
use super::server_requests::ServerRequests;
use super::shared::Shared;
use super::status::{ChildEvent, InitializeResult, ListKind, count};
use super::transport::{Outgoing, SendOutcome, Transport};
use crate::host::{Caller, ClientRef, Host, RpcError};

/// How many notes of progress wait for a caller. When it is full the next is dropped and counted: a later one
/// says more.
const NOTES: usize = 64;

/// A call that shows progress may take so many times its limit.
const PATIENCE: u32 = 10;

/// How long the end of a stream may take to follow the answer on it.
const TAIL: Duration = Duration::from_millis(500);

/// How long an answer is waited for awake where the last one came as soon. To be put to sleep and woken again takes
/// longer than an answer that only has to be looked up.
const AWAKE: Duration = Duration::from_micros(250);

/// How many clients are remembered for questions that come outside any call.
const HOSTS: usize = 256;

/// A connection.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Transport,
    /// The process at the other end, where it is one of ours.
    pub(super) pid: Option<u32>,
    pub(super) since: Timestamp,
    pub(super) asks: ServerRequests,
    opened: OnceLock<(Arc<InitializeResult>, Meta)>,
    calls: Mutex<Calls>,
    hosts: Mutex<Vec<Weak<dyn Host>>>,
    /// Fires when nothing more will come.
    end: CancellationToken,
    /// Whether anything came at all.
    is_heard: AtomicBool,
    /// Whether the last answer came at once.
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

/// How a connection ended.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) cause: String,
    pub(super) kind: EndKind,
}

/// Whose doing it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    /// Ours: it was stopped.
    Wanted,
    /// The child's: it ended.
    Crash,
    /// The child's: what it sent cannot be read, and it is not to be trusted with a polite end.
    Fault,
}

/// A request that waits for its answer.
struct Pending {
    answer: oneshot::Sender<Result<Box<RawValue>, RpcError>>,
    notes: Option<mpsc::Sender<Box<RawValue>>>,
    host: Option<Arc<dyn Host>>,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, link: Transport, pid: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            link,
            pid,
            since: Clock::system().now(),
            asks: ServerRequests::default(),
            opened: OnceLock::new(),
            calls: Mutex::default(),
            hosts: Mutex::default(),
            end: CancellationToken::new(),
            is_heard: AtomicBool::new(false),
            is_quick: AtomicBool::new(true),
            in_use: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        })
    }

    /// Sends a request and waits for the answer, for at most `limit`; progress and questions to the client
    /// extend it.
    ///
    /// When the wait ends in any other way, be it that the future is dropped, the child is told so.
    pub(super) async fn call(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        caller: &Caller,
        limit: Duration,
    ) -> Result<Box<RawValue>, ChildError> {
        let (notes, mut noted) = match &caller.progress_token {
            Some(_) => Some(mpsc::channel(NOTES)).unzip(),
            None => (None, None),
        };
        let (answer, mut answered) = oneshot::channel();
        let id = self.register(Pending { answer, notes, host: caller.host.clone() })?;
        let mut waiting = Waiting { connection: self, id, method, is_over: false };
        let params = self.meta().apply(params, caller, caller.progress_token.is_some().then_some(id));
        let body = envelope::request(id, method, params.as_deref());
        count(&self.shared.counters.calls);

        let outgoing = Outgoing { body, id: Some(id), method, params: params.as_deref() };
        let mut carried = match self.link.carry(self, outgoing) {
            SendOutcome::Done => None,
            SendOutcome::Failed(error) => return Err(self.wreck_or(error)),
            SendOutcome::UnderWay(future) => Some(future),
        };
        let begun = Instant::now();
        if matches!(self.link, Transport::Pipe(_)) && self.is_quick.load(Ordering::Relaxed) {
            stay_awake(&answered).await;
        }
        let mut deadline = begun + limit;
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    waiting.is_over = true;
                    self.is_quick.store(begun.elapsed() < AWAKE, Ordering::Relaxed);
                    if let Some(carried) = carried {
                        // A stream that is read to its end leaves its connection to the next request.
                        tokio::spawn(timeout(TAIL, carried));
                    }
                    self.pass_on_rest(noted, caller).await;
                    return match answer {
                        Ok(outcome) => outcome.map_err(ChildError::Rpc),
                        Err(_) => Err(self.gone_error()),
                    };
                }
                () = caller.cancelled.cancelled() => {
                    count(&self.shared.counters.cancelled);
                    return Err(ChildError::Cancelled);
                }
                Some(note) = next(&mut noted) => {
                    deadline = (Instant::now() + limit).min(begun + limit * PATIENCE);
                    pass_on(caller, &note).await;
                }
                done = carry(&mut carried) => {
                    carried = None;
                    // The answer may have come with the last piece that was carried.
                    if let Err(error) = done && answered.is_empty() {
                        // A refusal is an answer too: there is nothing left to call off.
                        waiting.is_over = matches!(error, ChildError::Rpc(_) | ChildError::SessionEnded { .. });
                        return Err(self.wreck_or(error));
                    }
                }
                () = sleep_until(deadline) => {
                    if self.asks.any() && begun.elapsed() < limit * PATIENCE {
                        deadline = Instant::now() + limit;
                        continue;
                    }
                    count(&self.shared.counters.timeouts);
                    return Err(ChildError::Timeout {
                        child: self.shared.name().to_owned(),
                        method: method.to_owned(),
                        after: begun.elapsed(),
                    });
                }
            }
        }
    }

    /// Sends what needs no answer. What cannot be sent is of no use to a child that is gone.
    pub(super) fn send(self: &Arc<Self>, method: &str, body: Vec<u8>) {
        let connection = Arc::clone(self);
        let outgoing = Outgoing { body, id: None, method, params: None };
        match self.link.carry(self, outgoing) {
            SendOutcome::Done => {}
            SendOutcome::Failed(error) => tracing::debug!(child = self.shared.name(), %error, "not sent"),
            SendOutcome::UnderWay(future) => {
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

    /// Takes in what the child sent; says whether it was JSON-RPC.
    ///
    /// `proxy_loop` is the request on whose own stream it came, where the transport has such streams.
    pub(super) fn take_in(self: &Arc<Self>, body: &[u8], via: Option<u64>) -> bool {
        if body.first() == Some(&b'[') {
            let Some(batch) = envelope::parse_batch(body) else { return false };
            // One that is not JSON-RPC does not keep the others from being taken in.
            let strange = batch.iter().filter(|one| !self.take_in_one(one.get().as_bytes(), via)).count();
            return strange == 0;
        }
        self.take_in_one(body, via)
    }

    fn take_in_one(self: &Arc<Self>, body: &[u8], via: Option<u64>) -> bool {
        match Incoming::parse(body) {
            None => return false,
            Some(Incoming::Answer { id, outcome }) => {
                let pending = id.and_then(|id| self.calls.lock().pending.remove(&id));
                match pending {
                    // Whoever asked may have left a moment ago: then there is nobody to tell.
                    Some(pending) => drop(pending.answer.send(outcome.map(RawValue::to_owned))),
                    None => count(&self.shared.counters.stray_answers),
                }
            }
            Some(Incoming::Request { id, method, params }) => self.asked(id, &method, params, via),
            Some(Incoming::Notification { method, params }) => self.notified(&method, params, via),
        }
        true
    }

    fn notified(self: &Arc<Self>, method: &str, params: Option<&RawValue>, via: Option<u64>) {
        let params = || params.map_or_else(|| raw(&Object::default()), RawValue::to_owned);
        match method {
            "notifications/progress" => self.progressed(&params()),
            "notifications/message" => self.say("notifications/message", params(), via),
            "notifications/elicitation/complete" => {
                self.say("notifications/elicitation/complete", params(), via);
            }
            "notifications/resources/updated" => self.shared.tell(ChildEvent::ResourceUpdated(params())),
            "notifications/tools/list_changed" => self.shared.list_changed(ListKind::Tools),
            "notifications/prompts/list_changed" => self.shared.list_changed(ListKind::Prompts),
            "notifications/resources/list_changed" => {
                self.shared.list_changed(ListKind::Resources);
                self.shared.list_changed(ListKind::ResourceTemplates);
            }
            "notifications/cancelled" => self.asks.call_off(&params()),
            _ => tracing::debug!(child = self.shared.name(), method, "a notification of no consequence"),
        }
    }

    /// Makes known what is for one client: the one that a question would be for. Where that is not clear nobody hears
    /// it, since it may be about what another client does.
    fn say(&self, method: &'static str, params: Box<RawValue>, via: Option<u64>) {
        match self.host_for(via) {
            Ok(host) => {
                self.shared.tell(ChildEvent::Notification { method, params, to: ClientRef::of(&host) })
            }
            Err(clients) => {
                tracing::debug!(child = self.shared.name(), method, clients, "for nobody in particular");
            }
        }
    }

    fn progressed(&self, params: &RawValue) {
        let id = Object::parse(params).and_then(|params| envelope::number(params.get("progressToken")));
        let Some(id) = id else { return };
        let calls = self.calls.lock();
        if let Some(notes) = calls.pending.get(&id).and_then(|pending| pending.notes.as_ref())
            && notes.try_send(params.to_owned()).is_err()
        {
            count(&self.shared.counters.dropped_progress);
        }
    }

    /// Passes on what was noted before the answer, so that a client hears of progress before it hears of the end.
    async fn pass_on_rest(&self, noted: Option<mpsc::Receiver<Box<RawValue>>>, caller: &Caller) {
        let Some(mut noted) = noted else { return };
        while let Ok(note) = noted.try_recv() {
            pass_on(caller, &note).await;
        }
    }

    /// What the child said when it was opened.
    pub(super) fn initialized(&self) -> Option<Arc<InitializeResult>> {
        self.opened.get().map(|(opened, _)| Arc::clone(opened))
    }

    /// Notes how the opening went; from now on requests carry what this revision wants.
    pub(super) fn set_initialized(&self, opened: InitializeResult, meta: Meta) {
        let _ = self.opened.set((Arc::new(opened), meta));
    }

    /// What requests carry beside their parameters.
    pub(super) fn meta(&self) -> Meta {
        self.opened.get().map(|(_, meta)| *meta).unwrap_or_default()
    }

    /// Ends the connection, once: all who wait are told.
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
        // Those who wait look for the ending when their answer is dropped.
        drop(pending);
        self.end.cancel();
        self.asks.call_off_all();
    }

    /// How it ended, if it did.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.calls.lock().ending.clone()
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// The error of whoever waited when it ended.
    pub(super) fn gone_error(&self) -> ChildError {
        let cause = self.ending().map_or_else(|| "it sent no answer".to_owned(), |ending| ending.cause);
        ChildError::Gone { child: self.shared.name().to_owned(), cause, said: self.shared.log.last() }
    }

    /// The client that a question of the child is for, by the request on whose stream it came, by the calls in
    /// flight, or because there is only one.
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

    /// Remembers a client that uses the child.
    pub(super) fn know(&self, caller: &Caller) {
        let Some(host) = &caller.host else { return };
        let mut hosts = self.hosts.lock();
        if hosts.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(host))) {
            return;
        }
        hosts.retain(|known| known.strong_count() > 0);
        // Beyond this nobody could tell whom a question is for anyway.
        if hosts.len() < HOSTS {
            hosts.push(Arc::downgrade(host));
        }
    }

    /// Whether a client used the child.
    pub(super) fn knows(&self, host: &Arc<dyn Host>) -> bool {
        self.hosts.lock().iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(host)))
    }

    /// Notes that something came.
    pub(super) fn heard(&self) {
        self.is_heard.store(true, Ordering::Relaxed);
    }

    /// Whether anything came yet.
    pub(super) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    /// Marks the beginning of a use, which keeps it from being stopped as idle.
    pub(super) fn begin_use(&self) {
        self.in_use.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the end of a use.
    pub(super) fn end_use(&self) {
        *self.last_used.lock() = Instant::now();
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many use it now.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// When it was last used.
    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }

    /// Whether this request still waits for its answer.
    pub(super) fn awaits(&self, id: Option<u64>) -> bool {
        id.is_some_and(|id| self.calls.lock().pending.contains_key(&id))
    }

    /// A number for a request whose answer nobody waits for.
    pub(super) fn number(&self) -> u64 {
        let mut calls = self.calls.lock();
        calls.last += 1;
        calls.last
    }

    fn register(&self, pending: Pending) -> Result<u64, ChildError> {
        let mut calls = self.calls.lock();
        if calls.ending.is_some() {
            drop(calls);
            return Err(self.gone_error());
        }
        calls.last += 1;
        let id = calls.last;
        calls.pending.insert(id, pending);
        Ok(id)
    }

    /// The error, or why there is no connection any more: that says more.
    fn wreck_or(&self, error: ChildError) -> ChildError {
        if self.ending().is_some() { self.gone_error() } else { error }
    }
}

/// A wait for an answer. Unless the answer came, the child is told when it ends.
struct Waiting<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
    method: &'a str,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let was_pending = self.connection.calls.lock().pending.remove(&self.id).is_some();
        // MCP forbids to call off `initialize`, and what opens without a session knows no such notification.
        let is_opening = matches!(self.method, "initialize" | "server/discover");
        if was_pending && !self.is_over && !is_opening {
            let params =
                raw(&serde_json::json!({"requestId": self.id, "reason": "nobody waits for it any more"}));
            self.connection.notify("notifications/cancelled", Some(&params));
        }
    }
}

/// Passes a note of progress on under the caller's own token.
async fn pass_on(caller: &Caller, note: &RawValue) {
    if let (Some(host), Some(token), Some(mut params)) =
        (&caller.host, &caller.progress_token, Object::parse(note))
    {
        params.set("progressToken", token.clone());
        host.notify("notifications/progress", Some(params.to_raw())).await;
    }
}

/// Does what there is to do, again and again, until the answer is there or does not come at once after all.
async fn stay_awake<T>(answered: &oneshot::Receiver<T>) {
    let begun = std::time::Instant::now();
    while answered.is_empty() && begun.elapsed() < AWAKE {
        tokio::task::yield_now().await;
    }
}

async fn next(noted: &mut Option<mpsc::Receiver<Box<RawValue>>>) -> Option<Box<RawValue>> {
    match noted {
        Some(noted) => noted.recv().await,
        None => None,
    }
}

async fn carry(carried: &mut Option<super::transport::Carrying>) -> Result<(), ChildError> {
    match carried {
        Some(carried) => carried.await,
        None => std::future::pending().await,
    }
}

fn is_same(one: &Arc<dyn Host>, other: &Arc<dyn Host>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
