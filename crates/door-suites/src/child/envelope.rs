//! JSON-RPC 2.0 envelopes, parsed without interpreting their content.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::json::{deserialize_present, to_raw};

use crate::host::RpcError;

/// Error codes of JSON-RPC 2.0 and MCP 2026-07-28.
pub(super) mod code {
    /// Error code for an unknown method.
    pub(in crate::child) const METHOD_NOT_FOUND: i64 = -32601;
    /// Error code for invalid parameters.
    pub(in crate::child) const INVALID_PARAMS: i64 = -32602;
    /// Error code for an internal error.
    pub(in crate::child) const INTERNAL: i64 = -32603;
    /// Error code for a request whose headers contradict its body.
    pub(in crate::child) const HEADER_MISMATCH: i64 = -32020;
    /// Error code for a client that lacks a required capability.
    pub(in crate::child) const MISSING_CAPABILITY: i64 = -32021;
    /// Error code for an unsupported protocol version.
    pub(in crate::child) const UNSUPPORTED_VERSION: i64 = -32022;
}

/// A message received from a child.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    /// A response. The id is `None` if it cannot be a request id of Switchboard.
    Answer { id: Option<u64>, outcome: Result<&'a RawValue, RpcError> },
    /// A request sent by the child.
    Request { id: &'a RawValue, method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// A notification sent by the child.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Parses a message; returns `None` if it is not JSON-RPC 2.0.
    ///
    /// The `jsonrpc` member is required. Some programs log JSON to stdout, and a log line with an `id` and a `result`
    /// must not count as a response.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let wire: Wire<'a> = serde_json::from_slice(bytes).ok()?;
        if wire.jsonrpc != "2.0" {
            return None;
        }
        match (wire.method, wire.id, wire.result, wire.error) {
            (Some(method), Some(id), None, None) => Some(Self::Request { id, method, params: wire.params }),
            (Some(method), None, None, None) => Some(Self::Notification { method, params: wire.params }),
            (None, id, Some(result), None) => Some(Self::Answer { id: number(id), outcome: Ok(result) }),
            (None, id, _, Some(error)) => {
                Some(Self::Answer { id: number(id), outcome: Err(parse_error(error)) })
            }
            _ => None,
        }
    }
}

/// Splits a JSON-RPC batch, which revision 2025-03-26 allowed. Returns `None` if the body is not an array.
pub(super) fn parse_batch(bytes: &[u8]) -> Option<Vec<&RawValue>> {
    serde_json::from_slice(bytes).ok()
}

/// Parses a request id of Switchboard, even if the child returns it as `"5"` or `5.0`.
///
/// JSON-RPC requires the id to be returned unchanged, but some servers store ids as strings, and some languages have
/// only floats. The official SDKs for TypeScript and Python accept both. Accepting them is unambiguous, because all ids
/// of Switchboard are unique numbers.
pub(super) fn number(id: Option<&RawValue>) -> Option<u64> {
    let text = id?.get();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let digits = match text.split_once('.') {
        // Parsing as a float would round a large number to a different id.
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0') => {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    let is_plain = digits == "0" || !digits.starts_with(['0', '+', '-']);
    digits.parse().ok().filter(|_| is_plain)
}

/// Parses an error object. A malformed object is quoted in `data`.
fn parse_error(raw: &RawValue) -> RpcError {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| RpcError {
        code: code::INTERNAL,
        message: "the server answered with an error that is not a JSON-RPC error".to_owned(),
        data: Some(raw.to_owned()),
    })
}

/// Encodes a request.
pub(super) fn request(id: u64, method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.map_or(0, |params| params.get().len()));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(br#","method":"#);
    write_backlog(&mut out, method, params);
    out
}

/// Encodes a notification.
pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","method":"#.to_vec();
    write_backlog(&mut out, method, params);
    out
}

/// Encodes the answer to a child's request.
pub(super) fn answer(id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    write_raw(&mut out, id);
    match outcome {
        Ok(result) => {
            out.extend_from_slice(br#","result":"#);
            write_raw(&mut out, result);
        }
        Err(error) => {
            out.extend_from_slice(br#","error":"#);
            write_raw(&mut out, &to_raw(error));
        }
    }
    out.push(b'}');
    out
}

fn write_backlog(out: &mut Vec<u8>, method: &str, params: Option<&RawValue>) {
    write_raw(out, &to_raw(&method));
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        write_raw(out, params);
    }
    out.push(b'}');
}

/// Writes JSON on one line.
///
/// Line breaks inside JSON strings are always escaped, so the remaining ones are white space and can be replaced by
/// spaces.
fn write_raw(out: &mut Vec<u8>, raw: &RawValue) {
    let start = out.len();
    out.extend_from_slice(raw.get().as_bytes());
    if raw.get().contains(['\n', '\r']) {
        for byte in &mut out[start..] {
            if matches!(*byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
