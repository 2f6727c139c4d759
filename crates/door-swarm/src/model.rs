//! The stored model: local agents and their swarms, as plain values in the hub's notes.
//!
//! `state.json` shares the part that the protocol defines with other programs. All other data, such as the number of
//! uses of an invite, is only in these notes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use switchboard_core::Name;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::PublicKey;
use crate::members::{ExcludedMembers, Members, RosterEntry};
use crate::roster::AppliedUpdates;
use crate::state::{KnownKey, MembershipState, StateMember, SwarmMembership, SwarmSettings};
use crate::timestamp;
use crate::wire::RosterMember;

/// An agent of this hub that takes part in swarms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The agent's id, which is also its local name.
    pub agent: PeerId,
    /// The agent's endpoint.
    pub endpoint: Endpoint,
    /// The folder of the agent's key and its `state.json`.
    pub home: PathBuf,
    /// The agent's public key, as other members know it.
    pub public_key: PublicKey,
    /// Creation time.
    pub created_at: Timestamp,
    /// Swarms whose messages are dropped.
    #[serde(default)]
    pub muted_swarms: BTreeSet<Uuid>,
    /// Agents whose messages are dropped.
    #[serde(default)]
    pub muted_agents: BTreeSet<PeerId>,
    /// Keys from an imported state file that no roster contains.
    #[serde(default)]
    pub known_keys: BTreeMap<PeerId, LearnedKey>,
    /// Join requests that wait for the master's approval, by swarm.
    #[serde(default)]
    pub joining: BTreeMap<Uuid, OutgoingJoin>,
}

/// A key that was learned from a source other than a roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedKey {
    /// The key.
    pub public_key: PublicKey,
    /// Time when the key was learned.
    pub fetched_at: Timestamp,
    /// URL that can confirm the key.
    pub endpoint: Option<String>,
}

/// A join request of a local agent that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutgoingJoin {
    /// The invite link, including its token.
    pub link: String,
    /// The name that the user chose for the swarm in addresses.
    pub realm: Option<Name>,
    /// Number of attempts.
    pub asked: u32,
    /// Time of the next attempt.
    pub ask_at: Timestamp,
}

/// A swarm, from the perspective of one agent of this hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swarm {
    /// The swarm's id.
    pub swarm_id: Uuid,
    /// The swarm's local name: the part after the `@` in addresses of members.
    pub realm: Name,
    /// Display name of the swarm, chosen by the master.
    pub name: String,
    /// The master.
    pub master: PeerId,
    /// Roster version: the number of changes that the master has counted. The version is 0 if the master does not use
    /// epochs.
    #[serde(default)]
    pub epoch: u64,
    /// All members, including our own agent.
    pub members: Members,
    /// Time when our agent joined.
    pub joined_at: Timestamp,
    /// Rules of the swarm.
    #[serde(default)]
    pub settings: SwarmSettings,
    /// Membership status of our agent.
    #[serde(default, rename = "standing")]
    pub status: MembershipStatus,
    /// Former members, kept because announcements may still be addressed to them.
    #[serde(default)]
    pub former: BTreeMap<PeerId, Member>,
    /// Invites by digest, for the master and for their issuers.
    #[serde(default)]
    pub invites: BTreeMap<String, InviteRecord>,
    /// Members that were announced without a key and whose endpoint has not returned one yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub announced: BTreeMap<PeerId, KeylessMember>,
    /// Kicked agents. Only an invite that was created after the ban admits them again.
    #[serde(default)]
    pub banned: BTreeMap<PeerId, Ban>,
    /// Candidates that wait for approval.
    #[serde(default)]
    pub pending: BTreeMap<PeerId, PendingJoin>,
    /// Announcements that have not been submitted to the hub yet, oldest first.
    #[serde(default)]
    pub announcements: Vec<Announcement>,
    /// Key rotations of our agent since it joined, oldest first, that some peers may not know yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rotations: Vec<Rotation>,
    /// The open request that asks another member to become master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Time from which uses of invites are counted. The uses of earlier invites are unknown to this hub.
    pub invites_since: Timestamp,
    /// History of applied roster updates, for replay protection.
    #[serde(default)]
    pub orders: AppliedUpdates,
    /// Roster entries that were excluded because they cannot be members here.
    #[serde(default, skip_serializing_if = "ExcludedMembers::is_empty")]
    pub left_out: ExcludedMembers,
}

/// A member of a swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Local name, equal to the member's id if that is a valid and unused name.
    pub name: Name,
    /// The member's endpoint.
    pub endpoint: Endpoint,
    /// The member's public key.
    pub public_key: PublicKey,
    /// Time when the member joined.
    pub joined_at: Timestamp,
    /// True once the member has signed a whole envelope. From then on, every message of the member must have this
    /// signature.
    #[serde(default)]
    pub signs_envelopes: bool,
    /// Time when the member's own endpoint last confirmed the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_at: Option<Timestamp>,
    /// A different key that the member's endpoint returned and that no authority has confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_key: Option<PublicKey>,
    /// Keys that were replaced by the member's own signed message or a person's decision, oldest first. No roster
    /// restores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced_keys: Vec<PublicKey>,
    /// True until the member proves its key.
    ///
    /// A provisional member joined by an unsigned request and gives way to an agent that proves the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
    /// True if a message to the master has proved the member's key. The member still gives way to an agent that signs
    /// its join request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proved_by_message: bool,
    /// Time of the member's newest signed join request, by the member's own clock. An older request is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// The last change of the member's endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_change: Option<EndpointChange>,
}

