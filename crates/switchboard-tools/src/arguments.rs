//! Tool arguments: builds their schema, and parses them with errors that a model can act on.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use switchboard_core::describe_field_error;
use switchboard_mcp::{ArgumentError, out_of_range, validate_arguments};

use super::answer::ToolError;

/// Cache of argument schemas.
///
/// Building one schema costs more than parsing the arguments of many calls.
static SCHEMAS: Mutex<BTreeMap<TypeId, Arc<JsonObject>>> = Mutex::new(BTreeMap::new());

/// Returns the cached schema of a tool's arguments.
pub(super) fn schema<T: JsonSchema + 'static>() -> Arc<JsonObject> {
    SCHEMAS.lock().entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(build_schema::<T>())).clone()
}

/// Builds a schema, without the parts that cost tokens but do not help a model.
fn build_schema<T: JsonSchema>() -> JsonObject {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    strip_schema(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            schema.remove("description");
            schema
        }
        _ => Map::new(),
    }
}

/// Removes titles, formats, `null` alternatives and the limits of machine numbers from a schema.
fn strip_schema(value: &mut Value) {
    match value {
        Value::Object(object) => {
            // Only the keywords "title" and "format" have a string value; a property of that name has an object.
            for noise in ["title", "format"] {
                if object.get(noise).is_some_and(Value::is_string) {
                    object.remove(noise);
                }
            }
            for limit in ["minimum", "maximum", "default"] {
                if object.get(limit).is_some_and(|limit| limit.is_number() || limit.is_null()) {
                    object.remove(limit);
                }
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            for key in ["anyOf", "enum"] {
                if let Some(Value::Array(choices)) = object.get_mut(key) {
                    choices.retain(|choice| {
                        !choice.is_null() && choice.get("type").is_none_or(|kind| kind != "null")
                    });
                }
            }
            if let Some(Value::Array(choices)) = object.get("anyOf")
                && let [Value::Object(only)] = choices.as_slice()
            {
                let only = only.clone();
                object.remove("anyOf");
                for (key, value) in only {
                    object.entry(key).or_insert(value);
                }
            }
            object.values_mut().for_each(strip_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_schema),
        _ => {}
    }
}

/// Parses the arguments of a call.
pub(super) fn read<T: DeserializeOwned + JsonSchema + 'static>(
    arguments: Option<JsonObject>,
) -> Result<T, ToolError> {
    let mut arguments = arguments.unwrap_or_default();
    let schema = schema::<T>();
    // Drop empty strings in optional fields: models fill in fields that they do not use, and an empty value has no
    // meaning.
    let needed: Vec<&str> = required(&schema).collect();
    arguments.retain(|key, value| value.as_str() != Some("") || needed.contains(&key.as_str()));
    validate_arguments(&schema, &mut arguments)?;
    // Only a number can match the schema and still fail, because number limits were stripped from the schema.
    let numbers = arguments.iter().filter(|(_, value)| value.is_number());
    let numbers: Map<String, Value> = numbers.map(|(key, value)| (key.clone(), value.clone())).collect();
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        match numbers.get(&path) {
            Some(number) => out_of_range(&schema, &path, number).into(),
            None => ToolError::new(format!("'{path}' {}", describe_field_error(error.inner()))),
        }
    })
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

impl From<ArgumentError> for ToolError {
    fn from(error: ArgumentError) -> Self {
        Self::new(error.problem).next(error.next)
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
