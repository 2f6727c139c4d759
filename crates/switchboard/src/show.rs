//! Rendering of messages and receipts as text and JSON.

use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use switchboard_core::{
    Delivery, DeliveryState, Message, OverallState, Receipt, Trust, label_inline, reveal, sanitize_inline,
};
use switchboard_hub::{Hub, Stored, fresh_mark};
use switchboard_sys::clock::format_ago;

/// Maximum bytes of a body that are printed as text; JSON always contains the whole body.
const BODY_SHOWN: usize = 4000;

/// A message as one line of JSON, for `inbox`, `thread`, `tail` and `search`. Scripts rely on the key names.
#[derive(Debug, Serialize)]
pub(crate) struct MessageLine<'m> {
    id: String,
    native_id: String,
    from: String,
    to: String,
    kind: &'m str,
    body: &'m str,
    in_reply_to: Option<String>,
    thread: String,
    sent_at: String,
    door: &'static str,
    verified: bool,
    /// Trust label for a model, which reads the label before the unchanged body.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<&'static str>,
    state: &'static str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: &'m Map<String, Value>,
    seq: i64,
}

impl<'m> MessageLine<'m> {
    pub(crate) fn new(stored: &'m Stored, state: &'static str) -> Self {
        let message = &stored.message;
        Self {
            id: message.id.to_string(),
            native_id: door_workspace::native_id(message),
            from: message.from.to_string(),
            to: message.to.to_string(),
            kind: message.kind.as_str(),
            body: &message.body,
            in_reply_to: message.in_reply_to.map(|id| id.to_string()),
            thread: message.thread.to_string(),
            sent_at: message.sent_at.to_string(),
            door: message.origin.native.door.as_str(),
            verified: message.origin.verified,
            trust: message.trust().label(),
            state,
            metadata: &message.metadata,
            seq: stored.seq,
        }
    }
}

/// Reader for whom text is sanitized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A person at a terminal.
    Person,
    /// An agent's model, which may mistake a tag in a text for a tag of its client.
    Model,
}

/// Adds to a JSON object whether the workspace is degraded by a disk fault, and why.
pub(crate) fn note_disk(object: &mut Value, hub: &Hub) {
    if let Some(trouble) = hub.database().disk_trouble() {
        object["degraded"] = json!({ "code": trouble.kind.code(), "message": trouble.to_string() });
    }
}

/// Renders a receipt as JSON, for `send` and `receipt`. Scripts rely on the key names.
pub(crate) fn receipt_object(message: &Message, receipt: &Receipt, with_times: bool) -> Value {
    let deliveries: Vec<Value> = receipt.deliveries.iter().map(|d| delivery_object(d, with_times)).collect();
    json!({
        "id": message.id.to_string(),
        "native_id": door_workspace::native_id(message),
        "to": message.to.to_string(),
        "deliveries": deliveries,
    })
}

fn delivery_object(delivery: &Delivery, with_times: bool) -> Value {
    let mut object = json!({
        "agent": delivery.agent.to_string(),
        "route": delivery.route.to_string(),
        "state": delivery.state.as_str(),
    });
    if let Some(note) = &delivery.note {
        object["note"] = note.as_str().into();
    }
    if with_times {
        let times = times(delivery).into_iter().map(|(state, at)| (state.to_owned(), at.to_string().into()));
        object["times"] = Value::Object(times.collect());
        if let DeliveryState::Failed { retry_at } = delivery.state {
            object["retry_at"] = retry_at.to_string().into();
        }
    }
    object
}

/// Lists every state that a delivery reached and when, in order.
pub(crate) fn times(delivery: &Delivery) -> Vec<(&'static str, Timestamp)> {
    let times = delivery.milestones;
    let end = if delivery.state == DeliveryState::Expired { "expired" } else { "refused" };
    [
        ("queued", times.queued),
        ("in_flight", times.in_flight),
        ("delivered", times.delivered),
        ("seen", times.seen),
        ("acknowledged", times.acknowledged),
        (end, times.ended),
    ]
    .into_iter()
    .filter_map(|(state, at)| Some((state, at?)))
    .collect()
}

