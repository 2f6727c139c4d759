//! Taking an agent's state elsewhere, and back (§9.5). Private keys are never part of it.

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::book;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::keys::PublicKey;
use crate::ledger::{Identity, Known, Standing, Swarm, state_of};
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
    pub(crate) async fn take_over_state(&self, agent: &PeerId) -> Result<(), SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        let home = identity.home.clone();
        let found = blocking(move || Ok(open_home(&home)?.read(STATE_FILE, LIMIT)?)).await?;
        let Some(found) = found else { return Ok(()) };
        let state = MembershipState::parse(&found.bytes)?;
        if state.agent_id == agent.as_str() {
            self.take_over(agent, state, Merge::Add).await?;
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
            brought += usize::from(self.take_over_swarm(agent, membership, merge, now).await?);
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
        merge: Merge,
        now: Timestamp,
    ) -> Result<bool, SwarmError> {
        let Ok(id) = Uuid::try_parse(&membership.swarm_id) else { return Ok(false) };
        if !membership.members.iter().any(|member| member.agent_id == agent.as_str()) {
            return Ok(false);
        }
        let known = self.book().swarms.get(&(agent.clone(), id)).cloned();
        if known.as_ref().is_some_and(|known| known.is_active() && merge == Merge::Add) {
            return Ok(false);
        }
        let realm = self.free_realm(agent, id, None, &membership.name).await?;
        let mut swarm = Swarm {
            swarm_id: id,
            realm,
            name: membership.name.clone(),
            master: PeerId::parse(&membership.master)?,
            epoch: known.as_ref().map_or(0, |known| known.epoch),
            members: <_>::default(),
            joined_at: stamp::parse(&membership.joined_at).unwrap_or(now),
            settings: membership.settings,
            standing: Standing::Active,
            former: <_>::default(),
            invites: known.as_ref().map(|known| known.invites.clone()).unwrap_or_default(),
            banned: known.as_ref().map(|known| known.banned.clone()).unwrap_or_default(),
            pending: <_>::default(),
            announcements: Vec::new(),
            rotations: Vec::new(),
            invites_since: known.map_or(now, |known| known.invites_since),
        };
        for member in &membership.members {
            let id = PeerId::parse(&member.agent_id)?;
            let endpoint = Endpoint::parse(&member.endpoint)?;
            let key = PublicKey::parse(&member.public_key)?;
            swarm.put_member(&id, endpoint, key, stamp::parse(&member.joined_at).unwrap_or(now));
        }
        book::edit_swarm(self.hub(), agent, id, move |place| {
            *place = Some(swarm);
            Ok(())
        })
        .await?;
        self.refresh().await?;
        self.tell_directory(agent, id).await?;
        Ok(true)
    }
}

fn take_over_lists(identity: &mut Identity, state: &MembershipState, merge: Merge, now: Timestamp) {
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