/// A change of a member's endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointChange {
    /// Time of the change.
    pub at: Timestamp,
    /// The previous endpoint.
    pub from: Endpoint,
}

/// Membership status of our agent in a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MembershipStatus {
    /// Our agent is a member.
    #[default]
    Active,
    /// Our agent has left.
    Left,
    /// Our agent was kicked.
    Kicked,
    /// The swarm was dissolved.
    Dissolved,
}

/// A stored invite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteRecord {
    /// The inviting agent.
    pub issuer: PeerId,
    /// Creation time.
    pub made_at: Timestamp,
    /// Expiry time.
    pub ends_at: Option<Timestamp>,
    /// Maximum number of uses.
    pub max_uses: Option<u32>,
    /// Agents that have used the invite.
    #[serde(default)]
    pub used_by: BTreeSet<PeerId>,
    /// Number of further uses, by other agents under an id that is already in `used_by`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reused: u32,
    /// True if the invite was revoked.
    #[serde(default)]
    pub revoked: bool,
}

/// A member that the master has announced without a key. The member's endpoint is polled until it returns the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeylessMember {
    /// The endpoint, as announced by the master.
    pub endpoint: Endpoint,
    /// Time when the member joined.
    pub joined_at: Timestamp,
    /// Number of failed attempts.
    pub asked: u32,
    /// Time of the next attempt.
    pub ask_at: Timestamp,
}

/// The ban of a kicked agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// Time of the ban.
    pub at: Timestamp,
    /// The banned key, so that the agent cannot evade the ban with a new id.
    pub public_key: Option<PublicKey>,
    /// True if the member had not signed its join request. The ban then does not apply to the agent that signs with the
    /// key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
}

/// A candidate that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingJoin {
    /// The candidate's endpoint.
    pub endpoint: Endpoint,
    /// The candidate's public key.
    pub public_key: PublicKey,
    /// Digest of the invite that the candidate presented.
    pub invite: String,
    /// Time of the request.
    pub asked_at: Timestamp,
    /// Signing time of the request, by the candidate's own clock. `None` if the request is unsigned and the key is not
    /// proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// True if the request was denied. The entry is kept so that a retry changes nothing.
    #[serde(default)]
    pub denied: bool,
}

/// A pending announcement to other members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Message id on the wire, generated once, so that a second submission is a duplicate.
    pub id: Uuid,
    /// The recipient, or `None` for all members.
    pub to: Option<PeerId>,
    /// The JSON of a system message.
    pub content: String,
}

/// A key rotation of our own agent. Peers that have not received the rotation message yet know the old key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// Message id of the `key_rotated` message.
    pub news: Uuid,
    /// The previous key.
    pub old_key: PublicKey,
}

/// An open request that asks a member to become master.
///
/// Our agent remains master until it has received the answer and announced the change. Because only one side decides, a
/// lost request or answer never results in two masters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The member that was asked.
    pub to: PeerId,
    /// Message id of the request.
    pub asked: Uuid,
    /// Time of the request.
    #[serde(default)]
    pub asked_at: Timestamp,
}

impl Identity {
    /// Returns the local name of this agent.
    pub fn name(&self) -> Option<Name> {
        self.agent.name()
    }
}

impl Ban {
    /// Builds a ban from the entry of the removed member, or for an id alone.
    pub(crate) fn of(member: Option<&Member>, at: Timestamp) -> Self {
        Self {
            at,
            public_key: member.map(|member| member.public_key.clone()),
            provisional: member.is_some_and(Member::yields_to_signature),
        }
    }
}

impl Swarm {
    /// Creates the state of a swarm that our agent is about to join, without members and history.
    pub(crate) fn empty(swarm_id: Uuid, realm: Name, name: String, master: PeerId, now: Timestamp) -> Self {
        Self {
            swarm_id,
            realm,
            name,
            master,
            epoch: 0,
            members: <_>::default(),
            joined_at: now,
            settings: SwarmSettings::default(),
            status: MembershipStatus::Active,
            former: <_>::default(),
            invites: <_>::default(),
            announced: <_>::default(),
            banned: <_>::default(),
            pending: <_>::default(),
            announcements: Vec::new(),
            rotations: Vec::new(),
            handover: None,
            invites_since: now,
            orders: <_>::default(),
            left_out: <_>::default(),
        }
    }

    /// Returns true if our agent is a member.
    pub fn is_active(&self) -> bool {
        self.status == MembershipStatus::Active
    }

