//! Approval of a join request: the master notifies the candidate, which then retries at once.
//!
//! The candidate knows the master's key from the invite and trusts no other key. The approval itself changes nothing:
//! the candidate receives the roster with the answer to its next join request. Other programs treat the approval as an
//! unknown notice.

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::intake::ParsedMessage;
use crate::invite::InviteLink;
use crate::model::{Identity, Swarm};
use crate::refusal::Refusal;
use crate::server::{Server, Task};
use crate::signing::Payload;
use crate::swarms::Swarms;
use crate::wire::{MessageType, Queued, SystemContent};

/// Action of the system message that notifies a candidate of its approval.
const JOIN_APPROVED: &str = "join_approved";

impl Server {
    /// Accepts an approval of our agent's pending join request.
    ///
    /// Our agent is not in the swarm yet, so any other message of that swarm is refused.
    pub(crate) fn accept_approval(
        &self,
        identity: &Identity,
        read: &ParsedMessage,
    ) -> Result<Queued, Refusal> {
        if !is_approval(identity, read) {
            return Err(Refusal::swarm_not_found());
        }
        self.check_time(read, false)?;
        self.defer(Task::Approved { agent: identity.agent.clone(), swarm: read.swarm });
        Ok(Queued { status: "queued".to_owned(), message_id: read.envelope.message_id.clone() })
    }
}

/// Returns true if the message is an approval signed by the master that our agent's invite names.
fn is_approval(identity: &Identity, read: &ParsedMessage) -> bool {
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
    /// Notifies a candidate of its approval. If the message is lost, the candidate still retries on its own schedule.
    pub(crate) async fn send_approval(
        &self,
        agent: &PeerId,
        swarm: &Swarm,
        to: &PeerId,
    ) -> Result<(), SwarmError> {
        self.send_system_message(agent, swarm, to, approval(swarm, to).to_text()).await
    }

    /// Retries an approved join request at once instead of at its scheduled time.
    pub(crate) async fn retry_approved_join(&self, agent: &PeerId, swarm: uuid::Uuid) {
        let Ok(identity) = self.identity(Some(agent.as_str())) else { return };
        if let Some(joining) = identity.joining.get(&swarm) {
            self.retry_join(&identity, swarm, joining).await;
        }
    }

    /// Notifies our own agent that its join request was approved.
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