/// Returns a one-word summary of a message's delivery state.
pub(crate) fn state_name(receipt: &Receipt) -> &'static str {
    match receipt.overall_state() {
        OverallState::Pending => receipt
            .deliveries
            .iter()
            .find(|delivery| delivery.state.is_pending())
            .map_or("queued", |delivery| delivery.state.as_str()),
        OverallState::Failed => "refused",
        OverallState::Expired => "expired",
        OverallState::Delivered => "delivered",
        OverallState::Seen => "seen",
        OverallState::Acknowledged => "acknowledged",
    }
}

/// Renders a message as text: a header line, then the indented body.
pub(crate) fn message_text(
    stored: &Stored,
    state: &str,
    now: Timestamp,
    full: bool,
    reader: Reader,
) -> String {
    let message = &stored.message;
    let bold = anstyle::Style::new().bold();
    let dim = anstyle::Style::new().dimmed();
    let doubt = match (message.trust(), reader) {
        (Trust::Unverified, Reader::Person) => " (unverified)".to_owned(),
        (trust, _) => trust.label().map(|label| format!(" ({label})")).unwrap_or_default(),
    };
    let mut text = format!(
        "{bold}{}{doubt} → {}{bold:#}  {}  {}  {state}\n{dim}{}{dim:#}",
        message.from,
        message.to,
        message.kind,
        format_ago(now, message.sent_at),
        label_inline(&door_workspace::native_id(message)),
    );
    if let Some(parent) = message.in_reply_to {
        let _ = write!(text, "{dim}  in reply to {}{dim:#}", door_workspace::to_native(parent));
    }
    let body = body_text(message, reader);
    let shown: String = if full { body.clone() } else { body.chars().take(BODY_SHOWN).collect() };
    push_lines(&mut text, &rendered(message.trust(), &shown, reader));
    let left = body.chars().count() - shown.chars().count();
    if left > 0 {
        // For a model this line is not indented, because an indented line would look like part of the body.
        let indent = if reader == Reader::Person { "    " } else { "" };
        let _ = write!(text, "\n{indent}{dim}… {left} more characters; --full shows them{dim:#}");
    }
    text
}

/// Returns true if [`message_text`] shows a message without truncation.
pub(crate) fn shows_all(stored: &Stored, full: bool, reader: Reader) -> bool {
    full || body_text(&stored.message, reader).chars().count() <= BODY_SHOWN
}

/// Returns the text of a message, sanitized for its reader.
pub(crate) fn body_text(message: &Message, reader: Reader) -> String {
    sanitized(message.trust(), &message.body, reader)
}

/// Sanitizes untrusted text for its reader.
pub(crate) fn sanitized(trust: Trust, text: &str, reader: Reader) -> String {
    match reader {
        Reader::Person => plain(text),
        Reader::Model => trust.sanitize(text).into_owned(),
    }
}

/// Formats the lines of a body that [`sanitized`] returned: indented for a person, quoted and framed for a model.
pub(crate) fn rendered(trust: Trust, body: &str, reader: Reader) -> String {
    match reader {
        Reader::Person => body.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n"),
        Reader::Model => trust.frame(body, fresh_mark()),
    }
}

/// Appends lines to a text, if there are any.
pub(crate) fn push_lines(text: &mut String, lines: &str) {
    if !lines.is_empty() {
        text.push('\n');
        text.push_str(lines);
    }
}

/// Sanitizes untrusted text for the terminal: control characters, which could move the cursor or change colours, are
/// made visible.
pub(crate) fn plain(text: &str) -> String {
    reveal(text)
}

/// Sanitizes and truncates untrusted text so that it fits into one line of ours.
pub(crate) fn inline(text: &str) -> String {
    sanitize_inline(text)
}
