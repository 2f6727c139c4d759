//! Receipts and search.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_core::{AgentId, Receipt, sanitize_inline};
use switchboard_hub::Stored;

use super::ToolContext;
use crate::mcp::answer::{Answer, Outcome, ToolError};
use crate::render::{BodyLimit, PREVIEW, deliveries, show};

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

pub(super) async fn get_receipt(ctx: &ToolContext<'_>, given: GetReceipt) -> Outcome {
    let me = ctx.me()?;
    let id = ctx.workspace.resolve_id_for(me, &given.id).await?;
    let unknown = || {
        ToolError::new(format!("You neither sent nor received a message {}", given.id.escape_debug()))
            .next("Use the id that send_message returned.")
    };
    let (stored, receipt) = ctx.workspace.hub().journal().receipt(id).await?.ok_or_else(unknown)?;
    let me = ctx.workspace.hub().directory().await?.canonical(me);
    if !concerns(&me, &stored, &receipt) {
        return Err(unknown());
    }
    let native = crate::ids::native_id(&stored.message);
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
    if let Some(result) = ctx.workspace.execute_result(&stored.message).await? {
        text.push_str("\nat the terminal: ");
        text.push_str(&sanitize_inline(&result.note()));
        data["terminal"] =
            json!({ "status": result.status(), "reason": result.reason().map(sanitize_inline) });
    }
    Ok(Answer::new(text, data))
}

/// True if an agent sent or received a message.
fn concerns(me: &AgentId, stored: &Stored, receipt: &Receipt) -> bool {
    stored.message.from == *me || receipt.deliveries.iter().any(|delivery| delivery.agent == *me)
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

/// Most hits in one result.
const MAX_HITS: usize = 50;

/// Most messages examined per result, which bounds a search among the mail of others.
const MAX_EXAMINED: usize = 2000;

pub(super) async fn search_messages(ctx: &ToolContext<'_>, given: SearchMessages) -> Outcome {
    let me = ctx.workspace.hub().directory().await?.canonical(ctx.me()?);
    let limit = given.limit.unwrap_or(10).clamp(1, MAX_HITS);
    let mut before = match &given.cursor {
        Some(cursor) => Some(cursor.parse::<i64>().map_err(|_| {
            ToolError::new(format!("'{}' is not a cursor", cursor.escape_debug()))
                .next("Use the cursor of the last result as it is.")
        })?),
        None => None,
    };
    let hub = ctx.workspace.hub();
    let (mut texts, mut found, mut examined, mut more) = (Vec::new(), Vec::<Value>::new(), 0, true);
    while more && found.len() < limit && examined < MAX_EXAMINED {
        let page = hub.journal().search(&given.query, before, MAX_HITS).await?;
        more = page.more;
        for stored in page.items {
            if found.len() == limit {
                more = true;
                break;
            }
            examined += 1;
            before = Some(stored.seq);
            let Some((stored, receipt)) = hub.journal().receipt(stored.message.id).await? else { continue };
            if !concerns(&me, &stored, &receipt) {
                continue;
            }
            let state = receipt.deliveries.first().map_or("queued", |delivery| delivery.state.as_str());
            let body = BodyLimit { from: 0, most: PREVIEW, everything: false };
            let shown = show(ctx.workspace, &me, &stored, state, body).await?;
            texts.push(shown.text);
            found.push(shown.data);
        }
    }
    let cursor = before.filter(|_| more).map(|seq| seq.to_string());
    let mut text = match found.len() {
        0 => format!("No message of yours has the words '{}'.", given.query),
        _ => texts.join("\n\n"),
    };
    if let Some(cursor) = &cursor {
        text.push_str("\n\nThere may be more: call again with cursor \"");
        text.push_str(cursor);
        text.push_str("\".");
    }
    Ok(Answer::new(text, json!({ "messages": found, "cursor": cursor })))
}
