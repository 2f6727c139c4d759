//! Replay: one-time read of a stream range.

use std::time::Duration;

use async_nats::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::Stream;
use futures_util::StreamExt;

use crate::error::NatsError;
use crate::session::ABANDONED;

/// Maximum number of messages per request.
const BATCH: usize = 256;

/// Range of a stream to replay.
pub(crate) struct StreamRange {
    pub(crate) filter_subject: String,
    pub(crate) deliver_policy: DeliverPolicy,
    pub(crate) headers_only: bool,
}

/// A message with its stream sequence.
pub(crate) type Stored = (u64, Message);

/// Reads all messages that a range of the stream currently contains, with a temporary consumer.
pub(crate) async fn read_range(
    stream: &Stream,
    part: StreamRange,
    timeout: Duration,
) -> Result<Vec<Stored>, NatsError> {
    let action = "read the stream";
    let StreamRange { filter_subject, deliver_policy, headers_only } = part;
    let config = pull::Config {
        deliver_policy,
        ack_policy: AckPolicy::None,
        headers_only,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: ABANDONED,
        filter_subject,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(NatsError::server(action))?;
    let mut remaining = consumer.cached_info().num_pending;
    let mut found = Vec::new();
    while remaining > 0 {
        let most = usize::try_from(remaining).unwrap_or(BATCH).min(BATCH);
        let batch = consumer.batch().max_messages(most).expires(timeout).messages();
        let mut batch = batch.await.map_err(NatsError::server(action))?;
        let before = remaining;
        while let Some(message) = batch.next().await {
            let message = message.map_err(NatsError::server(action))?;
            remaining = remaining.saturating_sub(1);
            let sequence = message.info().map_err(NatsError::server(action))?.stream_sequence;
            found.push((sequence, message.message));
        }
        if remaining == before {
            // The remaining messages have expired in the meantime and are no longer delivered.
            break;
        }
    }
    // If the deletion fails, the server soon removes the idle consumer itself.
    let _ = stream.delete_consumer(&consumer.cached_info().name).await;
    Ok(found)
}
