//! What passes between the loop and a model, whichever API it is behind.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::anthropic::Anthropic;
use super::command::Command;
use super::conversation::Usage;
use super::error::ModelError;
use super::openai::OpenAi;

/// A tool as a model is told of it.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    /// A name that every API takes.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Box<RawValue>,
}

/// What a model is told before its first turn.
pub(super) struct Task<'t> {
    pub(super) system: &'t str,
    pub(super) tools: &'t [Offer],
    pub(super) question: &'t str,
}

/// One turn of a model.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) text: String,
    /// The calls that it wants, in its order.
    pub(super) wants: Vec<Wanted>,
    pub(super) usage: Usage,
    pub(super) end: End,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As the model meant it to.
    Whole,
    /// At the length that the API allows: what it wants may be cut, and is not done.
    Cut,
    /// The model, or whoever runs it, does not want to answer.
    Declined,
}

/// A call that a model wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) id: String,
    pub(super) tool: String,
    /// The arguments, or what is wrong with them, for the model to read.
    pub(super) args: Result<Box<RawValue>, String>,
}

/// What came of a call.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// What a model is told before its next turn.
#[derive(Debug, Default)]
pub(super) struct TurnInput {
    pub(super) results: Vec<Done>,
    /// A word from the loop itself.
    pub(super) note: Option<String>,
}

/// A conversation with a model.
#[derive(Debug)]
pub(super) enum Model {
    Anthropic(Anthropic),
    OpenAi(OpenAi),
    Command(Command),
}

impl Model {
    /// Tells the model what came of its last turn, and waits for its next.
    pub(super) async fn next(&mut self, said: TurnInput, room: Room) -> Result<Turn, ModelError> {
        match self {
            Self::Anthropic(model) => model.next(said, room).await,
            Self::OpenAi(model) => model.next(said, room).await,
            Self::Command(model) => model.next(said).await,
        }
    }
}

/// What is left for a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) tokens: u64,
    pub(super) until: Instant,
}
