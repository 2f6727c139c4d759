//! Raw calls: tool calls and list requests that bypass `rmcp` (pass-through).
//!
//! `rmcp` deserializes messages into types and loses fields that its types lack. A pass-through call to a server behind
//! us must not change, so the call and its result are forwarded as raw JSON. That is also faster, and therefore used
//! for other calls as well. Measured against a build in which `RawBypass::accepts` declines our own tools:
//!
//! - one client that waits for each answer: `check_inbox` takes 124 µs instead of 171 µs over HTTP and 24 µs instead of
//!   30 µs over stdio; `send_message` 0.61 ms instead of 0.72 ms over HTTP and 0.50 ms in both cases over stdio;
//! - `cargo run --release -p bench -- mcp --quick`, `check_inbox_http_1`: 12,400/s instead of 3,400 to 4,900/s.
//!
//! Over stdio, all calls that [`RawCallHandler::accepts`] accepts bypass `rmcp`. Over streamable HTTP, only those for
//! which [`RawCallHandler::is_prompt`] is true do: the others need an event stream, which `rmcp` serves. The handler of
//! such a session registers its raw call handler with [`offer_raw_calls`].

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use ::http::request::Parts;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::Extensions;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_core::json::to_raw;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::intake;
use crate::panics::report_panic;

/// Maximum number of calls in flight per session. Further calls are rejected.
const MAX_IN_FLIGHT: usize = 256;

/// Key in a request's `_meta` that marks it as stateless.
const PROTOCOL_VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// Handler of tool calls and list requests as raw JSON.
pub trait RawCallHandler: Clone + Send + Sync + 'static {
    /// Returns true if this handler answers calls of the tool.
    fn accepts(&self, tool: &str) -> bool;

    /// Returns true if calls of an accepted tool are answered soon. Such calls send no message to the client before the
    /// answer.
    fn is_prompt(&self, _tool: &str) -> bool {
        false
    }

    /// Answers a call with the complete result as JSON, or with a JSON-RPC error as JSON.
    fn call(&self, call: RawCall) -> impl Future<Output = Result<Box<RawValue>, Box<RawValue>>> + Send;

    /// Returns true if this handler answers requests of a list method. It does so for lists with entries that `rmcp`
    /// would not forward unchanged.
    fn handles_list(&self, _method: &str) -> bool {
        false
    }

    /// Answers a list request with the complete result as JSON, or with a JSON-RPC error as JSON.
    fn list(&self, _list: RawList) -> impl Future<Output = Result<Box<RawValue>, Box<RawValue>>> + Send {
        std::future::ready(Err(RawValue::NULL.to_owned()))
    }
}

/// Tool call as raw JSON.
#[derive(Debug)]
pub struct RawCall {
    /// Caller of the request.
    pub caller: Caller,
    /// Name of the tool.
    pub tool: String,
    /// Arguments as the client wrote them.
    pub arguments: Option<Box<RawValue>>,
    /// `_meta` of the call as the client wrote it.
    pub meta: Option<Box<RawValue>>,
    /// Progress token, which is also in `meta`.
    pub progress_token: Option<Box<RawValue>>,
    /// Token that fires when the client cancels the call. No answer is sent then.
    pub cancelled: CancellationToken,
}

/// List request as raw JSON.
#[derive(Debug)]
pub struct RawList {
    /// List method.
    pub method: String,
    /// Params as the client wrote them.
    pub params: Option<Box<RawValue>>,
    /// Token that fires when the client cancels the request. No answer is sent then.
    pub cancelled: CancellationToken,
}

/// Handler for servers without raw calls.
#[derive(Debug, Clone, Copy)]
pub struct NoRawCalls;

impl RawCallHandler for NoRawCalls {
    fn accepts(&self, _: &str) -> bool {
        false
    }

    async fn call(&self, _: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        Err(RawValue::NULL.to_owned())
    }
}

/// Type-erased [`RawCallHandler`].
#[derive(Clone)]
pub(crate) struct AnyRawCallHandler(Arc<dyn ErasedHandler>);

/// Object-safe form of [`RawCallHandler`].
trait ErasedHandler: Send + Sync {
    fn accepts(&self, tool: &str) -> bool;

    fn handles_list(&self, method: &str) -> bool;

    fn call(&self, call: RawCall) -> BoxFuture<'_, Result<Box<RawValue>, Box<RawValue>>>;

    fn list(&self, list: RawList) -> BoxFuture<'_, Result<Box<RawValue>, Box<RawValue>>>;
}

impl<P: RawCallHandler> ErasedHandler for P {
    fn accepts(&self, tool: &str) -> bool {
        RawCallHandler::accepts(self, tool)
    }

    fn handles_list(&self, method: &str) -> bool {
        RawCallHandler::handles_list(self, method)
    }

