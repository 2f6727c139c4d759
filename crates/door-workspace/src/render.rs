//! Renders messages for models. Tools, hooks and resources share this renderer.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use switchboard_core::{
    AgentId, BODY_PREFIX, Delivery, DeliveryState, Trust, label_inline, quote_lines, sanitize_inline,
    sanitize_value,
};
use switchboard_hub::{MailboxMessage, Stored, fresh_mark};
use switchboard_sys::clock::format_ago;

use crate::error::WorkspaceError;
use crate::ids;
use crate::translate::{iso, to_file};
use crate::workspace::Workspace;

/// Maximum number of payload bytes shown in a listing.
pub const PREVIEW: usize = 500;

/// Maximum size of one result in bytes.
///
/// This is about 15,000 tokens, safely below the 25,000 at which clients truncate.
pub const RESULT: usize = 48_000;

/// Maximum number of metadata bytes shown in a result.
///
/// Metadata is meant for programs, and no program needs more.
const METADATA: usize = 8_000;

/// A rendered message.
pub struct Shown {
    /// The message as text for a model.
    pub text: String,
    /// The message as JSON data.
    pub data: Value,
    /// Size of the message in a result, in bytes.
    pub size: usize,
    /// True if the payload is complete.
    pub whole: bool,
    /// True if the shown part reaches the end of the payload.
    pub is_at_end: bool,
}

/// The part of a message to show.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit {
    /// Number of payload characters to skip at the start.
    pub from: usize,
    /// Maximum number of bytes to show.
    ///
    /// The limit counts bytes because non-English text costs about as many tokens per byte, but not per character.
    pub most: usize,
    /// True to include metadata and persona, which a preview omits.
    pub everything: bool,
}

/// Renders a message in the reader's own mailbox.
pub async fn render_mail(
    workspace: &Workspace,
    reader: &AgentId,
    mail: &MailboxMessage,
    extent: BodyLimit,
) -> Result<Shown, WorkspaceError> {
    show(workspace, reader, &mail.stored, mail.delivery.state.as_str(), extent).await
}

/// Renders a message for a reader that is allowed to see it.
pub async fn show(
    workspace: &Workspace,
    reader: &AgentId,
    stored: &Stored,
    state: &str,
    extent: BodyLimit,
) -> Result<Shown, WorkspaceError> {
    let message = &stored.message;
    let reply_to = workspace.reply_name(message).await?;
    let file = to_file(message, reader, reply_to);
    let trust = message.trust();
    // Only a trusted sender may assign a role, so drop the persona of any other sender.
    let persona = file.persona.filter(|_| extent.everything && trust == Trust::Ours);
    let metadata = file.metadata.filter(|_| extent.everything).map(|fields| Fitted::of(trust, fields));
    let beside = persona.as_ref().map_or(0, String::len) + metadata.as_ref().map_or(0, |fitted| fitted.size);
    let sanitized = trust.sanitize(&file.payload);
    let most = extent.most.saturating_sub(beside).max(PREVIEW.min(extent.most));
    let (payload, whole) = part(&sanitized, BodyLimit { most, ..extent });
    let total = sanitized.chars().count();
    let end = extent.from + payload.chars().count();
    let now = workspace.hub().now();
    let id = label_inline(&file.id);
    let mut text = format!("{id} · {} from {}", file.action, file.sender);
    if message.to.to_string() != reader.to_string() {
        let _ = write!(text, " to {}", message.to);
    }
    let _ = write!(text, " · {} · {state}", format_ago(now, message.sent_at));
    if let Some(label) = trust.label() {
        let _ = write!(text, " · {label}");
    }
    if let Some(parent) = &file.reply_to {
        let _ = write!(text, " · answers {}", label_inline(parent));
    }
    if let Some(persona) = &persona {
        let _ = write!(text, "\nYour role for this:\n{}", quote_lines(persona));
    }
    let _ = write!(text, "\n{}", trust.frame(&payload, fresh_mark()));
    if !whole {
        let _ =
            write!(text, "\n[characters {} to {end} of {total}; check_inbox with id \"{id}\"", extent.from);
        let _ = write!(
            text,
            "{} shows more]",
            if end < total && extent.everything { format!(" and offset {end}") } else { String::new() }
        );
    }
    if let Some(left_out) = metadata.as_ref().map(|fitted| fitted.left_out).filter(|bytes| *bytes > 0) {
        let _ = write!(
            text,
            "\n[{left_out} bytes of its metadata are left out; its file {} has all of it]",
            ids::file_name(&file.id)
        );
    }
    let mut data = json!({
        "id": file.id,
        "action": file.action,
        "sender": file.sender,
        "recipient": message.to.to_string(),
        "payload": payload,
        "createdAt": iso(message.sent_at),
        "state": state,
        "verified": message.origin.verified,
    });
    if let Some(label) = trust.label() {
        data["trust"] = label.into();
    }
    if !whole {
        data["payloadChars"] = total.into();
    }
    let optional = [
        ("replyTo", file.reply_to.map(|parent| sanitize_inline(&parent).into())),
        ("team", file.team.map(|team| sanitize_inline(&team).into())),
        ("persona", persona.map(Value::from)),
        ("metadata", metadata.as_ref().map(|fitted| fitted.fields.clone().into())),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            data[key] = value;
        }
    }
    let size = text.len() + metadata.map_or(0, |fitted| fitted.size);
    Ok(Shown { text, data, size, whole, is_at_end: end >= total })
}

