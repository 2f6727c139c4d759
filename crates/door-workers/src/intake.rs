//! Parsing of command lines: a line becomes a request, or a rejection that names the error.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use switchboard_core::describe_json_error;

use crate::legacy::{self, LegacyMode, translate_rejection};
use crate::wire::PROTOCOL;
use crate::wire::command::{Command, Request};
use crate::wire::event::{CommandRejected, RejectCode};

/// Maximum length of a `request_id`, in bytes. A UUID has 36, and every answer repeats the id.
const REQUEST_ID: usize = 256;

/// The commands that `hello` lists.
pub(crate) const COMMANDS: [&str; 12] = [
    "hello",
    "inject",
    "launch",
    "jobs_list",
    "job_status",
    "terminate",
    "interrupt",
    "steer",
    "approve",
    "approvals_list",
    "queue_list",
    "subscribe",
];

/// Parses a line; returns `None` for a blank line.
pub(crate) fn parse(line: &[u8], mode: LegacyMode) -> Option<Result<Request, CommandRejected>> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    Some(parse_request(line, mode))
}

/// Rejects a line that exceeds the length limit.
pub(crate) fn reject_too_long(cap: usize) -> CommandRejected {
    reject(RejectCode::LineTooLong, None, format!("the line is longer than {cap} bytes; it was skipped"))
}

fn parse_request(line: &[u8], mode: LegacyMode) -> Result<Request, CommandRejected> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let at = error.valid_up_to();
        reject(RejectCode::NotUtf8, None, format!("the line is not UTF-8: byte {at} is invalid"))
    })?;
    let value: Value = serde_json::from_str(text).map_err(|error| {
        reject(
            RejectCode::InvalidJson,
            None,
            format!("the line is not JSON: {}", describe_json_error(&error)),
        )
    })?;
    let Value::Object(mut fields) = value else {
        let found = json_kind(&value);
        return Err(reject(
            RejectCode::NotAnObject,
            None,
            format!("the line is {found}; a command is an object"),
        ));
    };
    let request_id = fields.get("request_id").and_then(Value::as_str).map(str::to_owned);
    parse_fields(&mut fields, mode).map_err(|rejected| CommandRejected { request_id, ..rejected })
}

fn parse_fields(fields: &mut Map<String, Value>, mode: LegacyMode) -> Result<Request, CommandRejected> {
    match fields.get("protocol") {
        Some(Value::String(protocol)) if protocol == PROTOCOL => {}
        found => {
            let found = found.map_or("missing".to_owned(), |found| format!("{found}"));
            let reason = format!("protocol: must be \"{PROTOCOL}\", and is {found}");
            return Err(reject(RejectCode::WrongProtocol, Some("protocol"), reason));
        }
    }
    let command = match fields.get("command") {
        Some(Value::String(command)) => command.clone(),
        found => return Err(reject_field("command", "must be a string", found)),
    };
    let is_legacy = legacy::is_legacy_command(&command, fields.get("payload"))
        || mode.is_legacy && legacy::is_shared(&command);
    if !is_legacy && !COMMANDS.contains(&command.as_str()) {
        return Err(reject_unknown_command());
    }
    // Clients that speak the legacy dialect omit `type` and `timestamp`.
    let may_omit = is_legacy || mode.is_legacy;
    match fields.get("type") {
        Some(Value::String(kind)) if kind == "command" => {}
        None if may_omit => {}
        found => return Err(reject_field("type", "must be \"command\"", found)),
    }
    match fields.get("timestamp") {
        Some(Value::String(timestamp)) if is_utc(timestamp) => {}
        None if may_omit => {}
        found => {
            return Err(reject_field(
                "timestamp",
                "must be a time in UTC such as \"2026-02-25T15:00:00Z\"",
                found,
            ));
        }
    }
    let request_id = match fields.get("request_id") {
        Some(Value::String(id)) if (1..=REQUEST_ID).contains(&id.len()) => id.clone(),
        found => {
            let must = format!("must be a string of 1 to {REQUEST_ID} bytes, unique in this session");
            return Err(reject_field("request_id", &must, found));
        }
    };
    let payload = match fields.remove("payload") {
        Some(Value::Object(payload)) => payload,
        None if may_omit => Map::new(),
        found => return Err(reject_field("payload", "must be an object", found.as_ref())),
    };
    let understood = parse_command(&command, payload, mode);
    let reword = |rejected| if is_legacy { translate_rejection(&command, rejected) } else { rejected };
    let command = understood.map_err(reword)?;
    Ok(Request { request_id, command, is_legacy })
}

