//! Names, schemas and contents that the conformance suite expects, with its own texts.

use serde_json::{Value, json};

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Returns all tools, always in this order.
pub(crate) fn tools() -> Value {
    let plain = |name: &str| json!({ "name": name, "description": format!("Fixture {name}"), "inputSchema": { "type": "object" } });
    let with = |name: &str, schema: Value| json!({ "name": name, "description": format!("Fixture {name}"), "inputSchema": schema });
    let text = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let mut tools: Vec<Value> = PLAIN_TOOLS.iter().map(|name| plain(name)).collect();
    tools.push(with("test_sampling", text("prompt")));
    tools.push(with("test_elicitation", text("message")));
    tools.push(with("json_schema_2020_12_tool", schema_2020_12()));
    tools.push(with(
        "test_custom_headers",
        json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
            "required": ["region"],
        }),
    ));
    Value::Array(tools)
}

/// Tools without arguments.
const PLAIN_TOOLS: [&str; 25] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_error_handling",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_reconnection",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_wait",
];

/// Returns the content of a tool without behaviour.
pub(crate) fn content(tool: &str) -> Option<Value> {
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let content = match tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => {
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image,
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "test_error_handling" => {
            let content = json!([text("This tool intentionally returns an error for testing")]);
            return Some(json!({ "content": content, "isError": true }));
        }
        "json_schema_2020_12_tool" | "test_custom_headers" => json!([text("ok")]),
        _ => return None,
    };
    Some(json!({ "content": content }))
}

/// Builds text content.
pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Returns the elicitation form of a tool, if it has one.
pub(crate) fn form(tool: &str) -> Option<Value> {
    let options = json!(["option1", "option2", "option3"]);
    let titled = json!([
        { "const": "value1", "title": "First" },
        { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" },
    ]);
    let properties = match tool {
        "test_elicitation" => json!({
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        }),
        "test_elicitation_sep1034_defaults" => json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        }),
        "test_elicitation_sep1330_enums" => json!({
            "untitledSingle": { "type": "string", "enum": options },
            "titledSingle": { "type": "string", "oneOf": titled },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled } },
        }),
        _ => return None,
    };
    let required = if tool == "test_elicitation" { json!(["username", "email"]) } else { json!([]) };
    Some(json!({ "type": "object", "properties": properties, "required": required }))
}

/// Returns all resources without templates.
pub(crate) fn resources() -> Value {
    let resource = |name: &str, kind: &str| {
        let uri = format!("test://{name}");
        json!({ "uri": uri, "name": name, "description": format!("Fixture {name}"), "mimeType": kind })
    };
    json!([
        resource("static-text", "text/plain"),
        resource("static-binary", "image/png"),
        resource("watched-resource", "text/plain"),
    ])
}

/// Returns the only template.
pub(crate) fn templates() -> Value {
    let template = "test://template/{id}/data";
    json!([{ "uriTemplate": template, "name": "template", "mimeType": "application/json" }])
}

/// Returns the contents of a resource.
pub(crate) fn resource(uri: &str) -> Option<Value> {
    let content = match uri {
        "test://static-text" => {
            let text = "This is the content of the static text resource.";
            json!({ "uri": uri, "mimeType": "text/plain", "text": text })
        }
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        "test://watched-resource" => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "Watched resource content." })
        }
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
        }
    };
    Some(json!({ "contents": [content] }))
}

/// Returns all prompts.
pub(crate) fn prompts() -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| json!({ "name": argument, "description": "Test argument", "required": true }))
            .collect();
        json!({ "name": name, "description": format!("Fixture {name}"), "arguments": arguments })
    };
    json!([
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ])
}

/// Returns the messages of a prompt. `argument` returns the value of an argument.
pub(crate) fn prompt(name: &str, argument: impl Fn(&str) -> String) -> Option<Value> {
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let (uri, body) = (argument("resourceUri"), "Embedded resource content for testing.");
            let resource = json!({ "uri": uri, "mimeType": "text/plain", "text": body });
            vec![
                json!({ "type": "resource", "resource": resource }),
                text("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => vec![
            json!({ "type": "image", "data": PNG, "mimeType": "image/png" }),
            text("Please analyze the image above."),
        ],
        _ => return None,
    };
    Some(messages(contents))
}

/// Builds a prompt from contents.
pub(crate) fn messages(contents: Vec<Value>) -> Value {
    let items: Vec<_> =
        contents.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
    json!({ "messages": items })
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
