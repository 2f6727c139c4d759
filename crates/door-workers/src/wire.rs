//! The JSON of `codeswarm.router.v1`, sections 1 to 6, and of what was added to it.
//!
//! Unknown fields are ignored in both directions, as section 7 has it. Fields that are absent are left out
//! and never `null`.

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

/// What stands in `protocol` of every message.
pub const PROTOCOL: &str = "codeswarm.router.v1";

/// An event as a line, with its newline.
///
/// `seq` is the event's place in the log. An answer that is for one client alone is not in the log, and
/// has the place up to which that client has been served: either way it is where to go on from.
pub fn format_event(seq: u64, at: Timestamp, body: &EventBody) -> Vec<u8> {
    format_event_at(seq, &format_timestamp(at), body)
}

/// The same, with a time that is in words already.
pub(crate) fn format_event_at(seq: u64, stamp: &str, body: &EventBody) -> Vec<u8> {
    write_event_line(seq, stamp, body)
}

/// An event of any name as a line.
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
    // Maps with text keys and plain values always serialise.
    if serde_json::to_writer(&mut line, body).is_ok() {
        line.remove(start);
    }
    // Clients that split at Unicode's line breaks get one line as well.
    if let Ok(Cow::Owned(escaped)) = std::str::from_utf8(&line).map(escape_json_line) {
        line = escaped.into_bytes();
    }
    line.push(b'\n');
    line
}

/// A time as section 1 wants it: UTC with `Z`, in milliseconds.
pub fn format_timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// An event as a client reads it, its content left as it is.
#[derive(Debug, Deserialize)]
pub struct EventLine<'l> {
    /// Where it stands in the log.
    pub seq: u64,
    /// When it was written.
    #[serde(default)]
    pub timestamp: String,
    /// What it is.
    pub event: String,
    /// What it says.
    #[serde(borrow)]
    pub data: &'l RawValue,
}

/// As much of an event as it takes to know whom it concerns.
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
    pub(crate) swarm_id: Option<String>,
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
