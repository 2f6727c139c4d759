//! Session with a NATS server: the hub, the client, and the JetStream streams and buckets.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{self, DiscardPolicy, Republish, StorageType, Stream};
use switchboard_core::Name;
use switchboard_hub::Hub;
use tokio::sync::watch;

use crate::config::Config;
use crate::connection::Connection;
use crate::cursor::Ingested;
use crate::error::NatsError;
use crate::interest::Interest;
use crate::status::StatusWriter;
use crate::subject::{Subjects, token};

/// Deduplication window of the server. For older messages, the link itself checks the stream.
const DUPLICATES: Duration = Duration::from_mins(10);

/// Idle time after which the server removes an abandoned consumer.
pub(crate) const ABANDONED: Duration = Duration::from_secs(30);

/// One session with a server, shared by its tasks.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) config: Arc<Config>,
    pub(crate) hub: Hub,
    /// Name of this hub among the linked hubs.
    pub(crate) me: Name,
    pub(crate) subjects: Subjects,
    pub(crate) status_writer: StatusWriter,
    pub(crate) connection: Arc<Connection>,
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    pub(crate) agents: Store,
    pub(crate) presence: Store,
    /// Time without a heartbeat after which a hub counts as offline.
    ///
    /// It is the TTL of the presence bucket, so that all hubs agree on it.
    pub(crate) presence_ttl: Duration,
    /// The interest to which the intake must switch.
    pub(crate) wanted: Arc<watch::Sender<Interest>>,
    /// The interest in force: messages to its groups are received from now on.
    pub(crate) received: Arc<watch::Sender<Interest>>,
    /// Revision of this hub's entry in the agents bucket, whichever hub wrote the entry.
    pub(crate) own_entry: Arc<watch::Sender<u64>>,
}

impl Session {
    /// Opens the session's streams and buckets, or creates them.
    pub(crate) async fn open(
        config: Arc<Config>,
        hub: Hub,
        me: Name,
        status_writer: StatusWriter,
        connection: Connection,
    ) -> Result<Self, NatsError> {
        let subjects = Subjects::new(&config.prefix);
        let client = connection.client.clone();
        let context = ContextBuilder::new().timeout(config.timeout).build(client.clone());
        let messages = stream::Config {
            name: subjects.stream(),
            subjects: vec![subjects.everything()],
            max_age: config.retention,
            duplicate_window: DUPLICATES.min(config.retention),
            num_replicas: config.replicas,
            storage: StorageType::File,
            description: Some("Messages between Switchboard hubs".to_owned()),
            ..stream::Config::default()
        };
        let stream = open_stream(&context, messages, &subjects.everything()).await?;
        let live = Republish {
            source: format!("$KV.{}.>", subjects.agents()),
            destination: subjects.live_agents(),
            headers_only: false,
        };
        let agents = bucket(&context, subjects.agents(), Duration::ZERO, config.replicas, Some(live)).await?;
        let ttl = config.presence_ttl;
        let presence = bucket(&context, subjects.presence(), ttl, config.replicas, None).await?;
        let presence_ttl = Some(presence.stream.cached_info().config.max_age).filter(|age| !age.is_zero());
        let ingested = Ingested::load(&hub, created(&stream)).await?;
        Ok(Self {
            config,
            hub,
            me,
            subjects,
            status_writer,
            connection: Arc::new(connection),
            client,
            context,
            stream,
            agents,
            presence,
            presence_ttl: presence_ttl.unwrap_or(ttl),
            wanted: Arc::new(watch::Sender::new(ingested.interest.clone())),
            received: Arc::new(watch::Sender::new(ingested.interest)),
            own_entry: Arc::default(),
        })
    }

    /// Opens or creates the claims bucket.
    ///
    /// The bucket is opened on demand, so that the rest of the link works even if the server denies access to it.
    pub(crate) async fn claims(&self) -> Result<Store, NatsError> {
        bucket(&self.context, self.subjects.claims(), Duration::ZERO, self.config.replicas, None).await
    }

    /// Returns the identity of the stream.
    ///
    /// A stream that was removed and recreated has other sequences.
    pub(crate) fn stream_id(&self) -> i128 {
        created(&self.stream)
    }

    /// Creates the hub's consumer, which starts after a cursor.
    ///
    /// The server stores the consumer in memory on one node and drops it when the hub disconnects. The cursor is stored
    /// by the hub, so a thousand consumers need no Raft group.
    pub(crate) async fn consumer(&self, after: &Ingested) -> Result<Consumer<pull::Config>, NatsError> {
        let name = token(&self.me);
        // A hub has only one consumer; a leftover of an earlier session would exist until the server finds it
        // abandoned.
        if let Err(error) = self.stream.delete_consumer(&name).await {
            tracing::debug!(%error, "no earlier consumer to remove");
        }
        let mut filters = after.interest.filters(&self.subjects, &self.me);
        // A 2.9 server ignores the list and delivers everything, so the intake filters again.
        let filter_subject = if filters.len() == 1 { filters.remove(0) } else { String::new() };
        let config = pull::Config {
            name: Some(name),
            description: Some(format!("Messages for the hub {}", self.me)),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after.sequence + 1 },
            ack_policy: AckPolicy::None,
            inactive_threshold: ABANDONED,
            num_replicas: 1,
            memory_storage: true,
            filter_subject,
            filter_subjects: filters,
            ..pull::Config::default()
        };
        self.stream.create_consumer(config).await.map_err(NatsError::server("create a consumer"))
    }
}

fn created(stream: &Stream) -> i128 {
    stream.cached_info().created.unix_timestamp_nanos()
}

/// Opens or creates a stream and verifies that the stream covers a subject.
async fn open_stream(context: &Context, config: stream::Config, subject: &str) -> Result<Stream, NatsError> {
    let name = config.name.clone();
    let stream = context.get_or_create_stream(config).await.map_err(NatsError::server("create a stream"))?;
    if !stream.cached_info().config.subjects.iter().any(|taken| taken == subject) {
        return Err(NatsError::ForeignStream { stream: name, subject: subject.to_owned() });
    }
    Ok(stream)
}

/// Opens or creates a key-value bucket.
///
/// The underlying stream is created directly, because the library's own function requires fields that a 2.9 server does
/// not report.
async fn bucket(
    context: &Context,
    name: String,
    max_age: Duration,
    num_replicas: usize,
    republish: Option<Republish>,
) -> Result<Store, NatsError> {
    let subject = format!("$KV.{name}.>");
    let config = stream::Config {
        name: format!("KV_{name}"),
        subjects: vec![subject.clone()],
        max_messages_per_subject: 1,
        max_age,
        duplicate_window: if max_age.is_zero() { Duration::from_mins(2) } else { max_age },
        num_replicas,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        republish,
        ..stream::Config::default()
    };
    open_stream(context, config, &subject).await?;
    context.get_key_value(name).await.map_err(NatsError::server("open a bucket"))
}
