//! The Anthropic Messages API as Claude Code uses it.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::script::{Call, Item};
use super::{Api, send_typed, texts};

pub(super) struct Messages;

/// Number of the next call or message.
///
/// Numbers are never reused, because Claude Code drops a message whose id it has seen before.
static NEXT: AtomicUsize = AtomicUsize::new(1);

fn next_id(prefix: &str) -> String {
    format!("{prefix}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Builds the token usage of one request.
fn usage(output: u32) -> Value {
    json!({
        "input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2,
        "output_tokens": output,
    })
}

impl Api for Messages {
    fn items(body: &Value) -> Vec<Item> {
        let mut items = Vec::new();
        for message in body["messages"].as_array().into_iter().flatten() {
            let content = &message["content"];
            let is_result = |block: &&Value| block["type"] == "tool_result";
            let results = content.as_array().into_iter().flatten().filter(is_result).count();
            items.extend((0..results).map(|_| Item::Result));
            if message["role"] == "assistant" {
                continue;
            }
            for text in texts(content) {
                let is_of_client = message["role"] != "user" || text.starts_with("<system-reminder>");
                items.push(if is_of_client { Item::Client(text.into()) } else { Item::User(text.into()) });
            }
        }
        items
    }

    fn conversation(body: &Value) -> &Value {
        &body["messages"]
    }

    fn tools(body: &Value) -> Vec<String> {
        let tools = body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect()
    }

    fn open(stream: &mut TcpStream, body: &Value) -> std::io::Result<()> {
        let message = json!({
            "id": next_id("msg"), "type": "message", "role": "assistant", "model": body["model"], "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage(1),
        });
        send_typed(stream, &json!({ "type": "message_start", "message": message }))
    }

    fn send_text(stream: &mut TcpStream, pieces: &[&str], pause: &mut dyn FnMut()) -> std::io::Result<()> {
        start_block(stream, 0, &json!({ "type": "text", "text": "" }))?;
        for (index, piece) in pieces.iter().enumerate() {
            if index + 1 == pieces.len() {
                pause();
            }
            send_delta(stream, 0, &json!({ "type": "text_delta", "text": piece }))?;
        }
        send_typed(stream, &json!({ "type": "content_block_stop", "index": 0 }))
    }

    fn call(stream: &mut TcpStream, calls: &[(String, Call)]) -> std::io::Result<()> {
        for (index, (name, call)) in calls.iter().enumerate() {
            let (name, input) = match call {
                Call::Run { command, in_background: false } => {
                    ("Bash", json!({ "command": command, "description": "a command" }))
                }
                Call::Run { command, in_background: true } => (
                    "Bash",
                    json!({ "command": command, "description": "a command", "run_in_background": true }),
                ),
                Call::Write { name } => ("Write", json!({ "file_path": name, "content": "hello\n" })),
                Call::Tool { arguments, .. } => (name.as_str(), arguments.clone()),
            };
            let block = json!({ "type": "tool_use", "id": next_id("toolu"), "name": name, "input": {} });
            start_block(stream, index, &block)?;
            let delta = json!({ "type": "input_json_delta", "partial_json": input.to_string() });
            send_delta(stream, index, &delta)?;
            send_typed(stream, &json!({ "type": "content_block_stop", "index": index }))?;
        }
        Ok(())
    }

    fn close(stream: &mut TcpStream, has_calls: bool) -> std::io::Result<()> {
        let reason = if has_calls { "tool_use" } else { "end_turn" };
        let delta = json!({ "stop_reason": reason, "stop_sequence": null });
        send_typed(stream, &json!({ "type": "message_delta", "delta": delta, "usage": usage(5) }))?;
        send_typed(stream, &json!({ "type": "message_stop" }))
    }
}

fn start_block(stream: &mut TcpStream, index: usize, block: &Value) -> std::io::Result<()> {
    send_typed(stream, &json!({ "type": "content_block_start", "index": index, "content_block": block }))
}

fn send_delta(stream: &mut TcpStream, index: usize, delta: &Value) -> std::io::Result<()> {
    send_typed(stream, &json!({ "type": "content_block_delta", "index": index, "delta": delta }))
}
