//! What a hub knows of its own agents in swarms, and of each swarm: plain values, kept in the hub's notes.
//!
//! `state.json` tells other programs the part of it that the protocol has words for. What the protocol has no words
//! for, such as how often an invite was used, is here alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use switchboard_core::Name;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::members::{LeftOut, Members, Told};
use crate::roster::Orders;
use crate::stamp;
use crate::state::{KnownKey, MembershipState, StateMember, SwarmMembership, SwarmSettings};
use crate::wire::Joined;

/// An agent of this hub that takes part in swarms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Who it is, here and there.
    pub agent: PeerId,
    /// Where others reach it.
    pub endpoint: Endpoint,
    /// The folder of its key and its `state.json`.
    pub home: PathBuf,
    /// Its key, as others know it.
    pub public_key: PublicKey,
    /// Since when.
    pub created_at: Timestamp,
    /// Swarms whose messages are dropped.
    #[serde(default)]
    pub muted_swarms: BTreeSet<Uuid>,
    /// Agents whose messages are dropped.
    #[serde(default)]
    pub muted_agents: BTreeSet<PeerId>,
    /// Keys of agents that a state file brought along and that no roster knows.
    #[serde(default)]
    pub known_keys: BTreeMap<PeerId, Known>,
    /// Swarms that it has asked to join and whose master has to approve.
    #[serde(default)]
    pub joining: BTreeMap<Uuid, Joining>,
}

/// A key that was learned without a roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The key.
    pub public_key: PublicKey,
    /// When it was learned.
    pub fetched_at: Timestamp,
    /// Where it can be confirmed.
    pub endpoint: Option<String>,
}

/// A request to join that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// The link, with its token.
    pub link: String,
    /// What the swarm is to be called here, if that was said.
    pub realm: Option<Name>,
    /// How often it was asked.
    pub asked: u32,
    /// When to ask again.
    pub ask_at: Timestamp,
}

/// A swarm, as one agent of this hub knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swarm {
    /// The swarm.
    pub swarm_id: Uuid,
    /// What follows the `@` in addresses of its members.
    pub realm: Name,
    /// What its people call it.
    pub name: String,
    /// Who leads it.
    pub master: PeerId,
    /// How often its roster has changed, as far as the master counts.
    #[serde(default)]
    pub epoch: u64,
    /// Everybody in it, our own agent included.
    pub members: Members,
    /// When our agent joined.
    pub joined_at: Timestamp,
    /// Its rules.
    #[serde(default)]
    pub settings: SwarmSettings,
    /// Whether our agent still belongs to it.
    #[serde(default)]
    pub standing: Standing,
    /// Who was in it and is no longer: they may still have to be told.
    #[serde(default)]
    pub former: BTreeMap<PeerId, Member>,
    /// Invites by digest, for the master and for whoever made them.
    #[serde(default)]
    pub invites: BTreeMap<String, InviteRecord>,
    /// Who was announced without a key that nobody has told yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub announced: BTreeMap<PeerId, Announced>,
    /// Who was kicked, and when: only an invite made after that lets them in again.
    #[serde(default)]
    pub banned: BTreeMap<PeerId, Ban>,
    /// Who waits for approval.
    #[serde(default)]
    pub pending: BTreeMap<PeerId, PendingJoin>,
    /// What is still to be said to others, oldest first.
    #[serde(default)]
    pub announcements: Vec<Announcement>,
    /// How often our agent's key has changed since it joined, as far as that may still matter, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rotations: Vec<Rotation>,
    /// The member that was asked to lead the swarm and has not answered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Invites from before are not known here, so that nobody can say how often they were used.
    pub invites_since: Timestamp,
    /// The orders that were applied, so that a replay changes nothing.
    #[serde(default)]
    pub orders: Orders,
    /// Members of a roster that cannot be members here.
    #[serde(default, skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
}

/// A member of a swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it is called here; its id, where that is a free name.
    pub name: Name,
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// Its key.
    pub public_key: PublicKey,
    /// Since when it is a member.
    pub joined_at: Timestamp,
    /// Whether it has begun to sign whole envelopes: from then on it always does.
    #[serde(default)]
    pub signs_envelopes: bool,
    /// When its key was last confirmed at its own endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_at: Option<Timestamp>,
    /// Another key that its endpoint has named, which nobody with authority has confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_key: Option<PublicKey>,
    /// Keys that it has replaced by its own word, oldest first: no roster brings them back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced_keys: Vec<PublicKey>,
    /// True until it proves its key: it joined by an unsigned request, and gives way to an agent that proves the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
    /// True if a message to the master has proved its key: it gives way to an agent that signs its join request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proved_by_message: bool,
    /// Time of its newest signed join request, by its own clock. An older request is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// The last change of its endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_change: Option<EndpointChange>,
}

