//! Conversion between message files and the core's messages, without side effects.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use switchboard_core::{
    Address, AgentId, Directory, Door, GroupId, Kind, Message, MessageId, NO_RELAY, Name, NativeId,
    POSTED_IN, Route, resolve,
};
use switchboard_hub::Draft;

use crate::ids::{MessageName, current_id, file_name, in_file_name};
use crate::wire::{ChannelMessage, Content, Malformed, iso};

/// Metadata keys for fields of a message file that the core's messages lack.
mod key {
    pub(super) const PREFIX: &str = "channels.";
    pub(super) const CODE: &str = "channels.code";
    pub(super) const ARTIFACTS: &str = "channels.artifacts";
    pub(super) const CONTENT: &str = "channels.content";
    pub(super) const EXTRA: &str = "channels.extra";
    pub(super) const REPLY_TO: &str = "channels.in_reply_to";
    /// Identity of the folder that contains the file, for hubs that share the folder.
    pub(super) const FOLDER: &str = "channels.folder";
    /// Key in a message file under which the writing hub stores its own fields.
    pub(super) const OURS: &str = "switchboard";
}

/// Channel of the person. A message to all of it is a message to the person.
const OF_THE_PERSON: &str = "human-supervisor";

/// Derives the id of a message file that no hub wrote. The id is the same in every hub that shares the folder.
pub(crate) fn derived_id(channel: &Name, native: &str, at: Timestamp) -> MessageId {
    let mut hash = Sha256::new();
    hash.update(channel.key());
    hash.update([0]);
    hash.update(native);
    let bytes: [u8; 32] = hash.finalize().into();
    let random = bytes[..16].iter().fold(0_u128, |random, byte| (random << 8) | u128::from(*byte));
    MessageId::from_parts(u64::try_from(at.as_millisecond()).unwrap_or(0), random)
}

/// Parses the time at which a message was written.
pub(crate) fn written_at(message: &ChannelMessage) -> Result<Timestamp, Malformed> {
    message.time().ok_or_else(|| Malformed::Field {
        field: "timestamp",
        problem: format!("is not an ISO 8601 time: '{}'", message.timestamp.escape_debug()),
    })
}

/// Parses the sender; a deprecated id is replaced.
pub(crate) fn sender(message: &ChannelMessage) -> Result<AgentId, Malformed> {
    agent("from", &message.from)
}

fn agent(field: &'static str, text: &str) -> Result<AgentId, Malformed> {
    current_id(text)
        .parse()
        .map_err(|error| Malformed::Field { field, problem: format!("is refused: {error}") })
}

/// Parses the recipient. `all` means everyone in the channel.
pub(crate) fn recipient(message: &ChannelMessage, channel: &Name) -> Result<Address, Malformed> {
    let address = current_id(&message.to)
        .parse()
        .map_err(|error| Malformed::Field { field: "to", problem: format!("is refused: {error}") })?;
    let is_of_the_person = channel.as_str().eq_ignore_ascii_case(OF_THE_PERSON);
    Ok(match address {
        Address::Group(GroupId::Everyone) if is_of_the_person && !sender(message)?.is_human() => {
            AgentId::human().into()
        }
        Address::Group(GroupId::Everyone) => Address::Group(GroupId::Channel(channel.clone())),
        other => other,
    })
}

/// Converts a message file to a draft.
///
/// `native` is the id in the file name; `reply_to` is the resolved `in_reply_to`, if known. The sender of a file is not
/// authenticated, so the draft is unverified.
pub(crate) fn to_draft(
    message: ChannelMessage,
    channel: &Name,
    native: &str,
    reply_to: Option<MessageId>,
) -> Result<Draft, Malformed> {
    let (from, to) = (sender(&message)?, recipient(&message, channel)?);
    let kind = Kind::parse(&message.kind)
        .map_err(|error| Malformed::Field { field: "type", problem: format!("is refused: {error}") })?;
    let sent_at = written_at(&message)?;
    let unknown_parent = message.in_reply_to().filter(|_| reply_to.is_none()).map(str::to_owned);
    let mut metadata = message.metadata.unwrap_or_default();
    // Remove reserved keys, which only this hub may set.
    metadata.retain(|key, _| !key.starts_with(key::PREFIX) && ![NO_RELAY, POSTED_IN].contains(&key.as_str()));
    metadata.remove("in_reply_to");
    metadata.remove(key::OURS);
    let Content { text, code, artifacts, extra } = message.content;
    let mut keep = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            metadata.insert(key.to_owned(), value);
        }
    };
    keep(key::CODE, code.map(Value::String));
    keep(key::ARTIFACTS, (!artifacts.is_empty()).then_some(Value::Array(artifacts)));
    keep(key::CONTENT, (!extra.is_empty()).then_some(Value::Object(extra)));
    keep(key::EXTRA, (!message.extra.is_empty()).then_some(Value::Object(message.extra)));
    keep(key::REPLY_TO, unknown_parent.map(Value::String));
    Ok(Draft {
        id: derived_id(channel, native, sent_at),
        from,
        to,
        kind,
        body: text,
        in_reply_to: reply_to,
        sent_at,
        expires_at: None,
        metadata,
        native: native_id(channel, native),
        key: None,
        native_is_id: false,
        verified: false,
        route: Some(Route::Channel { channel: channel.clone() }),
        signed: None,
        allow_unregistered: true,
        restored: None,
    })
}

