//! Endpoint changes, requested by the member's signed message, by the master or by a person.
//!
//! The protocol has no message for endpoint changes. The action `endpoint_changed` is an extension, which other
//! programs treat as an unknown notice.

use jiff::Timestamp;
use switchboard_core::AgentId;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::model::{EndpointChange, Identity, Member, Swarm};
use crate::operations::resolve_member;
use crate::roster::{UpdateContext, UpdateError, UpdateOutcome, millis};
use crate::swarms::Swarms;
use crate::wire::SystemContent;

/// Action of the system message that announces a member's new endpoint.
const ENDPOINT_CHANGED: &str = "endpoint_changed";

/// Result of setting a member's endpoint.
#[derive(Debug, Clone)]
pub struct EndpointUpdate {
    /// The member.
    pub id: PeerId,
    /// True if our agent is the master, so that all members are notified. Otherwise the change applies to this hub
    /// only.
    pub is_announced: bool,
}

impl Member {
    /// Returns the record of a change to `endpoint`, or the previous record if the endpoint stays the same.
    pub(crate) fn endpoint_change_to(&self, endpoint: &Endpoint, at: Timestamp) -> Option<EndpointChange> {
        if self.endpoint == *endpoint {
            return self.endpoint_change.clone();
        }
        Some(EndpointChange { at, from: self.endpoint.clone() })
    }

    /// Changes the endpoint and records the change.
    pub(crate) fn move_to(&mut self, endpoint: Endpoint, at: Timestamp) {
        self.endpoint_change = self.endpoint_change_to(&endpoint, at);
        self.endpoint = endpoint;
    }
}

impl Swarm {
    /// Changes a member's endpoint and announces it. Only the master calls this.
    pub(crate) fn change_endpoint(&mut self, id: &PeerId, endpoint: Endpoint, now: Timestamp) {
        self.epoch += 1;
        let epoch = Some(self.epoch);
        self.announce_new_endpoint(id, endpoint, epoch, now);
    }

    /// Changes our own agent's endpoint and announces it.
    fn change_own_endpoint(&mut self, me: &PeerId, endpoint: Endpoint, now: Timestamp) {
        if self.master == *me {
            self.change_endpoint(me, endpoint, now);
        } else {
            // The master increments the epoch when it receives the announcement.
            self.announce_new_endpoint(me, endpoint, None, now);
        }
    }

    fn announce_new_endpoint(&mut self, id: &PeerId, endpoint: Endpoint, epoch: Option<u64>, now: Timestamp) {
        let content = SystemContent {
            kind: Some("system".to_owned()),
            swarm_id: Some(self.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            endpoint: Some(endpoint.to_string()),
            epoch,
            ..SystemContent::new(ENDPOINT_CHANGED)
        };
        if let Some(member) = self.members.get_mut(id) {
            member.move_to(endpoint, now);
        }
        self.announce(Uuid::new_v4(), None, content.to_text());
    }

    /// Applies a member's new endpoint, announced by the member itself or by the master.
    pub(crate) fn on_endpoint_changed(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        let id = content.subject().map_or(Ok(context.sender.clone()), PeerId::parse);
        let id = id.map_err(|_| UpdateError::Field { field: "agent_id" })?;
        if id != *context.sender {
            self.require_master(context, ENDPOINT_CHANGED)?;
        }
        let endpoint = content.endpoint.as_deref().map(Endpoint::parse);
        let Some(Ok(endpoint)) = endpoint else { return Err(UpdateError::Field { field: "endpoint" }) };
        let is_counted = *context.sender == self.master && content.epoch.is_some();
        let mut step = UpdateOutcome::Changed;
        if is_counted {
            let Some(counted) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
            step = counted;
        }
        let unchanged =
            if step == UpdateOutcome::Behind { UpdateOutcome::Behind } else { UpdateOutcome::Nothing };
        let Some(member) = self.members.get_mut(&id).filter(|member| member.endpoint != endpoint) else {
            return Ok(unchanged);
        };
        // Without an epoch, changes are ordered by their signing times, so a replay cannot restore an old endpoint.
        let last = member.endpoint_change.as_ref().map_or(member.joined_at, |last| last.at);
        if !is_counted && millis(context.at) <= millis(last.max(member.joined_at)) {
            return Ok(unchanged);
        }
        let notice = endpoint.to_string();
        member.move_to(endpoint, context.at);
        if id == *context.sender {
            let notice = SystemContent {
                agent_id: Some(id.to_string()),
                endpoint: Some(notice),
                ..SystemContent::new(ENDPOINT_CHANGED)
            };
            self.announce_as_master(context, notice);
        }
        Ok(step)
    }
}

impl Swarms {
    /// Sets a member's endpoint by a person's decision.
    ///
    /// The change applies to all members if our agent is the master, otherwise to this hub only.
    pub async fn set_endpoint(
        &self,
        swarm: Option<&str>,
        member: &str,
        endpoint: &str,
    ) -> Result<EndpointUpdate, SwarmError> {
        let (agent, swarm) = self.find_active_swarm(swarm)?;
        let id = resolve_member(&swarm, member)?;
        let endpoint = Endpoint::parse(endpoint)?;
        if id == agent {
            let problem = format!(
                "is your own agent; run `switchboard swarm init --agent {agent} --endpoint {endpoint}`"
            );
            return Err(SwarmError::field("member", problem));
        }
        let (subject, now, is_announced) = (id.clone(), self.hub().now(), swarm.master == agent);
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            match swarm.members.get_mut(&subject).filter(|member| member.endpoint != endpoint) {
                Some(_) if is_announced => swarm.change_endpoint(&subject, endpoint, now),
                Some(member) => member.move_to(endpoint, now),
                None => {}
            }
            Ok(())
        })
        .await?;
        self.retry_waiting(&agent, swarm.swarm_id, &id).await?;
        Ok(EndpointUpdate { id, is_announced })
    }

    /// Makes the messages that wait for a member due immediately, at the member's new endpoint.
    pub(crate) async fn retry_waiting(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        member: &PeerId,
    ) -> Result<(), SwarmError> {
        let snapshot = self.snapshot();
        let Some(swarm) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return Ok(()) };
        let Some(known) = swarm.members.get(member) else { return Ok(()) };
        self.hub()
            .deliveries()
            .retry_peer_now(AgentId { name: known.name.clone(), realm: Some(swarm.realm.clone()) })
            .await?;
        Ok(())
    }

    /// Announces our agent's endpoint in each swarm whose roster has a different one for it.
    pub(crate) async fn announce_endpoint(&self, identity: &Identity) -> Result<(), SwarmError> {
        let now = self.hub().now();
        for swarm in self.outdated_entries(identity) {
            let (me, endpoint) = (identity.agent.clone(), identity.endpoint.clone());
            let change = move |swarm: &mut Swarm| {
                swarm.change_own_endpoint(&me, endpoint, now);
                Ok(())
            };
            self.edit_swarm(&identity.agent, swarm, change).await?;
        }
        Ok(())
    }

    /// Returns the swarms whose roster has an outdated endpoint for our agent.
    pub(crate) fn outdated_entries(&self, identity: &Identity) -> Vec<Uuid> {
        let snapshot = self.snapshot();
        let differs = |swarm: &&std::sync::Arc<Swarm>| {
            let own = swarm.members.get(&identity.agent);
            swarm.is_active() && own.is_some_and(|own| own.endpoint != identity.endpoint)
        };
        snapshot.swarms_of(&identity.agent).filter(differs).map(|swarm| swarm.swarm_id).collect()
    }
}

#[cfg(test)]
#[path = "endpoint_change_tests.rs"]
mod tests;