/// A change of a member's endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointChange {
    /// When.
    pub at: Timestamp,
    /// The endpoint before.
    pub from: Endpoint,
}

/// Whether our agent belongs to a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It does.
    #[default]
    Active,
    /// It has left.
    Left,
    /// It was kicked.
    Kicked,
    /// There is no swarm any more.
    Dissolved,
}

/// What is known of an invite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteRecord {
    /// Who made it.
    pub issuer: PeerId,
    /// When.
    pub made_at: Timestamp,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
    /// How many may use it.
    pub max_uses: Option<u32>,
    /// Who has.
    #[serde(default)]
    pub used_by: BTreeSet<PeerId>,
    /// Further uses by other agents under an id in `used_by`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reused: u32,
    /// Whether it was taken back.
    #[serde(default)]
    pub revoked: bool,
}

/// Somebody whom the master has announced without a key: its endpoint is asked for it until it has told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// Where it is reached, on the master's word.
    pub endpoint: Endpoint,
    /// Since when it is a member.
    pub joined_at: Timestamp,
    /// How often it was asked in vain.
    pub asked: u32,
    /// When to ask again.
    pub ask_at: Timestamp,
}

/// Somebody who was kicked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// When.
    pub at: Timestamp,
    /// With which key, so that another name does not help.
    pub public_key: Option<PublicKey>,
    /// True if it had not signed its join request: the ban does not apply to the agent that does so with the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
}

/// Somebody who waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingJoin {
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// Its key.
    pub public_key: PublicKey,
    /// The invite.
    pub invite: String,
    /// When it asked.
    pub asked_at: Timestamp,
    /// When it signed the request, by its own clock; nothing where it did not, and its key is not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// Whether it was denied; kept so that asking again changes nothing.
    #[serde(default)]
    pub denied: bool,
}

/// Something that is still to be said to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its id on the wire, made with it, so that saying it twice is saying it once.
    pub id: Uuid,
    /// To whom; everybody where nobody is named.
    pub to: Option<PeerId>,
    /// What: the JSON of a system message.
    pub content: String,
}

/// A new key of our own agent. Who has not heard the news yet knows the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// The id of the news on the wire.
    pub news: Uuid,
    /// The key before.
    pub old_key: PublicKey,
}

/// A member that was asked to lead the swarm. Our agent leads it until it has the answer and has told everybody: who leads
/// is decided in one place, so that a question or an answer that gets lost leaves one master and not two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Who.
    pub to: PeerId,
    /// The id of the question on the wire.
    pub asked: Uuid,
    /// When it was asked.
    #[serde(default)]
    pub asked_at: Timestamp,
}

impl Identity {
    /// The name of this agent in the hub.
    pub fn name(&self) -> Option<Name> {
        self.agent.name()
    }
}

impl Ban {
    /// The ban of a member that is removed, or of an id alone.
    pub(crate) fn of(member: Option<&Member>, at: Timestamp) -> Self {
        Self {
            at,
            public_key: member.map(|member| member.public_key.clone()),
            provisional: member.is_some_and(Member::yields_to_signature),
        }
    }
}

impl Swarm {
    /// Whether our agent belongs to it.
    pub fn is_active(&self) -> bool {
        self.standing == Standing::Active
    }

    /// A name for a member that no other one has here.
    pub fn free_name(&self, id: &PeerId) -> Name {
        let taken = |name: &Name| self.members.values().chain(self.former.values()).any(|m| m.name == *name);
        if let Some(name) = id.name().filter(|name| !taken(name)) {
            return name;
        }
        // Ids that differ in case alone, or that are no names here: told apart by number.
        let stem: String =
            id.as_str().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(100).collect();
        (2..10_000_u32)
            .filter_map(|n| Name::parse(&format!("peer-{stem}-{n}")).ok())
            .find(|name| !taken(name))
            // A swarm has fewer members than that.
            .unwrap_or_else(Name::human)
    }

    /// Adds or replaces a member that has proved its key. False where it clashes with another.
    pub fn put_member(
        &mut self,
        id: &PeerId,
        endpoint: Endpoint,
        public_key: PublicKey,
        joined_at: Timestamp,
    ) -> bool {
        self.insert_told(Told { id: id.clone(), endpoint, public_key, joined_at, provisional: false })
    }

