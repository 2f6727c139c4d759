//! Replay state of an attached session: what a new server needs to continue it.

use rmcp::model::ProtocolVersion;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::McpError;
use crate::intake;
use crate::token::random_id;

/// Properties of tools that decide how their calls are replayed.
#[derive(Debug, Clone, Copy)]
pub struct ToolTraits {
    /// True if the tool sets state of the session, such as its agent, and must be replayed.
    pub is_session_state: fn(&str) -> bool,
    /// True if a call may be retried although it may have been executed.
    pub is_retryable: fn(&str) -> bool,
    /// Returns the argument that carries the tool's idempotency key.
    pub idempotency_key: fn(&str) -> Option<&'static str>,
}

/// State and unanswered requests of a session.
pub(super) struct ReplayState {
    traits: ToolTraits,
    /// Prefix of the session's idempotency keys; the number of the call follows. The JSON-RPC id is unsuitable, because
    /// some clients reuse ids.
    name: String,
    calls: u64,
    /// Requests that opened the session, followed by those that set its state.
    opening: Vec<Vec<u8>>,
    session_state: Vec<Vec<u8>>,
    /// Unanswered requests, in order.
    pending: Vec<OpenRequest>,
    /// True if the negotiated protocol version has batches.
    accepts_batches: bool,
}

struct OpenRequest {
    id: String,
    line: Vec<u8>,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// Request that opens the session.
    Initialize,
    /// Request that sets state of the session; it is replayed to a new server.
    SessionState,
    /// Request that may be sent again.
    Retryable,
    /// Request that may have been executed, and must not be sent again.
    NonIdempotent,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

/// Relation of a line from the server to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerLine {
    /// The answer to the request.
    Answer { is_error: bool },
    /// Any other message.
    Other,
}

fn parse(line: &[u8]) -> Option<Envelope<'_>> {
    // Only objects are parsed, because serde would deserialize an array as a struct, by field order.
    line.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(line).ok()).flatten()
}

fn called_tool<'a>(envelope: &Envelope<'a>) -> Option<std::borrow::Cow<'a, str>> {
    let params = envelope.params.filter(|_| envelope.method == Some("tools/call"))?;
    serde_json::from_str::<ToolCall<'_>>(params.get()).ok().map(|called| called.name)
}

