//! Taking an agent's state elsewhere, and back (§9.5). Private keys are never part of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::book;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::keys::PublicKey;
use crate::ledger::{Identity, Known, Standing, Swarm, state_of};
use crate::members::{Clash, LeftOut, Told, sift};
use crate::stamp;
use crate::state::{MembershipState, StateError, StateMember, SwarmMembership};
use crate::swarms::{STATE_FILE, Swarms, blocking, open_home};

/// What becomes of what is known already when a state is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// It stays; what is new is added.
    Add,
    /// What the state does not have goes.
    Replace,
    /// Only swarms that the hub has never heard of are added, and nobody is muted for it: for a file that nobody has asked
    /// to be read. What it says of others may be from before they were left.
    Unheard,
}

/// Larger than any state within the limits.
const LIMIT: u64 = 64 << 20;

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// How many swarms the state has brought.
    pub swarms: usize,
    /// Members whose pinned key was kept, though the state has another.
    pub kept_keys: Vec<KeptKey>,
    /// Members of the state that cannot be members here.
    pub left_out: LeftOut,
}

/// A member whose pinned key was kept, though a state has another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptKey {
    /// The member.
    pub agent: PeerId,
    /// The key that stays.
    pub pinned: PublicKey,
    /// The key that the state has.
    pub found: PublicKey,
}

/// A state whose values are all parsed, and what was asked about it.
struct Import {
    state: MembershipState,
    merge: Merge,
    /// Members whose key the state may replace.
    accepted: BTreeSet<PeerId>,
    now: Timestamp,
}

impl Swarms {
    /// An agent's state, marked as an export.
    pub fn export(&self, agent: Option<&str>) -> Result<MembershipState, SwarmError> {
        let identity = self.identity(agent)?;
        let book = self.book();
        let state = state_of(&identity, book.swarms_of(&identity.agent).map(AsRef::as_ref));
        Ok(state.exported(self.hub().now()))
    }

    /// Takes a state over. A pinned key stays, unless its member is among those to `accept`.
    pub async fn import(
        &self,
        agent: Option<&str>,
        bytes: &[u8],
        merge: Merge,
        accept: &[String],
    ) -> Result<Imported, SwarmError> {
        let state = MembershipState::parse(bytes)?;
        let identity = self.identity(agent.or(Some(&state.agent_id)))?;
        if state.agent_id != identity.agent.as_str() {
            let (found, expected) = (state.agent_id, identity.agent.to_string());
            return Err(StateError::Owner { found, expected }.into());
        }
        let mut accepted = BTreeSet::new();
        for id in accept {
            let has_it = |swarm: &SwarmMembership| swarm.members.iter().any(|member| member.agent_id == *id);
            if !state.swarms.values().any(has_it) && !state.public_keys.contains_key(id) {
                return Err(SwarmError::field(
                    "accept-key",
                    format!("names '{id}', of which the file has no key; give the agent_id of a member"),
                ));
            }
            accepted.insert(PeerId::parse(id)?);
        }
        let now = self.hub().now();
        self.take_over(&identity, Import { state, merge, accepted, now }).await
    }