    /// Adds or replaces a member; one that is known keeps its name. False where it clashes with another.
    pub(crate) fn insert_told(&mut self, told: Told) -> bool {
        let Told { id, endpoint, public_key, joined_at, provisional } = told;
        let id = &id;
        let known = self.members.get(id).or_else(|| self.former.get(id));
        let name = known.map_or_else(|| self.free_name(id), |known| known.name.clone());
        let same = known.filter(|known| known.public_key == public_key);
        let signs = same.is_some_and(|known| known.signs_envelopes);
        let signed_at = same.and_then(|known| known.signed_at);
        let replaced_keys = same.map(|known| known.replaced_keys.clone()).unwrap_or_default();
        let endpoint_change = known.and_then(|known| known.change_to(&endpoint, joined_at));
        let member = Member {
            name,
            endpoint,
            public_key,
            joined_at,
            signs_envelopes: signs,
            confirmed_at: None,
            offered_key: None,
            provisional,
            proved_by_message: false,
            signed_at,
            endpoint_change,
            replaced_keys,
        };
        if let Err(clash) = self.members.insert(id.clone(), member) {
            tracing::warn!(swarm = %self.realm, member = %id, "a member was not taken in: {clash}");
            return false;
        }
        self.former.remove(id);
        self.banned.remove(id);
        self.announced.remove(id);
        self.left_out.remove(id.as_str());
        true
    }

    /// Takes a member out; false where it was none.
    pub fn drop_member(&mut self, id: &PeerId) -> bool {
        self.announced.remove(id);
        match self.members.remove(id) {
            Some(member) => {
                self.former.insert(id.clone(), member);
                // Whoever is gone leads nothing.
                self.handover.take_if(|handover| handover.to == *id);
                true
            }
            None => false,
        }
    }

    /// The member that goes by a name here.
    pub fn by_name(&self, name: &Name) -> Option<(&PeerId, &Member)> {
        self.members.iter().find(|(_, member)| member.name == *name)
    }

    /// Notes something to be said to others.
    pub fn announce(&mut self, id: Uuid, to: Option<PeerId>, content: String) {
        self.announcements.push(Announcement { id, to, content });
    }

    /// Its members as they stand in an answer or a roster.
    pub fn roster(&self) -> Vec<Joined> {
        let joined = |(id, member): (&PeerId, &Member)| Joined {
            agent_id: id.to_string(),
            endpoint: member.endpoint.to_string(),
            public_key: member.public_key.to_wire(),
            joined_at: Some(stamp::render(member.joined_at)),
            provisional: member.provisional.then_some(true),
        };
        self.members.iter().map(joined).collect()
    }

    fn membership(&self) -> SwarmMembership {
        let member = |(id, member): (&PeerId, &Member)| StateMember {
            agent_id: id.to_string(),
            endpoint: member.endpoint.to_string(),
            public_key: member.public_key.to_wire(),
            joined_at: stamp::render(member.joined_at),
        };
        SwarmMembership {
            swarm_id: self.swarm_id.to_string(),
            name: self.name.clone(),
            master: self.master.to_string(),
            members: self.members.iter().map(member).collect(),
            joined_at: stamp::render(self.joined_at),
            settings: self.settings,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What `state.json` says of an agent and its swarms.
pub(crate) fn state_of<'s>(
    identity: &Identity,
    swarms: impl Iterator<Item = &'s Swarm> + Clone,
) -> MembershipState {
    let mut state = MembershipState::empty(&identity.agent);
    let active = swarms.filter(|swarm| swarm.is_active());
    for (id, known) in &identity.known_keys {
        let key = KnownKey {
            public_key: known.public_key.to_wire(),
            fetched_at: stamp::render(known.fetched_at),
            endpoint: known.endpoint.clone(),
        };
        state.public_keys.insert(id.to_string(), key);
    }
    for swarm in active {
        for (id, member) in swarm.members.iter().filter(|(id, _)| **id != identity.agent) {
            let key = KnownKey {
                public_key: member.public_key.to_wire(),
                fetched_at: stamp::render(member.confirmed_at.unwrap_or(member.joined_at)),
                endpoint: Some(member.endpoint.resource("info").to_string()),
            };
            state.public_keys.insert(id.to_string(), key);
        }
        state.swarms.insert(swarm.swarm_id.to_string(), swarm.membership());
    }
    state.muted_swarms = identity.muted_swarms.iter().map(Uuid::to_string).collect();
    state.muted_agents = identity.muted_agents.iter().map(PeerId::to_string).collect();
    state
}
