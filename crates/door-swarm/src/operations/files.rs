//! Taking an agent's state elsewhere, and back (§9.5). Private keys are never part of it.

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::book;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::keys::PublicKey;
use crate::ledger::{Identity, Known, Member, Standing, Swarm, state_of};
use crate::stamp;
use crate::state::{MembershipState, StateError, SwarmMembership};
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

impl Swarms {
    /// An agent's state, marked as an export.
    pub fn export(&self, agent: Option<&str>) -> Result<MembershipState, SwarmError> {
        let identity = self.identity(agent)?;
        let book = self.book();
        let state = state_of(&identity, book.swarms_of(&identity.agent).map(AsRef::as_ref));
        Ok(state.exported(self.hub().now()))
    }

    /// Takes a state over; returns how many swarms it brought.
    pub async fn import(&self, agent: Option<&str>, bytes: &[u8], merge: Merge) -> Result<usize, SwarmError> {
        let state = MembershipState::parse(bytes)?;
        let identity = self.identity(agent.or(Some(&state.agent_id)))?;
        if state.agent_id != identity.agent.as_str() {
            let (found, expected) = (state.agent_id, identity.agent.to_string());
            return Err(StateError::Owner { found, expected }.into());
        }
        self.take_over(&identity.agent, state, merge).await
    }

    /// Takes over what a file in the agent's folder says that the hub does not know, for instance when the hub is new.
    pub(crate) async fn take_over_state(&self, agent: &PeerId, merge: Merge) -> Result<(), SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        let home = identity.home.clone();
        let found = blocking(move || Ok(open_home(&home)?.read(STATE_FILE, LIMIT)?)).await?;
        let Some(found) = found else { return Ok(()) };
        let state = MembershipState::parse(&found.bytes)?;
        if state.agent_id == agent.as_str() {
            self.take_over(agent, state, merge).await?;
        }
        Ok(())
    }

    async fn take_over(
        &self,
        agent: &PeerId,
        state: MembershipState,
        merge: Merge,
    ) -> Result<usize, SwarmError> {
        let now = self.hub().now();
        if merge == Merge::Replace {
            for swarm in self.book().swarms_of(agent) {
                if !state.swarms.contains_key(&swarm.swarm_id.to_string()) && swarm.is_active() {
                    // Nobody is told: the agent goes on elsewhere.
                    self.edit(agent, swarm.swarm_id, |swarm| {
                        swarm.standing = Standing::Left;
                        Ok(())
                    })
                    .await?;
                }
            }
        }
        let mut brought = 0;
        for membership in state.swarms.values() {
            brought += usize::from(self.take_over_swarm(agent, membership, &state, merge).await?);
        }
        self.edit_identity(agent, move |identity| {
            take_over_lists(identity, &state, merge, now);
            Ok(())
        })
        .await?;
        Ok(brought)
    }

    async fn take_over_swarm(
        &self,
        agent: &PeerId,
        membership: &SwarmMembership,
        state: &MembershipState,
        merge: Merge,
    ) -> Result<bool, SwarmError> {
        let now = self.hub().now();
        let Ok(id) = Uuid::try_parse(&membership.swarm_id) else { return Ok(false) };
        if !membership.members.iter().any(|member| member.agent_id == agent.as_str()) {
            return Ok(false);
        }
        let known = self.book().swarms.get(&(agent.clone(), id)).cloned();
        let is_kept = known.as_ref().is_some_and(|known| match merge {
            Merge::Replace => false,
            Merge::Add => known.is_active(),
            Merge::Unheard => true,
        });
        if is_kept {
            return Ok(false);
        }
        let own_key = self.identity(Some(agent.as_str()))?.public_key.clone();
        let realm = self.free_realm(agent, id, None, &membership.name).await?;
        let master = PeerId::parse(&membership.master)?;
        // The count of a file is not known. From 0 the next message shows that the roster is behind, and it is asked for;
        // a master has nobody to ask.
        let counted = known.as_ref().filter(|_| master == *agent).map_or(0, |known| known.epoch);
        let mut swarm = Swarm {
            swarm_id: id,
            realm,
            name: membership.name.clone(),
            master,
            epoch: counted,
            members: <_>::default(),
            joined_at: stamp::parse(&membership.joined_at).unwrap_or(now),
            settings: membership.settings,
            standing: Standing::Active,
            former: known.as_ref().map(|known| known.former.clone()).unwrap_or_default(),
            invites: known.as_ref().map(|known| known.invites.clone()).unwrap_or_default(),
            announced: <_>::default(),
            banned: known.as_ref().map(|known| known.banned.clone()).unwrap_or_default(),
            pending: known.as_ref().map(|known| known.pending.clone()).unwrap_or_default(),
            announcements: known.as_ref().map(|known| known.announcements.clone()).unwrap_or_default(),
            rotations: known.as_ref().map(|known| known.rotations.clone()).unwrap_or_default(),
            handover: None,
            invites_since: known.as_ref().map_or(now, |known| known.invites_since),
        };
        for member in &membership.members {
            let id = PeerId::parse(&member.agent_id)?;
            let endpoint = Endpoint::parse(&member.endpoint)?;
            let mut key = PublicKey::parse(&member.public_key)?;
            let since = stamp::parse(&member.joined_at).unwrap_or(now);
            let kept = known.as_ref().and_then(|known| known.members.get(&id));
            if id == *agent {
                key = own_key.clone();
            } else if let Some(kept) = kept.filter(|kept| !is_newer(state, &id, kept)) {
                // Keys change on the word of those who have them; an older file does not take that back.
                key = kept.public_key.clone();
            }
            let held_by_another = swarm.members.values().any(|member| member.public_key == key);
            if held_by_another {
                continue;
            }
            swarm.put_member(&id, endpoint, key, since);
            if let (Some(kept), Some(member)) = (kept, swarm.members.get_mut(&id)) {
                member.name = kept.name.clone();
                member.signs_envelopes = kept.signs_envelopes && kept.public_key == member.public_key;
                member.confirmed_at = kept.confirmed_at.filter(|_| kept.public_key == member.public_key);
            }
        }
        book::edit_swarm(self.hub(), agent, id, move |place| {
            *place = Some(swarm);
            Ok(())
        })
        .await?;
        self.refresh().await?;
        self.say_announcements(agent, id).await?;
        self.tell_directory(agent, id).await?;
        Ok(true)
    }
}

