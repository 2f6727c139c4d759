//! Intake of messages: the checks that a message passes, in this order, before it is accepted.
//!
//! Rate limit of the client, size, format, swarm, sender's membership, signature, time, recipient, mutes, rate limits
//! of sender and swarm, authority for its roster update; then the journal, and then the answer. No URL is fetched on
//! behalf of an unverified sender (no SSRF), and no other client can use up a sender's rate limit.

mod format;

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::json;
use switchboard_core::{AgentId, Door, MessageId};
use switchboard_hub::HubError;

pub(crate) use self::format::{ParsedMessage, check_headers, check_objects, check_version};
use self::format::{parse_message, parse_update};
use crate::agent_id::{BROADCAST, PeerId};
use crate::contested_key::{KeyProof, SignedMessage};
use crate::model::{Identity, Member, Swarm};
use crate::refusal::Refusal;
use crate::roster::{CarrierMessage, RosterUpdate, UpdateContext, UpdateError, UpdateOutcome};
use crate::server::{Server, Task};
use crate::signing::{Payload, verify_envelope};
use crate::timestamp;
use crate::translate::{IncomingMessage, channel_post, scope, sender_epoch};
use crate::wake::Arrival;
use crate::wire::{MessageType, Priority, Queued};

impl Server {
    /// Runs all checks on a message and accepts it.
    pub(crate) async fn accept_message(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Queued, Refusal> {
        let read = parse_message(headers, body)?;
        let snapshot = self.swarms.current().await?;
        let identity = snapshot.identities.get(&identity.agent).ok_or_else(Refusal::not_found)?;
        let known =
            snapshot.swarms.get(&(identity.agent.clone(), read.swarm)).filter(|swarm| swarm.is_active());
        let Some(swarm) = known else { return self.accept_approval(identity, &read) };
        let member = swarm.members.get(&read.sender).filter(|_| read.sender != identity.agent);
        let member =
            member.ok_or_else(|| Refusal::not_authorized("the sender is not a member of the swarm"))?;
        let is_whole = self.check_signatures(identity, swarm, member, &read)?;
        self.check_time(&read, is_whole)?;
        let ParsedMessage { envelope, sender, timestamp, .. } = &read;
        if envelope.recipient != BROADCAST && envelope.recipient != identity.agent.as_str() {
            return Err(Refusal::invalid_format("recipient is not the agent of this endpoint"));
        }
        let queued = Queued { status: "queued".to_owned(), message_id: envelope.message_id.clone() };
        let is_muted = identity.muted_agents.contains(sender) || identity.muted_swarms.contains(&read.swarm);
        // Roster updates of muted senders are applied, but not journaled or shown.
        if is_muted && envelope.kind != MessageType::System {
            return Ok(queued);
        }
        let is_counted = self.count_message(identity, swarm, &read).await?;
        let update =
            (envelope.kind == MessageType::System).then(|| parse_update(&envelope.content)).flatten();
        // If the sender's key is contested, another member may have resent an update that the sender signed.
        let update =
            update.filter(|update| is_whole || update.is_about(sender) || swarm.rivals(sender).is_empty());
        if let Some(update) = &update {
            // An invalid update is refused before anything is written.
            self.apply_update(identity, &mut swarm.as_ref().clone(), &read, update)?;
        }
        let parent = match envelope.in_reply_to.as_deref().filter(|_| is_whole) {
            Some(id) => self.find_parent(swarm, id).await?,
            None => None,
        };
        let hub = self.swarms.hub();
        let incoming = IncomingMessage {
            envelope,
            swarm,
            identity,
            sender,
            member,
            is_whole,
            parent,
            timestamp: *timestamp,
            id: hub.next_id(),
        };
        let mut is_new = false;
        if !is_muted {
            is_new = self.journal_message(&incoming).await?;
            if is_counted && !is_new {
                // A duplicate does not count against this sender's limit, because another member may have resent the
                // message.
                self.release_limits(swarm, sender);
            }
        }
        if is_whole && (!member.signs_envelopes || member.yields_to_signature()) {
            self.require_envelope_signature(identity, swarm, sender, member).await?;
        }
        if !is_whole && !is_muted && member.provisional {
            self.check_key_proof(identity, swarm, member, &read).await?;
        }
        if let Some(update) = update {
            return self.commit_update(identity, swarm, read, update, queued).await;
        }
        if is_whole && sender_epoch(envelope).is_some_and(|epoch| epoch > swarm.epoch) {
            self.defer(Task::Behind { agent: identity.agent.clone(), swarm: read.swarm });
        }
        if self.swarms.has_failures() {
            let peer = AgentId { name: member.name.clone(), realm: Some(swarm.realm.clone()) };
            self.defer(Task::PeerReachable { peer });
        }
        if is_new && envelope.kind != MessageType::System {
            self.notify_arrival(|| Arrival {
                agent_id: identity.agent.clone(),
                swarm_id: read.swarm,
                sender_id: sender.clone(),
                message_id: envelope.message_id.clone(),
                is_urgent: is_whole && envelope.priority == Some(Priority::High),
            });
        }
        Ok(queued)
    }

    /// Verifies the signatures with the sender's key in the roster. Returns true if one covers the whole envelope.
    fn check_signatures(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        member: &Member,
        read: &ParsedMessage,
    ) -> Result<bool, Refusal> {
        if !Payload::of(&read.envelope).verify(&member.public_key, &read.envelope.signature) {
            self.defer(Task::SignatureFailed {
                agent: identity.agent.clone(),
                swarm: swarm.swarm_id,
                member: read.sender.clone(),
            });
            return Err(Refusal::invalid_signature(
                "the signature does not match the sender's key in the roster",
            ));
        }
        match verify_envelope(&member.public_key, &read.raw) {
            Some(true) => Ok(true),
            Some(false) => Err(Refusal::invalid_signature("the envelope was changed after it was signed")),
            None if member.signs_envelopes => Err(Refusal::invalid_signature(
                "envelope_signature is missing, and this sender signs whole envelopes",
            )),
            None => Ok(false),
        }
    }

    pub(crate) fn check_time(&self, read: &ParsedMessage, is_whole: bool) -> Result<(), Refusal> {
        let (now, config) = (self.swarms.hub().now(), self.swarms.config());
        let age = now.duration_since(read.timestamp);
        if age > config.oldest || -age > config.ahead {
            let problem = if age > config.oldest { "is too old" } else { "is in the future" };
            return Err(Refusal::invalid_format(format!(
                "timestamp {problem}; sign the message again, or set the clock"
            ))
            .with_details(json!({ "field": "timestamp", "now": timestamp::render(now) })));
        }
        let end = read.envelope.expires_at.as_deref().filter(|_| is_whole).and_then(timestamp::parse);
        if end.is_some_and(|end| end <= now) {
            return Err(Refusal::invalid_format("expires_at is in the past")
                .with_details(json!({ "field": "expires_at" })));
        }
        Ok(())
    }

    /// Counts a message against the rate limits of its verified sender and its swarm.
    ///
    /// Returns whether the message was counted. Above the limit, a message that is already in the journal still gets
    /// its first answer again. The journal is queried only in this case, because the query costs almost as much as
    /// accepting the message.
    async fn count_message(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        read: &ParsedMessage,
    ) -> Result<bool, Refusal> {
        let (now, sender) = (self.swarms.hub().now(), (swarm.swarm_id, read.sender.clone()));
        let counted = match self.senders.acquire(sender.clone(), now) {
            Err(seconds) => Err(Refusal::rate_limited("messages of this sender", seconds)),
            Ok(()) => self.swarm_rates.acquire(swarm.swarm_id, now).map_err(|seconds| {
                self.senders.release(&sender, now);
                Refusal::rate_limited("messages of this swarm", seconds)
            }),
        };
        let Err(problem) = counted else { return Ok(true) };
        let scope = scope(swarm.swarm_id, &read.sender, &identity.agent);
        let known = self.swarms.hub().native_ids().find(Some(Door::Swarm), &read.envelope.message_id).await?;
        if known.iter().any(|(known, _)| *known == scope) { Ok(false) } else { Err(problem) }
    }

    fn release_limits(&self, swarm: &Swarm, sender: &PeerId) {
        let now = self.swarms.hub().now();
        self.senders.release(&(swarm.swarm_id, sender.clone()), now);
        self.swarm_rates.release(&swarm.swarm_id, now);
    }

    /// Finds the message that a reply refers to, with its author.
    ///
    /// The author is returned only if the message was sent from this hub.
    async fn find_parent(
        &self,
        swarm: &Swarm,
        id: &str,
    ) -> Result<Option<(MessageId, Option<AgentId>)>, Refusal> {
        let hub = self.swarms.hub();
        let prefix = swarm.swarm_id.to_string();
        let found = hub.native_ids().find(Some(Door::Swarm), &id.to_ascii_lowercase()).await?;
        let Some((_, id)) = found.into_iter().find(|(scope, _)| scope.starts_with(&prefix)) else {
            return Ok(None);
        };
        let Some(stored) = hub.journal().message(id).await? else { return Ok(None) };
        let writer = stored.message.from;
        // All messages that entered the swarm from this hub count, including those that the NATS link or another linked
        // hub relayed.
        let is_ours = match &writer.realm {
            None => true,
            Some(_) => hub.directory().await?.agent(&writer).is_some_and(|known| known.hub().is_some()),
        };
        Ok(Some((id, is_ours.then_some(writer))))
    }

    /// Journals the message and returns whether it is new. A duplicate is recognized even if it was signed again.
    async fn journal_message(&self, incoming: &IncomingMessage<'_>) -> Result<bool, Refusal> {
        let hub = self.swarms.hub();
        if self.is_bridged_duplicate(incoming).await? {
            return Ok(false);
        }
        let draft = incoming.to_draft().ok_or_else(Refusal::internal)?;
        match hub.submit(draft).await {
            Ok(accepted) => Ok(!accepted.duplicate),
            Err(HubError::Conflict { native_id, first }) => {
                let again = incoming.to_draft().ok_or_else(Refusal::internal)?;
                let stored = hub.journal().message(first).await?.map(|stored| stored.message);
                let is_same = stored.is_some_and(|first| {
                    first.kind == again.kind && first.body == again.body && first.metadata == again.metadata
                });
                if is_same { Ok(false) } else { Err(HubError::Conflict { native_id, first }.into()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if our agent already has this channel post.
    ///
    /// Our agent wrote the post, or has already received it from a linked hub. Channel and swarm then bridge the same
    /// hubs, and this copy came second.
    async fn is_bridged_duplicate(&self, incoming: &IncomingMessage<'_>) -> Result<bool, Refusal> {
        let post = channel_post(incoming.envelope).filter(|_| incoming.is_whole);
        let (Some(post), Some(name)) = (post, incoming.identity.name()) else { return Ok(false) };
        let Some((stored, receipt)) = self.swarms.hub().journal().receipt(post).await? else {
            return Ok(false);
        };
        let me = AgentId::local(name);
        let has_it =
            stored.message.from == me || receipt.deliveries.iter().any(|delivery| delivery.agent == me);
        Ok(has_it && stored.message.body == incoming.envelope.content)
    }

    /// Records that a member signs whole envelopes, and from now on always must.
    ///
    /// Such a signature covers the sender's id, so it also proves the key.
    async fn require_envelope_signature(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        sender: &PeerId,
        member: &Member,
    ) -> Result<(), Refusal> {
        let (me, id, key) = (identity.agent.clone(), sender.clone(), member.public_key.clone());
        let change = move |swarm: &mut Swarm| {
            let known = swarm.members.get_mut(&id).filter(|known| known.public_key == key);
            let Some(known) = known else { return Ok(Vec::new()) };
            known.signs_envelopes = true;
            Ok(swarm.settle_key(&me, &id, KeyProof::Signature))
        };
        let displaced = self.swarms.edit_swarm(&identity.agent, swarm.swarm_id, change).await?;
        self.notify_displaced(identity, swarm, &displaced, sender).await;
        Ok(())
    }

    /// Ends the provisional state of a sender whose message proves its key.
    ///
    /// The message is already in the journal. If two senders sent the same message, it proves neither key.
    async fn check_key_proof(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        member: &Member,
        read: &ParsedMessage,
    ) -> Result<(), Refusal> {
        let mut message = SignedMessage {
            sender: read.sender.clone(),
            endpoint: read.envelope.sender.endpoint.clone(),
            recipient: read.envelope.recipient.clone(),
            at: read.timestamp,
            public_key: member.public_key.clone(),
            is_resent: false,
        };
        if !swarm.is_key_proof(&identity.agent, &message) {
            return Ok(());
        }
        let known = self.swarms.hub().native_ids().find(Some(Door::Swarm), &read.envelope.message_id).await?;
        let (own, prefix) =
            (scope(swarm.swarm_id, &read.sender, &identity.agent), swarm.swarm_id.to_string());
        message.is_resent = known.iter().any(|(scope, _)| scope.starts_with(&prefix) && *scope != own);
        let me = identity.agent.clone();
        let change = move |swarm: &mut Swarm| {
            if !swarm.is_key_proof(&me, &message) {
                return Ok(Vec::new());
            }
            Ok(swarm.settle_key(&me, &message.sender, KeyProof::Message))
        };
        let displaced = self.swarms.edit_swarm(&identity.agent, swarm.swarm_id, change).await?;
        self.notify_displaced(identity, swarm, &displaced, &read.sender).await;
        Ok(())
    }

    /// Notifies our own agent of the members that were displaced by the agent that proved the key.
    pub(crate) async fn notify_displaced(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        displaced: &[PeerId],
        by: &PeerId,
    ) {
        for id in displaced {
            self.swarms.notify_displaced(&identity.agent, swarm.swarm_id, id, by).await;
        }
    }

    /// Applies a roster update to a swarm, unless it is a replay.
    fn apply_update(
        &self,
        identity: &Identity,
        swarm: &mut Swarm,
        read: &ParsedMessage,
        update: &RosterUpdate,
    ) -> Result<UpdateOutcome, Refusal> {
        let now = self.swarms.hub().now();
        let context = UpdateContext {
            me: &identity.agent,
            sender: &read.sender,
            to_me: read.envelope.recipient == identity.agent.as_str(),
            at: read.timestamp,
            now,
        };
        if let RosterUpdate::Change(content) = update
            && content.swarm_id.as_deref().is_some_and(|id| id != read.envelope.swarm_id)
        {
            return Err(Refusal::invalid_format("content is about another swarm"));
        }
        let window_start = now.saturating_sub(self.swarms.config().oldest).unwrap_or(Timestamp::MIN);
        let carrier = CarrierMessage { message_id: &read.envelope.message_id, window_start };
        let applied = swarm.apply_once(&context, &carrier, update);
        applied.map_err(|error| refuse_update(swarm, read, &error))
    }

    /// Applies a roster update, stores the result and answers the message.
    async fn commit_update(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        read: ParsedMessage,
        update: RosterUpdate,
        queued: Queued,
    ) -> Result<Queued, Refusal> {
        let (agent, id, sender) = (identity.agent.clone(), swarm.swarm_id, read.sender.clone());
        let (server, owner) = (self.clone(), identity.clone());
        let is_transfer =
            matches!(&update, RosterUpdate::Change(content) if content.action == "master_transfer");
        let changed = self.swarms.edit_swarm(&agent, id, move |swarm| {
            // Work on a copy: the update was valid a moment ago but may be refused now, and then nothing may change.
            let mut changing = swarm.clone();
            let applied = server.apply_update(&owner, &mut changing, &read, &update);
            if applied.is_ok() {
                *swarm = changing;
            }
            Ok(applied)
        });
        match changed.await?? {
            UpdateOutcome::Nothing | UpdateOutcome::Changed => {}
            UpdateOutcome::Behind => self.defer(Task::Behind { agent, swarm: id }),
            UpdateOutcome::KeyMissing(member) => self.defer(Task::KeyMissing { agent, swarm: id, member }),
            UpdateOutcome::RosterRequested => {
                self.defer(Task::RosterRequested { agent, swarm: id, member: sender });
            }
            UpdateOutcome::Promoted => {
                tracing::warn!(swarm = %swarm.realm, %agent, "this agent is now the master of the swarm");
            }
        }
        let status = if is_transfer { "accepted" } else { "queued" };
        Ok(Queued { status: status.to_owned(), ..queued })
    }
}

/// Refuses a roster update.
///
/// An update by an agent that is not the master is logged for a person, because there may be two masters.
fn refuse_update(swarm: &Swarm, read: &ParsedMessage, error: &UpdateError) -> Refusal {
    match error {
        UpdateError::NotMaster { .. } => {
            let (sender, master) = (&read.sender, &swarm.master);
            tracing::warn!(swarm = %swarm.realm, %sender, %master, "roster update refused: {error}");
            Refusal::not_master(error.to_string())
        }
        UpdateError::NoProof => Refusal::invalid_signature(error.to_string()),
        UpdateError::Field { .. }
        | UpdateError::NotAMember
        | UpdateError::Taken
        | UpdateError::Conflict(_) => {
            tracing::warn!(swarm = %swarm.realm, sender = %read.sender, "roster update refused: {error}");
            Refusal::invalid_format(error.to_string())
        }
    }
}
