//! Chat completions, as OpenAI and many others have them, as far as they are used:
//! <https://platform.openai.com/docs/api-reference/chat>.
//!
//! Fields that are not named here are ignored. What the model said is sent back as the bytes that came: some servers
//! put things into it that they want to see again.

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::conversation::Usage;
use super::endpoint::{Endpoint, Key};
use super::error::ModelError;
use super::model::{End, Room, Task, Turn, TurnInput, Wanted};

/// A conversation over chat completions.
#[derive(Debug)]
pub(super) struct OpenAi {
    endpoint: Endpoint,
    tools: Vec<Tool>,
    messages: Vec<Box<RawValue>>,
}

/// No limit of a turn's tokens is set: the field for it has two names, and each is refused by some.
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
    /// A text, or parts of one.
    #[serde(default)]
    content: Value,
    refusal: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ToolCall {
    #[serde(default)]
    id: String,
    function: Called,
}

#[derive(Deserialize)]
struct Called {
    name: String,
    /// JSON within a text; some servers send the object itself.
    #[serde(default)]
    arguments: Value,
}

impl OpenAi {
    pub(super) fn new(
        base: &Url,
        key: Option<&Key>,
        model: &str,
        task: &Task<'_>,
    ) -> Result<Self, ModelError> {
        let mut url = base.clone();
        url.set_path(&format!("{}/chat/completions", base.path().trim_end_matches('/')));
        let endpoint = Endpoint::new(url, key, ("authorization", "Bearer ", "OPENAI_API_KEY"), model)?;
        let tools = task.tools.iter().map(|offer| {
            let (name, description) = (offer.name.clone(), offer.description.clone());
            Tool {
                kind: "function",
                function: Function { name, description, parameters: offer.schema.clone() },
            }
        });
        let opening = [
            message(&OurMessage::System { content: task.system }),
            message(&OurMessage::User { content: task.question }),
        ];
        Ok(Self { endpoint, tools: tools.collect(), messages: opening.into() })
    }

    pub(super) async fn next(&mut self, said: TurnInput, room: Room) -> Result<Turn, ModelError> {
        for done in &said.results {
            // The API has no mark for errors, so that the text has to say it.
            let marked = if done.is_error { format!("ERROR: {}", done.text) } else { done.text.clone() };
            self.messages.push(message(&OurMessage::Tool { tool_call_id: &done.id, content: &marked }));
        }
        self.messages.extend(said.note.iter().map(|content| message(&OurMessage::User { content })));
        let request = Request { model: self.endpoint.model(), messages: &self.messages, tools: &self.tools };
        let response: Response = self.endpoint.post(&request, room.until).await?;
        let usage = response.usage.unwrap_or_default();
        let choice = response.choices.into_iter().next();
        let choice = choice.ok_or_else(|| self.endpoint.unreadable("it has no choices"))?;
        let said: Message = serde_json::from_str(choice.message.get())
            .map_err(|error| self.endpoint.unreadable(&format!("its message: {error}")))?;
        self.messages.push(choice.message);
        let calls = said.tool_calls.unwrap_or_default();
        let wants = calls.into_iter().map(|call| Wanted {
            args: arguments(&call.function.arguments),
            tool: call.function.name,
            id: call.id,
        });
        let end = match choice.finish_reason.as_deref() {
            Some("length") => End::Cut,
            Some("content_filter") => End::Declined,
            _ if said.refusal.is_some() => End::Declined,
            _ => End::Whole,
        };
        Ok(Turn {
            text: said.refusal.unwrap_or_else(|| text(&said.content)),
            wants: wants.collect(),
            usage: Usage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
                estimated: false,
            },
            end,
        })
    }
}

/// The arguments of a call, which models sometimes get wrong.
fn arguments(value: &Value) -> Result<Box<RawValue>, String> {
    match value {
        Value::Null => to_raw_value(&serde_json::json!({})),
        Value::String(text) if text.trim().is_empty() => to_raw_value(&serde_json::json!({})),
        // Read as it stands: a number with many digits keeps them.
        Value::String(text) => serde_json::from_str(text),
        other => to_raw_value(other),
    }
    .map_err(|error| {
        format!("the arguments are not valid JSON ({error}); call the tool again with a JSON object")
    })
}

/// The text of a message, which may come in parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

fn message(message: &OurMessage<'_>) -> Box<RawValue> {
    // Texts always serialise.
    to_raw_value(message).unwrap_or_default()
}
