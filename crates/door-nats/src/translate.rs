//! Messages of the core as letters between hubs, and back. Pure.

use std::borrow::Cow;

use switchboard_core::{Address, AgentId, Delivery, Door, Hop, Message, Name, NativeId, Route};
use switchboard_hub::{Draft, Passed};

use crate::wire::{Letter, Malformed, ParcelKind, VERSION};

/// A message of this hub as the others read it, on its way to these.
///
/// Mail of one agent goes to the one who gets it: only the hub that forwards it knows of that.
pub(crate) fn to_letter<'m>(message: &'m Message, deliveries: &[Delivery], me: &'m Name) -> Letter<'m> {
    let to = match &message.to {
        Address::Agent(agent) => {
            let recipient = deliveries.first().map_or(agent, |delivery| &delivery.agent);
            Address::Agent(in_full(recipient, me))
        }
        other => other.clone(),
    };
    let hop = |hop: &Hop| match hop {
        Hop::Agent(agent) => Hop::Agent(in_full(agent, me)),
        Hop::Hub(hub) => Hop::Hub(hub.clone()),
    };
    Letter {
        v: VERSION,
        parcel: ParcelKind::Message,
        hub: Cow::Borrowed(me),
        id: message.id,
        from: in_full(&message.from, me),
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
    }
}

/// A letter of another hub as this one takes it in. `is_hub` knows the hubs that there are.
pub(crate) fn to_passed(
    letter: Letter<'static>,
    me: &Name,
    is_hub: impl Fn(&Name) -> bool,
) -> Result<Passed, Malformed> {
    let hub = letter.hub.into_owned();
    let field = |field, problem: &str| Malformed::Field { field, problem: problem.to_owned() };
    match &letter.from.realm {
        Some(realm) if *realm == hub => {}
        // An agent behind a swarm, which the other hub speaks for. No hub speaks for another.
        Some(realm) if realm != me && !is_hub(realm) => {}
        _ => return Err(field("from", "names an agent that this hub does not speak for")),
    }
    let to = match letter.to {
        Address::Agent(agent) => match here(agent, me) {
            // One behind a swarm is for this hub to know.
            agent if !agent.realm.as_ref().is_some_and(|realm| *realm == hub || is_hub(realm)) => {
                Address::Agent(agent)
            }
            _ => return Err(field("to", "names an agent of another hub")),
        },
        group @ Address::Group(_) => group,
        Address::Node(_) => return Err(field("to", "names a node, which only its own hub knows")),
    };
    let signed = match letter.signed {
        Some(digits) => {
            Some(from_hex(&digits).ok_or_else(|| field("signed", "is not in hexadecimal digits"))?)
        }
        None => None,
    };
    // What a person said starts the chain anew, on whichever hub they said it.
    let by_person = letter.from.name.is_human() && letter.verified;
    let via = if by_person { Vec::new() } else { letter.via };
    let hop = |hop| match hop {
        Hop::Agent(agent) => Hop::Agent(here(agent, me)),
        Hop::Hub(hub) => Hop::Hub(hub),
    };
    let draft = Draft {
        id: letter.id,
        from: letter.from,
        to,
        kind: letter.kind.into_owned(),
        body: letter.body.into_owned(),
        in_reply_to: letter.in_reply_to,
        sent_at: letter.sent_at,
        expires_at: letter.expires_at,
        metadata: letter.metadata.into_owned(),
        native: NativeId { door: Door::Nats, scope: hub.to_string(), id: letter.id.to_string() },
        key: None,
        native_is_id: true,
        verified: letter.verified,
        route: Some(Route::Hub { hub }),
        signed,
        allow_unregistered: false,
        restored: None,
    };
    Ok(Passed { draft, thread: letter.thread, via: via.into_iter().map(hop).collect() })
}

/// An agent's name as every hub understands it.
fn in_full(agent: &AgentId, me: &Name) -> AgentId {
    AgentId { name: agent.name.clone(), realm: agent.realm.clone().or_else(|| Some(me.clone())) }
}

/// An agent's name as this hub has it.
fn here(agent: AgentId, me: &Name) -> AgentId {
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
