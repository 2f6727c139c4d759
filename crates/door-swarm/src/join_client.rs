//! Client side of joining a swarm (§5.3): the request, and the checks of the answer.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use switchboard_core::{Name, describe_field_error, describe_json_error, label_inline, quote_inline};
use switchboard_https::{Limits, Response, Url};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::invite::{InviteLink, Token};
use crate::members::{RosterEntry, filter_roster};
use crate::model::{Identity, MembershipStatus, OutgoingJoin, Swarm};
use crate::roster::{MAX_ROSTER_BYTES, parse_member};
use crate::signing::{ENVELOPE_SIGNATURE, Payload, sign_envelope};
use crate::state::MAX_MEMBERS;
use crate::swarms::Swarms;
use crate::timestamp;
use crate::wire::{ErrorBody, JoinAccepted, JoinRequest, JoinSender, MessageType, PROTOCOL_VERSION};

/// Outcome of a join request.
#[derive(Debug, Clone)]
pub enum JoinOutcome {
    /// Our agent is a member.
    Joined(Box<Swarm>),
    /// The master has to approve the request. `serve` retries the request from time to time.
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
        if let Some(known) = self.snapshot().swarms.get(&(identity.agent.clone(), link.swarm_id))
            && known.is_active()
        {
            return Err(SwarmError::AlreadyMember { swarm: known.realm.clone() });
        }
        // Fail before the request is sent if the requested name is taken.
        self.choose_realm(&identity.agent, link.swarm_id, realm, "swarm").await?;
        let answer = self.request_join(&identity, link, &token).await?;
        if answer.status == StatusCode::ACCEPTED {
            self.record_outgoing_join(&identity.agent, link, realm.cloned()).await?;
            return Ok(JoinOutcome::Pending { swarm_id: link.swarm_id });
        }
        let accepted = parse_accepted(&token.invite.endpoint, &answer)?;
        let swarm = self.verify_answer(&identity, &token, accepted, realm).await?;
        let swarm = self.insert_swarm(&identity.agent, swarm).await?;
        self.remove_outgoing_join(&identity.agent, link.swarm_id).await?;
        Ok(JoinOutcome::Joined(Box::new(swarm)))
    }

    async fn request_join(
        &self,
        identity: &Identity,
        link: &InviteLink,
        token: &Token,
    ) -> Result<Response, SwarmError> {
        let invite = &token.invite;
        let key = self.key(&identity.agent).await?;
        let (message_id, timestamp) = (Uuid::new_v4().to_string(), timestamp::render(self.hub().now()));
        let (swarm_id, master) = (link.swarm_id.to_string(), invite.master.to_string());
        let known = self.snapshot().swarms.get(&(identity.agent.clone(), link.swarm_id)).cloned();
        let has_left = known.is_some_and(|known| known.status == MembershipStatus::Left);
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
        // A struct of strings always serializes.
        let mut request = serde_json::to_value(&request).unwrap_or_default();
        // The protocol's own signature does not cover the endpoint, so the whole request is signed as well.
        if let Some(signature) = sign_envelope(&key, &request) {
            request["metadata"] = json!({ ENVELOPE_SIGNATURE: signature });
        }
        let body = Bytes::from(request.to_string());
        let limits = Limits { time: self.config().timeout, body: MAX_ROSTER_BYTES };
        self.post(&invite.endpoint, "join", &identity.agent, body, limits).await
    }

    /// Posts to a resource of an endpoint.
    ///
    /// A request that is answered with 404 is retried below `/swarm`, for servers whose routes begin with `/swarm`
    /// although the endpoint does not end with it.
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
            // A 404 with a protocol error comes from the right route.
            Some(second) if answer.status == StatusCode::NOT_FOUND && protocol_error(&answer).is_none() => {
                Ok(client.post_json(&url(second)?, headers(agent), body, limits).await?)
            }
            _ => Ok(answer),
        }
    }

    /// Verifies the answer to a join request and builds the swarm from it.
    ///
    /// The roster must name the master of the invite, the key that signed the invite, and our agent with its own key.
    async fn verify_answer(
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
        if accepted.members.len() > MAX_MEMBERS {
            return Err(bad("its roster is too long"));
        }
        let now = self.hub().now();
        let called = accepted.swarm_name.or(accepted.name).unwrap_or_else(|| "swarm".to_owned());
        let called: String = called.chars().filter(|c| !c.is_control()).take(256).collect();
        let realm = self.choose_realm(&identity.agent, invite.swarm_id, realm, &called).await?;
        let name = if called.is_empty() { "swarm".to_owned() } else { called };
        let mut swarm = Swarm {
            epoch: accepted.epoch.unwrap_or(0),
            joined_at: accepted.joined_at.as_deref().and_then(timestamp::parse).unwrap_or(now),
            settings: accepted.settings.unwrap_or_default(),
            ..Swarm::empty(invite.swarm_id, realm, name, invite.master.clone(), now)
        };
        let mut entries = Vec::new();
        for member in &accepted.members {
            match parse_member(member, now) {
                // A master without epochs does not check proofs, so all its members count as provisional.
                Ok(member) => {
                    let provisional = member.provisional || accepted.epoch.is_none();
                    entries.push(RosterEntry { provisional, ..member });
                }
                // Other programs check less, and one invalid member must not prevent our agent from joining.
                Err(error) => {
                    let id = member.agent_id.chars().take(128).collect::<String>().escape_debug().to_string();
                    swarm.left_out.insert(id, error.to_string());
                }
            }
        }
        let (entries, left_out) = filter_roster(&identity.agent, &invite.master, entries)
            .map_err(|conflict| bad(&conflict.to_string()))?;
        for member in entries {
            if swarm.members.contains_key(&member.id) {
                return Err(bad("its roster names an agent twice"));
            }
            let checked = swarm.members.check(&member.id, &member.public_key, member.provisional);
            checked.map_err(|conflict| bad(&conflict.to_string()))?;
            swarm.insert_entry(member);
        }
        swarm.left_out.extend(left_out);
        for (id, reason) in &swarm.left_out {
            tracing::warn!(swarm = %swarm.realm, member = %id, "a roster entry was excluded: {reason}");
        }
        let signer = swarm
            .members
            .get(invite.signer())
            .ok_or_else(|| bad("its roster lacks the issuer of the invite"))?;
        token.verify(&signer.public_key).map_err(|_| bad("the key in its roster did not sign the invite"))?;
        if !swarm.members.contains_key(&invite.master) {
            return Err(bad("its roster lacks the master"));
        }
        match swarm.members.get(&identity.agent) {
            Some(me) if me.public_key == identity.public_key => Ok(swarm),
            Some(_) => Err(bad("its roster has another key for our agent")),
            None => Err(bad("its roster lacks our agent")),
        }
    }

    async fn record_outgoing_join(
        &self,
        agent: &PeerId,
        link: &InviteLink,
        realm: Option<Name>,
    ) -> Result<(), SwarmError> {
        let (id, link, now) = (link.swarm_id, link.reveal(), self.hub().now());
        self.edit_identity(agent, move |identity| {
            let attempts = identity.joining.get(&id).map_or(0, |known| known.asked) + 1;
            let ask_at = now.saturating_add(retry_delay(attempts)).unwrap_or(now);
            identity.joining.insert(id, OutgoingJoin { link, realm, asked: attempts, ask_at });
            Ok(())
        })
        .await
    }

    async fn remove_outgoing_join(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        self.edit_identity(agent, move |identity| {
            identity.joining.remove(&swarm);
            Ok(())
        })
        .await
    }

    /// Retries the join requests that are due.
    pub(crate) async fn retry_pending_joins(&self, now: Timestamp) {
        for identity in self.identities() {
            for (id, joining) in identity.joining.iter().filter(|(_, joining)| joining.ask_at <= now) {
                self.retry_join(&identity, *id, joining).await;
            }
        }
    }

    /// Retries the request to join a swarm whose master has to approve.
    pub(crate) async fn retry_join(&self, identity: &Identity, id: Uuid, joining: &OutgoingJoin) {
        let Ok(link) = InviteLink::parse(&joining.link) else { return };
        let joined = self.join(Some(identity.agent.as_str()), &link, joining.realm.as_ref()).await;
        match joined {
            Ok(JoinOutcome::Joined(swarm)) => {
                tracing::info!(swarm = %swarm.realm, "joined");
                self.notify_approved(&identity.agent, &swarm).await;
            }
            Ok(JoinOutcome::Pending { .. }) => {}
            Err(error) if error.is_temporary() => {
                let _ = self.record_outgoing_join(&identity.agent, &link, joining.realm.clone()).await;
            }
            Err(error) => {
                if !matches!(error, SwarmError::AlreadyMember { .. }) {
                    tracing::warn!(swarm = %id, error = %error, "the join request failed");
                }
                let _ = self.remove_outgoing_join(&identity.agent, id).await;
            }
        }
    }
}

