//! Messages between the agent loop and a model, independent of the model's API.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::anthropic::Anthropic;
use super::command::Command;
use super::conversation::Usage;
use super::error::ModelError;
use super::openai::OpenAi;

/// Definition of a tool, as sent to the model.
#[derive(Debug, Clone)]
pub(super) struct ToolDefinition {
    /// Name of the tool, restricted to the characters that every API accepts.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Box<RawValue>,
}

/// System prompt, question and tools at the start of a conversation.
pub(super) struct Prompt<'t> {
    pub(super) system: &'t str,
    pub(super) tools: &'t [ToolDefinition],
    pub(super) question: &'t str,
}

/// One turn of the model.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) text: String,
    /// Tool calls that the model requested, in the model's order.
    pub(super) calls: Vec<ToolCall>,
    pub(super) usage: Usage,
    pub(super) end: TurnEnd,
}

/// Reason why a turn of the model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// The turn is complete.
    Whole,
    /// The turn was truncated at the API's length limit. Its tool calls may be incomplete and are not executed.
    Cut,
    /// The model or its provider refused to answer.
    Declined,
}

/// A tool call requested by the model.
#[derive(Debug)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) tool: String,
    /// Arguments of the call, or a parse error for the model.
    pub(super) args: Result<Box<RawValue>, String>,
}

/// Result of a tool call, as sent back to the model.
#[derive(Debug)]
pub(super) struct ToolOutcome {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// Input of the model's next turn.
#[derive(Debug, Default)]
pub(super) struct TurnInput {
    pub(super) results: Vec<ToolOutcome>,
    /// Note from the agent loop to the model.
    pub(super) note: Option<String>,
}

/// A conversation with a model, by provider.
#[derive(Debug)]
pub(super) enum Model {
    Anthropic(Anthropic),
    OpenAi(OpenAi),
    Command(Command),
}

impl Model {
    /// Sends the results of the last turn, and waits for the model's next turn.
    pub(super) async fn next(&mut self, input: TurnInput, room: TurnBudget) -> Result<Turn, ModelError> {
        match self {
            Self::Anthropic(model) => model.next(input, room).await,
            Self::OpenAi(model) => model.next(input, room).await,
            Self::Command(model) => model.next(input).await,
        }
    }
}

/// Budget of time and tokens that remains for a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnBudget {
    pub(super) tokens: u64,
    pub(super) until: Instant,
}
