//! Format of a request: envelope, headers and protocol version.

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use switchboard_core::describe_json_error;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::refusal::Refusal;
use crate::roster::RosterUpdate;
use crate::send::check_parts;
use crate::timestamp;
use crate::wire::{Envelope, PROTOCOL_VERSION, is_compatible, parse_json};

/// A parsed message. Only its format has been checked.
pub(crate) struct ParsedMessage {
    pub(crate) envelope: Envelope,
    /// The JSON as received, which the envelope signature covers.
    pub(super) raw: Value,
    pub(crate) swarm: Uuid,
    pub(super) sender: PeerId,
    pub(super) timestamp: Timestamp,
}

/// Parses the roster update in a system message. A message that cannot be parsed is only a notice and changes nothing.
pub(super) fn parse_update(content: &str) -> Option<RosterUpdate> {
    // Serde would also accept a JSON array and read it by position.
    let value = parse_json(content.as_bytes()).ok().filter(Value::is_object)?;
    if value.get("action").and_then(Value::as_str) == Some("roster") {
        return serde_json::from_value(value).ok().map(RosterUpdate::Roster);
    }
    serde_json::from_value(value).ok().map(|content| RosterUpdate::Change(Box::new(content)))
}

/// Parses a message and checks the format of envelope and headers.
pub(super) fn parse_message(headers: &HeaderMap, body: &[u8]) -> Result<ParsedMessage, Refusal> {
    let raw = parse_json(body).map_err(|error| {
        Refusal::invalid_format(format!("the body is not JSON: {}", describe_json_error(&error)))
    })?;
    check_objects(&raw)?;
    if let Some(version) = raw.get("protocol_version").and_then(Value::as_str) {
        check_version("protocol_version", version)?;
    }
    let envelope: Envelope =
        serde_path_to_error::deserialize(&raw).map_err(|error| Refusal::from_serde(&error))?;
    check_headers(headers, &envelope.sender.agent_id)?;
    let field = |field: &str, problem: &str| {
        Refusal::invalid_format(format!("{field} {problem}")).with_details(json!({ "field": field }))
    };
    let uuid = |name: &str, text: &str| {
        // Only one spelling is accepted, because the text itself is signed.
        Uuid::try_parse(text)
            .ok()
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| field(name, "must be a UUID in lower case with hyphens"))
    };
    uuid("message_id", &envelope.message_id)?;
    let swarm = uuid("swarm_id", &envelope.swarm_id)?;
    let timestamp = timestamp::parse(&envelope.timestamp)
        .ok_or_else(|| field("timestamp", "must be a UTC time such as 2026-02-05T14:30:00.000Z"))?;
    if envelope.expires_at.as_deref().is_some_and(|end| timestamp::parse(end).is_none()) {
        return Err(field("expires_at", "must be a UTC time such as 2026-02-05T14:30:00.000Z"));
    }
    let sender = PeerId::parse(&envelope.sender.agent_id).map_err(|error| {
        Refusal::invalid_format(error.to_string()).with_details(json!({ "field": "sender.agent_id" }))
    })?;
    PeerId::parse(&envelope.recipient)
        .map_err(|_| field("recipient", "must be 'broadcast' or the id of an agent"))?;
    let (references, attachments) = (envelope.references.as_deref(), envelope.attachments.as_deref());
    check_parts(references.unwrap_or_default(), attachments.unwrap_or_default()).map_err(|error| {
        let field = if matches!(error, SwarmError::Reference(_)) { "references" } else { "attachments" };
        Refusal::invalid_format(error.to_string()).with_details(json!({ "field": field }))
    })?;
    Ok(ParsedMessage { envelope, raw, swarm, sender, timestamp })
}

/// Checks that fields which must be objects are not arrays.
///
/// Serde would read an array by position, which bypasses checks of fields by name.
pub(crate) fn check_objects(raw: &Value) -> Result<(), Refusal> {
    let refuse = |field: &str| {
        Refusal::invalid_format(format!("{field} must be an object")).with_details(json!({ "field": field }))
    };
    let is_list = |field: &str| raw.get(field).is_some_and(Value::is_array);
    if !raw.is_object() {
        return Err(Refusal::invalid_format("the body must be an object"));
    }
    if is_list("sender") {
        return Err(refuse("sender"));
    }
    for field in ["references", "attachments"] {
        let items = raw.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if items.iter().any(Value::is_array) {
            return Err(refuse(field));
        }
    }
    Ok(())
}

/// Checks the optional headers. Existing implementations do not always send them; if present, they must be correct.
pub(crate) fn check_headers(headers: &HeaderMap, agent: &str) -> Result<(), Refusal> {
    if headers.get("x-agent-id").is_some_and(|id| id.as_bytes() != agent.as_bytes()) {
        return Err(Refusal::invalid_format("X-Agent-ID is not the sender's agent_id"));
    }
    match headers.get("x-swarm-protocol").map(|version| version.to_str()) {
        None => Ok(()),
        Some(Ok(version)) => check_version("X-Swarm-Protocol", version),
        Some(Err(_)) => Err(Refusal::invalid_format("X-Swarm-Protocol is not a version")),
    }
}

pub(crate) fn check_version(field: &str, version: &str) -> Result<(), Refusal> {
    if is_compatible(version) {
        return Ok(());
    }
    let shown: String = version.chars().take(32).collect();
    Err(Refusal::invalid_format(format!(
        "{field} '{}' is not supported; use {PROTOCOL_VERSION}",
        shown.escape_debug()
    ))
    .with_details(json!({ "field": field, "supported": PROTOCOL_VERSION })))
}
