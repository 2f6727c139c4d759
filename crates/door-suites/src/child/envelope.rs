//! JSON-RPC 2.0 envelopes, read without looking into what they carry.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::host::RpcError;

/// Codes of JSON-RPC 2.0 and of MCP 2026-07-28.
pub(super) mod code {
    /// The method is not known.
    pub(in crate::child) const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are not what the method takes.
    pub(in crate::child) const INVALID_PARAMS: i64 = -32602;
    /// Something went wrong at the other end.
    pub(in crate::child) const INTERNAL: i64 = -32603;
    /// The headers of a request do not say what its body says.
    pub(in crate::child) const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability that the request needs.
    pub(in crate::child) const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not supported.
    pub(in crate::child) const UNSUPPORTED_VERSION: i64 = -32022;
}

/// A message from a child.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    /// An answer. The id is `None` when it is none that we could have given.
    Answer { id: Option<u64>, outcome: Result<&'a RawValue, RpcError> },
    /// A question of its own.
    Request { id: &'a RawValue, method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// Something it wants known.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// A member that is there, be it `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Incoming<'a> {
    /// Reads a message; `None` when it is not JSON-RPC 2.0.
    ///
    /// The version is insisted on: programs log JSON to stdout, and a log line with an `id` and a `result`
    /// must not pass for an answer.
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

/// The messages of a batch, which the revision of 2025-03-26 allowed; `None` when it is no array.
pub(super) fn parse_batch(bytes: &[u8]) -> Option<Vec<&RawValue>> {
    serde_json::from_slice(bytes).ok()
}

/// The number in an id of ours, also where the child gives it back as `"5"` or `5.0`.
///
/// JSON-RPC wants the id back as it was, but there are servers that keep ids as strings, and languages whose only
/// number is a float. The official SDKs for TypeScript and Python find the request in both cases. All our ids are
/// numbers and none is given twice, so that no other request can be meant.
pub(super) fn number(id: Option<&RawValue>) -> Option<u64> {
    let text = id?.get();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let digits = match text.split_once('.') {
        // Not by way of a float, which would round a large number to another.
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0') => {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    let is_plain = digits == "0" || !digits.starts_with(['0', '+', '-']);
    digits.parse().ok().filter(|_| is_plain)
}

/// An error as the child wrote it; one that is not even an error object is quoted.
fn parse_error(raw: &RawValue) -> RpcError {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| RpcError {
        code: code::INTERNAL,
        message: "the server answered with an error that is not in the form of JSON-RPC".to_owned(),
        data: Some(raw.to_owned()),
    })
}

/// Writes a request.
pub(super) fn request(id: u64, method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.map_or(0, |params| params.get().len()));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(br#","method":"#);
    write_rest(&mut out, method, params);
    out
}

/// Writes a notification.
pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","method":"#.to_vec();
    write_rest(&mut out, method, params);
    out
}

/// Writes the answer to a child's request.
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
            write_raw(&mut out, &super::object::raw(error));
        }
    }
    out.push(b'}');
    out
}

fn write_rest(out: &mut Vec<u8>, method: &str, params: Option<&RawValue>) {
    write_raw(out, &super::object::raw(&method));
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        write_raw(out, params);
    }
    out.push(b'}');
}

/// Writes JSON on one line. Inside strings a line break is always escaped, so that a bare one is mere space.
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
