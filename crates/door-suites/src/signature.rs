//! What a tool takes, in one line that a model reads like a function.

use std::fmt::Write;

use serde_json::{Map, Value};

/// How deep the shape of an argument is shown; below, only that it is an object.
const DEPTH: usize = 2;
/// The most choices of an enumeration that are shown. More would cost more than the schema is worth here.
const CHOICES: usize = 6;

/// `(path: string, head?: number)`.
pub(crate) fn signature(schema: &Value) -> String {
    let mut text = String::from("(");
    members(&mut text, schema, schema, DEPTH);
    text.push(')');
    text
}

/// The names of a tool's arguments.
pub(crate) fn argument_names(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

/// The required arguments in the order in which the child demands them, then the others by name.
fn members(text: &mut String, schema: &Value, root: &Value, depth: usize) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let given = required.iter().filter_map(|name| properties.get_key_value(*name)).map(|member| (member, ""));
    let others =
        properties.iter().filter(|(name, _)| !required.contains(&name.as_str())).map(|member| (member, "?"));
    for (position, ((name, property), mark)) in given.chain(others).enumerate() {
        let separator = if position == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{name}{mark}: ");
        kind(text, property, root, depth);
    }
}

/// The type of a value as a model would write it.
fn kind(text: &mut String, schema: &Value, root: &Value, depth: usize) {
    let schema = resolve(schema, root);
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let shown: Vec<String> = choices.iter().take(CHOICES).map(Value::to_string).collect();
        text.push_str(&shown.join("|"));
        if choices.len() > CHOICES {
            text.push_str("|…");
        }
        return;
    }
    if let Some(only) = schema.get("const") {
        let _ = write!(text, "{only}");
        return;
    }
    if let Some(first) = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)).and_then(Value::as_array)
    {
        let mut seen: Vec<String> = Vec::new();
        for choice in first {
            let mut one = String::new();
            kind(&mut one, choice, root, depth);
            if one != "null" && !seen.contains(&one) {
                seen.push(one);
            }
        }
        text.push_str(&seen.join("|"));
        return;
    }
    match type_name(schema) {
        "array" => match schema.get("items") {
            Some(items) => {
                kind(text, items, root, depth);
                text.push_str("[]");
            }
            None => text.push_str("array"),
        },
        "object"
            if depth > 0
                && schema.get("properties").is_some_and(|members| members != &Value::Object(Map::new())) =>
        {
            text.push('{');
            members(text, schema, root, depth - 1);
            text.push('}');
        }
        name => text.push_str(name),
    }
}

fn type_name(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "any",
    }
}

/// Follows a reference within the schema, once: a schema that leads in circles is shown as far as it is straight.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
