//! Parser for the arguments that a model passes to a suite's tool.
//!
//! Models wrap, unwrap and rename arguments. The parser accepts every unambiguous variant.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};
use switchboard_core::{describe_json_error, suggest_similar};

use crate::schema::Checker;

/// Alternative keys for `subtool`, tried in this order if `subtool` is absent. `ARGS_KEYS` does the same for `args`.
const SUBTOOL_KEYS: [&str; 3] = ["subtool", "tool", "name"];
const ARGS_KEYS: [&str; 3] = ["arguments", "params", "input"];

/// A parsed request to a suite's tool.
#[derive(Debug)]
pub(crate) enum SuiteRequest<'a> {
    /// Request to list or describe the suite's tools.
    Introspect(IntrospectQuery),
    /// Request to call one of the suite's tools.
    Call(Call<'a>),
}

/// Parameters of an introspection request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IntrospectQuery {
    pub(crate) mode: Option<String>,
    pub(crate) subtool: Option<String>,
    pub(crate) query: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

/// A call of one tool. [`Call::arguments`] resolves the arguments later, when the tool's schema is known.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) subtool: String,
    args: Option<Cow<'a, RawValue>>,
    extra: RawObject<'a>,
}

/// Parses the arguments of a suite's tool. The error is a message for the model.
pub(crate) fn parse<'a>(arguments: Option<&'a RawValue>, suite: &str) -> Result<SuiteRequest<'a>, String> {
    let object = match arguments.filter(|arguments| !is_null(arguments)) {
        None => RawObject::default(),
        Some(arguments) => RawObject::parse(arguments).ok_or("The arguments must be an object.")?,
    };
    let action = object.text("action").map(|action| action.trim().to_ascii_lowercase());
    match action.as_deref() {
        Some("introspect") => Ok(SuiteRequest::Introspect(parse_query(&object))),
        Some("call") => parse_call(object, suite).map(SuiteRequest::Call),
        Some(other) => {
            let near = suggest_similar(other, ["introspect", "call"]);
            let hint = near.first().map(|near| format!(" Did you mean '{near}'?")).unwrap_or_default();
            Err(format!(
                "There is no action '{}'.{hint} To use a tool: {}. To see the tools: {{\"action\":\"introspect\"}}.",
                other.escape_debug(),
                call_example(other)
            ))
        }
        None => Err(format!(
            "'action' is missing. To see the tools: {{\"action\":\"introspect\"}}. To use one: {}.",
            call_example("NAME")
        )),
    }
}

/// Renders an example call of a tool.
pub(crate) fn call_example(subtool: &str) -> String {
    format!("{{\"action\":\"call\",\"subtool\":{},\"args\":{{…}}}}", to_raw(&subtool).get())
}

/// Reads an introspection request from the top-level keys or from `args`, because models use either.
pub(crate) fn parse_query(object: &RawObject<'_>) -> IntrospectQuery {
    let inner = object.get("args").and_then(as_object_text);
    let inner =
        inner.as_deref().and_then(|inner| serde_json::from_str::<Value>(inner).ok()).unwrap_or_default();
    let find = |key: &str| {
        let outer = object.get(key).and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
        outer
            .filter(|value| !value.is_null())
            .or_else(|| inner.get(key).cloned())
            .filter(|value| !value.is_null())
    };
    let text = |key: &str| match find(key)? {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    IntrospectQuery {
        mode: text("mode").map(|mode| mode.to_ascii_lowercase()),
        subtool: SUBTOOL_KEYS.iter().find_map(|key| text(key)),
        query: text("query"),
        limit: text("limit").and_then(|limit| limit.parse().ok()),
        cursor: text("cursor"),
    }
}

fn parse_call<'a>(object: RawObject<'a>, suite: &str) -> Result<Call<'a>, String> {
    let named = SUBTOOL_KEYS.iter().find(|key| object.get(key).is_some_and(|value| !is_null(value)));
    let subtool = named.and_then(|key| object.text(key)).map(|name| name.trim().to_owned());
    let (Some(named), Some(subtool)) = (named, subtool.filter(|name| !name.is_empty())) else {
        return Err(format!(
            "'subtool' is missing: the name of the tool to use. {suite} lists them for {{\"action\":\"introspect\"}}."
        ));
    };
    let mut extra = object;
    let args = extra.remove("args");
    extra.retain(|key, value| key != "action" && key != *named && !is_null(value));
    Ok(Call { subtool, args, extra })
}

impl Call<'_> {
    /// Returns the tool's arguments: `args` (an object or a JSON string), otherwise the remaining top-level keys.
    ///
    /// Top-level keys are never merged into a non-empty `args`. The error is a message for the model.
    pub(crate) fn arguments(&self, checker: &Checker) -> Result<Box<RawValue>, String> {
        if let Some(args) = self.args.as_deref().filter(|args| !is_null(args)) {
            let text = as_object_text(args).ok_or("'args' must be an object.")?;
            if !is_empty_object(&text) || self.extra.is_empty() {
                return RawValue::from_string(text)
                    .map_err(|error| format!("'args' is not JSON: {}.", describe_json_error(&error)));
            }
        }
        for key in ARGS_KEYS {
            // If the tool itself has an argument of this name, the key is that argument, not a wrapper.
            let Some(value) = self.extra.get(key).filter(|_| !checker.has(key)) else { continue };
            if let Some(arguments) = as_object_text(value).and_then(|text| RawValue::from_string(text).ok()) {
                return Ok(arguments);
            }
        }
        Ok(self.extra.to_raw())
    }
}

/// Returns the JSON text of an object, even if the object was sent as a JSON string. An empty string counts as an empty
/// object.
fn as_object_text(value: &RawValue) -> Option<String> {
    let text = match serde_json::from_str::<String>(value.get()) {
        Ok(text) if text.trim().is_empty() || text.trim() == "null" => return Some("{}".to_owned()),
        Ok(text) => text.trim().to_owned(),
        Err(_) => value.get().to_owned(),
    };
    let object: &RawValue = serde_json::from_str(&text).ok()?;
    RawObject::parse(object).map(|_| text.clone())
}

fn is_empty_object(text: &str) -> bool {
    text.trim_start_matches('{').trim_end_matches('}').trim().is_empty()
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