/// Converts a message of this hub's own user to a draft. The draft has the hub's id until its file has a name.
pub(crate) fn to_own_draft(
    message: ChannelMessage,
    channel: &Name,
    id: MessageId,
    reply_to: Option<MessageId>,
) -> Result<Draft, Malformed> {
    let draft = to_draft(message, channel, "", reply_to)?;
    let native = NativeId { door: Door::Channels, scope: String::new(), id: id.to_string() };
    Ok(Draft { id, native, native_is_id: true, verified: true, ..draft })
}

/// Tags the draft of a post with the folder of its file, for linked hubs that share the folder.
pub(crate) fn with_folder(mut draft: Draft, folder: Option<&str>) -> Draft {
    if let Some(folder) = folder {
        draft.metadata.insert(key::FOLDER.to_owned(), folder.into());
    }
    draft
}

/// Converts a linked hub's file to the same draft that the link would deliver. Either may then come first.
///
/// `own` is this hub's name. Agents get the names that this hub uses; a recipient is resolved on the writing hub first.
/// The draft is not relayed.
pub(crate) fn from_linked_hub(draft: Draft, hub: &Name, own: &Name, directory: &Directory) -> Draft {
    // If the sender has a realm, it was relayed to the writing hub, so all names in the file are already qualified.
    let is_in_words_of_its_hub = draft.from.realm.is_none();
    let theirs = |agent: &AgentId| AgentId { realm: Some(hub.clone()), ..agent.clone() };
    let ours = |agent: AgentId| AgentId { realm: agent.realm.filter(|realm| realm != own), ..agent };
    let is_theirs = |agent: &AgentId| {
        is_in_words_of_its_hub
            && agent.realm.is_none()
            && (agent.is_human() || directory.agent(&theirs(agent)).is_some())
    };
    let to = match draft.to {
        Address::Agent(agent) if is_theirs(&agent) => Address::Agent(theirs(&agent)),
        Address::Agent(agent) => Address::Agent(ours(agent)),
        other => other,
    };
    let from = if is_in_words_of_its_hub { theirs(&draft.from) } else { ours(draft.from) };
    let mut metadata = draft.metadata;
    metadata.insert(NO_RELAY.to_owned(), hub.as_str().into());
    let restored = is_for_nobody(&to, &from, directory).then(Vec::new);
    Draft { from, to, metadata, restored, ..draft }
}

/// Returns true if the address reaches no agent of this hub.
fn is_for_nobody(to: &Address, from: &AgentId, directory: &Directory) -> bool {
    match (to, resolve(to, from, directory)) {
        (Address::Agent(_), Ok(agents)) => agents.iter().all(|agent| agent.realm.is_some()),
        (_, resolved) => resolved.is_err(),
    }
}

/// Marks a draft so that the link does not relay it.
pub(crate) fn withhold_from_link(mut draft: Draft) -> Draft {
    draft.metadata.entry(NO_RELAY).or_insert(true.into());
    draft
}

/// Returns true if the accepting hub tagged the message with this folder.
pub(crate) fn is_in_folder(message: &Message, folder: &str) -> bool {
    message.metadata.get(key::FOLDER).and_then(Value::as_str) == Some(folder)
}

/// Writes the hub's message id into a file's metadata, with the journal sequence if known.
pub(crate) fn set_id(message: &mut ChannelMessage, id: MessageId, seq: Option<i64>) {
    let mut ours = json!({ "id": id.to_string() });
    if let Some(seq) = seq {
        ours["seq"] = seq.into();
    }
    message.metadata.get_or_insert_default().insert(key::OURS.to_owned(), ours);
}

/// Writes the accepting hub's name into a file's metadata, for linked hubs that share the folder.
pub(crate) fn set_hub(message: &mut ChannelMessage, hub: Option<&Name>) {
    let ours = message.metadata.as_mut().and_then(|metadata| metadata.get_mut(key::OURS)?.as_object_mut());
    if let (Some(ours), Some(hub)) = (ours, hub) {
        ours.insert("hub".to_owned(), hub.as_str().into());
    }
}

/// Returns the native id of a channel message.
pub(crate) fn native_id(channel: &Name, native: &str) -> NativeId {
    NativeId { door: Door::Channels, scope: channel.to_string(), id: native.to_owned() }
}

