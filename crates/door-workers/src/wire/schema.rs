//! JSON Schema 2020-12 of every command and event, generated from the types.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::PROTOCOL;
use super::command::{
    Approve, ApproveExecution, EmptyPayload, Hello, Inject, JobFilter, JobRef, Launch, NodeRef, Steer,
    Subscribe, SwarmLaunch, SwarmRef,
};
use super::event::{EventBody, LegacyEvent};

/// Returns every schema with its file name.
pub fn all() -> Vec<(String, Value)> {
    let mut schemas = vec![("envelope.schema.json".to_owned(), envelope())];
    schemas.push(command::<Hello>("hello"));
    schemas.push(inject());
    schemas.push(command::<Launch>("launch"));
    schemas.push(command::<EmptyPayload>("jobs_list"));
    schemas.push(command::<JobRef>("job_status"));
    schemas.push(command::<JobRef>("terminate"));
    schemas.push(command::<NodeRef>("interrupt"));
    schemas.push(command::<Steer>("steer"));
    schemas.push(command::<Approve>("approve"));
    schemas.push(command::<JobFilter>("approvals_list"));
    schemas.push(command::<JobFilter>("queue_list"));
    schemas.push(command::<Subscribe>("subscribe"));
    schemas.push(legacy_command::<SwarmLaunch>("swarm_launch"));
    schemas.push(legacy_command::<EmptyPayload>("swarm_list"));
    schemas.push(legacy_command::<SwarmRef>("swarm_status"));
    schemas.push(legacy_command::<SwarmRef>("swarm_terminate"));
    schemas.push(legacy_command::<ApproveExecution>("approve_execution"));
    schemas.push(legacy_command::<EmptyPayload>("providers_list"));
    schemas.push(legacy_command::<EmptyPayload>("project_list"));
    schemas.extend(every_event());
    schemas
}

/// Returns the events of both dialects with their schemas.
///
/// If an event exists in both dialects, its schema allows either form.
fn every_event() -> impl Iterator<Item = (String, Value)> {
    let mut all: BTreeMap<String, Value> = events::<EventBody>().into_iter().collect();
    for (file, theirs) in events::<LegacyEvent>() {
        match all.entry(file) {
            Entry::Vacant(free) => drop(free.insert(theirs)),
            Entry::Occupied(mut taken) => merge_data_forms(taken.get_mut(), theirs),
        }
    }
    all.into_iter()
}

/// Merges the data of an event in both dialects into one schema.
fn merge_data_forms(schema: &mut Value, mut other: Value) {
    let forms =
        [remove_field(&mut schema["properties"], "data"), remove_field(&mut other["properties"], "data")];
    schema["properties"]["data"] = json!({ "anyOf": forms });
    if let Some(Value::Object(more)) = remove_field(&mut other, "$defs")
        && let Some(definitions) =
            schema.as_object_mut().map(|schema| schema.entry("$defs").or_insert(json!({})))
        && let Some(definitions) = definitions.as_object_mut()
    {
        definitions.extend(more);
    }
}

/// Builds the schema of `inject`.
///
/// It accepts `job_id`, or `swarm_id` with the optional fields of the legacy dialect.
fn inject() -> (String, Value) {
    let (file, mut schema) = command::<Inject>("inject");
    let job = schema["properties"]["payload"]["properties"]["job_id"].clone();
    let payload = &mut schema["properties"]["payload"];
    payload["properties"]["swarm_id"] = job;
    payload["required"] = json!(["content"]);
    schema["required"] = json!(["protocol", "command", "request_id", "payload"]);
    let payload = |required: Value| json!({ "properties": { "payload": { "required": required } } });
    let mut ours = payload(json!(["job_id"]));
    ours["required"] = json!(["type", "timestamp"]);
    schema["anyOf"] = json!([ours, payload(json!(["swarm_id"]))]);
    (file, schema)
}