/// Returns the delay before the next retry. The number of retries stays below the limit of ten join requests per hour.
fn retry_delay(attempts: u32) -> SignedDuration {
    SignedDuration::from_mins(if attempts < 3 { 1 } else { 10 })
}

/// Builds the headers of every request (§6.2).
pub(crate) fn headers(agent: &PeerId) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // An id has only characters that are valid in a header.
    if let Ok(id) = HeaderValue::from_str(agent.as_str()) {
        headers.insert("x-agent-id", id);
    }
    headers.insert("x-swarm-protocol", HeaderValue::from_static(PROTOCOL_VERSION));
    headers
}

/// Parses the protocol error in an answer, if there is one.
///
/// Code and message are text of the peer, so both are sanitized and quoted.
pub(crate) fn protocol_error(answer: &Response) -> Option<(String, String)> {
    let body: ErrorBody = serde_json::from_slice(&answer.body).ok()?;
    Some((label_inline(&body.error.code), quote_inline(&body.error.message)))
}

fn parse_accepted(endpoint: &Endpoint, answer: &Response) -> Result<JoinAccepted, SwarmError> {
    if answer.status != StatusCode::OK {
        let (code, message) = protocol_error(answer).unwrap_or_default();
        return Err(SwarmError::Refused {
            endpoint: endpoint.to_string(),
            status: answer.status.as_u16(),
            code,
            message,
        });
    }
    let bad = |problem: String| SwarmError::BadAnswer { endpoint: endpoint.to_string(), problem };
    let value = crate::wire::parse_json(&answer.body).map_err(|error| bad(describe_json_error(&error)))?;
    let accepted: JoinAccepted = serde_path_to_error::deserialize(value)
        .map_err(|error| bad(format!("'{}' {}", error.path(), describe_field_error(error.inner()))))?;
    if accepted.status == "accepted" {
        Ok(accepted)
    } else {
        Err(bad("its status is not 'accepted'".to_owned()))
    }
}
