//! Conversion between core messages and the wire format of hubs, as pure functions.

use std::borrow::Cow;

use serde_json::Value;
use switchboard_core::{
    Address, AgentId, AgentRecord, Delivery, Directory, Door, GroupId, Hop, Message, Name, NativeId,
    POSTED_IN, RECEIVED_BY, Route, resolve,
};
use switchboard_hub::{Draft, RelayedMessage};

use crate::wire::{EnvelopeKind, HubMessage, Malformed, VERSION};

/// Converts a message to the wire format for these deliveries.
///
/// A message to one agent names the agent that finally receives it, because only this hub knows its forwarding aliases.
/// A channel post to an agent that this hub does not know stays unqualified: it is for the agent of that name on the
/// hub where the channel is read.
pub(crate) fn to_wire<'m>(
    message: &'m Message,
    deliveries: &[Delivery],
    me: &'m Name,
    directory: &Directory,
) -> HubMessage<'m> {
    let posted_in = posted_in(message);
    // The agent may belong to another hub and have become known after the post; the post is still for that agent.
    let is_ours =
        |known: &AgentRecord, agent: &AgentId| known.id.realm.is_none() && known.id.name == agent.name;
    let is_known =
        |agent: &AgentId| agent.is_human() || directory.agents().any(|known| is_ours(known, agent));
    let to = match &message.to {
        Address::Agent(agent) if posted_in.is_some() && agent.realm.is_none() && !is_known(agent) => {
            message.to.clone()
        }
        Address::Agent(agent) => {
            let recipient = deliveries.first().map_or(agent, |delivery| &delivery.agent);
            Address::Agent(qualify(recipient, me))
        }
        other => other.clone(),
    };
    let hop = |hop: &Hop| match hop {
        Hop::Agent(agent) => Hop::Agent(qualify(agent, me)),
        Hop::Hub(hub) => Hop::Hub(hub.clone()),
    };
    let bound_for = match (&posted_in, &message.to) {
        (Some(_), Address::Agent(_)) => deliveries.iter().find_map(hub_of).cloned(),
        _ => None,
    };
    HubMessage {
        v: VERSION,
        envelope: EnvelopeKind::Message,
        hub: Cow::Borrowed(me),
        id: message.id,
        from: qualify(&message.from, me),
        to,
        kind: Cow::Borrowed(&message.kind),
        body: Cow::Borrowed(&message.body),
        in_reply_to: message.in_reply_to,
        thread: message.thread,
        sent_at: message.sent_at,
        expires_at: message.expires_at,
        metadata: Cow::Borrowed(&message.metadata),
        via: message.via.iter().map(hop).collect(),
        door: message.origin.native.door,
        verified: message.origin.verified,
        signed: message.signed.as_deref().map(to_hex),
        heard: Vec::new(),
        posted_in,
        bound_for,
    }
}

/// Returns the channel in which a message was posted; `None` if the message is addressed to that whole channel.
pub(crate) fn posted_in(message: &Message) -> Option<Name> {
    message.posted_in().filter(|channel| message.to != Address::Group(GroupId::Channel(channel.clone())))
}

/// Returns the hub to which a pending delivery goes.
pub(crate) fn hub_of(delivery: &Delivery) -> Option<&Name> {
    match &delivery.route {
        Route::Hub { hub } if delivery.state.is_pending() => Some(hub),
        _ => None,
    }
}

/// Returns the agents of other owners that receive a channel message from this hub.
pub(crate) fn peer_readers(message: &Message, deliveries: &[Delivery]) -> Vec<AgentId> {
    let is_post = matches!(message.to, Address::Group(GroupId::Channel(_)));
    let peers = deliveries.iter().filter(|delivery| matches!(delivery.route, Route::Peer { .. }));
    peers.filter(|_| is_post).map(|delivery| delivery.agent.clone()).collect()
}

