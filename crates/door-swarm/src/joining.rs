//! Joining a swarm: what our side of it asks and believes (§5.3).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use switchboard_core::{Name, label_inline, quote_inline};
use switchboard_https::{Limits, Response, Url};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::invite::{InviteLink, Token};
use crate::ledger::{Identity, Joining, Standing, Swarm};
use crate::members::{Told, sift};
use crate::roster::{ROSTER_BYTES, read_member};
use crate::signing::{ENVELOPE_SIGNATURE, Payload, sign_envelope};
use crate::stamp;
use crate::state::MOST_MEMBERS;
use crate::swarms::Swarms;
use crate::wire::{ErrorBody, JoinAccepted, JoinRequest, JoinSender, MessageType, PROTOCOL_VERSION};

/// What became of a request to join.
#[derive(Debug, Clone)]
pub enum JoinOutcome {
    /// Our agent is a member.
    Joined(Box<Swarm>),
    /// The master has to approve; it is asked again from time to time while `serve` runs.
    Pending {
        /// The swarm.
        swarm_id: Uuid,
    },
}

impl Swarms {
    /// Joins the swarm of an invite.
    pub async fn join(
        &self,
        agent: Option<&str>,
        link: &InviteLink,
        realm: Option<&Name>,
    ) -> Result<JoinOutcome, SwarmError> {
        let identity = self.identity(agent)?;
        let token = link.open()?;
        token.invite.check_time(self.hub().now())?;
        if let Some(known) = self.book().swarms.get(&(identity.agent.clone(), link.swarm_id))
            && known.is_active()
        {
            return Err(SwarmError::AlreadyMember { swarm: known.realm.clone() });
        }
        // Found out before anybody is asked.
        self.free_realm(&identity.agent, link.swarm_id, realm, "swarm").await?;
        let answer = self.ask_to_join(&identity, link, &token).await?;
        if answer.status == StatusCode::ACCEPTED {
            self.note_joining(&identity.agent, link, realm.cloned()).await?;
            return Ok(JoinOutcome::Pending { swarm_id: link.swarm_id });
        }
        let accepted = read_accepted(&token.invite.endpoint, &answer)?;
        let swarm = self.believe(&identity, &token, accepted, realm).await?;
        let swarm = self.insert(&identity.agent, swarm).await?;
        self.forget_joining(&identity.agent, link.swarm_id).await?;
        Ok(JoinOutcome::Joined(Box::new(swarm)))
    }

    async fn ask_to_join(
        &self,
        identity: &Identity,
        link: &InviteLink,
        token: &Token,
    ) -> Result<Response, SwarmError> {
        let invite = &token.invite;
        let key = self.key(&identity.agent).await?;
        let (message_id, timestamp) = (Uuid::new_v4().to_string(), stamp::render(self.hub().now()));
        let (swarm_id, master) = (link.swarm_id.to_string(), invite.master.to_string());
        let known = self.book().swarms.get(&(identity.agent.clone(), link.swarm_id)).cloned();
        let has_left = known.is_some_and(|known| known.standing == Standing::Left);
        let proof = Payload {
            message_id: &message_id,
            timestamp: &timestamp,
            swarm_id: &swarm_id,
            recipient: &master,
            kind: MessageType::System,
            content: &link.token,
        };
        let request = JoinRequest {
            kind: "system".to_owned(),
            action: "join_request".to_owned(),
            invite_token: link.token.clone(),
            sender: JoinSender {
                agent_id: identity.agent.to_string(),
                endpoint: identity.endpoint.to_string(),
                public_key: identity.public_key.to_wire(),
            },
            protocol_version: Some(PROTOCOL_VERSION.to_owned()),
            signature: Some(proof.sign(&key)),
            message_id: Some(message_id.clone()),
            timestamp: Some(timestamp.clone()),
            rejoin: has_left.then_some(true),
            metadata: None,
        };
        // A struct of texts can always be written.
        let mut request = serde_json::to_value(&request).unwrap_or_default();
        // The protocol's signature leaves the endpoint open.
        if let Some(signature) = sign_envelope(&key, &request) {
            request["metadata"] = json!({ ENVELOPE_SIGNATURE: signature });
        }
        let body = Bytes::from(request.to_string());
        let limits = Limits { time: self.config().timeout, body: ROSTER_BYTES };
        self.post(&invite.endpoint, "join", &identity.agent, body, limits).await
    }

