//! System messages of a swarm: roster changes for the members, and notices for local agents.

use switchboard_core::{Address, AgentId, GroupId, ResolveError};
use switchboard_hub::{HUB_NAME, HubError};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::model::{Announcement, Swarm};
use crate::store;
use crate::swarms::Swarms;
use crate::translate::{OutgoingDraft, scope};
use crate::wire::{MessageType, SystemContent};

impl Swarms {
    /// Submits the pending announcements to the hub, then removes them from the store.
    ///
    /// After a crash between the two steps, an announcement is submitted again under the same id and deduplicated.
    pub(crate) async fn send_announcements(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        let snapshot = self.snapshot();
        let Some(known) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return Ok(()) };
        if known.announcements.is_empty() {
            return Ok(());
        }
        let mut sent = Vec::new();
        for announcement in &known.announcements {
            self.send_announcement(agent, known, announcement).await?;
            sent.push(announcement.id);
        }
        store::edit_swarm(self.hub(), agent, swarm, move |slot| {
            if let Some(swarm) = slot {
                swarm.announcements.retain(|announcement| !sent.contains(&announcement.id));
            }
            Ok(())
        })
        .await?;
        self.refresh().await.map(|_| ())
    }

    async fn send_announcement(
        &self,
        agent: &PeerId,
        swarm: &Swarm,
        announcement: &Announcement,
    ) -> Result<(), SwarmError> {
        let Some(from) = agent.name().map(AgentId::local) else { return Ok(()) };
        let realm = &swarm.realm;
        let to = match &announcement.to {
            None => Address::Group(GroupId::Swarm(realm.clone())),
            Some(id) => match swarm.members.get(id).or_else(|| swarm.former.get(id)) {
                Some(member) => AgentId { name: member.name.clone(), realm: Some(realm.clone()) }.into(),
                None => return Ok(()),
            },
        };
        let outgoing = OutgoingDraft {
            id: self.hub().next_id(),
            wire_id: announcement.id,
            from,
            to,
            kind: MessageType::System,
            text: announcement.content.clone(),
            now: self.hub().now(),
        };
        let Some(draft) = outgoing.into_draft(swarm.swarm_id) else { return Ok(()) };
        match self.hub().submit(draft).await {
            // An unresolved recipient also counts as success: the swarm has no other member, or the directory lost its
            // members in a crash.
            Ok(_)
            | Err(HubError::Unresolved(
                ResolveError::EmptyGroup { .. } | ResolveError::UnknownAgent { .. },
            )) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a system message to one agent of a swarm without storing it as an announcement. If the message is lost,
    /// the recipient repeats its request.
    pub(crate) async fn send_system_message(
        &self,
        agent: &PeerId,
        swarm: &Swarm,
        to: &PeerId,
        content: String,
    ) -> Result<(), SwarmError> {
        self.send_announcement(
            agent,
            swarm,
            &Announcement { id: Uuid::new_v4(), to: Some(to.clone()), content },
        )
        .await
    }

    /// Adds a notice about a swarm to a local agent's mailbox (§5.7).
    ///
    /// A failure is logged; the change that the notice reports still succeeds.
    pub(crate) async fn notify(&self, agent: &PeerId, swarm: &Swarm, content: &SystemContent) {
        let (Some(me), Ok(hub)) = (agent.name(), HUB_NAME.parse::<AgentId>()) else { return };
        let Ok(sender) = PeerId::parse(HUB_NAME) else { return };
        let wire_id = Uuid::new_v4();
        let outgoing = OutgoingDraft {
            id: self.hub().next_id(),
            wire_id,
            from: hub,
            to: AgentId::local(me).into(),
            kind: MessageType::System,
            text: content.to_text(),
            now: self.hub().now(),
        };
        let Some(mut draft) = outgoing.into_draft(swarm.swarm_id) else { return };
        draft.native.scope = scope(swarm.swarm_id, &sender, agent);
        draft.allow_unregistered = true;
        if let Err(error) = self.hub().submit_as_hub(draft).await {
            tracing::warn!(error = %error, "a swarm notice could not be stored");
        }
    }
}
