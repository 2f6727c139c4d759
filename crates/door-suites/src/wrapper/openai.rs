//! Client of the Chat Completions API of OpenAI and compatible servers:
//! <https://platform.openai.com/docs/api-reference/chat>.
//!
//! Unknown fields are ignored. The model's messages are sent back byte for byte, because some servers expect to get
//! back fields that they have added.

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use switchboard_core::describe_json_error;
use switchboard_core::json::to_raw;

use super::conversation::Usage;
use super::endpoint::{Endpoint, Key};
use super::error::ModelError;
use super::model::{Prompt, ToolCall, Turn, TurnBudget, TurnEnd, TurnInput};

/// A conversation over the Chat Completions API.
#[derive(Debug)]
pub(super) struct OpenAi {
    endpoint: Endpoint,
    tools: Vec<Tool>,
    messages: Vec<Box<RawValue>>,
}

/// Request body.
///
/// The body sets no token limit per turn: there are two names for that field, and some servers reject one of them.
#[derive(Serialize)]
struct Request<'r> {
    model: &'r str,
    messages: &'r [Box<RawValue>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'r [Tool],
}

#[derive(Debug, Serialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    description: String,
    parameters: Box<RawValue>,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum OurMessage<'m> {
    System { content: &'m str },
    User { content: &'m str },
    Tool { tool_call_id: &'m str, content: &'m str },
}

#[derive(Deserialize)]
struct Response {
    choices: Vec<Choice>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Box<RawValue>,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct Message {
    /// Content of the message: a string or a list of parts.
    #[serde(default)]
    content: Value,
    refusal: Option<String>,
    tool_calls: Option<Vec<WireToolCall>>,
}

#[derive(Deserialize)]
struct WireToolCall {
    #[serde(default)]
    id: String,
    function: Called,
}

#[derive(Deserialize)]
struct Called {
    name: String,
    /// Arguments as JSON inside a string. Some servers send an object instead.
    #[serde(default)]
    arguments: Value,
}

impl OpenAi {
    pub(super) fn new(
        base: &Url,
        key: Option<&Key>,
        model: &str,
        task: &Prompt<'_>,
    ) -> Result<Self, ModelError> {
        let mut url = base.clone();
        url.set_path(&format!("{}/chat/completions", base.path().trim_end_matches('/')));
        let endpoint = Endpoint::new(url, key, ("authorization", "Bearer ", "OPENAI_API_KEY"), model)?;
        let tools = task.tools.iter().map(|definition| {
            let (name, description) = (definition.name.clone(), definition.description.clone());
            Tool {
                kind: "function",
                function: Function { name, description, parameters: definition.schema.clone() },
            }
        });
        let opening = [
            message(&OurMessage::System { content: task.system }),
            message(&OurMessage::User { content: task.question }),
        ];
        Ok(Self { endpoint, tools: tools.collect(), messages: opening.into() })
    }

    pub(super) async fn next(&mut self, input: TurnInput, room: TurnBudget) -> Result<Turn, ModelError> {
        for done in &input.results {
            // Mark errors in the text, because the API has no error flag for tool results.
            let marked = if done.is_error { format!("ERROR: {}", done.text) } else { done.text.clone() };
            self.messages.push(message(&OurMessage::Tool { tool_call_id: &done.id, content: &marked }));
        }
        self.messages.extend(input.note.iter().map(|content| message(&OurMessage::User { content })));
        let request = Request { model: self.endpoint.model(), messages: &self.messages, tools: &self.tools };
        let response: Response = self.endpoint.post(&request, room.until).await?;
        let usage = response.usage.unwrap_or_default();
        let choice = response.choices.into_iter().next();
        let choice = choice.ok_or_else(|| self.endpoint.unreadable("it has no choices"))?;
        let reply: Message = serde_json::from_str(choice.message.get()).map_err(|error| {
            self.endpoint.unreadable(&format!("its message: {}", describe_json_error(&error)))
        })?;
        self.messages.push(choice.message);
        let calls = reply.tool_calls.unwrap_or_default();
        let calls = calls.into_iter().map(|call| ToolCall {
            args: arguments(&call.function.arguments),
            tool: call.function.name,
            id: call.id,
        });
        let end = match choice.finish_reason.as_deref() {
            Some("length") => TurnEnd::Cut,
            Some("content_filter") => TurnEnd::Declined,
            _ if reply.refusal.is_some() => TurnEnd::Declined,
            _ => TurnEnd::Whole,
        };
        Ok(Turn {
            text: reply.refusal.unwrap_or_else(|| text(&reply.content)),
            calls: calls.collect(),
            usage: Usage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
                estimated: false,
            },
            end,
        })
    }
}

/// Parses the arguments of a call. Models sometimes produce malformed JSON.
fn arguments(value: &Value) -> Result<Box<RawValue>, String> {
    match value {
        Value::Null => to_raw_value(&serde_json::json!({})),
        Value::String(text) if text.trim().is_empty() => to_raw_value(&serde_json::json!({})),
        // Parse as raw JSON, which preserves long numbers.
        Value::String(text) => serde_json::from_str(text),
        other => to_raw_value(other),
    }
    .map_err(|error| {
        format!(
            "the arguments are not valid JSON: {}; call the tool again with a JSON object",
            describe_json_error(&error)
        )
    })
}

/// Returns the text of a message, joining the parts if it consists of several.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

fn message(message: &OurMessage<'_>) -> Box<RawValue> {
    to_raw(message)
}
