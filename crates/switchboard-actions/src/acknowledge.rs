//! The action that acknowledges messages.

use switchboard_core::MessageId;

use crate::actor::Actor;
use crate::error::{ActionError, check_line};

/// Outcome of the work that a message requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckStatus {
    /// The work is done.
    #[default]
    Completed,
    /// The work could not be done.
    Failed,
    /// The recipient has a question.
    NeedsClarification,
    /// An error prevented the work.
    Error,
}

impl AckStatus {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Failed, Self::NeedsClarification, Self::Error];

    /// Returns the outcome's name in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::NeedsClarification => "needs_clarification",
            Self::Error => "error",
        }
    }
}

/// Request to acknowledge messages.
#[derive(Debug, Clone, Default)]
pub struct Acknowledge {
    /// Ids of the messages.
    pub ids: Vec<String>,
    /// Outcome of the work. The default is `completed`.
    pub status: Option<AckStatus>,
    /// Note of one line for the sender.
    pub note: Option<String>,
}

/// A message that was acknowledged.
#[derive(Debug)]
pub struct Acknowledged {
    /// Id of the message.
    pub id: MessageId,
    /// False if the message was acknowledged before.
    pub is_new: bool,
}

/// Acknowledges messages and moves them to the archive. Returns the result for each id, in order.
pub async fn acknowledge(
    actor: Actor<'_>,
    request: Acknowledge,
) -> Result<Vec<(String, Result<Acknowledged, ActionError>)>, ActionError> {
    if request.ids.is_empty() {
        return Err(ActionError::Empty { field: "ids" });
    }
    // Models write several lines although one is requested, but receipts have only one line.
    let note = request.note.map(|note| note.split_whitespace().collect::<Vec<_>>().join(" "));
    let note = note.filter(|note| !note.is_empty());
    check_line("note", note.as_deref())?;
    let status = request.status.unwrap_or_default().as_str();
    let note = note.map_or_else(|| status.to_owned(), |note| format!("{status}: {note}"));
    let mut results = Vec::with_capacity(request.ids.len());
    for text in request.ids {
        let result = acknowledge_one(actor, &text, &note).await;
        results.push((text, result));
    }
    Ok(results)
}

async fn acknowledge_one(actor: Actor<'_>, text: &str, note: &str) -> Result<Acknowledged, ActionError> {
    let id = actor.workspace.resolve_id_for(actor.agent, text).await?;
    let changed = actor.workspace.acknowledge(actor.agent, id, Some(note.to_owned())).await?;
    Ok(Acknowledged { id, is_new: changed.is_some() })
}
