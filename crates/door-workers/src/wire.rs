//! Wire format of `codeswarm.router.v1`, sections 1 to 6, with extensions.
//!
//! Unknown fields are ignored in both directions (section 7). Absent fields are omitted and are never `null`.

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
/// `seq` is the sequence number of the event in the log. An answer for one client alone is not in the log and carries
/// the number up to which that client was served. In both cases, the client can resume from `seq`.
pub fn format_event(seq: u64, at: Timestamp, body: &EventBody) -> Vec<u8> {
    format_event_at(seq, &format_timestamp(at), body)
}

/// Formats an event with an already formatted timestamp.
pub(crate) fn format_event_at(seq: u64, stamp: &str, body: &EventBody) -> Vec<u8> {
    write_event_line(seq, stamp, body)
}

/// Formats an event from its name and data.
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
    // Serialization cannot fail, because all maps have string keys and plain values.
    if serde_json::to_writer(&mut line, body).is_ok() {
        line.remove(start);
    }
    // Unicode line breaks are escaped, because some clients split lines at them.
    if let Ok(Cow::Owned(escaped)) = std::str::from_utf8(&line).map(escape_json_line) {
        line = escaped.into_bytes();
    }
    line.push(b'\n');
    line
}

/// Formats a time as section 1 requires: UTC with `Z` and milliseconds.
pub fn format_timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// An event as a client reads it, with its data unparsed.
#[derive(Debug, Deserialize)]
pub struct EventLine<'l> {
    /// Sequence number of the event in the log.
    pub seq: u64,
    /// Time when the event was written.
    #[serde(default)]
    pub timestamp: String,
    /// Name of the event.
    pub event: String,
    /// Payload of the event.
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
