//! What the parts of one session share: the hub, the server, and the streams and buckets on it.

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

/// For how long a server recognises a message that is published again. Beyond that the link looks into the stream.
const DUPLICATES: Duration = Duration::from_mins(10);

/// After how long without a request a server removes a consumer that its hub left behind.
pub(crate) const ABANDONED: Duration = Duration::from_secs(30);

/// One session with a server.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) config: Arc<Config>,
    pub(crate) hub: Hub,
    /// What this hub is called among the others.
    pub(crate) me: Name,
    pub(crate) subjects: Subjects,
    pub(crate) status_writer: StatusWriter,
    pub(crate) connection: Arc<Connection>,
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    pub(crate) agents: Store,
    pub(crate) presence: Store,
    /// After how long a silence a hub counts as away: what the bucket of presence was made with, so that all agree.
    pub(crate) presence_ttl: Duration,
    /// The interest that the intake is to switch to.
    pub(crate) wanted: Arc<watch::Sender<Interest>>,
    /// The interest that is in force: what is written to these groups from now on is received.
    pub(crate) received: Arc<watch::Sender<Interest>>,
    /// The revision that the entry of this hub has in the bucket of agents, written by this hub or another.
    pub(crate) own_entry: Arc<watch::Sender<u64>>,
}

impl Session {
    /// Finds or makes the streams and buckets.
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
        let stream = make(&context, messages, &subjects.everything()).await?;
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

    /// Finds or makes the bucket of claims. Not at once: a server may keep this hub from it, and all else goes on.
    pub(crate) async fn claims(&self) -> Result<Store, NatsError> {
        bucket(&self.context, self.subjects.claims(), Duration::ZERO, self.config.replicas, None).await
    }

    /// Which stream this is: one that was removed and made anew has other sequences.
    pub(crate) fn stream_id(&self) -> i128 {
        created(&self.stream)
    }

    /// The hub's consumer, from behind a cursor on. It is kept in memory on one server and forgotten when the hub goes:
    /// the cursor is the hub's own, so a thousand consumers make no Raft group.
    pub(crate) async fn consumer(&self, after: &Ingested) -> Result<Consumer<pull::Config>, NatsError> {
        let name = token(&self.me);
        // One per hub: that of an earlier session would live on until its server finds it abandoned.
        if let Err(error) = self.stream.delete_consumer(&name).await {
            tracing::debug!(%error, "no earlier consumer to remove");
        }
        let mut filters = after.interest.filters(&self.subjects, &self.me);
        // A server 2.9 ignores a list and delivers everything; the intake sorts it out.
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
        self.stream.create_consumer(config).await.map_err(NatsError::server("make a consumer"))
    }
}

fn created(stream: &Stream) -> i128 {
    stream.cached_info().created.unix_timestamp_nanos()
}

/// Finds or makes a stream that takes a subject.
async fn make(context: &Context, config: stream::Config, subject: &str) -> Result<Stream, NatsError> {
    let name = config.name.clone();
    let stream = context.get_or_create_stream(config).await.map_err(NatsError::server("make a stream"))?;
    if !stream.cached_info().config.subjects.iter().any(|taken| taken == subject) {
        return Err(NatsError::ForeignStream { stream: name, subject: subject.to_owned() });
    }
    Ok(stream)
}

/// Finds or makes a bucket. By hand: the library's own way asks for what a server 2.9 does not say.
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
    make(context, config, &subject).await?;
    context.get_key_value(name).await.map_err(NatsError::server("open a bucket"))
}