/// Converts a wire message of another hub to a relayed message. `is_hub` returns true for linked hubs.
///
/// A post to an agent of another hub is ingested only to be shown in the channel; it is delivered to no agent of this
/// hub.
pub(crate) fn from_wire(
    wire: HubMessage<'static>,
    me: &Name,
    is_hub: impl Fn(&Name) -> bool,
) -> Result<RelayedMessage, Malformed> {
    let hub = wire.hub.into_owned();
    let field = |field, problem: &str| Malformed::Field { field, problem: problem.to_owned() };
    match &wire.from.realm {
        Some(realm) if *realm == hub => {}
        // The agent is behind a swarm of the sending hub. A hub may speak for such agents but not for another hub.
        Some(realm) if realm != me && !is_hub(realm) => {}
        _ => return Err(field("from", "names an agent that is not of this hub")),
    }
    let is_for_another = matches!(wire.to, Address::Agent(_))
        && wire.posted_in.is_some()
        && wire.bound_for.as_ref() != Some(me);
    let to = match wire.to {
        Address::Agent(agent) if is_for_another => Address::Agent(localize(agent, me)),
        Address::Agent(agent) => match localize(agent, me) {
            // This hub resolves an agent behind a swarm.
            agent if !agent.realm.as_ref().is_some_and(|realm| *realm == hub || is_hub(realm)) => {
                Address::Agent(agent)
            }
            _ => return Err(field("to", "names an agent of another hub")),
        },
        group @ Address::Group(_) => group,
        Address::Node(_) => return Err(field("to", "names a node, but nodes exist only at their own hub")),
    };
    let signed = match wire.signed {
        Some(digits) => Some(from_hex(&digits).ok_or_else(|| field("signed", "is not hexadecimal"))?),
        None => None,
    };
    // A message from a person restarts the hop chain, on whichever hub the person wrote it.
    let by_person = wire.from.name.is_human() && wire.verified;
    let via = if by_person { Vec::new() } else { wire.via };
    let hop = |hop| match hop {
        Hop::Agent(agent) => Hop::Agent(localize(agent, me)),
        Hop::Hub(hub) => Hop::Hub(hub),
    };
    let mut metadata = wire.metadata.into_owned();
    metadata.remove(RECEIVED_BY);
    if !wire.heard.is_empty() {
        let heard: Vec<Value> = wire.heard.iter().map(|agent| agent.to_string().into()).collect();
        metadata.insert(RECEIVED_BY.to_owned(), heard.into());
    }
    match wire.posted_in {
        Some(channel) => drop(metadata.insert(POSTED_IN.to_owned(), channel.as_str().into())),
        None => drop(metadata.remove(POSTED_IN)),
    }
    let draft = Draft {
        id: wire.id,
        from: wire.from,
        to,
        kind: wire.kind.into_owned(),
        body: wire.body.into_owned(),
        in_reply_to: wire.in_reply_to,
        sent_at: wire.sent_at,
        expires_at: wire.expires_at,
        metadata,
        native: NativeId { door: Door::Nats, scope: hub.to_string(), id: wire.id.to_string() },
        key: None,
        native_is_id: true,
        verified: wire.verified,
        route: Some(Route::Hub { hub }),
        signed,
        allow_unregistered: false,
        restored: is_for_another.then(Vec::new),
    };
    Ok(RelayedMessage { draft, thread: wire.thread, via: via.into_iter().map(hop).collect() })
}

/// Returns the message if it concerns this hub: for its recipients here, or else for the channel in which it was
/// posted.
///
/// Returns `None` if no agent of this hub is a recipient or reads the channel.
pub(crate) fn filter_for_hub(
    relayed: RelayedMessage,
    channel: Option<&Name>,
    directory: &Directory,
) -> Option<RelayedMessage> {
    let Some(channel) = channel else { return Some(relayed) };
    let Draft { to, from, restored, .. } = &relayed.draft;
    let reads_it =
        |is_reader: &dyn Fn(&AgentId) -> bool| directory.channel(channel).any(|one| is_reader(&one.id));
    let is_for_somebody = match to {
        // The sending hub did not know the agent, so the post is for the agent of that name that reads the channel.
        Address::Agent(agent) if restored.is_some() => agent.realm.is_none() && reads_it(&|one| one == agent),
        Address::Agent(_) => true,
        group => resolve(group, from, directory).is_ok(),
    };
    let is_read = reads_it(&|one| one.realm.is_none());
    let restored = if is_for_somebody { None } else { Some(Vec::new()) };
    (is_for_somebody || is_read)
        .then_some(RelayedMessage { draft: Draft { restored, ..relayed.draft }, ..relayed })
}

/// Qualifies an agent's name with its hub, so that every hub understands the name.
fn qualify(agent: &AgentId, me: &Name) -> AgentId {
    AgentId { name: agent.name.clone(), realm: agent.realm.clone().or_else(|| Some(me.clone())) }
}

/// Removes this hub's name from the qualified name of an agent.
fn localize(agent: AgentId, me: &Name) -> AgentId {
    AgentId { realm: agent.realm.filter(|realm| realm != me), ..agent }
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;
