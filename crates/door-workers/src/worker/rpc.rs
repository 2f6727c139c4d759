//! JSON-RPC over a program's lines, as Codex and the Agent Client Protocol use it.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::program::Program;

/// A message from the peer.
#[derive(Debug)]
pub(super) enum Message {
    /// A request that expects a response.
    Request { id: Value, method: String, params: Value },
    /// A notification.
    Notification { method: String, params: Value },
    /// The response to one of our requests.
    Response { id: u64, result: Result<Value, String> },
}

/// The peer process and the state of the RPC connection to it.
pub(super) struct Peer {
    program: Program,
    /// True if messages carry `jsonrpc`. Codex omits that field; the Agent Client Protocol requires it.
    has_version: bool,
    next: u64,
    /// Messages received while `call` waited for its response.
    stash: VecDeque<Message>,
}

impl Peer {
    pub(super) fn new(program: Program, has_version: bool) -> Self {
        Self { program, has_version, next: 0, stash: VecDeque::new() }
    }

    pub(super) fn pid(&self) -> u32 {
        self.program.pid()
    }

    pub(super) fn into_program(self) -> Program {
        self.program
    }

    /// Sends a request and returns its id; [`Peer::next`] returns the response.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<u64, String> {
        self.next += 1;
        let id = self.next;
        self.write(json!({ "id": id, "method": method, "params": params })).await?;
        Ok(id)
    }

    /// Sends a request and waits for its response. Buffers other messages for [`Peer::next`].
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let pending = self.request(method, params).await?;
        let mut stash = std::mem::take(&mut self.stash);
        let result = loop {
            match self.next().await {
                Some(Message::Response { id, result }) if id == pending => break result,
                Some(other) => stash.push_back(other),
                None => break Err("it ended".to_owned()),
            }
        };
        self.stash = stash;
        result.map_err(|error| format!("{method}: {error}"))
    }

    pub(super) async fn notify(&mut self, method: &str, params: Value) -> Result<(), String> {
        self.write(json!({ "method": method, "params": params })).await
    }

    pub(super) async fn respond(&mut self, id: &Value, result: Value) -> Result<(), String> {
        self.write(json!({ "id": id, "result": result })).await
    }

    /// Rejects a request whose method is not supported.
    pub(super) async fn reject_method(&mut self, id: &Value, method: &str) -> Result<(), String> {
        let error = json!({ "code": -32601, "message": format!("{method} is not supported") });
        self.write(json!({ "id": id, "error": error })).await
    }

    /// Returns the next message; `None` after the peer has exited. Skips lines that are not messages. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Message> {
        if let Some(message) = self.stash.pop_front() {
            return Some(message);
        }
        loop {
            let line = self.program.line().await?;
            if let Some(message) = serde_json::from_slice(&line).ok().and_then(parse_message) {
                return Some(message);
            }
        }
    }

    async fn write(&mut self, mut message: Value) -> Result<(), String> {
        if self.has_version
            && let Some(fields) = message.as_object_mut()
        {
            fields.insert("jsonrpc".to_owned(), json!("2.0"));
        }
        self.program.write(format!("{message}\n").as_bytes()).await
    }
}

/// Parses a message. A message with a method is a request or a notification; any other is a response.
fn parse_message(mut fields: Map<String, Value>) -> Option<Message> {
    let id = fields.remove("id").filter(|id| !id.is_null());
    let params = fields.remove("params").unwrap_or_default();
    match (fields.remove("method"), id) {
        (Some(Value::String(method)), Some(id)) => Some(Message::Request { id, method, params }),
        (Some(Value::String(method)), None) => Some(Message::Notification { method, params }),
        (_, Some(id)) => {
            let result = match fields.remove("error") {
                Some(error) => Err(error_text(&error)),
                None => Ok(fields.remove("result").unwrap_or_default()),
            };
            Some(Message::Response { id: id.as_u64()?, result })
        }
        (_, None) => None,
    }
}

fn error_text(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
    match error.pointer("/data/details").and_then(Value::as_str) {
        Some(details) => format!("{message}: {details}"),
        None => message.to_owned(),
    }
}

/// Returns the string at a JSON pointer.
pub(super) fn string_at(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

/// Returns the number at a JSON pointer.
pub(super) fn number_at(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// Returns the end of a text, truncated to at most `most` bytes.
pub(super) fn tail(text: &str, most: usize) -> String {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}
