//! Validation of tool arguments against the tool's JSON Schema, with errors that a model understands.
//!
//! Serde errors mention Rust types such as `usize` and sequences; these errors mention texts, numbers and lists.
//! Supports only the JSON Schema keywords that our own tool schemas contain. Constraints beyond them are left to the
//! code that deserializes the arguments.

use rmcp::model::JsonObject;
use serde_json::{Map, Number, Value, json};
use switchboard_core::suggest_similar;

/// Maximum characters of a wrong value that an error shows.
const MAX_SHOWN_CHARS: usize = 60;

/// Reason why arguments are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentError {
    /// Description of the problem, with the argument's name.
    pub problem: String,
    /// Next step for the caller.
    pub next: String,
}

/// Validates arguments against a tool's schema. Integers written as `20.0` are normalized, because JSON Schema counts
/// them as integers.
pub fn validate_arguments(schema: &JsonObject, arguments: &mut JsonObject) -> Result<(), ArgumentError> {
    check_members(schema, arguments, "")
}

/// Describes a number of the right type that is out of range.
pub fn out_of_range(schema: &JsonObject, name: &str, value: &Value) -> ArgumentError {
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    let expected = if value.as_f64() < Some(0.0) { "a number from 0" } else { "a smaller number" };
    type_error(property.unwrap_or(&Value::Null), value, name, expected)
}

/// Checks the members of an object: none unknown, none missing, each of the right type.
fn check_members(schema: &JsonObject, arguments: &mut JsonObject, path: &str) -> Result<(), ArgumentError> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    if schema.get("additionalProperties") == Some(&Value::Bool(false))
        && let Some(unknown) = arguments.keys().find(|key| !known.contains(&key.as_str()))
    {
        return Err(ArgumentError {
            problem: format!("There is no argument '{}'", join_path(path, unknown).escape_debug()),
            next: match suggest_similar(unknown, known.iter().copied()).first() {
                Some(near) => format!("Did you mean '{near}'?"),
                None if known.is_empty() => "This tool takes none.".to_owned(),
                None => format!("The arguments are {}.", known.join(", ")),
            },
        });
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let is_missing = |key: &&str| arguments.get(*key).is_none_or(Value::is_null);
    if let Some(missing) = required.filter_map(Value::as_str).find(is_missing) {
        let property = properties.get(missing).unwrap_or(&Value::Null);
        let meaning = match enum_values(property).as_slice() {
            [] => describe_argument(property, missing),
            values => format!("{missing} is one of {}.", values.join(", ")),
        };
        let problem = format!("The argument '{}' is missing", join_path(path, missing));
        return Err(ArgumentError { problem, next: meaning });
    }
    for (key, value) in arguments {
        // A value of `null` counts as a missing argument.
        if let Some(property) = properties.get(key).filter(|_| !value.is_null()) {
            check(property, value, &join_path(path, key))?;
        }
    }
    Ok(())
}

fn check(schema: &Value, value: &mut Value, path: &str) -> Result<(), ArgumentError> {
    normalize_integer(schema, value);
    let enum_values = enum_values(schema);
    if !enum_values.is_empty() && !value.as_str().is_some_and(|text| enum_values.contains(&text)) {
        return Err(type_error(schema, value, path, &format!("one of {}", enum_values.join(", "))));
    }
    let fits = match schema_type(schema) {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !fits {
        return Err(type_error(schema, value, path, type_name(schema)));
    }
    match (schema, value) {
        (Value::Object(schema), Value::Object(given)) => check_members(schema, given, path),
        (Value::Object(schema), Value::Array(given)) => match schema.get("items") {
            Some(items) => {
                let mut each = given.iter_mut().enumerate();
                each.try_for_each(|(at, item)| check(items, item, &format!("{path}[{at}]")))
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Replaces a float without a fractional part by an integer if the schema requires one.
fn normalize_integer(schema: &Value, value: &mut Value) {
    let whole = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0);
    // Formatted without a fraction, the number either is exact or does not parse as an integer.
    if let Some(number) = whole.filter(|_| schema_type(schema) == Some("integer"))
        && let Ok(number) = format!("{number:.0}").parse::<i64>()
    {
        *value = Value::Number(Number::from(number));
    }
}

fn type_error(schema: &Value, value: &Value, path: &str, expected: &str) -> ArgumentError {
    let near = value.as_str().and_then(|text| suggest_similar(text, enum_values(schema)).into_iter().next());
    let advice = match near {
        Some(near) => format!("Did you mean {}?", json!(near)),
        None => format!("Give e.g. {}.", truncate(&example(schema, value).to_string())),
    };
    ArgumentError {
        problem: format!("{path}: expected {expected}, got {}", describe_value(value)),
        next: match schema.get("description") {
            Some(_) => format!("{advice} {}", describe_argument(schema, path)),
            None => advice,
        },
    }
}

/// Returns the description of an argument from its schema.
fn describe_argument(schema: &Value, name: &str) -> String {
    match schema.get("description").and_then(Value::as_str) {
        Some(description) => format!("{name}: {description}"),
        None => format!("See the schema of '{name}'."),
    }
}

/// Returns the single type that a schema allows, apart from `null`, which makes an argument optional.
fn schema_type(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.as_str(),
    }
}

fn enum_values(schema: &Value) -> Vec<&str> {
    let values = schema.get("enum").and_then(Value::as_array);
    values.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the name of the type that a schema requires.
fn type_name(schema: &Value) -> &'static str {
    match schema_type(schema) {
        Some("string") => "a text",
        Some("boolean") => "true or false",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("array") => match schema.get("items").and_then(schema_type) {
            Some("string") => "a list of texts",
            Some("object") => "a list of objects",
            _ => "a list",
        },
        Some("object") => "an object",
        _ => "something else",
    }
}

/// Describes a wrong value for an error.
fn describe_value(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => format!("the text {}", truncate(&value.to_string())),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Returns a valid example, derived from the wrong value where possible.
fn example(schema: &Value, argument: &Value) -> Value {
    if let Some(first) = enum_values(schema).first() {
        return json!(first);
    }
    // Models often write values as strings, and strings as other values.
    let read = argument.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let as_read = |is_it: fn(&Value) -> bool| read.clone().filter(is_it);
    match schema_type(schema) {
        Some("boolean") => as_read(Value::is_boolean).unwrap_or(json!(true)),
        Some("integer") => as_read(Value::is_u64).unwrap_or(json!(20)),
        Some("number") => as_read(|value| value.as_f64() >= Some(0.0)).unwrap_or(json!(20)),
        Some("array") => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let fits = check(items, &mut argument.clone(), "").is_ok();
            let element =
                if fits && !argument.is_array() { argument.clone() } else { example(items, argument) };
            as_read(Value::is_array).unwrap_or_else(|| json!([element]))
        }
        Some("object") => as_read(Value::is_object).unwrap_or_else(|| example_object(schema)),
        _ if argument.is_number() || argument.is_boolean() => json!(argument.to_string()),
        _ => json!("text"),
    }
}

fn example_object(schema: &Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let properties = schema.get("properties");
    let members: Map<String, Value> = required
        .filter_map(Value::as_str)
        .map(|name| {
            let property = properties.and_then(|properties| properties.get(name));
            (name.to_owned(), example(property.unwrap_or(&Value::Null), &Value::Null))
        })
        .collect();
    if members.is_empty() { json!({ "key": "value" }) } else { Value::Object(members) }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn truncate(text: &str) -> String {
    if text.chars().count() <= MAX_SHOWN_CHARS {
        text.to_owned()
    } else {
        text.chars().take(MAX_SHOWN_CHARS - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
