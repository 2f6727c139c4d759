//! What the owner of an agent does with its swarms (§5), each with what others are told of it.

mod files;
mod keys;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Name, nearest};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::book;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::invite::{Invite, InviteLink, Token};
use crate::keys::SecretKey;
use crate::ledger::{Identity, Member, Standing, Swarm};
use crate::stamp;
use crate::state::SwarmSettings;
use crate::swarms::{KEY_FILE, STATE_FILE, Swarms, blocking, check_home, open_home};
use crate::wire::SystemContent;

pub use self::files::Merge;

/// How long an invite is good for unless something else is said.
pub const INVITE_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// Longest reason that is passed on.
const REASON: usize = 1000;

/// An invite that was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// What it is listed under.
    pub digest: String,
    /// The link to give away.
    pub link: InviteLink,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
}

impl Swarms {
    /// Makes an agent of this hub one that takes part in swarms: a key, a folder, a mailbox.
    ///
    /// The first one has its files in the home folder itself, as the protocol says; further ones in folders of their own.
    pub async fn init(&self, agent: &str, endpoint: &str) -> Result<Identity, SwarmError> {
        let (agent, endpoint) = (PeerId::parse_new(agent)?, Endpoint::parse(endpoint)?);
        let book = self.book();
        if let Some(known) = book.identities.get(&agent) {
            let endpoint = known.endpoint.to_string();
            return Err(SwarmError::IdentityExists { agent, endpoint });
        }
        if book.identities.values().any(|known| known.agent.clashes_with(&agent)) {
            return Err(SwarmError::field(
                "agent",
                format!("'{agent}' clashes with another agent's id here"),
            ));
        }
        if let Some(other) = book.identities.values().find(|known| known.endpoint == endpoint) {
            let problem = format!("{endpoint} is that of '{}'; give each agent its own path", other.agent);
            return Err(SwarmError::field("endpoint", problem));
        }
        let (root, name) = (self.config().home.clone(), agent.to_string());
        let (home, key) = blocking(move || {
            let folder = open_home(&root)?;
            check_home(&folder)?;
            // A key without a state is of a program that keeps its state elsewhere, or of another workspace.
            let state = folder.read(STATE_FILE, 64 << 20)?.map(|found| found.bytes);
            let owner = state.as_deref().and_then(state_owner);
            let is_free = folder.stat(KEY_FILE)?.is_none() && owner.is_none();
            let folder = if is_free || owner.as_deref() == Some(&name) {
                folder
            } else {
                folder.make_subdir(&name)?
            };
            let key = if let Some(key) = SecretKey::read(&folder, KEY_FILE)? {
                key
            } else {
                let key = SecretKey::generate()?;
                key.write_new(&folder, KEY_FILE)?;
                // Whoever was first has the key that counts.
                SecretKey::read(&folder, KEY_FILE)?.unwrap_or(key)
            };
            Ok((folder.path().to_owned(), key))
        })
        .await?;
        let identity = Identity {
            agent: agent.clone(),
            endpoint,
            home,
            public_key: key.public(),
            created_at: self.hub().now(),
            muted_swarms: <_>::default(),
            muted_agents: <_>::default(),
            known_keys: <_>::default(),
            joining: <_>::default(),
        };
        let new = identity.clone();
        book::edit_identity(self.hub(), &agent, move |place| {
            if let Some(known) = place.as_ref() {
                let (agent, endpoint) = (known.agent.clone(), known.endpoint.to_string());
                return Err(SwarmError::IdentityExists { agent, endpoint });
            }
            *place = Some(new);
            Ok(())
        })
        .await?;
        self.register(&agent).await?;
        self.refresh().await?;
        self.take_over_state(&agent).await?;
        self.write_state(&agent).await?;
        Ok(identity)
    }

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
            banned: <_>::default(),
            pending: <_>::default(),
            announcements: Vec::new(),
            invites_since: now,
        };
        self.insert(&identity.agent, swarm).await
    }

    /// Makes an invite. Without an end it is only good where that was asked for.
    pub async fn invite(
        &self,
        swarm: Option<&str>,
        lifetime: Option<SignedDuration>,
        max_uses: Option<u32>,
    ) -> Result<Made, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        let is_master = swarm.master == agent;
        if !is_master && !swarm.settings.allow_member_invite {
            return Err(not_master(&swarm));
        }
        if max_uses == Some(0) {
            return Err(SwarmError::field("max_uses", "must be 1 or more"));
        }
        let now = self.hub().now();
        let ends_at = match lifetime {
            Some(lifetime) => Some(
                now.checked_add(lifetime).map_err(|_| SwarmError::field("expires", "is too far ahead"))?,
            ),
            None => None,
        };
        let (book, master) = (self.book(), swarm.members.get(&swarm.master));
        let (Some(key), Some(master)) = (book.keys.get(&agent), master) else {
            return Err(SwarmError::NoIdentity { agent: Some(agent.to_string()) });
        };
        let invite = Invite {
            swarm_id: swarm.swarm_id,
            master: swarm.master.clone(),
            endpoint: master.endpoint.clone(),
            iat: now.as_second(),
            // Written so that every reader of times in use takes it.
            expires_at: ends_at.map(|end| stamp::render(end).replace('Z', "+00:00")),
            exp: None,
            max_uses,
            master_key: Some(master.public_key.clone()),
            issuer: (!is_master).then(|| agent.clone()),
        };
        let token = invite.sign(key);
        let digest = Token::read(&token)?.digest();
        let (known, issuer) = (digest.clone(), agent.clone());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            swarm.remember_invite(known, issuer, now, ends_at, max_uses, now).map_err(|_| {
                SwarmError::field("invites", "are too many; revoke some, or wait until they end")
            })
        })
        .await?;
        Ok(Made { digest, link: invite.link(token), ends_at })
    }

    /// Takes an invite back; the beginning of its digest is enough.
    pub async fn revoke(&self, swarm: Option<&str>, digest: &str) -> Result<String, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        let found: Vec<&String> = swarm.invites.keys().filter(|known| known.starts_with(digest)).collect();
        let [found] = found.as_slice() else {
            return Err(SwarmError::UnknownInvite { swarm: swarm.realm.clone(), digest: digest.to_owned() });
        };
        let (found, known) = ((*found).clone(), (*found).clone());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            if let Some(invite) = swarm.invites.get_mut(&known) {
                invite.revoked = true;
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Leaves a swarm and tells everybody in it.
    pub async fn leave(&self, swarm: Option<&str>) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        if swarm.master == agent {
            return Err(SwarmError::MasterStays { swarm: swarm.realm.clone() });
        }
        let me = agent.clone();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let content = SystemContent {
                agent_id: Some(me.to_string()),
                swarm_id: Some(swarm.swarm_id.to_string()),
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
        let (agent, swarm) = self.find_active(swarm)?;
        if swarm.master != agent {
            return Err(not_master(&swarm));
        }
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

    /// Asks a member to lead the swarm. It does once it has answered; the others are told then.
    pub async fn transfer(&self, swarm: Option<&str>, member: &str) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        if swarm.master != agent {
            return Err(not_master(&swarm));
        }
        let id = member_of(&swarm, member)?;
        if id == agent {
            return Err(SwarmError::field("member", "leads the swarm already"));
        }
        let new = id.clone();
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                new_master: Some(new.to_string()),
                epoch: Some(swarm.epoch + 1),
                banned: Some(swarm.banned.keys().map(PeerId::to_string).collect()),
                ..SystemContent::new("master_transfer")
            };
            swarm.announce(Uuid::new_v4(), Some(new), content.to_text());
            Ok(())
        })
        .await?;
        Ok(id)
    }

    /// A member has answered that it leads the swarm now: everybody is told. Said twice, it is said once.
    pub(crate) async fn transferred(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        new: &PeerId,
    ) -> Result<(), SwarmError> {
        let (old, new) = (agent.clone(), new.clone());
        self.edit(agent, swarm, move |swarm| {
            if swarm.master != old || !swarm.members.contains_key(&new) {
                return Ok(());
            }
            swarm.epoch += 1;
            swarm.master = new.clone();
            swarm.invites.clear();
            swarm.pending.clear();
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                old_master: Some(old.to_string()),
                new_master: Some(new.to_string()),
                epoch: Some(swarm.epoch),
                ..SystemContent::new("master_changed")
            };
            swarm.announce(Uuid::new_v4(), None, content.to_text());
            Ok(())
        })
        .await
    }

    /// Ends a swarm for everybody.
    pub async fn dissolve(&self, swarm: Option<&str>, reason: Option<&str>) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        if swarm.master != agent {
            return Err(not_master(&swarm));
        }
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
            swarm.standing = Standing::Dissolved;
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }

    /// Lets somebody in who waits for it, or turns them away.
    pub async fn decide(
        &self,
        swarm: Option<&str>,
        candidate: &str,
        approve: bool,
    ) -> Result<PeerId, SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        if swarm.master != agent {
            return Err(not_master(&swarm));
        }
        let not_pending =
            || SwarmError::NotPending { swarm: swarm.realm.clone(), agent: candidate.to_owned() };
        let id = swarm
            .pending
            .iter()
            .find(|(id, waiting)| id.as_str() == candidate && !waiting.denied)
            .map(|(id, _)| id.clone())
            .ok_or_else(not_pending)?;
        let (new, now) = (id.clone(), self.hub().now());
        self.edit(&agent, swarm.swarm_id, move |swarm| {
            let Some(waiting) = swarm.pending.get_mut(&new) else { return Ok(()) };
            if approve {
                let (endpoint, key) = (waiting.endpoint.clone(), waiting.public_key.clone());
                swarm.take_in(&new, endpoint, key, now);
            } else {
                waiting.denied = true;
            }
            Ok(())
        })
        .await?;
        if approve {
            self.notify_joined(&agent, swarm.swarm_id, &id).await;
        }
        Ok(id)
    }

    /// News for our own agent that somebody has joined.
    pub(crate) async fn notify_joined(&self, agent: &PeerId, swarm: Uuid, id: &PeerId) {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return };
        let content = SystemContent {
            swarm_id: Some(swarm.swarm_id.to_string()),
            agent_id: Some(id.to_string()),
            ..SystemContent::new("member_joined")
        };
        self.notify(agent, swarm, &content).await;
    }

    /// Drops the messages of an agent from now on, or no longer.
    pub async fn mute_agent(
        &self,
        agent: Option<&str>,
        other: &str,
        mute: bool,
    ) -> Result<PeerId, SwarmError> {
        let (identity, other) = (self.identity(agent)?, PeerId::parse(other)?);
        let id = other.clone();
        self.edit_identity(&identity.agent, move |identity| {
            let _ = if mute { identity.muted_agents.insert(id) } else { identity.muted_agents.remove(&id) };
            Ok(())
        })
        .await?;
        let book = self.book();
        for swarm in book.swarms_of(&identity.agent).filter(|swarm| swarm.members.contains_key(&other)) {
            let action = if mute { "member_muted" } else { "member_unmuted" };
            let content = SystemContent {
                swarm_id: Some(swarm.swarm_id.to_string()),
                agent_id: Some(other.to_string()),
                initiated_by: Some(identity.agent.to_string()),
                ..SystemContent::new(action)
            };
            self.notify(&identity.agent, swarm, &content).await;
        }
        Ok(other)
    }

    /// Drops the messages of a whole swarm from now on, or no longer.
    pub async fn mute_swarm(&self, swarm: Option<&str>, mute: bool) -> Result<Name, SwarmError> {
        let (agent, swarm) = self.find(swarm)?;
        let id = swarm.swarm_id;
        self.edit_identity(&agent, move |identity| {
            let _ = if mute { identity.muted_swarms.insert(id) } else { identity.muted_swarms.remove(&id) };
            Ok(())
        })
        .await?;
        Ok(swarm.realm.clone())
    }

    /// Asks the master for the whole roster.
    pub async fn sync(&self, swarm: Option<&str>) -> Result<(), SwarmError> {
        let (agent, swarm) = self.find_active(swarm)?;
        self.ask_for_roster(&agent, &swarm).await
    }

    pub(crate) async fn ask_for_roster(&self, agent: &PeerId, swarm: &Swarm) -> Result<(), SwarmError> {
        if swarm.master == *agent {
            return Ok(());
        }
        let content = SystemContent { epoch: Some(swarm.epoch), ..SystemContent::new("roster_request") };
        self.say_to(agent, swarm, &swarm.master, content.to_text()).await
    }
}

/// Whose state a file is, as far as that can be read.
fn state_owner(bytes: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    Some(value.get("agent_id")?.as_str()?.to_owned())
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
