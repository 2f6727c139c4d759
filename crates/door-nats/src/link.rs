//! What the parts of one session share: the hub, the server, and the streams and buckets on it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{self, DiscardPolicy, StorageType, Stream};
use switchboard_core::{Door, Name};
use switchboard_hub::{Hub, LINK};

use crate::config::Config;
use crate::error::NatsError;
use crate::status::Board;
use crate::subject::{Subjects, token};

/// For how long a server recognises a message that is published again. Beyond that the link looks into the stream.
const DUPLICATES: Duration = Duration::from_mins(10);

/// How long a hub has to take a message in before it is brought again. What comes again is recognised, so this is
/// short: it is also how long the messages wait that a broken session had asked for.
const ACK_WAIT: Duration = Duration::from_secs(10);

/// The key under which it is kept from where on this hub is told what groups are written.
const START: &str = "start";

/// One session with a server.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) config: Arc<Config>,
    pub(crate) hub: Hub,
    /// What this hub is called among the others.
    pub(crate) me: Name,
    pub(crate) subjects: Subjects,
    pub(crate) board: Board,
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    pub(crate) roster: Store,
    pub(crate) presence: Store,
}

impl Link {
    /// Finds or makes the streams and buckets.
    pub(crate) async fn open(
        config: Arc<Config>,
        hub: Hub,
        me: Name,
        board: Board,
        client: Client,
    ) -> Result<Self, NatsError> {
        let subjects = Subjects::new(&config.prefix);
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
        let roster = bucket(&context, subjects.roster(), Duration::ZERO, config.replicas).await?;
        let presence = bucket(&context, subjects.presence(), config.presence_ttl, config.replicas).await?;
        Ok(Self { config, hub, me, subjects, board, client, context, stream, roster, presence })
    }

    /// Finds or makes the bucket of claims. Not at once: a server may keep this hub from it, and all else goes on.
    pub(crate) async fn claims(&self) -> Result<Store, NatsError> {
        bucket(&self.context, self.subjects.claims(), Duration::ZERO, self.config.replicas).await
    }

    /// Which stream this is: one that was removed and made anew has other sequences.
    pub(crate) fn stream_id(&self) -> i128 {
        self.stream.cached_info().created.unix_timestamp_nanos()
    }

    /// The durable reader of what is written to this hub.
    pub(crate) async fn direct(&self) -> Result<Consumer<pull::Config>, NatsError> {
        self.reader("hub", self.subjects.to_hub(&self.me), DeliverPolicy::All).await
    }

    /// The durable reader of what is written to groups, from the moment this hub first joined.
    pub(crate) async fn groups(&self) -> Result<Consumer<pull::Config>, NatsError> {
        let stream = self.stream_id();
        let notes = self.hub.notes(Door::Nats, LINK).await?;
        let noted = notes.iter().find(|(key, _)| key == START).and_then(|(_, value)| value.split_once(' '));
        let start = match noted {
            // A stream that was made anew holds nothing that this hub has read.
            Some((of, _)) if of.parse() != Ok(stream) => 1,
            Some((_, start)) => start.parse().unwrap_or(1),
            None => {
                let info = self.stream.get_info().await.map_err(NatsError::server("describe the stream"))?;
                let start = info.state.last_sequence + 1;
                self.hub.note(Door::Nats, LINK, START.to_owned(), Some(format!("{stream} {start}"))).await?;
                start
            }
        };
        let policy = DeliverPolicy::ByStartSequence { start_sequence: start };
        self.reader("groups", self.subjects.to_groups(), policy).await
    }

    async fn reader(
        &self,
        part: &str,
        filter_subject: String,
        deliver_policy: DeliverPolicy,
    ) -> Result<Consumer<pull::Config>, NatsError> {
        let name = format!("{}-{part}", token(&self.me));
        let config = pull::Config {
            durable_name: Some(name.clone()),
            description: Some(format!("What the hub {} has taken in", self.me)),
            deliver_policy,
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            // One subject and not several: a server 2.9 ignores a list, and brings everything.
            filter_subject,
            ..pull::Config::default()
        };
        let made = self.stream.get_or_create_consumer(&name, config).await;
        made.map_err(NatsError::server("make a consumer"))
    }
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
        ..stream::Config::default()
    };
    make(context, config, &subject).await?;
    context.get_key_value(name).await.map_err(NatsError::server("open a bucket"))
}
