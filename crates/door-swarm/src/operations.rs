//! Operations of an agent's owner on the agent's swarms (§5), each with its announcements.

mod agents;
mod handover;
mod invites;
mod keys;
mod state_transfer;

use std::sync::Arc;

use switchboard_core::{Name, suggest_similar};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::model::{Member, MembershipStatus, Swarm};
use crate::state::SwarmSettings;
use crate::swarms::Swarms;
use crate::timestamp;
use crate::wire::SystemContent;

pub use self::invites::{CreatedInvite, INVITE_LIFETIME};
pub use self::keys::RotationSummary;
pub use self::state_transfer::{ImportMode, ImportSummary, KeyConflict};

/// Maximum length of a reason that is sent to other members, in characters.
const MAX_REASON: usize = 1000;

impl Swarms {
    /// Creates a swarm that the agent leads.
    pub async fn create(
        &self,
        agent: Option<&str>,
        name: &str,
        realm: Option<&Name>,
        settings: SwarmSettings,
    ) -> Result<Swarm, SwarmError> {
        let identity = self.identity(agent)?;
        check_name(name)?;
        let (now, id) = (self.hub().now(), Uuid::new_v4());
        let realm = self.choose_realm(&identity.agent, id, realm, name).await?;
        let own = identity.name().ok_or_else(|| SwarmError::field("agent", "is not a valid name here"))?;
        let member = Member {
            name: own,
            endpoint: identity.endpoint.clone(),
            public_key: identity.public_key.clone(),
            joined_at: now,
            signs_envelopes: true,
            confirmed_at: None,
            offered_key: None,
            provisional: false,
            proved_by_message: false,
            signed_at: None,
            endpoint_change: None,
            replaced_keys: Vec::new(),
        };
        let swarm = Swarm {
            epoch: 1,
            members: [(identity.agent.clone(), member)].into(),
            settings,
            ..Swarm::empty(id, realm, name.to_owned(), identity.agent.clone(), now)
        };
        self.insert_swarm(&identity.agent, swarm).await
    }

