//! What the swarm itself says: changes of the roster to the members, and news to our own agents.

use switchboard_core::{Address, AgentId, GroupId, ResolveError};
use switchboard_hub::{HUB_NAME, HubError};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::book;
use crate::error::SwarmError;
use crate::ledger::{Announcement, Swarm};
use crate::swarms::Swarms;
use crate::translate::{Written, scope};
use crate::wire::{MessageType, SystemContent};

impl Swarms {
    /// Hands what is still to be said to the hub, and notes that it was. Interrupted in between, it is said again under
    /// the same id, which is saying it once.
    pub(crate) async fn say_announcements(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        let book = self.book();
        let Some(known) = book.swarms.get(&(agent.clone(), swarm)) else { return Ok(()) };
        if known.announcements.is_empty() {
            return Ok(());
        }
        let mut said = Vec::new();
        for announcement in &known.announcements {
            self.say(agent, known, announcement).await?;
            said.push(announcement.id);
        }
        book::edit_swarm(self.hub(), agent, swarm, move |place| {
            if let Some(swarm) = place {
                swarm.announcements.retain(|announcement| !said.contains(&announcement.id));
            }
            Ok(())
        })
        .await?;
        self.refresh().await.map(|_| ())
    }

    async fn say(&self, agent: &PeerId, swarm: &Swarm, said: &Announcement) -> Result<(), SwarmError> {
        let Some(from) = agent.name().map(AgentId::local) else { return Ok(()) };
        let realm = &swarm.realm;
        let to = match &said.to {
            None => Address::Group(GroupId::Swarm(realm.clone())),
            Some(id) => match swarm.members.get(id).or_else(|| swarm.former.get(id)) {
                Some(member) => AgentId { name: member.name.clone(), realm: Some(realm.clone()) }.into(),
                None => return Ok(()),
            },
        };
        let written = Written {
            id: self.hub().next_id(),
            wire_id: said.id,
            from,
            to,
            kind: MessageType::System,
            text: said.content.clone(),
            now: self.hub().now(),
        };
        let Some(draft) = written.into_draft(swarm.swarm_id) else { return Ok(()) };
        match self.hub().submit(draft).await {
            // Or there is nobody to tell, or the directory has forgotten them after a crash.
            Ok(_)
            | Err(HubError::Unresolved(
                ResolveError::EmptyGroup { .. } | ResolveError::UnknownAgent { .. },
            )) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Says something to another agent of a swarm, without a place in the ledger: what is lost is asked for again.
    pub(crate) async fn say_to(
        &self,
        agent: &PeerId,
        swarm: &Swarm,
        to: &PeerId,
        content: String,
    ) -> Result<(), SwarmError> {
        self.say(agent, swarm, &Announcement { id: Uuid::new_v4(), to: Some(to.clone()), content }).await
    }

    /// Puts news of a swarm into the queue of our own agent (§5.7). It never keeps back what it is news of.
    pub(crate) async fn notify(&self, agent: &PeerId, swarm: &Swarm, content: &SystemContent) {
        let (Some(me), Ok(hub)) = (agent.name(), HUB_NAME.parse::<AgentId>()) else { return };
        let Ok(sender) = PeerId::parse(HUB_NAME) else { return };
        let wire_id = Uuid::new_v4();
        let written = Written {
            id: self.hub().next_id(),
            wire_id,
            from: hub,
            to: AgentId::local(me).into(),
            kind: MessageType::System,
            text: content.to_text(),
            now: self.hub().now(),
        };
        let Some(mut draft) = written.into_draft(swarm.swarm_id) else { return };
        draft.native.scope = scope(swarm.swarm_id, &sender, agent);
        draft.allow_unregistered = true;
        if let Err(error) = self.hub().submit_as_hub(draft).await {
            tracing::warn!(error = %error, "news of a swarm could not be noted");
        }
    }
}
