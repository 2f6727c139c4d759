//! The Gemini API as the Gemini CLI uses it.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::script::{Call, Item};
use super::{Api, texts};

pub(super) struct Gemini;

/// Builds the answer to a side request of the client, which belongs to no turn.
///
/// It contains all fields that the schemas of such requests require.
pub(super) fn side_answer() -> Value {
    let fields = json!({
        "reasoning": "stub", "model_choice": "flash", "complexity_score": 1, "complexity_reasoning": "stub",
        "next_speaker": "user", "title": "stub",
    });
    chunk(&json!([{ "text": fields.to_string() }]), true)
}

fn chunk(parts: &Value, is_last: bool) -> Value {
    let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
    if is_last {
        candidate["finishReason"] = "STOP".into();
    }
    let usage = json!({ "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 });
    json!({ "candidates": [candidate], "usageMetadata": usage, "modelVersion": "stub" })
}

fn send(stream: &mut TcpStream, chunk: &Value) -> std::io::Result<()> {
    stream.write_all(format!("data: {chunk}\n\n").as_bytes())
}

impl Api for Gemini {
    fn items(body: &Value) -> Vec<Item> {
        let mut items = Vec::new();
        for content in body["contents"].as_array().into_iter().flatten() {
            if content["role"] != "user" {
                continue;
            }
            let parts = content["parts"].as_array().into_iter().flatten();
            items.extend(parts.filter(|part| !part["functionResponse"].is_null()).map(|_| Item::Result));
            items.extend(texts(&content["parts"]).into_iter().map(|text| Item::User(text.into())));
        }
        items
    }

    fn conversation(body: &Value) -> &Value {
        &body["contents"]
    }

    fn tools(body: &Value) -> Vec<String> {
        let groups = body["tools"].as_array().into_iter().flatten();
        let tools = groups.flat_map(|group| group["functionDeclarations"].as_array().into_iter().flatten());
        tools.filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect()
    }

    fn open(_stream: &mut TcpStream, _body: &Value) -> std::io::Result<()> {
        Ok(())
    }

    fn send_text(stream: &mut TcpStream, pieces: &[&str], pause: &mut dyn FnMut()) -> std::io::Result<()> {
        for (index, piece) in pieces.iter().enumerate() {
            if index + 1 == pieces.len() {
                pause();
            }
            send(stream, &chunk(&json!([{ "text": piece }]), false))?;
        }
        Ok(())
    }

    fn call(stream: &mut TcpStream, calls: &[(String, Call)]) -> std::io::Result<()> {
        let part = |(name, call): &(String, Call)| {
            let (name, arguments) = match call {
                Call::Run { command, .. } => ("run_shell_command", json!({ "command": command })),
                Call::Write { name } => ("write_file", json!({ "file_path": name, "content": "hello\n" })),
                Call::Tool { arguments, .. } => (name.as_str(), arguments.clone()),
            };
            json!({ "functionCall": { "name": name, "args": arguments } })
        };
        let parts: Vec<Value> = calls.iter().map(part).collect();
        send(stream, &chunk(&json!(parts), false))
    }

    fn close(stream: &mut TcpStream, _has_calls: bool) -> std::io::Result<()> {
        send(stream, &chunk(&json!([{ "text": "" }]), true))
    }
}