/// Metadata truncated to the size limit.
struct Fitted {
    fields: Map<String, Value>,
    size: usize,
    /// Number of bytes omitted.
    left_out: usize,
}

impl Fitted {
    /// Keeps the fields that fit into the limit, in their original order.
    fn of(trust: Trust, all: Map<String, Value>) -> Self {
        let mut fitted = Self { fields: Map::new(), size: 0, left_out: 0 };
        for (key, value) in all {
            let (key, value) = (trust.sanitize(&key).into_owned(), sanitized_value(trust, value));
            let size = key.len() + value.to_string().len();
            if fitted.size + size > METADATA {
                fitted.left_out += size;
            } else {
                fitted.size += size;
                fitted.fields.insert(key, value);
            }
        }
        fitted
    }
}

/// Sanitizes a value unless its sender is trusted.
fn sanitized_value(trust: Trust, mut value: Value) -> Value {
    if trust != Trust::Ours {
        sanitize_value(&mut value);
    }
    value
}

/// Truncates a text at a character boundary; also returns whether the result is the whole text.
///
/// Each line counts with its quote prefix, so that many short lines also stay within the limit.
fn part(text: &str, extent: BodyLimit) -> (String, bool) {
    let start = text.char_indices().nth(extent.from).map_or(text.len(), |(start, _)| start);
    let rest = &text[start..];
    let mut size = 0;
    let end = rest.char_indices().find_map(|(at, c)| {
        size += c.len_utf8() + if c == '\n' { BODY_PREFIX.len() } else { 0 };
        (size > extent.most).then_some(at)
    });
    let piece = &rest[..end.unwrap_or(rest.len())];
    (piece.to_owned(), piece.len() == text.len())
}

/// Builds the JSON of a message's deliveries.
pub fn deliveries(deliveries: &[Delivery]) -> Value {
    let render = |delivery: &Delivery| {
        let times = delivery.milestones;
        let ended = if delivery.state == DeliveryState::Expired { "expiredAt" } else { "refusedAt" };
        let mut object = json!({
            "agent": delivery.agent.to_string(),
            "route": delivery.route.to_string(),
            "state": delivery.state.as_str(),
        });
        for (key, at) in [
            ("queuedAt", times.queued),
            ("deliveredAt", times.delivered),
            ("seenAt", times.seen),
            ("acknowledgedAt", times.acknowledged),
            (ended, times.ended),
        ] {
            if let Some(at) = at {
                object[key] = iso(at).into();
            }
        }
        if let Some(note) = &delivery.note {
            object["note"] = sanitize_inline(note).into();
        }
        object
    };
    deliveries.iter().map(render).collect()
}

/// Returns the protocol id of a message that was just accepted.
pub fn native(id: switchboard_core::MessageId) -> String {
    ids::to_native(id)
}
