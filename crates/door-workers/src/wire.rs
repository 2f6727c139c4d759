//! Wire format of `codeswarm.router.v1`, sections 1 to 6, with extensions.
//!
//! Unknown fields are ignored in both directions (section 7). Absent fields are omitted and never `null`.

pub mod command;
pub mod event;
pub mod schema;

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use switchboard_core::escape_json_line;

use self::event::EventBody;

/// Value of `protocol` in every line.
pub const PROTOCOL: &str = "codeswarm.router.v1";

/// Formats an event as a line with its newline.
///
/// `seq` is the event's number in the log. An answer for one client alone is not in the log and carries the number up
/// to which that client was served: either way, the client resumes from it.
pub fn format_event(seq: u64, at: Timestamp, body: &EventBody) -> Vec<u8> {
    format_event_at(seq, &format_timestamp(at), body)
}

/// Formats an event with a formatted timestamp.
pub(crate) fn format_event_at(seq: u64, stamp: &str, body: &EventBody) -> Vec<u8> {
    write_event_line(seq, stamp, body)
}

/// Formats an event with any name.
pub(crate) fn format_raw_event(seq: u64, stamp: &str, event: &str, data: &Map<String, Value>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'b> {
        event: &'b str,
        data: &'b Map<String, Value>,
    }
    write_event_line(seq, stamp, &Body { event, data })
}

fn write_event_line(seq: u64, stamp: &str, body: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(br#"{"protocol":"codeswarm.router.v1","type":"event","timestamp":""#);
    line.extend_from_slice(stamp.as_bytes());
    line.extend_from_slice(br#"","seq":"#);
    line.extend_from_slice(seq.to_string().as_bytes());
    line.push(b',');
    let start = line.len();
    // Maps with string keys and plain values always serialize.
    if serde_json::to_writer(&mut line, body).is_ok() {
        line.remove(start);
    }
    // Escaped, so that clients that split at Unicode line breaks get one line as well.
    if let Ok(Cow::Owned(escaped)) = std::str::from_utf8(&line).map(escape_json_line) {
        line = escaped.into_bytes();
    }
    line.push(b'\n');
    line
}

/// Formats a time as section 1 requires: UTC with `Z`, in milliseconds.
pub fn format_timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// An event as a client reads it, with unparsed data.
#[derive(Debug, Deserialize)]
pub struct EventLine<'l> {
    /// Its number in the log.
    pub seq: u64,
    /// When it was written.
    #[serde(default)]
    pub timestamp: String,
    /// Its name.
    pub event: String,
    /// Its payload.
    #[serde(borrow)]
    pub data: &'l RawValue,
}

/// The fields of an event that identify its job, node and injection.
#[derive(Debug, Deserialize)]
pub(crate) struct EventHead {
    pub(crate) seq: u64,
    #[serde(default)]
    pub(crate) timestamp: String,
    pub(crate) event: String,
    #[serde(default)]
    pub(crate) data: HeadData,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct HeadData {
    pub(crate) job_id: Option<String>,
    pub(crate) node_id: Option<u32>,
    pub(crate) injection_id: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) approval_id: Option<String>,
    pub(crate) content: Option<String>,
    pub(crate) error: Option<String>,
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