/// Whether a state is from after the time when a member's key was last known to be its key.
fn is_newer(state: &MembershipState, id: &PeerId, kept: &Member) -> bool {
    let fetched = state.public_keys.get(id.as_str()).map(|key| key.fetched_at.as_str());
    let told = state.exported_at.as_deref().or(fetched).and_then(stamp::parse);
    told.is_some_and(|told| told > kept.confirmed_at.unwrap_or(kept.joined_at))
}

fn take_over_lists(identity: &mut Identity, state: &MembershipState, merge: Merge, now: Timestamp) {
    if merge == Merge::Unheard {
        return;
    }
    if merge == Merge::Replace {
        identity.muted_agents.clear();
        identity.muted_swarms.clear();
        identity.known_keys.clear();
    }
    identity.muted_swarms.extend(state.muted_swarms.iter().filter_map(|id| Uuid::try_parse(id).ok()));
    identity.muted_agents.extend(state.muted_agents.iter().filter_map(|id| PeerId::parse(id).ok()));
    for (id, key) in &state.public_keys {
        let (Ok(id), Ok(public_key)) = (PeerId::parse(id), PublicKey::parse(&key.public_key)) else {
            continue;
        };
        let fetched_at = stamp::parse(&key.fetched_at).unwrap_or(now);
        let known = Known { public_key, fetched_at, endpoint: key.endpoint.clone() };
        identity.known_keys.entry(id).or_insert(known);
    }
}
