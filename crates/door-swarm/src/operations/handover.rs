//! Handing the master's role over (§5.6): the member is asked, and leads once the master has told everybody so.
//!
//! The master decides, and nobody else: a question that is not answered, or whose answer gets lost, changes nothing, and
//! the master goes on leading meanwhile. Whoever was asked hears everything that changes in the order in which it
//! changed, and that it leads at the end of it.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::member_of;
use crate::agent_id::PeerId;
use crate::error::{SwarmError, describe};
use crate::ledger::{Handover, Swarm};
use crate::swarms::Swarms;
use crate::wire::SystemContent;

/// How long a member has to answer. A hub that is off at night is back by then.
const ANSWER_WITHIN: SignedDuration = SignedDuration::from_hours(24);

impl Swarms {
    /// Asks a member to lead the swarm, in place of whoever was asked before.
    pub async fn transfer(&self, swarm: Option<&str>, member: &str) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led(swarm)?;
        let id = member_of(&swarm, member)?;
        if id == agent {
            return Err(SwarmError::field("member", "leads the swarm already"));
        }
        let (new, asked_at) = (id.clone(), self.hub().now());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                new_master: Some(new.to_string()),
                epoch: Some(swarm.epoch),
                banned: Some(swarm.banned.keys().map(PeerId::to_string).collect()),
                ..SystemContent::new("master_transfer")
            };
            let asked = Uuid::new_v4();
            swarm.handover = Some(Handover { to: new.clone(), asked, asked_at });
            swarm.announce(asked, Some(new), content.to_text());
            Ok(())
        })
        .await?;
        Ok(id)
    }

    /// Takes the question back whether a member would lead the swarm, where it has not answered; says who was asked.
    pub async fn cancel_transfer(&self, swarm: Option<&str>) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led(swarm)?;
        let realm = swarm.realm.clone();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let asked = swarm.handover.take().map(|handover| handover.to);
            asked.ok_or(SwarmError::NotHandingOver { swarm: realm })
        })
        .await
    }

    /// A member has refused to lead the swarm, or cannot.
    pub(crate) async fn not_transferred(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        asked: &str,
        why: &str,
    ) -> Result<(), SwarmError> {
        let asked = asked.to_owned();
        let refused = self
            .edit(agent, swarm, move |swarm| {
                let is_it = |handover: &mut Handover| handover.asked.to_string() == asked;
                Ok(swarm.handover.take_if(is_it))
            })
            .await?;
        if let Some(handover) = refused {
            self.notify_not_transferred(agent, swarm, &handover.to, why).await;
        }
        Ok(())
    }

    /// A member has answered that it will lead the swarm: from now on it does, and everybody is told. An answer to a
    /// question that no longer stands is none.
    pub(crate) async fn transferred(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        asked: &str,
    ) -> Result<(), SwarmError> {
        let (old, asked) = (agent.clone(), asked.to_owned());
        self.edit(agent, swarm, move |swarm| {
            let is_it = |handover: &mut Handover| handover.asked.to_string() == asked;
            if let Some(handover) = swarm.handover.take_if(is_it) {
                swarm.hand_over(&old, handover.to);
            }
            Ok(())
        })
        .await
    }

    /// Takes questions back that were not answered in time.
    pub(crate) async fn end_unanswered(&self, now: Timestamp) {
        for (agent, swarm) in self.swarms() {
            let asked = swarm.handover.as_ref();
            let Some(asked) = asked.filter(|asked| now.duration_since(asked.asked_at) >= ANSWER_WITHIN)
            else {
                continue;
            };
            let why = "it has not answered within a day";
            let ended = self.not_transferred(&agent, swarm.swarm_id, &asked.asked.to_string(), why).await;
            if let Err(error) = ended {
                tracing::warn!(swarm = %swarm.realm, error = %describe(&error), "a question could not be taken back");
            }
        }
    }

    /// News for our own agent that it goes on leading the swarm.
    async fn notify_not_transferred(&self, agent: &PeerId, swarm: Uuid, to: &PeerId, why: &str) {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return };
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(to.to_string()),
            reason: Some(format!("'{to}' does not lead the swarm: {why}")),
            ..SystemContent::new("transfer_ended")
        };
        self.notify(agent, swarm, &content).await;
    }
}

impl Swarm {
    /// Makes a member the master, and notes that everybody is to be told.
    fn hand_over(&mut self, old: &PeerId, new: PeerId) {
        if self.master != *old || !self.members.contains_key(&new) {
            return;
        }
        self.epoch += 1;
        self.master = new;
        self.invites.clear();
        self.pending.clear();
        let content = self.master_changed(old);
        self.announce(Uuid::new_v4(), None, content.to_text());
    }

    /// The word of whoever led the swarm before that another leads it now.
    pub(crate) fn master_changed(&self, old: &PeerId) -> SystemContent {
        SystemContent {
            swarm_id: Some(self.swarm_id.to_string()),
            old_master: Some(old.to_string()),
            new_master: Some(self.master.to_string()),
            epoch: Some(self.epoch),
            ..SystemContent::new("master_changed")
        }
    }
}