    /// Takes over what a file in the agent's folder says that the hub does not know, for instance when the hub is new.
    pub(crate) async fn take_over_state(&self, agent: &PeerId, merge: Merge) -> Result<(), SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        let home = identity.home.clone();
        let found = blocking(move || Ok(open_home(&home)?.read(STATE_FILE, LIMIT)?)).await?;
        let Some(found) = found else { return Ok(()) };
        let state = MembershipState::parse(&found.bytes)?;
        if state.agent_id != agent.as_str() {
            return Ok(());
        }
        let import = Import { state, merge, accepted: <_>::default(), now: self.hub().now() };
        let imported = self.take_over(&identity, import).await?;
        for (id, reason) in &imported.left_out {
            tracing::warn!(%agent, member = %id, "a member in state.json is left out: {reason}");
        }
        for kept in &imported.kept_keys {
            tracing::warn!(
                %agent, member = %kept.agent, pinned = %kept.pinned.fingerprint(), found = %kept.found.fingerprint(),
                "state.json has another key of a member; the pinned one stays"
            );
        }
        Ok(())
    }

    async fn take_over(&self, identity: &Arc<Identity>, import: Import) -> Result<Imported, SwarmError> {
        let (agent, now) = (&identity.agent, self.hub().now());
        let mut imported = Imported::default();
        // Everything is built before anything is changed: a state that is refused changes nothing.
        let mut swarms = Vec::new();
        for membership in import.state.swarms.values() {
            swarms.extend(self.build_swarm(identity, membership, &import, &mut imported).await?);
        }
        if import.merge == Merge::Replace {
            for swarm in self.book().swarms_of(agent) {
                if !import.state.swarms.contains_key(&swarm.swarm_id.to_string()) && swarm.is_active() {
                    // Nobody is told: the agent goes on elsewhere.
                    self.edit(agent, swarm.swarm_id, |swarm| {
                        swarm.standing = Standing::Left;
                        Ok(())
                    })
                    .await?;
                }
            }
        }
        imported.swarms = swarms.len();
        for swarm in swarms {
            let id = swarm.swarm_id;
            book::edit_swarm(self.hub(), agent, id, move |place| {
                *place = Some(swarm);
                Ok(())
            })
            .await?;
            self.refresh().await?;
            self.say_announcements(agent, id).await?;
            self.tell_directory(agent, id).await?;
        }
        self.edit_identity(agent, move |identity| {
            take_over_lists(identity, &import, now);
            Ok(())
        })
        .await?;
        Ok(imported)
    }

    /// The swarm that a state tells of, where it is to be taken over.
    async fn build_swarm(
        &self,
        identity: &Identity,
        membership: &SwarmMembership,
        import: &Import,
        imported: &mut Imported,
    ) -> Result<Option<Swarm>, SwarmError> {
        let (agent, now) = (&identity.agent, self.hub().now());
        let Ok(id) = Uuid::try_parse(&membership.swarm_id) else { return Ok(None) };
        if !membership.members.iter().any(|member| member.agent_id == agent.as_str()) {
            return Ok(None);
        }
        let known = self.book().swarms.get(&(agent.clone(), id)).cloned();
        let is_kept = known.as_ref().is_some_and(|known| match import.merge {
            Merge::Replace => false,
            Merge::Add => known.is_active(),
            Merge::Unheard => true,
        });
        if is_kept {
            return Ok(None);
        }
        let master = PeerId::parse(&membership.master)?;
        let refuse = |clash: Clash| StateError::Shape {
            path: format!("swarms.{id}.members"),
            problem: clash.to_string(),
        };
        let mut told = read_members(membership, now)?;
        note_proofs(&mut told, known.as_deref(), master == *agent);
        let (told, left_out) = sift(agent, &master, told).map_err(refuse)?;
        // The count of a file is not known. From 0 the next message shows that the roster is behind, and it is asked for;
        // a master has nobody to ask.
        let counted = known.as_ref().filter(|_| master == *agent).map_or(0, |known| known.epoch);
        let kept = known.as_deref();
        let mut swarm = Swarm {
            swarm_id: id,
            realm: self.free_realm(agent, id, None, &membership.name).await?,
            name: membership.name.clone(),
            master,
            epoch: counted,
            members: <_>::default(),
            joined_at: stamp::parse(&membership.joined_at).unwrap_or(now),
            settings: membership.settings,
            standing: Standing::Active,
            former: kept.map(|known| known.former.clone()).unwrap_or_default(),
            invites: kept.map(|known| known.invites.clone()).unwrap_or_default(),
            announced: <_>::default(),
            banned: kept.map(|known| known.banned.clone()).unwrap_or_default(),
            pending: kept.map(|known| known.pending.clone()).unwrap_or_default(),
            announcements: kept.map(|known| known.announcements.clone()).unwrap_or_default(),
            rotations: kept.map(|known| known.rotations.clone()).unwrap_or_default(),
            handover: None,
            invites_since: kept.map_or(now, |known| known.invites_since),
            orders: kept.map(|known| known.orders.clone()).unwrap_or_default(),
            left_out,
        };
        for member in told {
            if let Some(reason) = swarm.import_member(identity, kept, import, member, imported) {
                return Err(refuse(reason).into());
            }
        }
        imported.left_out.extend(swarm.left_out.clone());
        Ok(Some(swarm))
    }
}