impl ReplayState {
    pub(super) fn new(traits: ToolTraits) -> Result<Self, McpError> {
        let name = random_id()?;
        let (opening, session_state, pending) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { traits, name, calls: 0, opening, session_state, pending, accepts_batches: false })
    }

    /// Records a line from the client and returns the lines to send to the server. Batches are split, because some of
    /// their calls may be retried and others not.
    pub(super) fn record_line(&mut self, line: Vec<u8>) -> Vec<Vec<u8>> {
        let batch = intake::batch(&line).filter(|_| self.accepts_batches);
        let Some(Ok(parts)) = batch else { return vec![self.record_request(line)] };
        parts.into_iter().map(|part| self.record_request(part.get().as_bytes().to_vec())).collect()
    }

    fn record_request(&mut self, line: Vec<u8>) -> Vec<u8> {
        let Some(envelope) = parse(&line) else { return line };
        match (envelope.method, envelope.id) {
            (Some("notifications/initialized"), None) => {
                self.opening.push(line.clone());
                line
            }
            (Some("notifications/cancelled"), None) => {
                let params = envelope.params.map(RawValue::get).unwrap_or_default();
                if let Ok(cancelled) = serde_json::from_str::<Cancelled<'_>>(params) {
                    self.pending.retain(|pending| pending.id != cancelled.request_id.get());
                }
                line
            }
            (Some(method), Some(id)) => {
                let called_tool = called_tool(&envelope);
                let kind = match (method, called_tool.as_deref()) {
                    ("initialize", _) => Kind::Initialize,
                    ("resources/subscribe" | "logging/setLevel", _) => Kind::SessionState,
                    (_, Some(called_tool)) if (self.traits.is_session_state)(called_tool) => {
                        Kind::SessionState
                    }
                    (_, Some(called_tool)) if !(self.traits.is_retryable)(called_tool) => Kind::NonIdempotent,
                    _ => Kind::Retryable,
                };
                let (id, key) = (
                    id.get().to_owned(),
                    called_tool.and_then(|called_tool| (self.traits.idempotency_key)(&called_tool)),
                );
                self.calls += 1;
                let value = format!("{}-{}", self.name, self.calls);
                let line = match key.and_then(|key| with_idempotency_key(&line, key, &value)) {
                    Some(keyed) => keyed,
                    None => line,
                };
                self.pending.push(OpenRequest { id, line: line.clone(), kind });
                line
            }
            _ => line,
        }
    }

    /// Records a line from the server.
    pub(super) fn record_answer(&mut self, line: &[u8]) {
        let Some(envelope) = parse(line) else { return };
        let (None, Some(id)) = (envelope.method, envelope.id) else { return };
        let Some(index) = self.pending.iter().position(|pending| pending.id == id.get()) else { return };
        let pending = self.pending.remove(index);
        let succeeded = outcome(&envelope) == ServerLine::Answer { is_error: false };
        match pending.kind {
            Kind::Initialize if succeeded => {
                self.accepts_batches = revision(&envelope) == Some(ProtocolVersion::V_2025_03_26);
                self.opening.insert(0, pending.line);
            }
            Kind::SessionState if succeeded => self.session_state.push(pending.line),
            _ => {}
        }
    }

    /// Returns the lines that restore the session on a new server, in order. Their answers are not relayed to the
    /// client.
    pub(super) fn opening_lines(&self) -> Vec<Vec<u8>> {
        self.opening.iter().chain(&self.session_state).cloned().collect()
    }

    /// Removes and returns the unanswered requests. A request that must not be retried comes with an error result for
    /// the client.
    pub(super) fn drain_unanswered(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let (non_idempotent, retryable): (Vec<OpenRequest>, Vec<OpenRequest>) =
            std::mem::take(&mut self.pending)
                .into_iter()
                .partition(|pending| pending.kind == Kind::NonIdempotent);
        let refused = non_idempotent.into_iter().map(|pending| {
            let unknown_outcome = unknown_outcome(&pending.id);
            (pending.line, Some(unknown_outcome))
        });
        let mut all: Vec<_> = refused.collect();
        all.extend(retryable.iter().map(|pending| (pending.line.clone(), None)));
        self.pending = retryable;
        all
    }

    /// Returns true if a request of the client is unanswered.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns true if a line from the client is a request.
    pub(super) fn expects_answer(line: &[u8]) -> bool {
        parse(line).is_some_and(|envelope| envelope.id.is_some())
    }

    /// Classifies a line from the server as the answer to `line` or as another message.
    pub(super) fn classify(answer: &[u8], line: &[u8]) -> ServerLine {
        match (parse(answer), parse(line)) {
            (Some(answer), Some(line))
                if answer.method.is_none() && answer.id.map(RawValue::get) == line.id.map(RawValue::get) =>
            {
                outcome(&answer)
            }
            _ => ServerLine::Other,
        }
    }
}

fn outcome(answer: &Envelope<'_>) -> ServerLine {
    let failed = |result: &RawValue| {
        serde_json::from_str::<Outcome>(result.get()).is_ok_and(|call_result| call_result.is_error)
    };
    ServerLine::Answer { is_error: answer.error.is_some() || answer.result.is_some_and(failed) }
}

/// Returns the protocol version in the result of `initialize`.
fn revision(answer: &Envelope<'_>) -> Option<ProtocolVersion> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Negotiated {
        protocol_version: ProtocolVersion,
    }
    serde_json::from_str::<Negotiated>(answer.result?.get()).ok().map(|agreed| agreed.protocol_version)
}

/// Adds the idempotency key to a call that has none.
fn with_idempotency_key(line: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let mut message: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let arguments = message.get_mut("params")?.get_mut("arguments")?.as_object_mut()?;
    if arguments.get(key).is_none_or(|existing| existing.is_null() || existing == "") {
        arguments.insert(key.to_owned(), Value::String(value.to_owned()));
    }
    serde_json::to_vec(&message).ok()
}

/// Builds the error result of a call that may or may not have been executed.
fn unknown_outcome(id: &str) -> Vec<u8> {
    let text = "The outcome is not known: the server ended before it answered, and the call may have been executed. \
                Check before you retry.";
    let content = json!([{ "type": "text", "text": text }]);
    let result = json!({ "content": content, "isError": true });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
