//! The way in: what a message has to get past, in this order, before it is believed.
//!
//! The client's own limit, size, form, the swarm, the sender's membership, the signature, the time, the recipient, mutes,
//! the limits of sender and swarm, the authority of what it says; then the journal, and then the answer. Nothing is
//! fetched for a stranger, and no limit of a sender is used up by others in its name.

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use switchboard_core::{AgentId, Door, MessageId};
use switchboard_hub::HubError;
use uuid::Uuid;

use crate::agent_id::{BROADCAST, PeerId};
use crate::contest::{KeyProof, SignedMessage};
use crate::error::SwarmError;
use crate::ledger::{Identity, Member, Swarm};
use crate::problem::Problem;
use crate::roster::{Applied, Carrier, NoAuthority, Order, Said};
use crate::send::check_parts;
use crate::server::{Server, Task};
use crate::signing::{Payload, verify_envelope};
use crate::translate::{Incoming, scope, told_epoch, told_post};
use crate::wake::Arrival;
use crate::wire::{Envelope, MessageType, PROTOCOL_VERSION, Priority, Queued, is_compatible};
use crate::{stamp, strict};

/// A message whose form has been checked, and nothing else.
pub(crate) struct Read {
    pub(crate) envelope: Envelope,
    /// The same as it was sent, for the signature over all of it.
    raw: Value,
    pub(crate) swarm: Uuid,
    sender: PeerId,
    timestamp: Timestamp,
}

