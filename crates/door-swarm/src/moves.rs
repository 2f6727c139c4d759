//! Endpoint changes: on the member's own signed word, the master's, or a person's decision.
//!
//! The protocol has no word for one. `endpoint_changed` is an extension, which other programs take as plain news.

use jiff::Timestamp;
use switchboard_core::AgentId;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::ledger::{EndpointChange, Identity, Member, Swarm};
use crate::operations::member_of;
use crate::roster::{Applied, NoAuthority, Said, millis};
use crate::swarms::Swarms;
use crate::wire::SystemContent;

/// The system message that tells a member's new endpoint.
const ENDPOINT_CHANGED: &str = "endpoint_changed";

/// An endpoint that a person has set.
#[derive(Debug, Clone)]
pub struct EndpointSet {
    /// The member.
    pub id: PeerId,
    /// True where our agent leads the swarm: all members are told. Otherwise the change is for this hub alone.
    pub is_announced: bool,
}

impl Member {
    /// The change that a move to `endpoint` is; the last one before it where the endpoint stays.
    pub(crate) fn change_to(&self, endpoint: &Endpoint, at: Timestamp) -> Option<EndpointChange> {
        if self.endpoint == *endpoint {
            return self.endpoint_change.clone();
        }
        Some(EndpointChange { at, from: self.endpoint.clone() })
    }

    /// Changes the endpoint and records the change.
    pub(crate) fn move_to(&mut self, endpoint: Endpoint, at: Timestamp) {
        self.endpoint_change = self.change_to(&endpoint, at);
        self.endpoint = endpoint;
    }
}

impl Swarm {
    /// Changes a member's endpoint and announces it. For the master.
    pub(crate) fn change_endpoint(&mut self, id: &PeerId, endpoint: Endpoint, now: Timestamp) {
        self.epoch += 1;
        let epoch = Some(self.epoch);
        self.tell_endpoint(id, endpoint, epoch, now);
    }

    /// Changes our own agent's endpoint and announces it.
    fn change_own_endpoint(&mut self, me: &PeerId, endpoint: Endpoint, now: Timestamp) {
        if self.master == *me {
            self.change_endpoint(me, endpoint, now);
        } else {
            // The master counts changes, this one when it hears of it.
            self.tell_endpoint(me, endpoint, None, now);
        }
    }

    fn tell_endpoint(&mut self, id: &PeerId, endpoint: Endpoint, epoch: Option<u64>, now: Timestamp) {
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

    /// A member's new endpoint, on its own word or on the master's.
    pub(crate) fn on_endpoint_changed(
        &mut self,
        said: &Said<'_>,
        content: &SystemContent,
    ) -> Result<Applied, NoAuthority> {
        let id = content.subject().map_or(Ok(said.sender.clone()), PeerId::parse);
        let id = id.map_err(|_| NoAuthority::Field { field: "agent_id" })?;
        if id != *said.sender {
            self.only_master(said, ENDPOINT_CHANGED)?;
        }
        let endpoint = content.endpoint.as_deref().map(Endpoint::parse);
        let Some(Ok(endpoint)) = endpoint else { return Err(NoAuthority::Field { field: "endpoint" }) };
        let is_counted = *said.sender == self.master && content.epoch.is_some();
        let mut step = Applied::Changed;
        if is_counted {
            let Some(counted) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
            step = counted;
        }
        let unchanged = if step == Applied::Behind { Applied::Behind } else { Applied::Nothing };
        let Some(member) = self.members.get_mut(&id).filter(|member| member.endpoint != endpoint) else {
            return Ok(unchanged);
        };
        // Where no count orders the changes, their times do: a replayed one moves no member back.
        let last = member.endpoint_change.as_ref().map_or(member.joined_at, |last| last.at);
        if !is_counted && millis(said.at) <= millis(last.max(member.joined_at)) {
            return Ok(unchanged);
        }
        let told = endpoint.to_string();
        member.move_to(endpoint, said.at);
        if id == *said.sender {
            let told = SystemContent {
                agent_id: Some(id.to_string()),
                endpoint: Some(told),
                ..SystemContent::new(ENDPOINT_CHANGED)
            };
            self.pass_on(said, told);
        }
        Ok(step)
    }
}

impl Swarms {
    /// Sets a member's endpoint on a person's word: for everybody where our agent leads, and for this hub otherwise.
    pub async fn set_endpoint(
        &self,
        swarm: Option<&str>,
        member: &str,
        endpoint: &str,
    ) -> Result<EndpointSet, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        let id = member_of(&swarm, member)?;
        let endpoint = Endpoint::parse(endpoint)?;
        if id == agent {
            let problem = format!(
                "is your own agent; run `switchboard swarm init --agent {agent} --endpoint {endpoint}`"
            );
            return Err(SwarmError::field("member", problem));
        }
        let (subject, now, is_announced) = (id.clone(), self.hub().now(), swarm.master == agent);
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            match swarm.members.get_mut(&subject).filter(|member| member.endpoint != endpoint) {
                Some(_) if is_announced => swarm.change_endpoint(&subject, endpoint, now),
                Some(member) => member.move_to(endpoint, now),
                None => {}
            }
            Ok(())
        })
        .await?;
        self.retry_waiting(&agent, swarm.swarm_id, &id).await?;
        Ok(EndpointSet { id, is_announced })
    }

    /// Has messages that wait for a member tried at its new endpoint.
    pub(crate) async fn retry_waiting(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        member: &PeerId,
    ) -> Result<(), SwarmError> {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return Ok(()) };
        let Some(known) = swarm.members.get(member) else { return Ok(()) };
        self.hub()
            .retry_peer_now(AgentId { name: known.name.clone(), realm: Some(swarm.realm.clone()) })
            .await?;
        Ok(())
    }

    /// Announces our agent's endpoint in each swarm whose roster has another one.
    pub(crate) async fn announce_endpoint(&self, identity: &Identity) -> Result<(), SwarmError> {
        let now = self.hub().now();
        for swarm in self.outdated_entries(identity) {
            let (me, endpoint) = (identity.agent.clone(), identity.endpoint.clone());
            let change = move |swarm: &mut Swarm| {
                swarm.change_own_endpoint(&me, endpoint, now);
                Ok(())
            };
            self.edit(&identity.agent, swarm, change).await?;
        }
        Ok(())
    }

    /// Swarms whose roster has another endpoint for our agent than its own.
    pub(crate) fn outdated_entries(&self, identity: &Identity) -> Vec<Uuid> {
        let book = self.book();
        let differs = |swarm: &&std::sync::Arc<Swarm>| {
            let own = swarm.members.get(&identity.agent);
            swarm.is_active() && own.is_some_and(|own| own.endpoint != identity.endpoint)
        };
        book.swarms_of(&identity.agent).filter(differs).map(|swarm| swarm.swarm_id).collect()
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
