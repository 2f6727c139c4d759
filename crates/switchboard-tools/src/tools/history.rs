//! Tools for receipts and full-text search.

use door_workspace::WorkspaceError;
use door_workspace::render::{BodyLimit, PREVIEW, deliveries, show};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_actions::{self as actions, ActionError};
use switchboard_core::sanitize_inline;
use switchboard_hub::HubError;

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const GET_RECEIPT: &str = "Status of a message of yours per recipient: queued, delivered, seen, acknowledged, failed \
     or expired.";

pub(super) const SEARCH_MESSAGES: &str =
    "Find messages that you sent or received, newest first, by words in them.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetReceipt {
    /// Id of the message.
    id: String,
}

pub(super) async fn get_receipt(ctx: &ToolContext<'_>, input: GetReceipt) -> Outcome {
    let actions::ReceiptView { stored, receipt, terminal } =
        actions::receipt(ctx.actor(ctx.me()?), &input.id).await.map_err(|error| match error {
            ActionError::Workspace(WorkspaceError::Hub(HubError::UnknownMessage { .. })) => {
                ToolError::new(format!("You neither sent nor received a message {}", input.id.escape_debug()))
                    .next("Use the id that send_message returned.")
            }
            error => ToolError::of("get_receipt", error),
        })?;
    let native = door_workspace::native_id(&stored.message);
    let lines: Vec<String> = receipt
        .deliveries
        .iter()
        .map(|delivery| {
            let note = delivery.note.as_deref().map(|note| format!(" ({})", sanitize_inline(note)));
            let note = note.unwrap_or_default();
            format!("{}: {}{note}", delivery.agent, delivery.state)
        })
        .collect();
    let mut text = format!("{native} to {}\n{}", stored.message.to, lines.join("\n"));
    let mut data = json!({
        "id": native,
        "to": stored.message.to.to_string(),
        "deliveries": deliveries(&receipt.deliveries),
    });
    if let Some(result) = terminal {
        text.push_str("\nat the terminal: ");
        text.push_str(&sanitize_inline(&result.note()));
        data["terminal"] =
            json!({ "status": result.status(), "reason": result.reason().map(sanitize_inline) });
    }
    Ok(Answer::new(text, data))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchMessages {
    /// Words that must all be in the message.
    query: String,
    /// How many [10].
    limit: Option<usize>,
    /// Continue: the cursor of the last result.
    cursor: Option<String>,
}

/// Maximum number of hits in one result.
const MAX_HITS: usize = 50;

pub(super) async fn search_messages(ctx: &ToolContext<'_>, input: SearchMessages) -> Outcome {
    let me = ctx.me()?;
    let before = match &input.cursor {
        Some(cursor) => Some(cursor.parse::<i64>().map_err(|_| {
            ToolError::new(format!("'{}' is not a cursor", cursor.escape_debug()))
                .next("Use the cursor of the last result as it is.")
        })?),
        None => None,
    };
    let limit = input.limit.unwrap_or(10).clamp(1, MAX_HITS);
    let request = actions::Search { query: input.query.clone(), before, limit };
    let hits = actions::search(ctx.actor(me), request, |_| {})
        .await
        .map_err(|error| ToolError::of("search_messages", error))?;
    let (mut texts, mut found) = (Vec::new(), Vec::<Value>::new());
    for (stored, receipt) in &hits.messages {
        let state = receipt.deliveries.first().map_or("queued", |delivery| delivery.state.as_str());
        let body = BodyLimit { from: 0, most: PREVIEW, everything: false };
        let shown = show(ctx.workspace, me, stored, state, body).await?;
        texts.push(shown.text);
        found.push(shown.data);
    }
    let cursor = hits.next.map(|seq| seq.to_string());
    let mut text = match found.len() {
        0 => format!("No message of yours has the words '{}'.", input.query),
        _ => texts.join("\n\n"),
    };
    if let Some(cursor) = &cursor {
        text.push_str("\n\nThere may be more: call again with cursor \"");
        text.push_str(cursor);
        text.push_str("\".");
    }
    Ok(Answer::new(text, json!({ "messages": found, "cursor": cursor })))
}
