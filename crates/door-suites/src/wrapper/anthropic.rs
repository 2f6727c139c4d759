//! Client of Anthropic's Messages API: <https://docs.anthropic.com/en/api/messages>.
//!
//! Unknown fields are ignored. The model's content blocks are sent back byte for byte.

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_core::describe_json_error;
use switchboard_core::json::to_raw;

use super::conversation::Usage;
use super::endpoint::{Endpoint, Key};
use super::error::ModelError;
use super::model::{Prompt, ToolCall, Turn, TurnBudget, TurnEnd, TurnInput};

/// Version of the API that the structs below implement.
const VERSION: &str = "2023-06-01";

/// Maximum number of output tokens per turn: enough for long arguments, and accepted by every Anthropic model.
const TURN_TOKENS: u64 = 8192;

/// A conversation over the Messages API.
#[derive(Debug)]
pub(super) struct Anthropic {
    endpoint: Endpoint,
    system: String,
    tools: Vec<Tool>,
    messages: Vec<Message>,
}

#[derive(Serialize)]
struct Request<'r> {
    model: &'r str,
    max_tokens: u64,
    system: &'r str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'r [Tool],
    messages: &'r [Message],
}

#[derive(Debug, Serialize)]
struct Tool {
    name: String,
    description: String,
    input_schema: Box<RawValue>,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OurBlock<'b> {
    Text { text: &'b str },
    ToolResult { tool_use_id: &'b str, content: &'b str, is_error: bool },
}

#[derive(Deserialize)]
struct Response {
    content: Vec<Box<RawValue>>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: WireUsage,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
struct WireUsage {
    #[serde(rename = "input_tokens")]
    input: u64,
    #[serde(rename = "output_tokens")]
    output: u64,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_creation: Option<u64>,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: Option<u64>,
}

/// A content block of the model.
///
/// Only text and tool calls are interpreted. Other kinds of blocks are sent back unchanged.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

impl Anthropic {
    pub(super) fn new(base: &Url, key: &Key, model: &str, task: &Prompt<'_>) -> Result<Self, ModelError> {
        let url = address(base);
        let endpoint = Endpoint::new(url, Some(key), ("x-api-key", "", "ANTHROPIC_API_KEY"), model)?
            .with_header("anthropic-version", VERSION);
        let tools = task.tools.iter().map(|definition| Tool {
            name: definition.name.clone(),
            description: definition.description.clone(),
            input_schema: definition.schema.clone(),
        });
        let question =
            Message { role: "user", content: vec![block(&OurBlock::Text { text: task.question })] };
        let (system, tools) = (task.system.to_owned(), tools.collect());
        Ok(Self { endpoint, system, tools, messages: vec![question] })
    }

    pub(super) async fn next(&mut self, input: TurnInput, room: TurnBudget) -> Result<Turn, ModelError> {
        let mut content = Vec::new();
        for done in &input.results {
            content.push(block(&OurBlock::ToolResult {
                tool_use_id: &done.id,
                content: &done.text,
                is_error: done.is_error,
            }));
        }
        // The note comes last, because the API requires tool results first.
        content.extend(input.note.iter().map(|text| block(&OurBlock::Text { text })));
        if !content.is_empty() {
            self.messages.push(Message { role: "user", content });
        }
        let request = Request {
            model: self.endpoint.model(),
            max_tokens: TURN_TOKENS.min(room.tokens).max(1),
            system: &self.system,
            tools: &self.tools,
            messages: &self.messages,
        };
        let response: Response = self.endpoint.post(&request, room.until).await?;
        let turn = self.read(&response)?;
        self.messages.push(Message { role: "assistant", content: response.content });
        Ok(turn)
    }

    fn read(&self, response: &Response) -> Result<Turn, ModelError> {
        let (mut text, mut calls) = (String::new(), Vec::new());
        for raw in &response.content {
            let block: Block = serde_json::from_str(raw.get()).map_err(|error| {
                self.endpoint.unreadable(&format!("a block of its content: {}", describe_json_error(&error)))
            })?;
            let Block { kind, text: words, id, name, input } = block;
            match (kind.as_str(), words, id, name) {
                ("text", Some(more), ..) => text.push_str(&more),
                ("tool_use", _, Some(id), Some(tool)) => {
                    calls.push(ToolCall { id, tool, args: Ok(input.unwrap_or_else(empty_object)) });
                }
                _ => {}
            }
        }
        let WireUsage { input, output, cache_creation, cache_read } = response.usage;
        // Add cached input, which the API counts separately although the model reads it.
        let input = input + cache_creation.unwrap_or(0) + cache_read.unwrap_or(0);
        let end = match response.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => TurnEnd::Cut,
            Some("refusal") => TurnEnd::Declined,
            _ => TurnEnd::Whole,
        };
        let usage = Usage { input_tokens: input, output_tokens: output, estimated: false };
        Ok(Turn { text, calls, usage, end })
    }
}

/// Returns the URL of the API. Users configure the base URL with or without the version.
fn address(base: &Url) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path);
    url.set_path(&format!("{path}/v1/messages"));
    url
}

fn block(block: &OurBlock<'_>) -> Box<RawValue> {
    to_raw(block)
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}
