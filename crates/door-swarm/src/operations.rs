//! What the owner of an agent does with its swarms (§5), each with what others are told of it.

mod agents;
mod files;
mod handover;
mod invites;
mod keys;

use std::sync::Arc;

use switchboard_core::{Name, nearest};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::ledger::{Member, Standing, Swarm};
use crate::stamp;
use crate::state::SwarmSettings;
use crate::swarms::Swarms;
use crate::wire::SystemContent;

pub use self::files::{Imported, KeptKey, Merge};
pub use self::invites::{INVITE_LIFETIME, Made};
pub use self::keys::Rotated;

/// Longest reason that is passed on.
const REASON: usize = 1000;

impl Swarms {
    /// Makes a swarm that the agent leads.
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
        let realm = self.free_realm(&identity.agent, id, realm, name).await?;
        let own = identity.name().ok_or_else(|| SwarmError::field("agent", "is no name here"))?;
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
            swarm_id: id,
            realm,
            name: name.to_owned(),
            master: identity.agent.clone(),
            epoch: 1,
            members: [(identity.agent.clone(), member)].into(),
            joined_at: now,
            settings,
            standing: Standing::Active,
            former: <_>::default(),
            invites: <_>::default(),
            announced: <_>::default(),
            banned: <_>::default(),
            pending: <_>::default(),
            announcements: Vec::new(),
            rotations: Vec::new(),
            handover: None,
            invites_since: now,
            orders: <_>::default(),
            left_out: <_>::default(),
        };
        self.insert(&identity.agent, swarm).await
    }

    /// Leaves a swarm and tells everybody in it.
    pub async fn leave(&self, swarm: Option<&str>) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        if swarm.master == agent {
            return Err(SwarmError::MasterStays { swarm: swarm.realm.clone() });
        }
        let me = agent.clone();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            // Since when it was a member says which time it leaves, should it come back before everybody has heard. Only a
            // master that counts tells everybody the same.
            let since = swarm.members.get(&me).filter(|_| swarm.epoch > 0).map(|member| member.joined_at);
            let content = SystemContent {
                agent_id: Some(me.to_string()),
                swarm_id: Some(swarm.swarm_id.to_string()),
                joined_at: since.map(stamp::render),
                ..SystemContent::new("member_left")
            };
            swarm.announce(Uuid::new_v4(), None, content.to_text());
            swarm.standing = Standing::Left;
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }

    /// Removes a member, for good until it is invited again.
    pub async fn kick(
        &self,
        swarm: Option<&str>,
        member: &str,
        reason: Option<&str>,
    ) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_led(swarm)?;
        check_reason(reason)?;
        let id = member_of(&swarm, member)?;
        if id == agent {
            return Err(SwarmError::MasterStays { swarm: swarm.realm.clone() });
        }
        let (gone, why, now) = (id.clone(), reason.map(str::to_owned), self.hub().now());
        let by = agent.clone();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            swarm.kick(&gone, why.as_deref(), &by, now);
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

    /// Ends a swarm for everybody.
    pub async fn dissolve(&self, swarm: Option<&str>, reason: Option<&str>) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_led(swarm)?;
        check_reason(reason)?;
        let reason = reason.unwrap_or("master_left").to_owned();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                reason: Some(reason),
                epoch: Some(swarm.epoch + 1),
                ..SystemContent::new("swarm_dissolved")
            };
            swarm.announce(Uuid::new_v4(), None, content.to_text());
            swarm.epoch += 1;
            swarm.handover = None;
            swarm.standing = Standing::Dissolved;
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }

    /// News for our own agent that somebody has joined.
    pub(crate) async fn notify_joined(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return };
        let contested = swarm.contests().into_iter().find(|contest| contest.members.contains(&id));
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            reason: contested.map(|contest| format!("{}; {}", contest.message(), contest.hint(agent))),
            ..SystemContent::new("member_joined")
        };
        self.notify(agent, swarm, &content).await;
    }

    /// News for our own agent that a provisional member gave way to the agent that proved its key.
    pub(crate) async fn notify_displaced(&self, agent: &PeerId, swarm: Uuid, id: &PeerId, by: &PeerId) {
        let reason = format!("'{by}' has proved that it has the key which '{id}' named");
        self.notify_change(agent, swarm, id, "member_left", reason).await;
    }

    /// News for our own agent that a member has another endpoint.
    pub(crate) async fn notify_moved(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let reason =
            "it has asked so, signed with its key; `switchboard swarm members` shows both".to_owned();
        self.notify_change(agent, swarm, id, "endpoint_changed", reason).await;
    }

    async fn notify_change(&self, agent: &PeerId, swarm: Uuid, id: &PeerId, action: &str, reason: String) {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return };
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            reason: Some(reason),
            ..SystemContent::new(action)
        };
        self.notify(agent, swarm, &content).await;
    }

    /// News for our own agent that somebody waits for approval.
    pub(crate) async fn notify_asked(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return };
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

    /// Asks the master for the whole roster.
    pub async fn sync(&self, swarm: Option<&str>) -> Result<(), SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        self.ask_for_roster(&agent, &swarm).await
    }

    /// The swarm that is meant, where it is ours to lead.
    fn find_led(&self, named: Option<&str>) -> Result<(PeerId, Arc<Swarm>), SwarmError> {
        let (agent, swarm) = self.find_active(named)?;
        if swarm.master == agent { Ok((agent, swarm)) } else { Err(not_master(&swarm)) }
    }

    pub(crate) async fn ask_for_roster(&self, agent: &PeerId, swarm: &Swarm) -> Result<(), SwarmError> {
        if swarm.master == *agent {
            return Ok(());
        }
        let content = SystemContent { epoch: Some(swarm.epoch), ..SystemContent::new("roster_request") };
        self.say_to(agent, swarm, &swarm.master, content.to_text()).await
    }
}

fn not_master(swarm: &Swarm) -> SwarmError {
    SwarmError::NotMaster { swarm: swarm.realm.clone(), master: swarm.master.clone() }
}

/// The member that is meant by its id, or by what it is called here.
pub(crate) fn member_of(swarm: &Swarm, named: &str) -> Result<PeerId, SwarmError> {
    let bare = named.split_once('@').filter(|(_, realm)| swarm.realm.as_str().eq_ignore_ascii_case(realm));
    let bare = bare.map_or(named, |(name, _)| name);
    let by_id = PeerId::parse(bare).ok().filter(|id| swarm.members.contains_key(id));
    let by_name = || Name::parse(bare).ok().and_then(|name| swarm.by_name(&name).map(|(id, _)| id.clone()));
    by_id.or_else(by_name).ok_or_else(|| SwarmError::NotAMember {
        swarm: swarm.realm.clone(),
        agent: named.to_owned(),
        near: nearest(bare, swarm.members.keys().map(PeerId::as_str)),
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
    if reason.is_some_and(|reason| reason.chars().count() > REASON) {
        return Err(SwarmError::field("reason", format!("must have at most {REASON} characters")));
    }
    Ok(())
}
