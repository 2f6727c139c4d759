//! Conversion between the JSON of servers behind us and the types of `rmcp`.

use std::borrow::Cow;

use door_suites::RpcError;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ErrorCode, InputRequiredResult, ServerCapabilities, ServerNotification,
    SubscriptionFilter,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::json::{RawObject, to_raw};

/// Deserializes JSON of a server behind us.
pub(super) fn typed<T: DeserializeOwned>(raw: &RawValue) -> Result<T, ErrorData> {
    serde_json::from_str(raw.get()).map_err(|error| {
        ErrorData::internal_error(
            format!("the server behind this tool answered something else: {error}"),
            None,
        )
    })
}

/// Deserializes a list. Invalid entries are skipped, so that one bad entry does not hide the others.
pub(super) fn typed_list<T: DeserializeOwned>(list: &[Box<RawValue>]) -> Vec<T> {
    let read = |raw: &RawValue| {
        serde_json::from_str(raw.get())
            .inspect_err(|error| tracing::warn!(%error, "left out an entry of a server's list"))
            .ok()
    };
    list.iter().filter_map(|raw| read(raw)).collect()
}

/// Converts a JSON-RPC error of a server behind us, unchanged.
pub(super) fn error_data(error: RpcError) -> ErrorData {
    let code = ErrorCode(i32::try_from(error.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0));
    let data = error.data.and_then(|data| serde_json::from_str(data.get()).ok());
    ErrorData::new(code, error.message, data)
}

/// Deserializes a result. Servers of older revisions do not set `resultType`; their results count as complete.
pub(super) fn result<T: DeserializeOwned>(raw: &RawValue) -> Result<T, ErrorData> {
    let mut result: Value = typed(raw)?;
    if let Some(result) = result.as_object_mut() {
        result.entry("resultType").or_insert_with(|| json!("complete"));
    }
    serde_json::from_value(result).map_err(|error| {
        ErrorData::internal_error(format!("the server's result cannot be read: {error}"), None)
    })
}

/// Returns the input that a server requires before it can answer, if any.
pub(super) fn input_required(raw: &RawValue) -> Result<Option<InputRequiredResult>, ErrorData> {
    #[derive(serde::Deserialize)]
    struct Kind {
        #[serde(rename = "resultType")]
        result_type: Option<String>,
    }
    let kind: Kind = typed(raw)?;
    if kind.result_type.as_deref() == Some("input_required") { typed(raw).map(Some) } else { Ok(None) }
}

/// Converts the result of a tool call. Content blocks of a kind unknown to `rmcp` are retained as text that contains
/// their JSON.
pub(super) fn call_result(raw: &RawValue) -> Result<CallToolResponse, ErrorData> {
    if let Some(needed) = input_required(raw)? {
        return Ok(CallToolResponse::InputRequired(needed));
    }
    if let Ok(known) = result(raw) {
        return Ok(CallToolResponse::Complete(known));
    }
    let mut result: Value = typed(raw)?;
    result["resultType"] = json!("complete");
    if let Some(blocks) = result.get_mut("content").and_then(Value::as_array_mut) {
        for block in blocks {
            if serde_json::from_value::<rmcp::model::ContentBlock>(block.clone()).is_err() {
                *block = json!({ "type": "text", "text": block.to_string() });
            }
        }
    }
    serde_json::from_value(result).map(CallToolResponse::Complete).map_err(|error| {
        ErrorData::internal_error(format!("the server's result cannot be read: {error}"), None)
    })
}

/// Returns true if a result reports that the tool failed.
pub(super) fn is_error(raw: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome {
        #[serde(default)]
        is_error: bool,
    }
    serde_json::from_str::<Outcome>(raw.get()).is_ok_and(|outcome| outcome.is_error)
}

/// Appends a text block to a result; everything else stays as written. A result without content stays unchanged.
pub(super) fn with_text(raw: Box<RawValue>, text: &str) -> Box<RawValue> {
    let added = || -> Option<Box<RawValue>> {
        let mut result = RawObject::parse(&raw)?;
        let mut content: Vec<&RawValue> = serde_json::from_str(result.get("content")?.get()).ok()?;
        let block = to_raw(&json!({ "type": "text", "text": text }));
        content.push(&block);
        let content = to_raw(&content);
        result.set("content", content);
        Some(result.to_raw())
    };
    added().unwrap_or(raw)
}

/// Converts a notification of a server behind us for the client.
pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Option<ServerNotification> {
    let params: Option<Value> = params.and_then(|params| serde_json::from_str(params.get()).ok());
    let message = match params {
        Some(params) => json!({ "method": method, "params": params }),
        None => json!({ "method": method }),
    };
    serde_json::from_value(message)
        .inspect_err(|error| tracing::debug!(%error, method, "a notification was not passed on"))
        .ok()
}

/// Adds the capabilities that the suites need.
pub(super) fn declare(capabilities: &mut ServerCapabilities, has_flat: bool, has_suites: bool) {
    capabilities.tools.get_or_insert_default().list_changed = Some(true);
    if has_suites {
        capabilities.logging.get_or_insert_default();
    }
    if has_flat {
        capabilities.prompts.get_or_insert_default().list_changed = Some(true);
        capabilities.resources.get_or_insert_default().list_changed = Some(true);
        capabilities.completions.get_or_insert_default();
    }
}

/// Levels of log messages (RFC 5424), in ascending order.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Severity of a log message: its index in [`LEVELS`].
pub(super) type Severity = usize;

/// Returns the severity of a log level.
pub(super) fn severity(level: &impl Serialize) -> Option<Severity> {
    let level = serde_json::to_value(level).ok()?;
    LEVELS.iter().position(|name| level == *name)
}

/// Returns true if a log message is below the client's level. A message without a level never is.
pub(super) fn is_below(params: &RawValue, least: Option<Severity>) -> bool {
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        level: Option<Cow<'a, str>>,
    }
    let severity_of_message =
        serde_json::from_str::<Message<'_>>(params.get()).ok().and_then(|message| message.level);
    severity_of_message
        .and_then(|level| severity(&level))
        .zip(least)
        .is_some_and(|(severity_of_message, least)| severity_of_message < least)
}

/// Returns which of the requested notifications a client without a session receives.
pub(super) fn accepted(
    mut ours: SubscriptionFilter,
    requested: &SubscriptionFilter,
    has_flat: bool,
) -> SubscriptionFilter {
    ours.tools_list_changed = requested.tools_list_changed;
    if has_flat {
        ours.prompts_list_changed = requested.prompts_list_changed;
        ours.resources_list_changed = requested.resources_list_changed;
        ours.resource_subscriptions.clone_from(&requested.resource_subscriptions);
    }
    ours
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