    fn call(&self, call: RawCall) -> BoxFuture<'_, Result<Box<RawValue>, Box<RawValue>>> {
        Box::pin(RawCallHandler::call(self, call))
    }

    fn list(&self, list: RawList) -> BoxFuture<'_, Result<Box<RawValue>, Box<RawValue>>> {
        Box::pin(RawCallHandler::list(self, list))
    }
}

impl AnyRawCallHandler {
    pub(crate) fn new(handler: impl RawCallHandler) -> Self {
        Self(Arc::new(handler))
    }
}

impl RawCallHandler for AnyRawCallHandler {
    fn accepts(&self, tool: &str) -> bool {
        self.0.accepts(tool)
    }

    fn handles_list(&self, method: &str) -> bool {
        self.0.handles_list(method)
    }

    async fn call(&self, call: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        self.0.call(call).await
    }

    async fn list(&self, list: RawList) -> Result<Box<RawValue>, Box<RawValue>> {
        self.0.list(list).await
    }
}

/// Type-erased [`RawCallHandler`], restricted to its prompt calls.
#[derive(Clone)]
pub(crate) struct PromptCallHandler(Arc<dyn PromptCalls>);

/// Object-safe subset of [`RawCallHandler`].
trait PromptCalls: Send + Sync {
    fn is_prompt(&self, tool: &str) -> bool;

    fn call(&self, call: RawCall) -> BoxFuture<'_, Result<Box<RawValue>, Box<RawValue>>>;
}

impl<P: RawCallHandler> PromptCalls for P {
    fn is_prompt(&self, tool: &str) -> bool {
        self.accepts(tool) && RawCallHandler::is_prompt(self, tool)
    }

    fn call(&self, call: RawCall) -> BoxFuture<'_, Result<Box<RawValue>, Box<RawValue>>> {
        Box::pin(isolated("tools/call", RawCallHandler::call(self, call)))
    }
}

impl RawCallHandler for PromptCallHandler {
    fn accepts(&self, tool: &str) -> bool {
        self.0.is_prompt(tool)
    }

    fn is_prompt(&self, tool: &str) -> bool {
        self.0.is_prompt(tool)
    }

    async fn call(&self, call: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        self.0.call(call).await
    }
}

impl fmt::Debug for PromptCallHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromptPassing")
    }
}

/// Slot in which the handler of a session over HTTP registers its [`RawCallHandler`]. Clones share the slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandlerSlot(Arc<OnceLock<PromptCallHandler>>);

impl HandlerSlot {
    pub(crate) fn get(&self) -> Option<&PromptCallHandler> {
        self.0.get()
    }
}

/// Lets the prompt calls of a session bypass `rmcp` from now on.
///
/// `extensions` are those of the context of any message of the session. On transports that do not support it, the call
/// has no effect.
pub fn offer_raw_calls(extensions: &Extensions, handler: impl RawCallHandler) {
    let parts = extensions.get::<Parts>();
    if let Some(slot) = parts.and_then(|parts| parts.extensions.get::<HandlerSlot>()) {
        let _ = slot.0.set(PromptCallHandler(Arc::new(handler)));
    }
}

/// Raw calls in flight of one session, keyed by raw id. Clones share the same map.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight {
    calls: Arc<Mutex<HashMap<String, CancellationToken>>>,
    /// Token that fires when the session ends and its answers are no longer needed.
    over: CancellationToken,
}

/// Classification of an incoming message.
pub(crate) enum Classified {
    /// An accepted call and its id.
    Call(Box<RawValue>, RawCall),
    /// An accepted list request and its id.
    List(Box<RawValue>, RawList),
    /// A rejected request: its id and the error.
    Refused(Box<RawValue>, Box<RawValue>),
    /// The client cancelled a call in flight, whose token has fired.
    Cancelled,
    /// Any other message, which `rmcp` handles.
    Other,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelParams<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

impl InFlight {
    /// Creates an empty set of calls for a session that ends when the token fires.
    pub(crate) fn until(over: CancellationToken) -> Self {
        Self { calls: Arc::default(), over }
    }

    /// Classifies a message. Invalid messages count as [`Classified::Other`] and are rejected later.
    pub(crate) fn classify(&self, bytes: &[u8], handler: &impl RawCallHandler) -> Classified {
        // Only objects are parsed, because serde would deserialize an array as a struct, by field order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Classified::Other;
        }
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(bytes) else { return Classified::Other };
        if envelope.params.is_some_and(|params| !params.get().starts_with('{')) {
            return Classified::Other;
        }
        if envelope.jsonrpc != Some("2.0") {
            return Classified::Other;
        }
        match (envelope.method, envelope.id, envelope.params) {
            (Some("tools/call"), Some(id), Some(params)) if intake::is_id(id.get()) => {
                self.classify_call(id, params, handler)
            }
            (Some("notifications/cancelled"), None, Some(params)) => self.cancel(params),
            (Some(method), Some(id), params) if handler.handles_list(method) && intake::is_id(id.get()) => {
                self.classify_list(id, method, params)
            }
            _ => Classified::Other,
        }
    }

