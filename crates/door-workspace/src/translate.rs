//! Converts message files to core messages and back. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use switchboard_core::Door;
use switchboard_core::{Address, AgentId, GroupId, Kind, Message, MessageId, Name, NativeId, Route};
use switchboard_hub::Draft;

use crate::ids;
use crate::wire::{Malformed, MessageFile};

/// Metadata keys for fields of a message file that core messages do not have.
mod key {
    pub(super) const PREFIX: &str = "workspace.";
    pub(super) const TEAM: &str = "workspace.team";
    pub(super) const PERSONA: &str = "workspace.persona";
    pub(super) const EXTRA: &str = "workspace.extra";
    pub(super) const GIVEN: &str = "workspace.metadata";
    pub(super) const REPLY_TO: &str = "workspace.replyTo";
    pub(super) const TO: &str = "switchboard.to";
    pub(super) const TRUST: &str = "switchboard.trust";
    pub(super) const FOREIGN_OWNER: &str = "workspace.owner";
}

/// Default TTL of a dispatched task: eight hours, a working day.
const DISPATCH_TTL: SignedDuration = SignedDuration::from_mins(480);

/// Facts about a message file that are not part of its content.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The mailbox that contains the file, in canonical spelling.
    pub(crate) mailbox: Name,
    /// Time at which the file's content last changed.
    pub(crate) modified: Timestamp,
    /// User id of the file's owner, unless that is the workspace's owner.
    pub(crate) foreign_owner: Option<u32>,
}

/// Converts a message file to a draft.
///
/// `reply_to` is the resolved `replyTo`, if known. The sender of a file is not authenticated, so the draft is never
/// verified.
pub(crate) fn to_draft(
    file: MessageFile,
    found: &Found,
    reply_to: Option<MessageId>,
) -> Result<Draft, Malformed> {
    let field = |field, problem: String| Malformed::Field { field, problem };
    let from: AgentId = file.sender.parse().map_err(|e| field("sender", format!("is refused: {e}")))?;
    let kind = Kind::parse(&file.action).map_err(|e| field("action", format!("is refused: {e}")))?;
    if !ids::is_safe(&file.id) {
        return Err(field("id", "may only hold letters, digits, '_', '-' and '.', at most 200".into()));
    }
    let sent_at = match &file.created_at {
        None => found.modified,
        Some(text) => time_of(text).ok_or_else(|| {
            field("createdAt", format!("is not an ISO 8601 time: '{}'", text.escape_debug()))
        })?,
    };
    let fields = file.metadata.unwrap_or_default();
    let expires_at = dispatch_expiry(&fields, sent_at);
    // If the writer uses Switchboard's key prefix for its own data, nest all of its metadata, so that it can be
    // returned unchanged.
    let mut metadata = if fields.keys().any(|key| key.starts_with(key::PREFIX)) {
        Map::from_iter([(key::GIVEN.to_owned(), Value::Object(fields))])
    } else {
        fields
    };
    let mut keep = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            metadata.insert(key.to_owned(), value);
        }
    };
    keep(key::TEAM, file.team.map(Value::String));
    keep(key::PERSONA, file.persona.map(Value::String));
    keep(key::EXTRA, (!file.extra.is_empty()).then_some(Value::Object(file.extra)));
    keep(key::REPLY_TO, file.reply_to.filter(|_| reply_to.is_none()).map(Value::String));
    keep(key::FOREIGN_OWNER, found.foreign_owner.map(Value::from));
    let mailbox = found.mailbox.clone();
    Ok(Draft {
        id: ids::from_native(&file.id)
            .unwrap_or_else(|| ids::derived(&file.id, mailbox.as_str(), sent_at.as_millisecond())),
        from,
        to: AgentId::local(mailbox.clone()).into(),
        kind,
        body: file.payload,
        in_reply_to: reply_to,
        sent_at,
        expires_at,
        metadata,
        native_is_id: false,
        native: NativeId { door: Door::Workspace, scope: mailbox.to_string(), id: file.id },
        verified: false,
        route: Some(Route::Mailbox { agent: mailbox }),
        signed: None,
        allow_unregistered: false,
        restored: None,
        key: None,
    })
}

/// Converts a message to the file in one recipient's mailbox.
///
/// `reply_to` is the protocol id of the message to which this message replies.
pub(crate) fn to_file(message: &Message, recipient: &AgentId, reply_to: Option<String>) -> MessageFile {
    let mut metadata = message.metadata.clone();
    let mut text = |key: &str| match metadata.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (team, persona, unknown_reply) = (text(key::TEAM), text(key::PERSONA), text(key::REPLY_TO));
    let extra = match metadata.remove(key::EXTRA) {
        Some(Value::Object(extra)) => extra,
        _ => Map::new(),
    };
    metadata.remove(key::FOREIGN_OWNER);
    if let Some(Value::Object(given)) = metadata.remove(key::GIVEN) {
        metadata = given;
    }
    let team = match &message.to {
        Address::Group(group) => {
            metadata.insert(key::TO.to_owned(), Value::String(message.to.to_string()));
            match group {
                GroupId::Team(team) => Some(team.to_string()),
                _ => team,
            }
        }
        _ => team,
    };
    MessageFile {
        id: ids::native_id(message),
        action: message.kind.to_string(),
        sender: message.from.to_string(),
        recipient: recipient.to_string(),
        payload: message.body.clone(),
        reply_to: reply_to.or(unknown_reply),
        metadata: (!metadata.is_empty()).then_some(metadata),
        team,
        persona,
        created_at: Some(iso(message.sent_at)),
        extra,
    }
}