    /// Leaves a swarm and announces the departure.
    pub async fn leave(&self, swarm: Option<&str>) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_active_swarm(swarm)?;
        if swarm.master == agent {
            return Err(SwarmError::MasterCannotLeave { swarm: swarm.realm.clone() });
        }
        let me = agent.clone();
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            // `joined_at` identifies the membership that ends, in case the agent rejoins before every member has
            // received this message. Only a master with epochs gives all members the same time.
            let since = swarm.members.get(&me).filter(|_| swarm.epoch > 0).map(|member| member.joined_at);
            let content = SystemContent {
                agent_id: Some(me.to_string()),
                swarm_id: Some(swarm.swarm_id.to_string()),
                joined_at: since.map(timestamp::render),
                ..SystemContent::new("member_left")
            };
            swarm.announce(Uuid::new_v4(), None, content.to_text());
            swarm.status = MembershipStatus::Left;
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }

    /// Kicks a member, which stays banned until it is invited again.
    pub async fn kick(
        &self,
        swarm: Option<&str>,
        member: &str,
        reason: Option<&str>,
    ) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led_swarm(swarm)?;
        check_reason(reason)?;
        let id = resolve_member(&swarm, member)?;
        if id == agent {
            return Err(SwarmError::MasterCannotLeave { swarm: swarm.realm.clone() });
        }
        let (gone, detail, now) = (id.clone(), reason.map(str::to_owned), self.hub().now());
        let by = agent.clone();
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            swarm.kick(&gone, detail.as_deref(), &by, now);
            Ok(())
        })
        .await?;
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            initiated_by: Some(agent.to_string()),
            reason: reason.map(str::to_owned),
            ..SystemContent::new("member_kicked")
        };
        self.notify(&agent, &swarm, &content).await;
        Ok(id)
    }

    /// Dissolves a swarm for all members.
    pub async fn dissolve(&self, swarm: Option<&str>, reason: Option<&str>) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_led_swarm(swarm)?;
        check_reason(reason)?;
        let reason = reason.unwrap_or("master_left").to_owned();
        self.edit_swarm(&agent, swarm.swarm_id, move |swarm| {
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                reason: Some(reason),
                epoch: Some(swarm.epoch + 1),
                ..SystemContent::new("swarm_dissolved")
            };
            swarm.announce(Uuid::new_v4(), None, content.to_text());
            swarm.epoch += 1;
            swarm.handover = None;
            swarm.status = MembershipStatus::Dissolved;
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }

    /// Notifies our own agent that a member has joined.
    pub(crate) async fn notify_joined(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let snapshot = self.snapshot();
        let Some(swarm) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return };
        let contested = swarm.contested_keys().into_iter().find(|contest| contest.members.contains(&id));
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            reason: contested.map(|contest| format!("{}; {}", contest.message(), contest.hint(agent))),
            ..SystemContent::new("member_joined")
        };
        self.notify(agent, swarm, &content).await;
    }

    /// Notifies our own agent that a provisional member was displaced by the agent that proved the key.
    pub(crate) async fn notify_displaced(&self, agent: &PeerId, swarm: Uuid, id: &PeerId, by: &PeerId) {
        let reason = format!("'{by}' has proved that it has the key which '{id}' named");
        self.notify_change(agent, swarm, id, "member_left", reason).await;
    }

    /// Notifies our own agent that a member has a new endpoint.
    pub(crate) async fn notify_moved(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let reason =
            "the member requested it, signed with its key; `switchboard swarm members` shows it".to_owned();
        self.notify_change(agent, swarm, id, "endpoint_changed", reason).await;
    }

    async fn notify_change(&self, agent: &PeerId, swarm: Uuid, id: &PeerId, action: &str, reason: String) {
        let snapshot = self.snapshot();
        let Some(swarm) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return };
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            reason: Some(reason),
            ..SystemContent::new(action)
        };
        self.notify(agent, swarm, &content).await;
    }

    /// Notifies our own agent that a candidate waits for approval.
    pub(crate) async fn notify_join_requested(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let snapshot = self.snapshot();
        let Some(swarm) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return };
        let realm = &swarm.realm;
        let is_signed = swarm.pending.get(id).is_some_and(|waiting| waiting.signed_at.is_some());
        let proof = if is_signed { "" } else { ", its key is not proven" };
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            reason: Some(format!(
                "it waits for approval{proof}: `switchboard swarm approve {id} --swarm {realm}`, or deny"
            )),
            ..SystemContent::new("join_requested")
        };
        self.notify(agent, swarm, &content).await;
    }

    /// Requests the full roster from the master.
    pub async fn sync(&self, swarm: Option<&str>) -> Result<(), SwarmError> {
        let (agent, swarm) = self.find_active_swarm(swarm)?;
        self.request_roster(&agent, &swarm).await
    }

    /// Finds a swarm that our agent leads.
    fn find_led_swarm(&self, named: Option<&str>) -> Result<(PeerId, Arc<Swarm>), SwarmError> {
        let (agent, swarm) = self.find_active_swarm(named)?;
        if swarm.master == agent { Ok((agent, swarm)) } else { Err(not_master(&swarm)) }
    }

    pub(crate) async fn request_roster(&self, agent: &PeerId, swarm: &Swarm) -> Result<(), SwarmError> {
        if swarm.master == *agent {
            return Ok(());
        }
        let content = SystemContent { epoch: Some(swarm.epoch), ..SystemContent::new("roster_request") };
        self.send_system_message(agent, swarm, &swarm.master, content.to_text()).await
    }
}

fn not_master(swarm: &Swarm) -> SwarmError {
    SwarmError::NotMaster { swarm: swarm.realm.clone(), master: swarm.master.clone() }
}

/// Resolves a member by id, local name or address.
pub(crate) fn resolve_member(swarm: &Swarm, named: &str) -> Result<PeerId, SwarmError> {
    let bare = named.split_once('@').filter(|(_, realm)| swarm.realm.as_str().eq_ignore_ascii_case(realm));
    let bare = bare.map_or(named, |(name, _)| name);
    let by_id = PeerId::parse(bare).ok().filter(|id| swarm.members.contains_key(id));
    let member_by_name =
        || Name::parse(bare).ok().and_then(|name| swarm.member_by_name(&name).map(|(id, _)| id.clone()));
    by_id.or_else(member_by_name).ok_or_else(|| SwarmError::NotAMember {
        swarm: swarm.realm.clone(),
        agent: named.to_owned(),
        near: suggest_similar(bare, swarm.members.keys().map(PeerId::as_str)),
    })
}

fn check_name(name: &str) -> Result<(), SwarmError> {
    if !(1..=256).contains(&name.chars().count())
        || name.chars().any(char::is_control)
        || name.trim().is_empty()
    {
        return Err(SwarmError::field(
            "name",
            "must have 1 to 256 characters, none of them a control character",
        ));
    }
    Ok(())
}

fn check_reason(reason: Option<&str>) -> Result<(), SwarmError> {
    if reason.is_some_and(|reason| reason.chars().count() > MAX_REASON) {
        return Err(SwarmError::field("reason", format!("must have at most {MAX_REASON} characters")));
    }
    Ok(())
}
