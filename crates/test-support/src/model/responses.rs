//! The `OpenAI` Responses API as Codex uses it.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::script::{Call, Item};
use super::{Api, send_typed, texts};

pub(super) struct Responses;

impl Api for Responses {
    fn items(body: &Value) -> Vec<Item> {
        let input = body["input"].as_array().into_iter().flatten();
        let item = |item: &Value| match item["type"].as_str() {
            Some("function_call_output" | "custom_tool_call_output") => Some(Item::Result),
            _ if item["role"] == "user" => Some(Item::User(texts(&item["content"]).concat())),
            _ => None,
        };
        input.filter_map(item).collect()
    }

    fn conversation(body: &Value) -> &Value {
        &body["input"]
    }

    /// Returns the names of the offered tools.
    ///
    /// Tools of an MCP server come in a namespace; `::` separates the namespace's name from the tool's name.
    fn tools(body: &Value) -> Vec<String> {
        let mut names = Vec::new();
        for tool in body["tools"].as_array().into_iter().flatten() {
            let name = tool["name"].as_str().unwrap_or_default();
            let members = tool["tools"].as_array().into_iter().flatten();
            let members: Vec<_> = members.filter_map(|member| member["name"].as_str()).collect();
            if members.is_empty() {
                names.push(name.to_owned());
            }
            names.extend(members.into_iter().map(|member| format!("{name}::{member}")));
        }
        names
    }

    fn open(stream: &mut TcpStream, _body: &Value) -> std::io::Result<()> {
        send_typed(stream, &json!({ "type": "response.created", "response": { "id": "r" } }))
    }

    fn send_text(stream: &mut TcpStream, pieces: &[&str], pause: &mut dyn FnMut()) -> std::io::Result<()> {
        let item = |text: &str| {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            json!({ "type": "message", "role": "assistant", "id": "m", "content": content })
        };
        send_typed(stream, &json!({ "type": "response.output_item.added", "item": item("") }))?;
        for (index, piece) in pieces.iter().enumerate() {
            if index + 1 == pieces.len() {
                pause();
            }
            let delta = json!({ "type": "response.output_text.delta", "item_id": "m", "delta": piece });
            send_typed(stream, &delta)?;
        }
        send_typed(stream, &json!({ "type": "response.output_item.done", "item": item(&pieces.concat()) }))
    }

    fn call(stream: &mut TcpStream, calls: &[(String, Call)]) -> std::io::Result<()> {
        for (name, call) in calls {
            let (name, arguments) = match call {
                Call::Run { command, .. } => ("exec_command", json!({ "cmd": command })),
                Call::Write { name } => {
                    let patch = format!("*** Begin Patch\n*** Add File: {name}\n+hello\n*** End Patch");
                    ("exec_command", json!({ "cmd": format!("apply_patch <<'EOF'\n{patch}\nEOF") }))
                }
                Call::Tool { arguments, .. } => (name.as_str(), arguments.clone()),
            };
            let mut item = json!({
                "type": "function_call", "id": "f", "call_id": "call_1", "name": name,
                "arguments": arguments.to_string(),
            });
            if let Some((namespace, name)) = name.split_once("::") {
                item["namespace"] = namespace.into();
                item["name"] = name.into();
            }
            send_typed(stream, &json!({ "type": "response.output_item.done", "item": item }))?;
        }
        Ok(())
    }

    fn close(stream: &mut TcpStream, _has_calls: bool) -> std::io::Result<()> {
        let usage = json!({
            "input_tokens": 10, "input_tokens_details": { "cached_tokens": 2 },
            "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 15,
        });
        send_typed(
            stream,
            &json!({ "type": "response.completed", "response": { "id": "r", "usage": usage } }),
        )
    }
}
