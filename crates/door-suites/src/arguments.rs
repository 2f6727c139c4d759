//! Reads what a model gave to a suite's tool. Models wrap, unwrap and rename; what can only mean one thing is
//! taken as that.

use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::nearest;

use crate::raw::{Object, raw};
use crate::schema::Checker;

/// Keys that stand for `subtool` and `args` when those are absent, in the order in which they are tried.
const SUBTOOL_KEYS: [&str; 3] = ["subtool", "tool", "name"];
const ARGS_KEYS: [&str; 3] = ["arguments", "params", "input"];

/// What is asked of a suite.
#[derive(Debug)]
pub(crate) enum Asked<'a> {
    /// What the suite can do.
    Introspect(Question),
    /// Use one of its tools.
    Call(Call<'a>),
}

/// What is to be shown of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) mode: Option<String>,
    pub(crate) subtool: Option<String>,
    pub(crate) query: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

/// The use of a tool. What its arguments are is decided with its schema at hand.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) subtool: String,
    args: Option<&'a RawValue>,
    leftovers: Object<'a>,
}

/// Reads the arguments of a suite's tool. The error is a text for the model.
pub(crate) fn read<'a>(given: Option<&'a RawValue>, suite: &str) -> Result<Asked<'a>, String> {
    let object = match given.filter(|given| !is_null(given)) {
        None => Object::default(),
        Some(given) => Object::parse(given).ok_or("The arguments have to be an object.")?,
    };
    let action = object.text("action").map(|action| action.trim().to_ascii_lowercase());
    match action.as_deref() {
        Some("introspect") => Ok(Asked::Introspect(question(&object))),
        Some("call") => call(object, suite).map(Asked::Call),
        Some(other) => {
            let near = nearest(other, ["introspect", "call"]);
            let hint = near.first().map(|near| format!(" Did you mean '{near}'?")).unwrap_or_default();
            Err(format!(
                "There is no action '{}'.{hint} To use a tool: {}. To see the tools: {{\"action\":\"introspect\"}}.",
                other.escape_debug(),
                shape(other)
            ))
        }
        None => Err(format!(
            "'action' is missing. To see the tools: {{\"action\":\"introspect\"}}. To use one: {}.",
            shape("NAME")
        )),
    }
}

/// What a call looks like.
pub(crate) fn shape(subtool: &str) -> String {
    format!("{{\"action\":\"call\",\"subtool\":{},\"args\":{{…}}}}", raw(&subtool).get())
}

/// Reads a question from the keys themselves or from `args`: models put it in either place.
pub(crate) fn question(object: &Object<'_>) -> Question {
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
    Question {
        mode: text("mode").map(|mode| mode.to_ascii_lowercase()),
        subtool: SUBTOOL_KEYS.iter().find_map(|key| text(key)),
        query: text("query"),
        limit: text("limit").and_then(|limit| limit.parse().ok()),
        cursor: text("cursor"),
    }
}

fn call<'a>(object: Object<'a>, suite: &str) -> Result<Call<'a>, String> {
    let named = SUBTOOL_KEYS.iter().find(|key| object.get(key).is_some_and(|value| !is_null(value)));
    let subtool = named.and_then(|key| object.text(key)).map(|name| name.trim().to_owned());
    let (Some(named), Some(subtool)) = (named, subtool.filter(|name| !name.is_empty())) else {
        return Err(format!(
            "'subtool' is missing: the name of the tool to use. {suite} lists them for {{\"action\":\"introspect\"}}."
        ));
    };
    let args = object.get("args");
    let mut leftovers = object;
    leftovers.0.retain(|(key, value)| key != "action" && key != "args" && key != named && !is_null(value));
    Ok(Call { subtool, args, leftovers })
}

impl Call<'_> {
    /// The arguments for the tool: `args` as an object or as JSON in a string; without it what stands beside it.
    ///
    /// What stands beside `args` is never mixed in when `args` says something. The error is a text for the model.
    pub(crate) fn arguments(&self, checker: &Checker) -> Result<Box<RawValue>, String> {
        if let Some(args) = self.args.filter(|args| !is_null(args)) {
            let text = as_object_text(args).ok_or("'args' has to be an object.")?;
            if !is_empty_object(&text) || self.leftovers.0.is_empty() {
                return RawValue::from_string(text).map_err(|error| format!("'args' is not JSON: {error}."));
            }
        }
        for key in ARGS_KEYS {
            // A tool may have an argument of this name itself; then it is meant.
            let Some(value) = self.leftovers.get(key).filter(|_| !checker.has(key)) else { continue };
            if let Some(arguments) = as_object_text(value).and_then(|text| RawValue::from_string(text).ok()) {
                return Ok(arguments);
            }
        }
        Ok(self.leftovers.to_raw())
    }
}

/// The text of an object, also when the object came as a string. An empty string is an empty object.
fn as_object_text(value: &RawValue) -> Option<String> {
    let text = match serde_json::from_str::<String>(value.get()) {
        Ok(text) if text.trim().is_empty() || text.trim() == "null" => return Some("{}".to_owned()),
        Ok(text) => text.trim().to_owned(),
        Err(_) => value.get().to_owned(),
    };
    let object: &RawValue = serde_json::from_str(&text).ok()?;
    Object::parse(object).map(|_| text.clone())
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
