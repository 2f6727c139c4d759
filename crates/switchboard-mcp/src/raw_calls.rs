//! Tool calls, and lists of what can be called, that go past `rmcp`.
//!
//! `rmcp` reads messages into types, and what its types do not know is lost. A call that only passes through,
//! to a server behind us, must come out as it went in, so it is handed on as it was written, and so is its
//! result. That is quicker, too, and therefore good for calls that do not pass through as well.
//!
//! Over stdio every call that [`RawCallHandler::accepts`] goes this way. Over streamable HTTP only those of which
//! [`RawCallHandler::is_prompt`] says so: the others need a stream of events, which is `rmcp`'s. The handler of such a session
//! offers its way with [`offer_raw_calls`].

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
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::intake;
use crate::panics::report_panic;

/// How many calls of one session may be on their way at once. One more is refused.
const MAX_IN_FLIGHT: usize = 256;

/// The key of a request's `_meta` that says it belongs to no session.
const PROTOCOL_VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// Whoever answers calls that pass through.
pub trait RawCallHandler: Clone + Send + Sync + 'static {
    /// Whether it answers the calls of a tool.
    fn accepts(&self, tool: &str) -> bool;

    /// Whether the calls of a tool that it takes are answered soon and without a word to the client before the answer.
    fn is_prompt(&self, _tool: &str) -> bool {
        false
    }

    /// Answers a call with the whole result, as JSON, or with a JSON-RPC error as JSON.
    fn call(&self, call: RawCall) -> impl Future<Output = Result<Box<RawValue>, Box<RawValue>>> + Send;

    /// Whether it answers requests of a method that lists something: there is something on the list that `rmcp` would
    /// not pass on as it is.
    fn handles_list(&self, _method: &str) -> bool {
        false
    }

    /// Answers such a request in the same way.
    fn list(&self, _list: RawList) -> impl Future<Output = Result<Box<RawValue>, Box<RawValue>>> + Send {
        std::future::ready(Err(RawValue::NULL.to_owned()))
    }
}

/// A call that passes through.
#[derive(Debug)]
pub struct RawCall {
    /// Who calls.
    pub caller: Caller,
    /// The tool's name.
    pub tool: String,
    /// Its arguments, as the client wrote them.
    pub arguments: Option<Box<RawValue>>,
    /// What the client said about the call, as it wrote it.
    pub meta: Option<Box<RawValue>>,
    /// By what the client wants to hear of progress, which stands in there as well.
    pub progress_token: Option<Box<RawValue>>,
    /// Fires when the client no longer wants the answer. Then none is sent.
    pub cancelled: CancellationToken,
}

/// A list that passes through.
#[derive(Debug)]
pub struct RawList {
    /// The method that lists.
    pub method: String,
    /// Its parameters, as the client wrote them.
    pub params: Option<Box<RawValue>>,
    /// Fires when the client no longer wants the answer. Then none is sent.
    pub cancelled: CancellationToken,
}

/// For servers through which nothing passes.
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

/// A [`RawCallHandler`] of any kind, for its prompt calls.
#[derive(Clone)]
pub(crate) struct PromptCallHandler(Arc<dyn PromptCalls>);

/// What [`PromptCallHandler`] needs of a [`RawCallHandler`].
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

/// The place where the handler of a session over HTTP leaves its [`RawCallHandler`]. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandlerSlot(Arc<OnceLock<PromptCallHandler>>);

impl HandlerSlot {
    pub(crate) fn get(&self) -> Option<&PromptCallHandler> {
        self.0.get()
    }
}

/// Has the prompt calls of a session go past `rmcp` from now on. `extensions` are those of the context of any message of
/// the session; where its transport has no use for this, nothing happens.
pub fn offer_raw_calls(extensions: &Extensions, passing: impl RawCallHandler) {
    let parts = extensions.get::<Parts>();
    if let Some(slot) = parts.and_then(|parts| parts.extensions.get::<HandlerSlot>()) {
        let _ = slot.0.set(PromptCallHandler(Arc::new(passing)));
    }
}

/// The calls of one session that are on their way, by their ids as written. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight {
    calls: Arc<Mutex<HashMap<String, CancellationToken>>>,
    /// Fires when the session is over: nobody wants any of the answers then.
    over: CancellationToken,
}

/// What a message is to whoever passes calls on.
pub(crate) enum Classified {
    /// A call, with its id and what it is.
    Call(Box<RawValue>, RawCall),
    /// A request for a list, with its id.
    List(Box<RawValue>, RawList),
    /// One that is not taken, with its id and the error that says why.
    Refused(Box<RawValue>, Box<RawValue>),
    /// The client no longer wants a call of ours. It has been told off.
    Cancelled,
    /// None of our business.
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
    /// Those of a session that is over when the token fires.
    pub(crate) fn until(over: CancellationToken) -> Self {
        Self { calls: Arc::default(), over }
    }

    /// Looks at a message. One that cannot be read here is somebody else's to refuse.
    pub(crate) fn classify(&self, bytes: &[u8], passing: &impl RawCallHandler) -> Classified {
        // A list would pass for an object whose fields stand in order.
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
                self.classify_call(id, params, passing)
            }
            (Some("notifications/cancelled"), None, Some(params)) => self.cancel(params),
            (Some(method), Some(id), params) if passing.handles_list(method) && intake::is_id(id.get()) => {
                self.classify_list(id, method, params)
            }
            _ => Classified::Other,
        }
    }

    fn classify_call(&self, id: &RawValue, params: &RawValue, passing: &impl RawCallHandler) -> Classified {
        let Ok(params) = serde_json::from_str::<CallParams<'_>>(params.get()) else {
            return Classified::Other;
        };
        if params.arguments.is_some_and(|arguments| !arguments.get().starts_with('{')) {
            return Classified::Other;
        }
        let meta = params.meta.map(|meta| serde_json::from_str::<HashMap<&str, &RawValue>>(meta.get()));
        let Ok(meta) = meta.transpose().map(Option::unwrap_or_default) else { return Classified::Other };
        // A request of the newest revision has rules of its own, which `rmcp` knows.
        if !passing.accepts(params.name) || meta.contains_key(PROTOCOL_VERSION_META) {
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

    /// Notes a request as on its way; otherwise why it cannot be.
    fn register(&self, id: &RawValue) -> Result<CancellationToken, Box<RawValue>> {
        let mut calls = self.calls.lock();
        if calls.contains_key(id.get()) {
            // Two answers to one id could not be told apart.
            let problem = format!("a call with the id {} is on its way already; use another", id.get());
            return Err(error(ErrorData::invalid_request(problem, None)));
        }
        if calls.len() >= MAX_IN_FLIGHT {
            let problem =
                format!("{MAX_IN_FLIGHT} calls are on their way already; wait for one of them and try again");
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

    /// Notes that a call has come to its end. Says whether its answer is still wanted.
    pub(crate) fn finish(&self, id: &RawValue) -> bool {
        self.calls.lock().remove(id.get()).is_some_and(|call| !call.is_cancelled())
    }
}

/// The answer to a call, as one line.
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
    // Between the tokens of JSON a line may end; within them it cannot. Here the end of the line is the end.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line
}

/// Answers with an internal error where the call panics.
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
    serde_json::value::to_raw_value(&error).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
#[path = "raw_calls_tests.rs"]
mod tests;
