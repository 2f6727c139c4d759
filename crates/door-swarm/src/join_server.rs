//! Server side of joining a swarm (§5.3).
//!
//! Invite, bans and membership are checked before any outgoing call or write.

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use switchboard_core::describe_json_error;

use crate::admission::{Admission, AdmissionError, Candidate, Proof};
use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::intake::{check_headers, check_objects, check_version};
use crate::invite::Token;
use crate::keys::PublicKey;
use crate::model::{Identity, Swarm};
use crate::refusal::Refusal;
use crate::server::Server;
use crate::signing::{Payload, verify_envelope};
use crate::timestamp;
use crate::wire::{JoinAccepted, JoinPending, JoinRequest, MessageType, parse_json};

/// The answer to a join request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum JoinAnswer {
    Accepted(Box<JoinAccepted>),
    Pending(JoinPending),
}

impl Server {
    /// Decides on a join request.
    pub(crate) async fn accept_join_request(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(StatusCode, JoinAnswer), Refusal> {
        let (request, raw, mut candidate, token) = parse_request(headers, body)?;
        let now = self.swarms.hub().now();
        let snapshot = self.swarms.current().await?;
        let identity = snapshot.identities.get(&identity.agent).ok_or_else(Refusal::not_found)?;
        let id = candidate.invite.swarm_id;
        let known = snapshot.swarms.get(&(identity.agent.clone(), id)).filter(|swarm| swarm.is_active());
        let swarm = known.ok_or_else(Refusal::swarm_not_found)?;
        check_invite(identity, swarm, &candidate, &token)?;
        candidate.invite.check_time(now)?;
        candidate.proof = self.check_signature(&request, &raw, &candidate)?;
        let refuse = |refused: AdmissionError| {
            tracing::info!(swarm = %swarm.realm, agent = %candidate.agent, "a request to join was refused: {refused}");
            Refusal::from(refused)
        };
        let mut admitting = swarm.as_ref().clone();
        let admission = admitting.admit(&candidate, now).map_err(refuse)?;
        if admitting == **swarm {
            return Ok(answer(swarm, &candidate, admission));
        }
        if candidate.proof.is_none() {
            self.confirm_endpoint(identity, &candidate).await?;
        }
        let requester = candidate.clone();
        let admitted = self
            .swarms
            .edit_swarm(&identity.agent, id, move |swarm| {
                // Work on a copy, because a refused request must not use up the invite.
                let mut admitting = swarm.clone();
                let admitted = admitting.admit(&requester, now);
                if admitted.is_ok() {
                    *swarm = admitting;
                }
                Ok(admitted)
            })
            .await?;
        let admission = admitted.map_err(refuse)?;
        let (before, snapshot) = (swarm, self.swarms.snapshot());
        let swarm =
            snapshot.swarms.get(&(identity.agent.clone(), id)).ok_or_else(Refusal::swarm_not_found)?;
        self.notify_owner(identity, before, swarm, &candidate, admission).await?;
        Ok(answer(swarm, &candidate, admission))
    }

    /// Notifies our own agent of the changes that a join request has made to a swarm.
    async fn notify_owner(
        &self,
        identity: &Identity,
        before: &Swarm,
        after: &Swarm,
        candidate: &Candidate,
        admission: Admission,
    ) -> Result<(), Refusal> {
        let (me, id, agent) = (&identity.agent, before.swarm_id, &candidate.agent);
        let named = before.members.iter().filter(|(_, member)| member.public_key == candidate.public_key);
        let displaced = named.map(|(other, _)| other).filter(|other| !after.members.contains_key(other));
        let displaced: Vec<PeerId> = displaced.cloned().collect();
        self.notify_displaced(identity, before, &displaced, agent).await;
        match admission {
            Admission::AlreadyMember => {}
            Admission::Pending => {
                let was_waiting = before.pending.get(agent).is_some_and(|waiting| !waiting.denied);
                if !was_waiting {
                    self.swarms.notify_join_requested(me, id, agent).await;
                }
            }
            Admission::Joined => {
                self.swarms.notify_joined(me, id, agent).await;
            }
            Admission::Moved => {
                self.swarms.notify_moved(me, id, agent).await;
                self.swarms.retry_waiting(me, id, agent).await?;
            }
        }
        Ok(())
    }

    /// Checks that the endpoint of an unsigned request confirms the id and the key. This does not prove the key.
    async fn confirm_endpoint(&self, identity: &Identity, candidate: &Candidate) -> Result<(), Refusal> {
        let result = self.swarms.fetch_info(&identity.agent, &candidate.endpoint).await;
        let fetched = result.map_err(|error| {
            tracing::info!(endpoint = %candidate.endpoint, "an unsigned join was not confirmed: {error}");
            Refusal::not_authorized("the request is not signed, and its endpoint did not confirm the key")
        })?;
        if fetched.0 == candidate.agent && fetched.1 == candidate.public_key {
            return Ok(());
        }
        Err(Refusal::not_authorized("the endpoint names another agent or another key"))
    }

    /// Verifies the signature of a request with the key that the request names. Returns `None` for an unsigned request.
    fn check_signature(
        &self,
        request: &JoinRequest,
        raw: &Value,
        candidate: &Candidate,
    ) -> Result<Option<Proof>, Refusal> {
        let Some(signature) = &request.signature else { return Ok(None) };
        let (Some(message_id), Some(timestamp)) = (&request.message_id, &request.timestamp) else {
            return Err(Refusal::invalid_format("a signed join needs message_id and timestamp"));
        };
        let now = self.swarms.hub().now();
        let signed_at = timestamp::parse(timestamp)
            .ok_or_else(|| Refusal::invalid_format("timestamp must be a time in UTC"))?;
        let (age, config) = (now.duration_since(signed_at), self.swarms.config());
        if age > config.oldest || -age > config.ahead {
            return Err(Refusal::invalid_format("timestamp is too old or lies in the future; set the clock")
                .with_details(json!({ "field": "timestamp", "now": timestamp::render(now) })));
        }
        let (swarm_id, master) = (candidate.invite.swarm_id.to_string(), candidate.invite.master.to_string());
        let proof = Payload {
            message_id,
            timestamp,
            swarm_id: &swarm_id,
            recipient: &master,
            kind: MessageType::System,
            content: &request.invite_token,
        };
        if !proof.verify(&candidate.public_key, signature) {
            return Err(Refusal::invalid_signature("the request is not signed with public_key"));
        }
        match verify_envelope(&candidate.public_key, raw) {
            Some(false) => Err(Refusal::invalid_signature("the request was changed after it was signed")),
            whole => Ok(Some(Proof { at: signed_at, is_whole: whole.is_some() })),
        }
    }
}

/// Parses a join request and its token. Nothing is verified yet.
fn parse_request(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(JoinRequest, Value, Candidate, Token), Refusal> {
    let raw = parse_json(body).map_err(|error| {
        Refusal::invalid_format(format!("the body is not JSON: {}", describe_json_error(&error)))
    })?;
    check_objects(&raw)?;
    let request: JoinRequest =
        serde_path_to_error::deserialize(&raw).map_err(|error| Refusal::from_serde(&error))?;
    check_headers(headers, &request.sender.agent_id)?;
    if let Some(version) = &request.protocol_version {
        check_version("protocol_version", version)?;
    }
    if request.kind != "system" || request.action != "join_request" {
        return Err(Refusal::invalid_format("type must be 'system' and action 'join_request'"));
    }
    let token = Token::read(&request.invite_token)?;
    let field = |field: &str, problem: String| {
        Refusal::invalid_format(problem).with_details(json!({ "field": field }))
    };
    let candidate = Candidate {
        agent: PeerId::parse_new(&request.sender.agent_id)
            .map_err(|error| field("sender.agent_id", error.to_string()))?,
        endpoint: Endpoint::parse(&request.sender.endpoint)
            .map_err(|error| field("sender.endpoint", error.to_string()))?,
        public_key: PublicKey::parse(&request.sender.public_key)
            .map_err(|error| field("sender.public_key", error.to_string()))?,
        invite: token.invite.clone(),
        digest: token.digest(),
        has_left: request.rejoin.unwrap_or(false),
        proof: None,
    };
    Ok((request, raw, candidate, token))
}

/// Checks that the token is an invite to this swarm, signed by its issuer and addressed to this agent.
fn check_invite(
    identity: &Identity,
    swarm: &Swarm,
    candidate: &Candidate,
    token: &Token,
) -> Result<(), Refusal> {
    let invite = &candidate.invite;
    if swarm.master != identity.agent {
        return Err(Refusal::not_master(format!(
            "'{}' leads this swarm; ask for a new invite",
            swarm.master
        )));
    }
    let bad = |problem: &str| SwarmError::from(crate::InviteError::Token { problem: problem.to_owned() });
    let issuer = swarm.members.get(invite.signer());
    let issuer =
        issuer.ok_or_else(|| Refusal::invalid_signature("the issuer of the invite is not a member"))?;
    token.verify(&issuer.public_key)?;
    if invite.master != swarm.master {
        return Err(bad("it names another master").into());
    }
    if invite.endpoint.authority() != identity.endpoint.authority() {
        return Err(bad("it names another host").into());
    }
    Ok(())
}

fn answer(swarm: &Swarm, candidate: &Candidate, admission: Admission) -> (StatusCode, JoinAnswer) {
    if admission != Admission::Pending {
        return (StatusCode::OK, JoinAnswer::Accepted(Box::new(accepted(swarm, &candidate.agent))));
    }
    let pending = JoinPending {
        status: "pending".to_owned(),
        swarm_id: swarm.swarm_id.to_string(),
        message: "the master has to approve; ask again later with the same invite".to_owned(),
    };
    (StatusCode::ACCEPTED, JoinAnswer::Pending(pending))
}

fn accepted(swarm: &Swarm, agent: &PeerId) -> JoinAccepted {
    JoinAccepted {
        status: "accepted".to_owned(),
        swarm_id: swarm.swarm_id.to_string(),
        members: swarm.roster(),
        swarm_name: Some(swarm.name.clone()),
        name: Some(swarm.name.clone()),
        master: Some(swarm.master.to_string()),
        settings: Some(swarm.settings),
        joined_at: swarm.members.get(agent).map(|member| timestamp::render(member.joined_at)),
        epoch: Some(swarm.epoch),
    }
}
