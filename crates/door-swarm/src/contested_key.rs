//! Contested keys: several provisional members name the same key until one of them proves it.
//!
//! A key is proved by a signed join request, by a signature over a whole message, or by a key rotation. The protocol's
//! own message signature does not cover the sender's id, so every recipient of a message can resend it under another
//! id. Such a signature proves a key only in a message to the master alone, which no other member has received.

use jiff::Timestamp;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::model::{Member, Swarm};
use crate::roster::millis;

/// How a member has proved its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyProof {
    /// A signed join request, an envelope signature, a key rotation, or a person's decision.
    Signature,
    /// A message addressed to the master alone.
    Message,
}

/// A message with a verified protocol signature, as evidence for a key.
#[derive(Debug, Clone)]
pub(crate) struct SignedMessage {
    pub(crate) sender: PeerId,
    /// The endpoint that the message names. The signature does not cover this field.
    pub(crate) endpoint: String,
    pub(crate) recipient: String,
    /// Signing time, by the sender's clock.
    pub(crate) at: Timestamp,
    /// The key that verifies the signature.
    pub(crate) public_key: PublicKey,
    /// True if the journal has a message with the same id from another member of the swarm.
    pub(crate) is_resent: bool,
}

/// A key that several provisional members name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContestedKey<'a> {
    /// The swarm.
    pub swarm: &'a Swarm,
    /// The members, sorted by id.
    pub members: Vec<&'a PeerId>,
}

impl ContestedKey<'_> {
    /// Describes the conflict in one sentence: the members and the swarm.
    pub fn message(&self) -> String {
        let members: Vec<String> = self.members.iter().map(|id| format!("'{id}'")).collect();
        format!(
            "{} of '{}' name the same key, and none has proved it",
            members.join(" and "),
            self.swarm.realm
        )
    }

    /// Returns a hint on how the owner of agent `me` can resolve the conflict.
    pub fn hint(&self, me: &PeerId) -> String {
        let Swarm { master, realm, .. } = self.swarm;
        let remove = format!("`switchboard swarm kick ID --swarm {realm}`");
        if master == me {
            format!("ask the key's owner to send a message to '{me}', or remove the others with {remove}")
        } else {
            format!("ask the owner of '{master}' to remove the wrong one with {remove}")
        }
    }
}

impl Member {
    /// Returns true if the member gives way to an agent that signs its join request with the same key.
    pub(crate) fn yields_to_signature(&self) -> bool {
        self.provisional || self.proved_by_message
    }
}

impl Swarm {
    /// Returns the rivals of a member: the other members that name the same key.
    ///
    /// While a member has rivals, the author of its messages is ambiguous.
    pub fn rivals(&self, id: &PeerId) -> Vec<&PeerId> {
        // Only provisional members can share a key.
        let Some(member) = self.members.get(id).filter(|member| member.provisional) else {
            return Vec::new();
        };
        let has_key = |(_, other): &(&PeerId, &Member)| other.public_key == member.public_key;
        let others = self.members.iter().filter(|(other, _)| *other != id);
        others.filter(has_key).map(|(other, _)| other).collect()
    }

    /// Returns the keys that several members name.
    pub fn contested_keys(&self) -> Vec<ContestedKey<'_>> {
        let mut found: Vec<ContestedKey<'_>> = Vec::new();
        for id in self.members.keys() {
            let rivals = self.rivals(id);
            if !rivals.is_empty() && !found.iter().any(|contest| contest.members.contains(&id)) {
                let mut members = [vec![id], rivals].concat();
                members.sort_unstable();
                found.push(ContestedKey { swarm: self, members });
            }
        }
        found
    }

    /// Returns true if a message proves the key of its sender. Only the master accepts such a proof.
    ///
    /// The message must be addressed to the master alone, and signed after the sender joined and after our agent became
    /// master, because an earlier message may have gone to another agent with our agent's id. It must also name the
    /// endpoint of the sender's entry, because it proves the key for this entry and not for the entry of a squatter
    /// that took the owner's id.
    pub(crate) fn is_key_proof(&self, me: &PeerId, message: &SignedMessage) -> bool {
        let Some(member) = self.members.get(&message.sender) else { return false };
        let since = member.joined_at.max(self.joined_at).max(self.invites_since);
        self.master == *me
            && message.recipient == me.as_str()
            && member.provisional
            && member.public_key == message.public_key
            && Endpoint::parse(&message.endpoint).is_ok_and(|endpoint| endpoint == member.endpoint)
            && millis(message.at) > millis(since)
            && !message.is_resent
    }

    /// Marks a member's key as proved and removes the other members that name it. Returns the removed ids.
    ///
    /// The master announces the removal. On the hub of any other member the removal is local, because the master may
    /// not check keys.
    pub(crate) fn settle_key(&mut self, me: &PeerId, id: &PeerId, proof: KeyProof) -> Vec<PeerId> {
        let is_led = self.master == *me;
        let Some(member) = self.members.get_mut(id) else { return Vec::new() };
        member.provisional = false;
        member.proved_by_message = proof == KeyProof::Message;
        let key = member.public_key.clone();
        if is_led && proof == KeyProof::Message {
            // The other members have not seen the message, so they learn the result with the next roster.
            self.epoch += 1;
        }
        let squatters = self.find_yielding(&key, id);
        for squatter in &squatters {
            if is_led {
                self.displace(squatter);
            } else {
                self.remove_member(squatter);
                let reason = format!("'{id}' has proved that it has the key");
                self.left_out.insert(squatter.to_string(), reason);
            }
        }
        self.pending
            .retain(|other, waiting| other == id || waiting.public_key != key || waiting.signed_at.is_some());
        squatters
    }

    /// Returns the member, other than `id`, that has a key and keeps it even if `id` proves it.
    pub(crate) fn key_holder(&self, key: &PublicKey, id: &PeerId) -> Option<&PeerId> {
        let yielding = self.find_yielding(key, id);
        let mut others = self.members.iter().filter(|(other, _)| *other != id && !yielding.contains(other));
        others.find(|(_, member)| member.public_key == *key).map(|(other, _)| other)
    }

    /// Returns the members other than `id` that name a key and give way to the agent that proves it.
    pub(crate) fn find_yielding(&self, key: &PublicKey, id: &PeerId) -> Vec<PeerId> {
        let is_yielding = |(other, member): &(&PeerId, &Member)| {
            member.public_key == *key
                && member.yields_to_signature()
                && *other != id
                && **other != self.master
        };
        self.members.iter().filter(is_yielding).map(|(other, _)| other.clone()).collect()
    }
}

#[cfg(test)]
#[path = "contested_key_tests.rs"]
mod tests;