impl Swarm {
    /// Adds a member of a state, with the key that is pinned for it. Returned is a clash of our agent or the master.
    fn import_member(
        &mut self,
        identity: &Identity,
        known: Option<&Self>,
        import: &Import,
        told: Told,
        imported: &mut Imported,
    ) -> Option<Clash> {
        let Told { id, endpoint, public_key: found, joined_at, provisional } = told;
        if self.banned.contains_key(&id) {
            // A file does not undo a kick, whatever its dates say.
            self.left_out.insert(id.to_string(), "it was removed from the swarm; invite it again".to_owned());
            return None;
        }
        let kept = known.and_then(|known| known.members.get(&id).or_else(|| known.former.get(&id)));
        let pinned = if id == identity.agent {
            Some(&identity.public_key)
        } else {
            kept.map(|kept| &kept.public_key).filter(|_| !import.accepted.contains(&id))
        };
        let key = pinned.unwrap_or(&found).clone();
        if key != found && id != identity.agent {
            imported.kept_keys.push(KeptKey { agent: id.clone(), pinned: key.clone(), found });
        }
        if let Err(clash) = self.members.check(&id, &key, provisional) {
            if id == self.master || id == identity.agent {
                return Some(clash);
            }
            self.left_out.insert(id.to_string(), clash.to_string());
            return None;
        }
        self.insert_told(Told { id: id.clone(), endpoint, public_key: key, joined_at, provisional });
        if let (Some(kept), Some(member)) = (kept, self.members.get_mut(&id)) {
            let is_same = kept.public_key == member.public_key;
            let accepted = std::mem::replace(&mut member.public_key, kept.public_key.clone());
            member.replaced_keys.clone_from(&kept.replaced_keys);
            if !is_same {
                member.replace_key(accepted);
            }
            member.name = kept.name.clone();
            member.signs_envelopes = kept.signs_envelopes && is_same;
            member.confirmed_at = kept.confirmed_at.filter(|_| is_same);
            member.proved_by_message = kept.proved_by_message && is_same;
            member.signed_at = kept.signed_at.filter(|_| is_same);
            member.endpoint_change = kept.change_to(&member.endpoint, import.now);
        }
        None
    }
}

/// Notes which members of a file are provisional: those that are known as such, those that share a key, and in a swarm
/// of another master also those that are not known here.
fn note_proofs(told: &mut [Told], known: Option<&Swarm>, is_led: bool) {
    let keys: Vec<PublicKey> = told.iter().map(|member| member.public_key.clone()).collect();
    for member in told {
        let kept =
            known.and_then(|known| known.members.get(&member.id).or_else(|| known.former.get(&member.id)));
        let is_shared = keys.iter().filter(|key| **key == member.public_key).count() > 1;
        member.provisional = match kept.filter(|kept| kept.public_key == member.public_key) {
            Some(kept) => kept.provisional,
            None => is_shared || !is_led,
        };
    }
}

/// Parses the members of a state.
fn read_members(membership: &SwarmMembership, now: Timestamp) -> Result<Vec<Told>, SwarmError> {
    let read = |member: &StateMember| {
        Ok(Told {
            id: PeerId::parse(&member.agent_id)?,
            endpoint: Endpoint::parse(&member.endpoint)?,
            public_key: PublicKey::parse(&member.public_key)?,
            joined_at: stamp::parse(&member.joined_at).unwrap_or(now),
            // A file does not tell: `note_proofs` decides.
            provisional: false,
        })
    };
    membership.members.iter().map(read).collect()
}

fn take_over_lists(identity: &mut Identity, import: &Import, now: Timestamp) {
    let Import { state, merge, accepted, .. } = import;
    if *merge == Merge::Unheard {
        return;
    }
    if *merge == Merge::Replace {
        identity.muted_agents.clear();
        identity.muted_swarms.clear();
        identity.known_keys.retain(|id, _| state.public_keys.contains_key(id.as_str()));
    }
    identity.muted_swarms.extend(state.muted_swarms.iter().filter_map(|id| Uuid::try_parse(id).ok()));
    identity.muted_agents.extend(state.muted_agents.iter().filter_map(|id| PeerId::parse(id).ok()));
    for (id, key) in &state.public_keys {
        let (Ok(id), Ok(public_key)) = (PeerId::parse(id), PublicKey::parse(&key.public_key)) else {
            continue;
        };
        let fetched_at = stamp::parse(&key.fetched_at).unwrap_or(now);
        let known = Known { public_key, fetched_at, endpoint: key.endpoint.clone() };
        if accepted.contains(&id) {
            identity.known_keys.insert(id, known);
        } else {
            identity.known_keys.entry(id).or_insert(known);
        }
    }
}