/// Parses the payload of a command, in either dialect.
fn parse_command(
    command: &str,
    mut payload: Map<String, Value>,
    mode: LegacyMode,
) -> Result<Command, CommandRejected> {
    legacy::merge_aliases(command, &mut payload)?;
    match legacy::parse_command(command, &payload, mode)? {
        Some(command) => Ok(command),
        None => parse_native(command, payload),
    }
}

fn parse_native(command: &str, payload: Map<String, Value>) -> Result<Command, CommandRejected> {
    Ok(match command {
        "hello" => Command::Hello(parse_payload(payload)?),
        "launch" => Command::Launch(Box::new(parse_payload(payload)?)),
        "jobs_list" => Command::JobsList(parse_payload(payload)?),
        "job_status" => Command::JobStatus(parse_payload(payload)?),
        "terminate" => Command::Terminate(parse_payload(payload)?),
        "interrupt" => Command::Interrupt(parse_payload(payload)?),
        "steer" => Command::Steer(parse_payload(payload)?),
        "approve" => Command::Approve(parse_payload(payload)?),
        "approvals_list" => Command::ApprovalsList(parse_payload(payload)?),
        "queue_list" => Command::QueueList(parse_payload(payload)?),
        "subscribe" => Command::Subscribe(parse_payload(payload)?),
        _ => return Err(reject_unknown_command()),
    })
}

/// Rejects an unknown command with the text that section 6 of the protocol requires.
fn reject_unknown_command() -> CommandRejected {
    reject(RejectCode::UnknownCommand, Some("command"), "unknown command".to_owned())
}

/// Deserializes a payload, or rejects it with the path of the invalid field.
pub(crate) fn parse_payload<T: DeserializeOwned>(payload: Map<String, Value>) -> Result<T, CommandRejected> {
    serde_path_to_error::deserialize(Value::Object(payload)).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "payload".to_owned() } else { format!("payload.{path}") };
        let problem = error.inner().to_string();
        match problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            Some(missing) => bad_field(format!("{field}.{missing}"), "it is missing"),
            None => bad_field(field, &describe_json_error(error.inner())),
        }
    })
}

/// Rejects a field of a payload.
pub(crate) fn bad_field(field: String, problem: &str) -> CommandRejected {
    let reason = format!("{field}: {problem}");
    CommandRejected { request_id: None, reason, code: RejectCode::BadField, field: Some(field) }
}

fn is_utc(text: &str) -> bool {
    let ends = text.ends_with('Z') || text.ends_with('z') || text.ends_with("+00:00");
    ends && text.parse::<Timestamp>().is_ok()
}

fn reject_field(field: &str, must: &str, found: Option<&Value>) -> CommandRejected {
    let found = match found {
        None => "is missing".to_owned(),
        Some(Value::String(text)) if text.len() > REQUEST_ID => format!("has {} bytes", text.len()),
        Some(found @ (Value::Object(_) | Value::Array(_))) => format!("is {}", json_kind(found)),
        Some(found) => format!("is {found}"),
    };
    reject(RejectCode::BadField, Some(field), format!("{field}: {must}, and {found}"))
}

pub(crate) fn reject(code: RejectCode, field: Option<&str>, reason: String) -> CommandRejected {
    CommandRejected { request_id: None, reason, code, field: field.map(str::to_owned) }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