    /// Posts to a resource of an endpoint. Servers whose routes begin with `/swarm` though the endpoint does not end so are
    /// found at the second try.
    pub(crate) async fn post(
        &self,
        endpoint: &Endpoint,
        resource: &str,
        agent: &PeerId,
        body: Bytes,
        limits: Limits,
    ) -> Result<Response, SwarmError> {
        let client = self.client()?;
        let url =
            |url: url::Url| Url::parse(url.as_str()).map_err(|_| SwarmError::field("endpoint", "is no URL"));
        let first = url(endpoint.resource(resource))?;
        let answer = client.post_json(&first, headers(agent), body.clone(), limits).await?;
        match endpoint.resource_below_swarm(resource) {
            // A 404 of the protocol has an error of the protocol in it: then the route was right.
            Some(second) if answer.status == StatusCode::NOT_FOUND && error_of(&answer).is_none() => {
                Ok(client.post_json(&url(second)?, headers(agent), body, limits).await?)
            }
            _ => Ok(answer),
        }
    }

    /// What the answer to a join is believed: a roster in which the master is who the invite says, with a key that has
    /// signed the invite, and our agent is who it is.
    async fn believe(
        &self,
        identity: &Identity,
        token: &Token,
        accepted: JoinAccepted,
        realm: Option<&Name>,
    ) -> Result<Swarm, SwarmError> {
        let invite = &token.invite;
        let bad = |problem: &str| SwarmError::BadAnswer {
            endpoint: invite.endpoint.to_string(),
            problem: problem.to_owned(),
        };
        if accepted.swarm_id != invite.swarm_id.to_string() {
            return Err(bad("it is about another swarm"));
        }
        if accepted.members.len() > MOST_MEMBERS {
            return Err(bad("its roster is too long"));
        }
        let now = self.hub().now();
        let called = accepted.swarm_name.or(accepted.name).unwrap_or_else(|| "swarm".to_owned());
        let called: String = called.chars().filter(|c| !c.is_control()).take(256).collect();
        let mut swarm = Swarm {
            swarm_id: invite.swarm_id,
            realm: self.free_realm(&identity.agent, invite.swarm_id, realm, &called).await?,
            name: if called.is_empty() { "swarm".to_owned() } else { called },
            master: invite.master.clone(),
            epoch: accepted.epoch.unwrap_or(0),
            members: <_>::default(),
            joined_at: accepted.joined_at.as_deref().and_then(stamp::parse).unwrap_or(now),
            settings: accepted.settings.unwrap_or_default(),
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
        let mut told = Vec::new();
        for member in &accepted.members {
            match read_member(member, now) {
                // A master that does not count checks no proof.
                Ok(member) => {
                    let provisional = member.provisional || accepted.epoch.is_none();
                    told.push(Told { provisional, ..member });
                }
                // Other programs check less; one member of theirs does not keep our agent out.
                Err(error) => {
                    let id = member.agent_id.chars().take(128).collect::<String>().escape_debug().to_string();
                    swarm.left_out.insert(id, error.to_string());
                }
            }
        }
        let (told, left_out) =
            sift(&identity.agent, &invite.master, told).map_err(|clash| bad(&clash.to_string()))?;
        for member in told {
            if swarm.members.contains_key(&member.id) {
                return Err(bad("its roster names an agent twice"));
            }
            let checked = swarm.members.check(&member.id, &member.public_key, member.provisional);
            checked.map_err(|clash| bad(&clash.to_string()))?;
            swarm.insert_told(member);
        }
        swarm.left_out.extend(left_out);
        for (id, reason) in &swarm.left_out {
            tracing::warn!(swarm = %swarm.realm, member = %id, "a member of the swarm is left out: {reason}");
        }
        let signer =
            swarm.members.get(invite.signer()).ok_or_else(|| bad("its roster lacks whoever invited"))?;
        token
            .verify(&signer.public_key)
            .map_err(|_| bad("its roster names another key than the one that signed the invite"))?;
        if !swarm.members.contains_key(&invite.master) {
            return Err(bad("its roster lacks the master"));
        }
        match swarm.members.get(&identity.agent) {
            Some(me) if me.public_key == identity.public_key => Ok(swarm),
            Some(_) => Err(bad("its roster has another key for our agent")),
            None => Err(bad("its roster lacks our agent")),
        }
    }

    async fn note_joining(
        &self,
        agent: &PeerId,
        link: &InviteLink,
        realm: Option<Name>,
    ) -> Result<(), SwarmError> {
        let (id, link, now) = (link.swarm_id, link.reveal(), self.hub().now());
        self.edit_identity(agent, move |identity| {
            let asked = identity.joining.get(&id).map_or(0, |known| known.asked) + 1;
            let ask_at = now.saturating_add(pause(asked)).unwrap_or(now);
            identity.joining.insert(id, Joining { link, realm, asked, ask_at });
            Ok(())
        })
        .await
    }

    async fn forget_joining(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        self.edit_identity(agent, move |identity| {
            identity.joining.remove(&swarm);
            Ok(())
        })
        .await
    }

    /// Asks again where an approval is waited for and it is time.
    pub(crate) async fn ask_again(&self, now: Timestamp) {
        for identity in self.identities() {
            for (id, joining) in identity.joining.iter().filter(|(_, joining)| joining.ask_at <= now) {
                self.ask_once_more(&identity, *id, joining).await;
            }
        }
    }

    /// Asks again to join a swarm whose master has to approve.
    pub(crate) async fn ask_once_more(&self, identity: &Identity, id: Uuid, joining: &Joining) {
        let Ok(link) = InviteLink::parse(&joining.link) else { return };
        let asked = self.join(Some(identity.agent.as_str()), &link, joining.realm.as_ref()).await;
        match asked {
            Ok(JoinOutcome::Joined(swarm)) => {
                tracing::info!(swarm = %swarm.realm, "joined");
                self.notify_approved(&identity.agent, &swarm).await;
            }
            Ok(JoinOutcome::Pending { .. }) => {}
            Err(error) if error.is_temporary() => {
                let _ = self.note_joining(&identity.agent, &link, joining.realm.clone()).await;
            }
            Err(error) => {
                if !matches!(error, SwarmError::AlreadyMember { .. }) {
                    tracing::warn!(swarm = %id, error = %error, "the swarm will not be joined");
                }
                let _ = self.forget_joining(&identity.agent, id).await;
            }
        }
    }
}

/// How long to wait before asking again: seldom enough for a limit of ten in an hour.
fn pause(asked: u32) -> SignedDuration {
    SignedDuration::from_mins(if asked < 3 { 1 } else { 10 })
}

/// The headers of every request (§6.2).
pub(crate) fn headers(agent: &PeerId) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // An id has nothing in it that a header could not hold.
    if let Ok(id) = HeaderValue::from_str(agent.as_str()) {
        headers.insert("x-agent-id", id);
    }
    headers.insert("x-swarm-protocol", HeaderValue::from_static(PROTOCOL_VERSION));
    headers
}

/// The error of the protocol in an answer, where it has one. Both texts are the peer's, and are quoted.
pub(crate) fn error_of(answer: &Response) -> Option<(String, String)> {
    let body: ErrorBody = serde_json::from_slice(&answer.body).ok()?;
    Some((label_inline(&body.error.code), quote_inline(&body.error.message)))
}

fn read_accepted(endpoint: &Endpoint, answer: &Response) -> Result<JoinAccepted, SwarmError> {
    if answer.status != StatusCode::OK {
        let (code, message) = error_of(answer).unwrap_or_default();
        return Err(SwarmError::Refused {
            endpoint: endpoint.to_string(),
            status: answer.status.as_u16(),
            code,
            message,
        });
    }
    let bad = |problem: String| SwarmError::BadAnswer { endpoint: endpoint.to_string(), problem };
    let value = crate::strict::parse(&answer.body).map_err(|error| bad(error.to_string()))?;
    let accepted: JoinAccepted =
        serde_path_to_error::deserialize(value).map_err(|error| bad(error.to_string()))?;
    if accepted.status == "accepted" {
        Ok(accepted)
    } else {
        Err(bad("its status is not 'accepted'".to_owned()))
    }
}