impl Server {
    /// Takes a message in.
    pub(crate) async fn take_message(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Queued, Problem> {
        let read = read(headers, body)?;
        let book = self.swarms.current().await?;
        let identity = book.identities.get(&identity.agent).ok_or_else(Problem::no_such_place)?;
        let known = book.swarms.get(&(identity.agent.clone(), read.swarm)).filter(|swarm| swarm.is_active());
        let Some(swarm) = known else { return self.take_approval(identity, &read) };
        let member = swarm.members.get(&read.sender).filter(|_| read.sender != identity.agent);
        let member =
            member.ok_or_else(|| Problem::not_authorized("the sender is not a member of the swarm"))?;
        let is_whole = self.check_signatures(identity, swarm, member, &read)?;
        self.check_time(&read, is_whole)?;
        let Read { envelope, sender, timestamp, .. } = &read;
        if envelope.recipient != BROADCAST && envelope.recipient != identity.agent.as_str() {
            return Err(Problem::format("recipient is another agent"));
        }
        let queued = Queued { status: "queued".to_owned(), message_id: envelope.message_id.clone() };
        let is_muted = identity.muted_agents.contains(sender) || identity.muted_swarms.contains(&read.swarm);
        // What changes the roster is heard from the muted too, but nobody is shown it.
        if is_muted && envelope.kind != MessageType::System {
            return Ok(queued);
        }
        let is_counted = self.count_message(identity, swarm, &read).await?;
        let order = (envelope.kind == MessageType::System).then(|| read_order(&envelope.content)).flatten();
        // Another member may have resent an order that its sender signed with a contested key.
        let order = order.filter(|order| is_whole || order.names(sender) || swarm.rivals(sender).is_empty());
        if let Some(order) = &order {
            // Refused before it is written down anywhere.
            self.applied(identity, &mut swarm.as_ref().clone(), &read, order)?;
        }
        let parent = match envelope.in_reply_to.as_deref().filter(|_| is_whole) {
            Some(id) => self.parent(swarm, id).await?,
            None => None,
        };
        let hub = self.swarms.hub();
        let incoming = Incoming {
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
            is_new = self.journal(&incoming).await?;
            if is_counted && !is_new {
                // Whoever says again what another has said uses nothing of its limit up.
                self.uncount_message(swarm, sender);
            }
        }
        if is_whole && (!member.signs_envelopes || member.yields_to_signature()) {
            self.pin(identity, swarm, sender, member).await?;
        }
        if !is_whole && !is_muted && member.provisional {
            self.check_key_proof(identity, swarm, member, &read).await?;
        }
        if let Some(order) = order {
            return self.make_true(identity, swarm, read, order, queued).await;
        }
        if is_whole && told_epoch(envelope).is_some_and(|epoch| epoch > swarm.epoch) {
            self.later(Task::Behind { agent: identity.agent.clone(), swarm: read.swarm });
        }
        if self.swarms.has_troubles() {
            let peer = AgentId { name: member.name.clone(), realm: Some(swarm.realm.clone()) };
            self.later(Task::Back { peer });
        }
        if is_new && envelope.kind != MessageType::System {
            self.arrived(|| Arrival {
                agent_id: identity.agent.clone(),
                swarm_id: read.swarm,
                sender_id: sender.clone(),
                message_id: envelope.message_id.clone(),
                is_urgent: is_whole && envelope.priority == Some(Priority::High),
            });
        }
        Ok(queued)
    }

    /// Whether the message is signed by the key of the roster, and whether all of it is.
    fn check_signatures(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        member: &Member,
        read: &Read,
    ) -> Result<bool, Problem> {
        if !Payload::of(&read.envelope).verify(&member.public_key, &read.envelope.signature) {
            self.later(Task::Doubted {
                agent: identity.agent.clone(),
                swarm: swarm.swarm_id,
                member: read.sender.clone(),
            });
            return Err(Problem::signature("the signature is not that of the sender's key in the roster"));
        }
        match verify_envelope(&member.public_key, &read.raw) {
            Some(true) => Ok(true),
            Some(false) => Err(Problem::signature("the envelope was changed after it was signed")),
            None if member.signs_envelopes => {
                Err(Problem::signature("this sender signs whole envelopes, and this one is not signed"))
            }
            None => Ok(false),
        }
    }

    pub(crate) fn check_time(&self, read: &Read, is_whole: bool) -> Result<(), Problem> {
        let (now, config) = (self.swarms.hub().now(), self.swarms.config());
        let age = now.duration_since(read.timestamp);
        if age > config.oldest || -age > config.ahead {
            let problem = if age > config.oldest { "is too old" } else { "lies in the future" };
            return Err(Problem::format(format!(
                "timestamp {problem}; sign the message again, or set the clock"
            ))
            .with(json!({ "field": "timestamp", "now": stamp::render(now) })));
        }
        let end = read.envelope.expires_at.as_deref().filter(|_| is_whole).and_then(stamp::parse);
        if end.is_some_and(|end| end <= now) {
            return Err(Problem::format("expires_at is over").with(json!({ "field": "expires_at" })));
        }
        Ok(())
    }

    /// Counts a message of a sender that is known to be the sender; says whether it was counted. Beyond the limit, one that
    /// is in the journal already goes on to the same answer as before. Only there is the journal asked: it costs as much
    /// as a part of taking the message in.
    async fn count_message(&self, identity: &Identity, swarm: &Swarm, read: &Read) -> Result<bool, Problem> {
        let (now, sender) = (self.swarms.hub().now(), (swarm.swarm_id, read.sender.clone()));
        let counted = match self.senders.take(sender.clone(), now) {
            Err(seconds) => Err(Problem::rate_limited("messages of this sender", seconds)),
            Ok(()) => self.swarm_rates.take(swarm.swarm_id, now).map_err(|seconds| {
                self.senders.give_back(&sender, now);
                Problem::rate_limited("messages of this swarm", seconds)
            }),
        };
        let Err(problem) = counted else { return Ok(true) };
        let scope = scope(swarm.swarm_id, &read.sender, &identity.agent);
        let known = self.swarms.hub().find_by_native(Some(Door::Swarm), &read.envelope.message_id).await?;
        if known.iter().any(|(known, _)| *known == scope) { Ok(false) } else { Err(problem) }
    }

    fn uncount_message(&self, swarm: &Swarm, sender: &PeerId) {
        let now = self.swarms.hub().now();
        self.senders.give_back(&(swarm.swarm_id, sender.clone()), now);
        self.swarm_rates.give_back(&swarm.swarm_id, now);
    }

    /// The message of ours, or of the swarm, that an id stands for, and who of us wrote it.
    async fn parent(&self, swarm: &Swarm, id: &str) -> Result<Option<(MessageId, Option<AgentId>)>, Problem> {
        let hub = self.swarms.hub();
        let prefix = swarm.swarm_id.to_string();
        let found = hub.find_by_native(Some(Door::Swarm), &id.to_ascii_lowercase()).await?;
        let Some((_, id)) = found.into_iter().find(|(scope, _)| scope.starts_with(&prefix)) else {
            return Ok(None);
        };
        let Some(stored) = hub.message(id).await? else { return Ok(None) };
        let writer = stored.message.from;
        // Whatever was sent into the swarm from here counts, also what a link or another hub of ours brought.
        let is_ours = match &writer.realm {
            None => true,
            Some(_) => hub.directory().await?.agent(&writer).is_some_and(|known| known.hub().is_some()),
        };
        Ok(Some((id, is_ours.then_some(writer))))
    }

    /// Writes the message down; says whether it is new. The same again is the same, also when it was signed anew.
    async fn journal(&self, incoming: &Incoming<'_>) -> Result<bool, Problem> {
        let hub = self.swarms.hub();
        if self.is_brought_back(incoming).await? {
            return Ok(false);
        }
        let draft = incoming.to_draft().ok_or_else(Problem::internal)?;
        match hub.submit(draft).await {
            Ok(accepted) => Ok(!accepted.duplicate),
            Err(HubError::Conflict { native_id, first }) => {
                let again = incoming.to_draft().ok_or_else(Problem::internal)?;
                let stored = hub.message(first).await?.map(|stored| stored.message);
                let is_same = stored.is_some_and(|first| {
                    first.kind == again.kind && first.body == again.body && first.metadata == again.metadata
                });
                if is_same { Ok(false) } else { Err(HubError::Conflict { native_id, first }.into()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this is a post of a channel that our agent wrote, or has from another hub of ours: the channel and the swarm
    /// are two bridges between the same hubs, and this one is the second.
    async fn is_brought_back(&self, incoming: &Incoming<'_>) -> Result<bool, Problem> {
        let post = told_post(incoming.envelope).filter(|_| incoming.is_whole);
        let (Some(post), Some(name)) = (post, incoming.identity.name()) else { return Ok(false) };
        let Some((stored, receipt)) = self.swarms.hub().receipt(post).await? else { return Ok(false) };
        let me = AgentId::local(name);
        let has_it = stored.message.from == me || receipt.deliveries.iter().any(|one| one.agent == me);
        Ok(has_it && stored.message.body == incoming.envelope.content)
    }

    /// Notes that a member signs whole envelopes: from now on it always must. Such a signature covers the sender's id, so
    /// it also proves the key.
    async fn pin(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        sender: &PeerId,
        member: &Member,
    ) -> Result<(), Problem> {
        let (me, id, key) = (identity.agent.clone(), sender.clone(), member.public_key.clone());
        let change = move |swarm: &mut Swarm| {
            let known = swarm.members.get_mut(&id).filter(|known| known.public_key == key);
            let Some(known) = known else { return Ok(Vec::new()) };
            known.signs_envelopes = true;
            Ok(swarm.settle_key(&me, &id, KeyProof::Signature))
        };
        let displaced = self.swarms.edit(&identity.agent, swarm.swarm_id, change).await?;
        self.notify_displaced(identity, swarm, &displaced, sender).await;
        Ok(())
    }

    /// Ends the provisional state of a sender whose message proves its key. The message is in the journal by now, so that
    /// of two senders of one message neither proves anything.
    async fn check_key_proof(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        member: &Member,
        read: &Read,
    ) -> Result<(), Problem> {
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
        let known = self.swarms.hub().find_by_native(Some(Door::Swarm), &read.envelope.message_id).await?;
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
        let displaced = self.swarms.edit(&identity.agent, swarm.swarm_id, change).await?;
        self.notify_displaced(identity, swarm, &displaced, &read.sender).await;
        Ok(())
    }

    /// Tells our own agent which members gave way to the one that proved the key.
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

    /// Applies an order to a swarm, unless it was applied before.
    fn applied(
        &self,
        identity: &Identity,
        swarm: &mut Swarm,
        read: &Read,
        order: &Order,
    ) -> Result<Applied, Problem> {
        let now = self.swarms.hub().now();
        let said = Said {
            me: &identity.agent,
            sender: &read.sender,
            to_me: read.envelope.recipient == identity.agent.as_str(),
            at: read.timestamp,
            now,
        };
        if let Order::Change(content) = order
            && content.swarm_id.as_deref().is_some_and(|id| id != read.envelope.swarm_id)
        {
            return Err(Problem::format("content is about another swarm"));
        }
        let window_start = now.saturating_sub(self.swarms.config().oldest).unwrap_or(Timestamp::MIN);
        let carrier = Carrier { message_id: &read.envelope.message_id, window_start };
        let applied = swarm.apply_once(&said, &carrier, order);
        applied.map_err(|error| refuse(swarm, read, &error))
    }

    /// Applies an order for good and answers it.
    async fn make_true(
        &self,
        identity: &Identity,
        swarm: &Swarm,
        read: Read,
        order: Order,
        queued: Queued,
    ) -> Result<Queued, Problem> {
        let (agent, id, sender) = (identity.agent.clone(), swarm.swarm_id, read.sender.clone());
        let (server, owner) = (self.clone(), identity.clone());
        let is_transfer = matches!(&order, Order::Change(content) if content.action == "master_transfer");
        let changed = self.swarms.edit(&agent, id, move |swarm| {
            // On a copy: it may be refused now, though it was not a moment ago, and then it changes nothing.
            let mut changing = swarm.clone();
            let applied = server.applied(&owner, &mut changing, &read, &order);
            if applied.is_ok() {
                *swarm = changing;
            }
            Ok(applied)
        });
        match changed.await?? {
            Applied::Nothing | Applied::Changed => {}
            Applied::Behind => self.later(Task::Behind { agent, swarm: id }),
            Applied::KeyMissing(member) => self.later(Task::KeyMissing { agent, swarm: id, member }),
            Applied::RosterWanted => self.later(Task::RosterWanted { agent, swarm: id, member: sender }),
            Applied::Promoted => {
                tracing::warn!(swarm = %swarm.realm, %agent, "this agent leads the swarm now");
            }
        }
        let status = if is_transfer { "accepted" } else { "queued" };
        Ok(Queued { status: status.to_owned(), ..queued })
    }
}

/// Says no to a system message. Whoever speaks as the master and is not may be one of two, which a person should know.
fn refuse(swarm: &Swarm, read: &Read, error: &NoAuthority) -> Problem {
    match error {
        NoAuthority::NotMaster { .. } => {
            let (sender, master) = (&read.sender, &swarm.master);
            tracing::warn!(swarm = %swarm.realm, %sender, %master, "refused a change of the roster: {error}");
            Problem::not_master(error.to_string())
        }
        NoAuthority::NoProof => Problem::signature(error.to_string()),
        NoAuthority::Field { .. } | NoAuthority::NotAMember | NoAuthority::Taken | NoAuthority::Clash(_) => {
            tracing::warn!(swarm = %swarm.realm, sender = %read.sender, "refused a change of the roster: {error}");
            Problem::format(error.to_string())
        }
    }
}

/// Parses the order that a system message carries. One that cannot be parsed is news like any other, and changes nothing.
fn read_order(content: &str) -> Option<Order> {
    // Written as a list it would be read by position, which nobody means.
    let value = strict::parse(content.as_bytes()).ok().filter(Value::is_object)?;
    if value.get("action").and_then(Value::as_str) == Some("roster") {
        return serde_json::from_value(value).ok().map(Order::Roster);
    }
    serde_json::from_value(value).ok().map(|content| Order::Change(Box::new(content)))
}

/// Checks the form of a message and of what came with it.
fn read(headers: &HeaderMap, body: &[u8]) -> Result<Read, Problem> {
    let raw =
        strict::parse(body).map_err(|error| Problem::format(format!("the body is not JSON: {error}")))?;
    check_objects(&raw)?;
    if let Some(version) = raw.get("protocol_version").and_then(Value::as_str) {
        check_version("protocol_version", version)?;
    }
    let envelope: Envelope =
        serde_path_to_error::deserialize(&raw).map_err(|error| Problem::shape(&error))?;
    check_headers(headers, &envelope.sender.agent_id)?;
    let field = |field: &str, problem: &str| {
        Problem::format(format!("{field} {problem}")).with(json!({ "field": field }))
    };
    let uuid = |name: &str, text: &str| {
        // One spelling, because the text itself is what is signed.
        Uuid::try_parse(text)
            .ok()
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| field(name, "must be a UUID in lower case with hyphens"))
    };
    uuid("message_id", &envelope.message_id)?;
    let swarm = uuid("swarm_id", &envelope.swarm_id)?;
    let timestamp = stamp::parse(&envelope.timestamp)
        .ok_or_else(|| field("timestamp", "must be a time in UTC such as 2026-02-05T14:30:00.000Z"))?;
    if envelope.expires_at.as_deref().is_some_and(|end| stamp::parse(end).is_none()) {
        return Err(field("expires_at", "must be a time in UTC such as 2026-02-05T14:30:00.000Z"));
    }
    let sender = PeerId::parse(&envelope.sender.agent_id)
        .map_err(|error| Problem::format(error.to_string()).with(json!({ "field": "sender.agent_id" })))?;
    PeerId::parse(&envelope.recipient)
        .map_err(|_| field("recipient", "must be 'broadcast' or the id of an agent"))?;
    let (references, attachments) = (envelope.references.as_deref(), envelope.attachments.as_deref());
    check_parts(references.unwrap_or_default(), attachments.unwrap_or_default()).map_err(|error| {
        let field = if matches!(error, SwarmError::Reference(_)) { "references" } else { "attachments" };
        Problem::format(error.to_string()).with(json!({ "field": field }))
    })?;
    Ok(Read { envelope, raw, swarm, sender, timestamp })
}

/// Whether what must be an object is one. A list would be read by position, past checks that look for names.
pub(crate) fn check_objects(raw: &Value) -> Result<(), Problem> {
    let refuse =
        |field: &str| Problem::format(format!("{field} must be an object")).with(json!({ "field": field }));
    let is_list = |field: &str| raw.get(field).is_some_and(Value::is_array);
    if !raw.is_object() {
        return Err(Problem::format("the body must be an object"));
    }
    if is_list("sender") {
        return Err(refuse("sender"));
    }
    for field in ["references", "attachments"] {
        let items = raw.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if items.iter().any(Value::is_array) {
            return Err(refuse(field));
        }
    }
    Ok(())
}

/// Headers are optional, because existing implementations do not always send them; present, they have to be right.
pub(crate) fn check_headers(headers: &HeaderMap, agent: &str) -> Result<(), Problem> {
    if headers.get("x-agent-id").is_some_and(|id| id.as_bytes() != agent.as_bytes()) {
        return Err(Problem::format("X-Agent-ID is not the sender's agent_id"));
    }
    match headers.get("x-swarm-protocol").map(|version| version.to_str()) {
        None => Ok(()),
        Some(Ok(version)) => check_version("X-Swarm-Protocol", version),
        Some(Err(_)) => Err(Problem::format("X-Swarm-Protocol is no version")),
    }
}

pub(crate) fn check_version(field: &str, version: &str) -> Result<(), Problem> {
    if is_compatible(version) {
        return Ok(());
    }
    let shown: String = version.chars().take(32).collect();
    Err(Problem::format(format!(
        "{field} '{}' is not supported; use {PROTOCOL_VERSION}",
        shown.escape_debug()
    ))
    .with(json!({ "field": field, "supported": PROTOCOL_VERSION })))
}