/// Builds the schema of a legacy command.
///
/// Legacy clients omit some fields that are otherwise required.
fn legacy_command<P: JsonSchema>(name: &str) -> (String, Value) {
    let (file, mut schema) = command::<P>(name);
    let mut required = vec!["protocol", "command", "request_id"];
    if schema["properties"]["payload"].get("required").is_some() {
        required.push("payload");
    }
    schema["required"] = json!(required);
    (file, schema)
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

/// Builds the schema of the envelope in section 8.
fn envelope() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "envelope",
        "type": "object",
        "required": ["protocol", "type", "timestamp"],
        "properties": {
            "protocol": { "const": PROTOCOL },
            "type": { "enum": ["command", "event"] },
            "timestamp": { "type": "string", "format": "date-time" },
        },
    })
}

fn command<P: JsonSchema>(name: &str) -> (String, Value) {
    let mut payload = generator().into_root_schema_for::<P>().to_value();
    let definitions = remove_field(&mut payload, "$defs");
    remove_field(&mut payload, "$schema");
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("command {name}"),
        "type": "object",
        "required": ["protocol", "type", "timestamp", "command", "request_id", "payload"],
        "properties": {
            "protocol": { "const": PROTOCOL },
            "type": { "const": "command" },
            "timestamp": { "type": "string", "format": "date-time" },
            "command": { "const": name },
            "request_id": { "type": "string", "minLength": 1, "maxLength": 256 },
            "payload": payload,
        },
    });
    put_definitions(&mut schema, definitions);
    (format!("command.{name}.schema.json"), schema)
}

/// Generates one schema per variant of an event enum, so that no event can be missing.
fn events<E: JsonSchema>() -> Vec<(String, Value)> {
    let mut all = generator().into_root_schema_for::<E>().to_value();
    let definitions = remove_field(&mut all, "$defs").unwrap_or_default();
    let Some(Value::Array(variants)) = remove_field(&mut all, "oneOf") else { return Vec::new() };
    variants.into_iter().filter_map(|variant| event(&variant, &definitions)).collect()
}

fn event(variant: &Value, definitions: &Value) -> Option<(String, Value)> {
    let properties = variant.get("properties")?;
    let name = properties.get("event")?.get("const")?.as_str()?;
    let data = properties.get("data")?.clone();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("event {name}"),
        "description": variant.get("description"),
        "type": "object",
        "required": ["protocol", "type", "timestamp", "seq", "event", "data"],
        "properties": {
            "protocol": { "const": PROTOCOL },
            "type": { "const": "event" },
            "timestamp": { "type": "string", "format": "date-time", "pattern": "Z$" },
            "seq": { "type": "integer", "minimum": 0 },
            "event": { "const": name },
            "data": data,
        },
    });
    let mut definitions = definitions.clone();
    add_swarm_id(&mut schema);
    add_swarm_id(&mut definitions);
    let mut wanted = Map::new();
    collect_definitions(&schema, &definitions, &mut wanted);
    put_definitions(&mut schema, (!wanted.is_empty()).then_some(Value::Object(wanted)));
    Some((format!("event.{name}.schema.json"), schema))
}

/// Documents the `swarm_id` that the legacy dialect adds to every `job_id`.
fn add_swarm_id(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties")
                && properties.contains_key("job_id")
            {
                let field = json!({ "type": "string", "description": "The job id again, in the legacy dialect only." });
                properties.entry("swarm_id").or_insert(field);
            }
            fields.values_mut().for_each(add_swarm_id);
        }
        Value::Array(items) => items.iter_mut().for_each(add_swarm_id),
        _ => {}
    }
}

/// Collects the definitions that a schema refers to.
fn collect_definitions(schema: &Value, definitions: &Value, wanted: &mut Map<String, Value>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                let target = value.as_str().filter(|_| key == "$ref");
                if let Some(name) = target.and_then(|target| target.strip_prefix("#/$defs/"))
                    && !wanted.contains_key(name)
                    && let Some(definition) = definitions.get(name)
                {
                    wanted.insert(name.to_owned(), definition.clone());
                    collect_definitions(definition, definitions, wanted);
                }
                collect_definitions(value, definitions, wanted);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_definitions(item, definitions, wanted)),
        _ => {}
    }
}

fn remove_field(schema: &mut Value, key: &str) -> Option<Value> {
    schema.as_object_mut()?.remove(key)
}

fn put_definitions(schema: &mut Value, definitions: Option<Value>) {
    if let (Some(schema), Some(definitions)) = (schema.as_object_mut(), definitions) {
        schema.insert("$defs".to_owned(), definitions);
    }
}
