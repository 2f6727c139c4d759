//! Transfer of the master role (§5.6): a member is asked to lead, and the master announces the change.
//!
//! Only the master decides. If a request is not answered or the answer is lost, nothing changes and the master keeps
//! leading. The new master receives all changes in order, and the announcement that it leads comes last.

use jiff::{SignedDuration, Timestamp};
use switchboard_core::error_chain;
use uuid::Uuid;

use super::resolve_member;
use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::model::{Handover, Swarm};
use crate::swarms::Swarms;
use crate::wire::SystemContent;

/// Time within which a member has to answer. A hub that is off at night is online again by then.
const TRANSFER_TIMEOUT: SignedDuration = SignedDuration::from_hours(24);

impl Swarms {
    /// Asks a member to become master. The request replaces an earlier one.
    pub async fn transfer(&self, swarm: Option<&str>, member: &str) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led_swarm(swarm)?;
        let id = resolve_member(&swarm, member)?;
        if id == agent {
            return Err(SwarmError::field("member", "leads the swarm already"));
        }
        let (new, asked_at) = (id.clone(), self.hub().now());
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                new_master: Some(new.to_string()),
                epoch: Some(swarm.epoch),
                banned: Some(swarm.banned.keys().map(PeerId::to_string).collect()),
                ..SystemContent::new("master_transfer")
            };
            let request_id = Uuid::new_v4();
            swarm.handover = Some(Handover { to: new.clone(), asked: request_id, asked_at });
            swarm.announce(request_id, Some(new), content.to_text());
            Ok(())
        })
        .await?;
        Ok(id)
    }

    /// Cancels the open request to become master and returns the member that was asked.
    pub async fn cancel_transfer(&self, swarm: Option<&str>) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led_swarm(swarm)?;
        let realm = swarm.realm.clone();
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            let successor = swarm.handover.take().map(|handover| handover.to);
            successor.ok_or(SwarmError::NoOpenTransfer { swarm: realm })
        })
        .await
    }

    /// Ends a transfer because the member has refused it or is unable to lead.
    pub(crate) async fn end_transfer(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        request_id: &str,
        reason: &str,
    ) -> Result<(), SwarmError> {
        let request_id = request_id.to_owned();
        let refused = self
            .edit_swarm(agent, swarm, move |swarm| {
                let is_it = |handover: &mut Handover| handover.asked.to_string() == request_id;
                Ok(swarm.handover.take_if(is_it))
            })
            .await?;
        if let Some(handover) = refused {
            self.notify_transfer_ended(agent, swarm, &handover.to, reason).await;
        }
        Ok(())
    }

    /// Completes a transfer that the member has accepted.
    ///
    /// The member is master from now on, and the change is announced. An answer to a request that is no longer open is
    /// ignored.
    pub(crate) async fn complete_transfer(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        request_id: &str,
    ) -> Result<(), SwarmError> {
        let (old, request_id) = (agent.clone(), request_id.to_owned());
        self.edit_swarm(agent, swarm, move |swarm| {
            let is_it = |handover: &mut Handover| handover.asked.to_string() == request_id;
            if let Some(handover) = swarm.handover.take_if(is_it) {
                swarm.change_master(&old, handover.to);
            }
            Ok(())
        })
        .await
    }

    /// Ends transfer requests that were not answered in time.
    pub(crate) async fn expire_transfers(&self, now: Timestamp) {
        for (agent, swarm) in self.swarms() {
            let handover = swarm.handover.as_ref();
            let Some(handover) =
                handover.filter(|handover| now.duration_since(handover.asked_at) >= TRANSFER_TIMEOUT)
            else {
                continue;
            };
            let reason = "it has not answered within a day";
            let ended = self.end_transfer(&agent, swarm.swarm_id, &handover.asked.to_string(), reason).await;
            if let Err(error) = ended {
                tracing::warn!(swarm = %swarm.realm, error = %error_chain(&error), "a transfer request could not be cancelled");
            }
        }
    }

    /// Notifies our own agent that it remains master.
    async fn notify_transfer_ended(&self, agent: &PeerId, swarm: Uuid, to: &PeerId, detail: &str) {
        let snapshot = self.snapshot();
        let Some(swarm) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return };
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(to.to_string()),
            reason: Some(format!("'{to}' did not become master: {detail}")),
            ..SystemContent::new("transfer_ended")
        };
        self.notify(agent, swarm, &content).await;
    }
}

impl Swarm {
    /// Makes a member the master and announces the change.
    fn change_master(&mut self, old: &PeerId, new: PeerId) {
        if self.master != *old || !self.members.contains_key(&new) {
            return;
        }
        self.epoch += 1;
        self.master = new;
        self.invites.clear();
        self.pending.clear();
        let content = self.master_changed_content(old);
        self.announce(Uuid::new_v4(), None, content.to_text());
    }

    /// Builds the old master's announcement that another member is master now.
    pub(crate) fn master_changed_content(&self, old: &PeerId) -> SystemContent {
        SystemContent {
            swarm_id: Some(self.swarm_id.to_string()),
            old_master: Some(old.to_string()),
            new_master: Some(self.master.to_string()),
            epoch: Some(self.epoch),
            ..SystemContent::new("master_changed")
        }
    }
}