    /// Returns a local name that no other member has.
    pub fn choose_name(&self, id: &PeerId) -> Name {
        let taken = |name: &Name| self.members.values().chain(self.former.values()).any(|m| m.name == *name);
        if let Some(name) = id.name().filter(|name| !taken(name)) {
            return name;
        }
        // An id that differs from another only in case, or that is not a valid name, gets a number.
        let stem: String =
            id.as_str().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(100).collect();
        (2..10_000_u32)
            .filter_map(|n| Name::parse(&format!("peer-{stem}-{n}")).ok())
            .find(|name| !taken(name))
            // A swarm has fewer members than there are numbers.
            .unwrap_or_else(Name::human)
    }

    /// Adds or replaces a member that has proved its key. Returns false if the new entry conflicts with another member.
    pub fn insert_member(
        &mut self,
        id: &PeerId,
        endpoint: Endpoint,
        public_key: PublicKey,
        joined_at: Timestamp,
    ) -> bool {
        self.insert_entry(RosterEntry { id: id.clone(), endpoint, public_key, joined_at, provisional: false })
    }

    /// Adds or replaces a member. A known member keeps its local name. Returns false if the new entry conflicts with
    /// another member.
    pub(crate) fn insert_entry(&mut self, entry: RosterEntry) -> bool {
        let RosterEntry { id, endpoint, public_key, joined_at, provisional } = entry;
        let id = &id;
        let known = self.members.get(id).or_else(|| self.former.get(id));
        let name = known.map_or_else(|| self.choose_name(id), |known| known.name.clone());
        let same = known.filter(|known| known.public_key == public_key);
        let signs = same.is_some_and(|known| known.signs_envelopes);
        let signed_at = same.and_then(|known| known.signed_at);
        let replaced_keys = same.map(|known| known.replaced_keys.clone()).unwrap_or_default();
        let endpoint_change = known.and_then(|known| known.endpoint_change_to(&endpoint, joined_at));
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
        if let Err(conflict) = self.members.insert(id.clone(), member) {
            tracing::warn!(swarm = %self.realm, member = %id, "a member was not added: {conflict}");
            return false;
        }
        self.former.remove(id);
        self.banned.remove(id);
        self.announced.remove(id);
        self.left_out.remove(id.as_str());
        true
    }

    /// Removes a member. Returns false if there was none.
    pub fn remove_member(&mut self, id: &PeerId) -> bool {
        self.announced.remove(id);
        match self.members.remove(id) {
            Some(member) => {
                self.former.insert(id.clone(), member);
                // A member that was removed cannot become master.
                self.handover.take_if(|handover| handover.to == *id);
                true
            }
            None => false,
        }
    }

    /// Finds a member by its local name.
    pub fn member_by_name(&self, name: &Name) -> Option<(&PeerId, &Member)> {
        self.members.iter().find(|(_, member)| member.name == *name)
    }

    /// Queues an announcement.
    pub fn announce(&mut self, id: Uuid, to: Option<PeerId>, content: String) {
        self.announcements.push(Announcement { id, to, content });
    }

    /// Renders the members for a join answer or a roster message.
    pub fn roster(&self) -> Vec<RosterMember> {
        let joined = |(id, member): (&PeerId, &Member)| RosterMember {
            agent_id: id.to_string(),
            endpoint: member.endpoint.to_string(),
            public_key: member.public_key.to_wire(),
            joined_at: Some(timestamp::render(member.joined_at)),
            provisional: member.provisional.then_some(true),
        };
        self.members.iter().map(joined).collect()
    }

    fn membership(&self) -> SwarmMembership {
        let member = |(id, member): (&PeerId, &Member)| StateMember {
            agent_id: id.to_string(),
            endpoint: member.endpoint.to_string(),
            public_key: member.public_key.to_wire(),
            joined_at: timestamp::render(member.joined_at),
        };
        SwarmMembership {
            swarm_id: self.swarm_id.to_string(),
            name: self.name.clone(),
            master: self.master.to_string(),
            members: self.members.iter().map(member).collect(),
            joined_at: timestamp::render(self.joined_at),
            settings: self.settings,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Builds the content of `state.json` for an agent and its swarms.
pub(crate) fn build_state<'s>(
    identity: &Identity,
    swarms: impl Iterator<Item = &'s Swarm> + Clone,
) -> MembershipState {
    let mut state = MembershipState::empty(&identity.agent);
    let active = swarms.filter(|swarm| swarm.is_active());
    for (id, known) in &identity.known_keys {
        let key = KnownKey {
            public_key: known.public_key.to_wire(),
            fetched_at: timestamp::render(known.fetched_at),
            endpoint: known.endpoint.clone(),
        };
        state.public_keys.insert(id.to_string(), key);
    }
    for swarm in active {
        for (id, member) in swarm.members.iter().filter(|(id, _)| **id != identity.agent) {
            let key = KnownKey {
                public_key: member.public_key.to_wire(),
                fetched_at: timestamp::render(member.confirmed_at.unwrap_or(member.joined_at)),
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