/// Converts a message to the file to be written into a mailbox.
///
/// If the sender is not authenticated or has another owner, a trust label is added to the metadata. A message that was
/// ingested from this very file keeps the file's content.
pub(crate) fn to_mailbox(message: &Message, recipient: &AgentId, reply_to: Option<String>) -> MessageFile {
    let mut file = to_file(message, recipient, reply_to);
    let is_its_own = message.origin.route == Some(Route::Mailbox { agent: recipient.name.clone() });
    if let Some(label) = message.trust().label()
        && !is_its_own
    {
        file.metadata.get_or_insert_default().insert(key::TRUST.to_owned(), label.into());
    }
    file
}

/// Removes the trust label that [`to_mailbox`] added.
pub(crate) fn drop_label(file: &mut MessageFile) {
    if let Some(metadata) = &mut file.metadata {
        metadata.remove(key::TRUST);
    }
    file.metadata = file.metadata.take().filter(|metadata| !metadata.is_empty());
}

/// Removes the group address from a file's metadata and returns it.
pub(crate) fn group_address(file: &mut MessageFile) -> Option<Address> {
    let to = file.metadata.as_mut()?.remove(key::TO)?;
    let address: Address = to.as_str()?.parse().ok()?;
    if matches!(address, Address::Group(GroupId::Team(_))) {
        file.team = None;
    }
    if file.metadata.as_ref().is_some_and(Map::is_empty) {
        file.metadata = None;
    }
    matches!(address, Address::Group(_)).then_some(address)
}

/// Stores the team to which a message was sent in the message's metadata.
pub(crate) fn set_team(metadata: &mut Map<String, Value>, team: &Name) {
    metadata.insert(key::TEAM.to_owned(), team.as_str().into());
}

/// Stores the persona of the recipient's role in a message's metadata.
pub(crate) fn set_persona(metadata: &mut Map<String, Value>, persona: String) {
    metadata.insert(key::PERSONA.to_owned(), persona.into());
}

/// Returns true if the message came from a file that another user owns.
pub(crate) fn is_foreign(message: &Message) -> bool {
    message.metadata.contains_key(key::FOREIGN_OWNER)
}

/// Parses an ISO 8601 time written by another program.
///
/// A time without a zone is read as UTC, which most writers mean.
pub(crate) fn time_of(text: &str) -> Option<Timestamp> {
    let civil = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    text.parse().ok().or_else(|| civil().map(|zoned| zoned.timestamp()))
}

/// Formats a time as the protocol does: with milliseconds and `Z`.
pub(crate) fn iso(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Returns the expiry time of a dispatched task.
///
/// In order of precedence: `metadata.dispatch.expires_at`, a TTL in minutes (`metadata.dispatch.ttl_minutes` or
/// `metadata.dispatch_ttl_minutes`), and the protocol's eight hours. A message without any of these and without a
/// dispatch does not expire.
pub(crate) fn dispatch_expiry(metadata: &Map<String, Value>, sent_at: Timestamp) -> Option<Timestamp> {
    let dispatch = metadata.get("dispatch").and_then(Value::as_object);
    let in_dispatch = |key: &str| dispatch.and_then(|dispatch| dispatch.get(key));
    if let Some(Value::String(at)) = in_dispatch("expires_at")
        && let Some(at) = time_of(at)
    {
        return Some(at);
    }
    let minutes = in_dispatch("ttl_minutes").or_else(|| metadata.get("dispatch_ttl_minutes"));
    let ttl = match (minutes.and_then(Value::as_i64), dispatch) {
        (Some(minutes), _) => SignedDuration::from_mins(minutes.clamp(0, 60 * 24 * 365)),
        (None, Some(_)) => DISPATCH_TTL,
        (None, None) => return None,
    };
    sent_at.checked_add(ttl).ok()
}

/// Returns true if a task supersedes the sender's earlier tasks.
///
/// `metadata.dispatch.queue_mode` decides; the default is `replace`. Only tasks supersede tasks.
pub(crate) fn replaces_earlier(message: &Message) -> bool {
    message.kind == Kind::delegate_task()
        && message.metadata.get("dispatch").and_then(Value::as_object).is_some_and(|dispatch| {
            dispatch.get("queue_mode").and_then(Value::as_str).unwrap_or("replace") == "replace"
        })
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;
