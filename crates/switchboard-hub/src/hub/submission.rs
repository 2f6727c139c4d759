//! Submission of messages to the journal.

use std::sync::Arc;

use serde_json::Map;
use switchboard_core::{Address, AgentId, Delivery, DeliveryState, Door, Kind, MessageId, NativeId};

use super::{Hub, Queued};
use crate::delivery::outbox::Handoff;
use crate::error::HubError;
use crate::journal::submit::{self, Accepted, Draft, Prepared, RelayedMessage};

impl Hub {
    /// Returns a new message id that is greater than all earlier ids of this process.
    pub fn next_id(&self) -> MessageId {
        self.inner.ids.lock().next(self.now(), fastrand::u128(..))
    }

    /// Creates a draft with default values.
    ///
    /// The draft has the current time, no route, and the hub's own id as native id. Its sender is not verified yet.
    pub fn draft(
        &self,
        door: Door,
        from: AgentId,
        to: Address,
        kind: Kind,
        body: impl Into<String>,
    ) -> Draft {
        let id = self.next_id();
        Draft {
            id,
            from,
            to,
            kind,
            body: body.into(),
            in_reply_to: None,
            sent_at: self.now(),
            expires_at: None,
            metadata: Map::new(),
            native: NativeId { door, scope: String::new(), id: id.to_string() },
            key: None,
            native_is_id: true,
            verified: false,
            route: None,
            signed: None,
            allow_unregistered: false,
            restored: None,
        }
    }

    /// Submits a message.
    ///
    /// If this returns `Ok`, the message is on disk; otherwise it was not accepted, unless the outcome is
    /// [unknown](HubError::OutcomeUnknown).
    pub async fn submit(&self, draft: Draft) -> Result<Accepted, HubError> {
        self.queue(draft).await?.accepted().await
    }

    /// Queues a message for the journal. Messages are journaled in the order in which they are queued.
    pub async fn queue(&self, draft: Draft) -> Result<Queued, HubError> {
        let config = &self.inner.config;
        self.queue_one(Prepared::new(draft, config.body_limit, config.metadata_limit)?).await
    }

    /// Submits a message in the hub's own name, [`crate::HUB_NAME`], which is reserved.
    pub async fn submit_as_hub(&self, draft: Draft) -> Result<Accepted, HubError> {
        let config = &self.inner.config;
        let prepared = Prepared::new(draft, config.body_limit, config.metadata_limit)?;
        self.queue_one(prepared.in_hub_name()).await?.accepted().await
    }

    async fn queue_one(&self, prepared: Prepared) -> Result<Queued, HubError> {
        self.note_changed_mail();
        let pending = self.inner.writer.queue(move |tx| submit::submit(tx, prepared)).await?;
        Ok(Queued { hub: self.clone(), pending })
    }

    /// Submits many messages in order as a batch with few fsyncs. Each message has its own result.
    pub async fn submit_all(&self, drafts: Vec<Draft>) -> Vec<Result<Accepted, HubError>> {
        let config = &self.inner.config;
        let prepare = |draft| Prepared::new(draft, config.body_limit, config.metadata_limit);
        self.submit_prepared(drafts.into_iter().map(prepare)).await
    }

    /// Submits messages that other hubs have relayed.
    pub async fn submit_relayed(&self, messages: Vec<RelayedMessage>) -> Vec<Result<Accepted, HubError>> {
        let config = &self.inner.config;
        let prepare = |messages| Prepared::relayed(messages, config.body_limit, config.metadata_limit);
        self.submit_prepared(messages.into_iter().map(prepare)).await
    }

    async fn submit_prepared(
        &self,
        messages: impl Iterator<Item = Result<Prepared, HubError>>,
    ) -> Vec<Result<Accepted, HubError>> {
        self.note_changed_mail();
        let mut pending = Vec::with_capacity(messages.size_hint().0);
        for prepared in messages {
            pending.push(match prepared {
                Ok(prepared) => self.inner.writer.queue(move |tx| submit::submit(tx, prepared)).await,
                Err(error) => Err(error),
            });
        }
        let mut answers = Vec::with_capacity(pending.len());
        for pending in pending {
            let answer = match pending {
                Ok(pending) => pending.result().await,
                Err(error) => Err(error),
            };
            self.note_damage(&answer);
            answers.push(answer);
        }
        answers
    }

    /// Submits a message and leases its in-place deliveries to the submitter.
    ///
    /// The submitter still has to write the file. The deliveries are in flight until the submitter reports. If the
    /// submitter's process dies first, the outbox redelivers them through their door. For a duplicate, nothing is
    /// leased.
    pub async fn submit_leased(&self, draft: Draft) -> Result<(Accepted, Vec<Handoff>), HubError> {
        let (config, route) = (&self.inner.config, draft.route.clone());
        let prepared = Prepared::new(draft, config.body_limit, config.metadata_limit)?.leased();
        let accepted = self.queue_one(prepared).await?.accepted().await?;
        let is_leased =
            |one: &&Delivery| one.state == DeliveryState::InFlight && Some(&one.route) == route.as_ref();
        let leased: Vec<Delivery> = accepted.deliveries.iter().filter(is_leased).cloned().collect();
        if accepted.duplicate || leased.is_empty() {
            return Ok((accepted, Vec::new()));
        }
        // The message stays accepted: without a handoff, the lease expires and the outbox delivers the message.
        let Ok(Some(stored)) = self.journal().message(accepted.id).await else {
            return Ok((accepted, Vec::new()));
        };
        let (message, now) = (Arc::new(stored.message), self.now());
        let handoff = |delivery| {
            Handoff::of_submitter(&self.inner.writer, now, message.clone(), accepted.seq, delivery)
        };
        let handoffs = leased.into_iter().map(handoff).collect();
        Ok((accepted, handoffs))
    }
}