/// Converts a message to its file, with the name `tries` after the preferred one.
///
/// The name is derived from the message, so that a redelivery finds the file that it wrote before.
pub(crate) fn to_file(
    message: &Message,
    seq: i64,
    channel: &Name,
    reply_to: Option<String>,
    tries: u32,
) -> ChannelMessage {
    let mut metadata = message.metadata.clone();
    let mut take = |key: &str| metadata.remove(key);
    let (code, artifacts) = (take(key::CODE), take(key::ARTIFACTS));
    let (content, extra, unknown_parent) = (take(key::CONTENT), take(key::EXTRA), take(key::REPLY_TO));
    take(key::FOLDER);
    take(NO_RELAY);
    take(POSTED_IN);
    if let Some(parent) = reply_to.map(Value::String).or(unknown_parent) {
        metadata.insert("in_reply_to".into(), parent);
    }
    let door = message.origin.native.door;
    metadata.insert(
        key::OURS.into(),
        json!({ "id": message.id.to_string(), "seq": seq, "door": door, "verified": message.origin.verified }),
    );
    let object = |value: Option<Value>| match value {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    // Maps the fraction of the second to the range of numbers, preserving the order.
    let part = u32::try_from(i64::from(message.sent_at.subsec_nanosecond()) * 65_536 / 1_000_000_000);
    let name = MessageName {
        second: message.sent_at.as_second(),
        agent: in_file_name(&origin_name(message)),
        number: part.unwrap_or(0).saturating_add(tries),
    };
    ChannelMessage {
        id: name.id(),
        timestamp: iso(message.sent_at),
        session_id: channel.to_string(),
        from: message.from.to_string(),
        to: match &message.to {
            Address::Agent(agent) => agent.to_string(),
            Address::Node(node) => node.to_string(),
            Address::Group(_) => "all".to_owned(),
        },
        kind: message.kind.to_string(),
        content: Content {
            text: message.body.clone(),
            code: code.and_then(|code| code.as_str().map(str::to_owned)),
            artifacts: artifacts.and_then(|list| list.as_array().cloned()).unwrap_or_default(),
            extra: object(content),
        },
        metadata: Some(metadata),
        extra: object(extra),
    }
}

/// Returns the sender as named on its own hub. All hubs that share a folder then choose the same file name.
fn origin_name(message: &Message) -> AgentId {
    match (&message.origin.route, &message.from.realm) {
        (Some(Route::Hub { hub }), Some(realm)) if hub == realm => AgentId::local(message.from.name.clone()),
        _ => message.from.clone(),
    }
}

/// Returns the hub's message id that a file claims.
pub(crate) fn hub_id(file: &ChannelMessage) -> Option<MessageId> {
    file.metadata.as_ref()?.get(key::OURS)?.get("id")?.as_str()?.parse().ok()
}

/// Returns the name of the linked hub that accepted the file's message, if any.
pub(crate) fn hub_of(file: &ChannelMessage) -> Option<Name> {
    Name::parse(file.metadata.as_ref()?.get(key::OURS)?.get("hub")?.as_str()?).ok()
}

/// Returns true if the file is a post, rather than a delivery of a message from another door.
pub(crate) fn is_post(file: &ChannelMessage) -> bool {
    let ours = file.metadata.as_ref().and_then(|metadata| metadata.get(key::OURS));
    ours.and_then(|ours| ours.get("door")?.as_str()).is_none_or(|door| door == Door::Channels.as_str())
}

/// Returns true if the file belongs to the message. The id alone does not suffice, because it could be forged.
pub(crate) fn is_file_of(file: &ChannelMessage, message: &Message) -> bool {
    hub_id(file) == Some(message.id) && has_content_of(file, message)
}

/// Returns true if sender, type and text of a file are those of the message.
pub(crate) fn has_content_of(file: &ChannelMessage, message: &Message) -> bool {
    sender(file).is_ok_and(|from| is_same_agent(&from, &message.from))
        && file.kind == message.kind.as_str()
        && file.content.text == message.body
}

/// Returns true if two names may refer to the same agent, such as `codex` and `codex@lab` on two hubs.
fn is_same_agent(one: &AgentId, other: &AgentId) -> bool {
    one.name == other.name && (one.realm == other.realm || one.realm.is_none() || other.realm.is_none())
}

/// Returns true if sender, recipient, type and content of a file are still those that were accepted.
///
/// Ignores times and metadata, some of which are written after the message was accepted.
pub(crate) fn is_unmodified(
    file: &ChannelMessage,
    message: &Message,
    channel: &Name,
    directory: &Directory,
) -> bool {
    let accepted = to_file(message, 0, channel, None, 0);
    // The file has the name as written, but the journal may have resolved it to an agent of another hub.
    let is_same = |one: &AgentId, other: &AgentId| {
        is_same_agent(&directory.canonical(one), &directory.canonical(other))
    };
    let is_from = sender(file).is_ok_and(|from| is_same(&from, &message.from));
    // A message from another door may be addressed to a group or an agent that the file format cannot express.
    let is_to = message.origin.native.door != Door::Channels
        || match (recipient(file, channel), &message.to) {
            (Ok(Address::Agent(to)), Address::Agent(accepted)) => is_same(&to, accepted),
            (Ok(to), accepted) => to == *accepted,
            (Err(_), _) => false,
        };
    let is_kind = Kind::parse(&file.kind).is_ok_and(|kind| kind == message.kind);
    is_from && is_to && is_kind && file.content == accepted.content && file.extra == accepted.extra
}

/// Returns the file name of the message.
pub(crate) fn name_of(file: &ChannelMessage) -> String {
    file_name(&file.id)
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;