    fn classify_call(&self, id: &RawValue, params: &RawValue, handler: &impl RawCallHandler) -> Classified {
        let Ok(params) = serde_json::from_str::<CallParams<'_>>(params.get()) else {
            return Classified::Other;
        };
        if params.arguments.is_some_and(|arguments| !arguments.get().starts_with('{')) {
            return Classified::Other;
        }
        let meta = params.meta.map(|meta| serde_json::from_str::<HashMap<&str, &RawValue>>(meta.get()));
        let Ok(meta) = meta.transpose().map(Option::unwrap_or_default) else { return Classified::Other };
        // Requests as of 2026-07-28 follow other rules, which `rmcp` implements.
        if !handler.accepts(params.name) || meta.contains_key(PROTOCOL_VERSION_META) {
            return Classified::Other;
        }
        let cancelled = match self.register(id) {
            Ok(cancelled) => cancelled,
            Err(error) => return Classified::Refused(id.to_owned(), error),
        };
        let call = RawCall {
            caller: Caller::STDIO,
            tool: params.name.to_owned(),
            arguments: params.arguments.map(ToOwned::to_owned),
            meta: params.meta.map(ToOwned::to_owned),
            progress_token: meta.get("progressToken").map(|token| (*token).to_owned()),
            cancelled,
        };
        Classified::Call(id.to_owned(), call)
    }

    fn classify_list(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Classified {
        #[derive(Deserialize)]
        struct ListParams<'a> {
            #[serde(borrow, rename = "_meta")]
            meta: Option<HashMap<&'a str, &'a RawValue>>,
        }
        let read = params.map(|params| serde_json::from_str::<ListParams<'_>>(params.get())).transpose();
        let Ok(read) = read else { return Classified::Other };
        if read.and_then(|params| params.meta).is_some_and(|meta| meta.contains_key(PROTOCOL_VERSION_META)) {
            return Classified::Other;
        }
        let cancelled = match self.register(id) {
            Ok(cancelled) => cancelled,
            Err(error) => return Classified::Refused(id.to_owned(), error),
        };
        let params = params.map(ToOwned::to_owned);
        Classified::List(id.to_owned(), RawList { method: method.to_owned(), params, cancelled })
    }

    /// Registers a request as in flight; fails if its id is in use or the limit is reached.
    fn register(&self, id: &RawValue) -> Result<CancellationToken, Box<RawValue>> {
        let mut calls = self.calls.lock();
        if calls.contains_key(id.get()) {
            // Reject the second call, because the client could not match two answers with the same id.
            let problem = format!("a call with the id {} is already in flight; use another id", id.get());
            return Err(error(ErrorData::invalid_request(problem, None)));
        }
        if calls.len() >= MAX_IN_FLIGHT {
            let problem =
                format!("{MAX_IN_FLIGHT} calls are already in flight; wait for one of them and retry");
            return Err(error(ErrorData::internal_error(problem, None)));
        }
        let cancelled = self.over.child_token();
        calls.insert(id.get().to_owned(), cancelled.clone());
        Ok(cancelled)
    }

    fn cancel(&self, params: &RawValue) -> Classified {
        let Ok(params) = serde_json::from_str::<CancelParams<'_>>(params.get()) else {
            return Classified::Other;
        };
        match self.calls.lock().get(params.request_id.get()) {
            Some(call) => {
                call.cancel();
                Classified::Cancelled
            }
            None => Classified::Other,
        }
    }

    /// Removes a finished call; returns false if the call was cancelled and needs no answer.
    pub(crate) fn finish(&self, id: &RawValue) -> bool {
        self.calls.lock().remove(id.get()).is_some_and(|call| !call.is_cancelled())
    }
}

/// Encodes the answer to a call as one line.
pub(crate) fn encode_answer(id: &RawValue, outcome: Result<Box<RawValue>, Box<RawValue>>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a RawValue>,
    }
    let (result, error) = match &outcome {
        Ok(result) => (Some(&**result), None),
        Err(error) => (None, Some(&**error)),
    };
    let mut line = serde_json::to_vec(&Answer { jsonrpc: "2.0", id, result, error }).unwrap_or_default();
    // Replace line breaks, which are allowed between JSON tokens but never inside them; here they would end the
    // message.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line
}

/// Catches a panic of the call and answers with an internal error.
pub(crate) async fn isolated(
    method: &str,
    call: impl Future<Output = Result<Box<RawValue>, Box<RawValue>>> + Send,
) -> Result<Box<RawValue>, Box<RawValue>> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(encode_answer) => encode_answer,
        Err(_) => Err(error(report_panic(method))),
    }
}

fn error(error: ErrorData) -> Box<RawValue> {
    to_raw(&error)
}

#[cfg(test)]
#[path = "raw_calls_tests.rs"]
mod tests;
