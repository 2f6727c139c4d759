//! What a session's client has said that a new server would have to know.

use rmcp::model::ProtocolVersion;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::McpError;
use crate::intake;
use crate::token::random_id;

/// What tools are like, as far as it matters when a call has to be made again.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Whether a tool says whom the session speaks for, or something else that has to be said again.
    pub is_kept: fn(&str) -> bool,
    /// Whether a tool may be called again where nobody knows whether the call was done.
    pub may_repeat: fn(&str) -> bool,
    /// The argument by which a tool recognises a call that it has got before.
    pub key: fn(&str) -> Option<&'static str>,
}

/// What has been said.
pub(super) struct Remembered {
    habits: Habits,
    /// By what calls of this session are recognised, with the number of the call. Its id would not do: some clients use
    /// one for more than one call.
    name: String,
    calls: u64,
    /// The messages that opened the session, then what has to be said again.
    opening: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    /// What has not been answered, in its order.
    open: Vec<Open>,
    /// Whether the client was told a revision that has batches.
    takes_batches: bool,
}

struct Open {
    id: String,
    line: Vec<u8>,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// It opens the session.
    Opening,
    /// It has to be said again to a new server.
    Kept,
    /// It may be said again.
    Repeatable,
    /// Nobody knows what saying it again would do.
    Once,
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
struct Called<'a> {
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

/// What a line of the server is to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its answer.
    Answer { is_error: bool },
    /// Something else.
    Other,
}

fn read(line: &[u8]) -> Option<Envelope<'_>> {
    // A list would pass for an object whose fields stand in order.
    line.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(line).ok()).flatten()
}

fn tool<'a>(envelope: &Envelope<'a>) -> Option<std::borrow::Cow<'a, str>> {
    let params = envelope.params.filter(|_| envelope.method == Some("tools/call"))?;
    serde_json::from_str::<Called<'_>>(params.get()).ok().map(|called| called.name)
}

impl Remembered {
    pub(super) fn new(habits: Habits) -> Result<Self, McpError> {
        let name = random_id()?;
        let (opening, kept, open) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { habits, name, calls: 0, opening, kept, open, takes_batches: false })
    }

    /// Notes what a line of the client says, and returns it as the server is to get it: a batch is taken apart, because
    /// parts of it may have to be said again and others not.
    pub(super) fn asked_line(&mut self, line: Vec<u8>) -> Vec<Vec<u8>> {
        let batch = intake::batch(&line).filter(|_| self.takes_batches);
        let Some(Ok(parts)) = batch else { return vec![self.asked(line)] };
        parts.into_iter().map(|part| self.asked(part.get().as_bytes().to_vec())).collect()
    }

    fn asked(&mut self, line: Vec<u8>) -> Vec<u8> {
        let Some(envelope) = read(&line) else { return line };
        match (envelope.method, envelope.id) {
            (Some("notifications/initialized"), None) => {
                self.opening.push(line.clone());
                line
            }
            (Some("notifications/cancelled"), None) => {
                let params = envelope.params.map(RawValue::get).unwrap_or_default();
                if let Ok(cancelled) = serde_json::from_str::<Cancelled<'_>>(params) {
                    self.open.retain(|open| open.id != cancelled.request_id.get());
                }
                line
            }
            (Some(method), Some(id)) => {
                let tool = tool(&envelope);
                let kind = match (method, tool.as_deref()) {
                    ("initialize", _) => Kind::Opening,
                    ("resources/subscribe" | "logging/setLevel", _) => Kind::Kept,
                    (_, Some(tool)) if (self.habits.is_kept)(tool) => Kind::Kept,
                    (_, Some(tool)) if !(self.habits.may_repeat)(tool) => Kind::Once,
                    _ => Kind::Repeatable,
                };
                let (id, key) = (id.get().to_owned(), tool.and_then(|tool| (self.habits.key)(&tool)));
                self.calls += 1;
                let word = format!("{}-{}", self.name, self.calls);
                let line = match key.and_then(|key| with_key(&line, key, &word)) {
                    Some(keyed) => keyed,
                    None => line,
                };
                self.open.push(Open { id, line: line.clone(), kind });
                line
            }
            _ => line,
        }
    }

    /// Notes what the server says.
    pub(super) fn answered(&mut self, line: &[u8]) {
        let Some(envelope) = read(line) else { return };
        let (None, Some(id)) = (envelope.method, envelope.id) else { return };
        let Some(place) = self.open.iter().position(|open| open.id == id.get()) else { return };
        let open = self.open.remove(place);
        let went_well = outcome(&envelope) == Heard::Answer { is_error: false };
        match open.kind {
            Kind::Opening if went_well => {
                self.takes_batches = revision(&envelope) == Some(ProtocolVersion::V_2025_03_26);
                self.opening.insert(0, open.line);
            }
            Kind::Kept if went_well => self.kept.push(open.line),
            _ => {}
        }
    }

    /// What a new server has to be told, in this order. Its answers are not for the client.
    pub(super) fn to_repeat(&self) -> Vec<Vec<u8>> {
        self.opening.iter().chain(&self.kept).cloned().collect()
    }

    /// What nobody has answered, and the answer that the client gets instead where it cannot be said again.
    pub(super) fn unanswered(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let (once, again): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.open).into_iter().partition(|open| open.kind == Kind::Once);
        let refused = once.into_iter().map(|open| {
            let refusal = refusal(&open.id);
            (open.line, Some(refusal))
        });
        let mut all: Vec<_> = refused.collect();
        all.extend(again.iter().map(|open| (open.line.clone(), None)));
        self.open = again;
        all
    }

    /// True if a request of the client has no answer yet.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a line of the client is one that is answered.
    pub(super) fn expects_answer(line: &[u8]) -> bool {
        read(line).is_some_and(|envelope| envelope.id.is_some())
    }

    /// What a line of the server is to a line of the client.
    pub(super) fn is_answer(answer: &[u8], line: &[u8]) -> Heard {
        match (read(answer), read(line)) {
            (Some(answer), Some(line))
                if answer.method.is_none() && answer.id.map(RawValue::get) == line.id.map(RawValue::get) =>
            {
                outcome(&answer)
            }
            _ => Heard::Other,
        }
    }
}

fn outcome(answer: &Envelope<'_>) -> Heard {
    let failed =
        |result: &RawValue| serde_json::from_str::<Outcome>(result.get()).is_ok_and(|said| said.is_error);
    Heard::Answer { is_error: answer.error.is_some() || answer.result.is_some_and(failed) }
}

/// The revision that the answer to `initialize` names.
fn revision(answer: &Envelope<'_>) -> Option<ProtocolVersion> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Agreed {
        protocol_version: ProtocolVersion,
    }
    serde_json::from_str::<Agreed>(answer.result?.get()).ok().map(|agreed| agreed.protocol_version)
}

/// A call with the argument by which it is recognised, unless it has one.
fn with_key(line: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let mut message: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let arguments = message.get_mut("params")?.get_mut("arguments")?.as_object_mut()?;
    if arguments.get(key).is_none_or(|given| given.is_null() || given == "") {
        arguments.insert(key.to_owned(), Value::String(value.to_owned()));
    }
    serde_json::to_vec(&message).ok()
}

/// What a client is told of a call that may or may not have been done.
fn refusal(id: &str) -> Vec<u8> {
    let text = "The server that did this ended before it answered: whether it was done is not known. Look before you \
                try again.";
    let content = json!([{ "type": "text", "text": text }]);
    let result = json!({ "content": content, "isError": true });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

#[cfg(test)]
#[path = "remembered_tests.rs"]
mod tests;
