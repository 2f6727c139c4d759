//! Approval of a join request: the master tells the candidate, which then asks again at once.
//!
//! The candidate knows the master's key from its invite and believes no other key. The message changes nothing by itself:
//! the roster comes with the answer to the next join request. Other programs take it as plain news.

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::intake::Read;
use crate::invite::InviteLink;
use crate::ledger::{Identity, Swarm};
use crate::problem::Problem;
use crate::server::{Server, Task};
use crate::signing::Payload;
use crate::swarms::Swarms;
use crate::wire::{MessageType, Queued, SystemContent};

/// The system message that tells a candidate of its approval.
const JOIN_APPROVED: &str = "join_approved";

impl Server {
    /// Takes a message of a swarm that our agent is not in: an approval, or none of ours.
    pub(crate) fn take_approval(&self, identity: &Identity, read: &Read) -> Result<Queued, Problem> {
        if !is_approval(identity, read) {
            return Err(Problem::swarm_not_found());
        }
        self.check_time(read, false)?;
        self.later(Task::Approved { agent: identity.agent.clone(), swarm: read.swarm });
        Ok(Queued { status: "queued".to_owned(), message_id: read.envelope.message_id.clone() })
    }
}

/// True if the master whose invite our agent has asked with says, signed, that it approves.
fn is_approval(identity: &Identity, read: &Read) -> bool {
    let envelope = &read.envelope;
    let link = identity.joining.get(&read.swarm).and_then(|joining| InviteLink::parse(&joining.link).ok());
    let Some(invite) = link.and_then(|link| link.open().ok()).map(|token| token.invite) else { return false };
    let content = serde_json::from_str::<SystemContent>(&envelope.content);
    envelope.kind == MessageType::System
        && envelope.sender.agent_id == invite.master.as_str()
        && envelope.recipient == identity.agent.as_str()
        && content.is_ok_and(|content| content.action == JOIN_APPROVED)
        && invite.master_key.is_some_and(|key| Payload::of(envelope).verify(&key, &envelope.signature))
}

impl Swarms {
    /// Tells a candidate that it was approved. Where that is lost, the candidate asks again by itself.
    pub(crate) async fn say_approved(
        &self,
        agent: &PeerId,
        swarm: &Swarm,
        to: &PeerId,
    ) -> Result<(), SwarmError> {
        self.say_to(agent, swarm, to, approval(swarm, to).to_text()).await
    }

    /// Asks to join again where the master has approved, whenever it would have been asked next.
    pub(crate) async fn ask_approved(&self, agent: &PeerId, swarm: uuid::Uuid) {
        let Ok(identity) = self.identity(Some(agent.as_str())) else { return };
        if let Some(joining) = identity.joining.get(&swarm) {
            self.ask_once_more(&identity, swarm, joining).await;
        }
    }

    /// News for our own agent that its join request was approved.
    pub(crate) async fn notify_approved(&self, agent: &PeerId, swarm: &Swarm) {
        self.notify(agent, swarm, &approval(swarm, agent)).await;
    }
}

fn approval(swarm: &Swarm, to: &PeerId) -> SystemContent {
    SystemContent {
        kind: Some("system".to_owned()),
        swarm_id: Some(swarm.swarm_id.to_string()),
        agent_id: Some(to.to_string()),
        ..SystemContent::new(JOIN_APPROVED)
    }
}
