//! Validation of tool arguments against the tool's JSON Schema.

mod expansion;

use jsonschema::{PatternOptions, Validator};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use switchboard_core::{sanitize_description, sanitize_description_value};

use self::expansion::Expansion;

/// Maximum size of a schema that is compiled, in bytes. The largest schema of real servers has about 20 kB.
pub(crate) const MAX_SCHEMA: usize = 256 * 1024;
/// Maximum depth of a schema that is compiled, because the compiler recurses into every level.
const MAX_DEPTH: usize = 48;
/// Maximum number of subschemas after references are expanded.
///
/// A few lines of schema can expand to millions of subschemas, and validation would visit all of them.
const MAX_PARTS: usize = 100_000;
/// Maximum depth of arguments that are validated against a recursive schema. The number of paths multiplies with every
/// level.
const MAX_CIRCLED: usize = 8;
/// Maximum number of values in example arguments.
const MAX_EXAMPLE: usize = 100;
/// Maximum length of a literal value shown in an example.
const MAX_VALUE: usize = 1000;
/// Maximum number of validation errors reported. The message also contains the schema, so more errors would be noise.
const MAX_ERRORS: usize = 8;

/// Validator for the arguments of one tool.
///
/// Everything is accepted if the schema is invalid, too large, or references other documents. The child validates its
/// arguments anyway, and remote documents are never fetched (SSRF).
#[derive(Debug)]
pub(crate) struct Checker {
    schema: Value,
    validator: Option<Box<Validator>>,
    is_circular: bool,
}

impl Checker {
    pub(crate) fn new(schema: Option<&RawValue>) -> Self {
        let small = schema.filter(|schema| schema.get().len() <= MAX_SCHEMA);
        let schema: Value =
            small.and_then(|schema| serde_json::from_str(schema.get()).ok()).unwrap_or_default();
        let reach = Expansion::of(&schema);
        let fits = schema.is_object()
            && depth(&schema) <= MAX_DEPTH
            && reach.parts <= MAX_PARTS
            && !reach.is_endless;
        // Use the linear-time regex engine, so that a child's pattern cannot make validation run forever.
        let options = || jsonschema::options().offline().with_pattern_options(PatternOptions::regex());
        let validator = fits.then(|| options().build(&schema).ok()).flatten().map(Box::new);
        Self { schema, validator, is_circular: reach.is_circular }
    }

    /// Returns true if the tool has an argument of this name.
    pub(crate) fn has(&self, argument: &str) -> bool {
        self.schema.get("properties").is_some_and(|properties| properties.get(argument).is_some())
    }

    /// Returns the validation errors, at most [`MAX_ERRORS`]. Each error starts with the path of its field, if it has
    /// one.
    pub(crate) fn check(&self, arguments: &Value) -> Vec<String> {
        let Some(validator) = &self.validator else { return Vec::new() };
        if self.is_circular && depth(arguments) > MAX_CIRCLED {
            return Vec::new();
        }
        let wrong = validator.iter_errors(arguments).take(MAX_ERRORS);
        wrong
            .map(|error| {
                let field = error.instance_path().to_string();
                let field = field.trim_start_matches('/').replace('/', ".");
                let what = clip(&error.masked_with("the value").to_string());
                // Sanitize the message, because it contains names and enum values from the child.
                sanitize_description(&if field.is_empty() { what } else { format!("{field}: {what}") }).text
            })
            .collect()
    }

    /// Returns the schema for display, sanitized and without boilerplate.
    pub(crate) fn shown(&self) -> Value {
        let mut schema = self.schema.clone();
        strip_boilerplate(&mut schema);
        sanitize_description_value(&mut schema);
        schema
    }

    /// Returns example arguments: all required arguments, each with the first value that the schema mentions.
    ///
    /// If the schema mentions no value for an argument, a value of the argument's type is used.
    pub(crate) fn example(&self) -> Value {
        let mut example = example(&self.schema, &self.schema, 4, &mut MAX_EXAMPLE.clone());
        sanitize_description_value(&mut example);
        example
    }
}

/// Removes `$schema` and `additionalProperties: false`, which are the same in nearly all schemas.
pub(crate) fn strip_boilerplate(schema: &mut Value) {
    if let Value::Object(schema) = schema {
        schema.remove("$schema");
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            schema.remove("additionalProperties");
        }
    }
}

fn example(schema: &Value, root: &Value, depth: usize, room: &mut usize) -> Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    let schema = target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema);
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|values| values.first());
    if depth == 0 || *room == 0 {
        return Value::Null;
    }
    *room -= 1;
    let named = schema.get("const").or_else(|| schema.get("default"));
    if let Some(value) = named.or_else(|| first("examples")).or_else(|| first("enum")) {
        return if value.to_string().len() <= MAX_VALUE { value.clone() } else { json!("…") };
    }
    if let Some(choice) = first("anyOf").or_else(|| first("oneOf")) {
        return example(choice, root, depth - 1, room);
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        Some(kind) => kind.as_str(),
        None => schema.get("properties").map(|_| "object"),
    };
    match kind {
        Some("integer" | "number") => {
            schema.get("minimum").filter(|least| least.as_f64() > Some(1.0)).cloned().unwrap_or(json!(1))
        }
        Some("boolean") => json!(true),
        Some("array") => {
            json!([schema.get("items").map_or(Value::Null, |items| example(items, root, depth - 1, room))])
        }
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let mut members = Map::new();
            for name in required.filter_map(Value::as_str) {
                if *room == 0 {
                    break;
                }
                *room -= 1;
                let member = properties.and_then(|properties| properties.get(name));
                let value = member.map_or(json!("…"), |member| example(member, root, depth - 1, room));
                members.insert(name.to_owned(), value);
            }
            Value::Object(members)
        }
        Some("null") => Value::Null,
        _ => json!("…"),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Truncates an error message, since it may quote a huge invalid value.
fn clip(text: &str) -> String {
    if text.chars().count() <= 200 {
        text.to_owned()
    } else {
        text.chars().take(199).chain(['…']).collect()
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
