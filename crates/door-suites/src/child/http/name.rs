//! Routing headers of revision 2026-07-28, which spare intermediaries from parsing the body.

use http::header::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use switchboard_core::json::RawObject;

use super::{METHOD, NAME};

/// Returns the `Mcp-Method` header, and `Mcp-Name` for methods that have a name.
pub(super) fn headers(method: &str, params: Option<&RawValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if method.is_empty() {
        return headers;
    }
    if let Ok(value) = HeaderValue::from_str(&encode(method)) {
        headers.insert(METHOD, value);
    }
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return headers,
    };
    let name = params.and_then(RawObject::parse).and_then(|params| params.text(member));
    if let Some(Ok(value)) = name.map(|name| HeaderValue::from_str(&encode(&name))) {
        headers.insert(NAME, value);
    }
    headers
}

/// Encodes a text as a header value. Text that a header cannot carry is encoded as marked base64.
pub(super) fn encode(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !text.to_ascii_lowercase().starts_with("=?base64?");
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", base64(text.as_bytes())) }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_usize, |number, &byte| number << 8 | usize::from(byte));
        let number = number << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = number >> (18 - 6 * digit) & 63;
            out.push(if digit <= chunk.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
