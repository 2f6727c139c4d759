//! Submission of messages whose file the submitter itself writes after they are journaled.

use std::sync::Arc;

use switchboard_core::{Delivery, DeliveryState};

use super::Hub;
use crate::delivery::outbox::Handoff;
use crate::error::HubError;
use crate::journal::submit::{Accepted, Draft, Prepared};

impl Hub {
    /// Submits a message and leases its in-place deliveries to the submitter, who still has to write the file.
    ///
    /// They are in flight until the submitter reports. If its process dies first, the outbox hands them to
    /// their door. Nothing is leased for a duplicate.
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
        // The message stays accepted: without a handoff the lease expires, and the outbox delivers it.
        let Ok(Some(stored)) = self.message(accepted.id).await else { return Ok((accepted, Vec::new())) };
        let (message, now) = (Arc::new(stored.message), self.now());
        let handoff = |delivery| {
            Handoff::of_submitter(&self.inner.writer, now, message.clone(), accepted.seq, delivery)
        };
        let handoffs = leased.into_iter().map(handoff).collect();
        Ok((accepted, handoffs))
    }
}
