//! `bench swarm`: signed messages of other owners over HTTPS, and a broadcast to slow peers.
//!
//! The hub is the shipped binary running `serve`, with a certificate of a CA that was created for the run. Eight
//! clients, and then 64, each use one connection and send messages one after the other; the messages were signed
//! beforehand. Two baselines that no such hub can avoid run in turn: the bare verification of the same number of
//! signatures on all cores, and the bare journal, to which the same number of tasks in one process write the same
//! messages. Clients and hub share the machine. The hub also delivers the messages that it accepts, with two files per
//! message; the bare journal does not.

mod authority;
mod baseline;
mod broadcast;
mod client;
mod cores;
mod messages;
mod stage;

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;
use switchboard_sys::clock::Clock;

use self::authority::Authority;
use self::client::Client;
use self::cores::Cores;
use self::messages::{Seal, Senders, SignedMessage};
use self::stage::{Peer, Stage};
use crate::figure::{Figure, Target};
use crate::mcp::memory::resident;
use crate::program::build_shipped;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile, rate};

const BENCH: &str = "swarm";

/// Numbers of clients. Each client has its own connection and key.
const CLIENTS: [usize; 2] = [8, 64];

/// Number and size of the measurements.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    /// Number of messages of all clients together in one round.
    messages: usize,
    /// Number of broadcasts to the slow peers.
    broadcasts: usize,
}

/// Full extent: 100,000 messages with one signature for each number of clients.
const FULL: Extent = Extent { rounds: 10, messages: 10_000, broadcasts: 10 };

const QUICK: Extent = Extent { rounds: 3, messages: 1_280, broadcasts: 3 };

/// Results with one number per round.
#[derive(Debug, Default)]
struct Series {
    rates: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    build_shipped().await?;
    let authority = Authority::new()?;
    for clients in CLIENTS {
        accepted(place, &authority, extent, clients).await?;
    }
    broadcast::run(place, &authority, extent.broadcasts).await
}

/// Measures the number of messages per second that are verified, journaled and answered.
async fn accepted(
    place: &RunFolder,
    authority: &Authority,
    extent: Extent,
    clients: usize,
) -> anyhow::Result<()> {
    // A sender that has signed a complete envelope once must always do so, hence two groups of senders.
    let (plain, whole) = (Senders::new(clients, "plain"), Senders::new(clients, "whole"));
    let peers: Vec<Peer> = plain.peers().chain(whole.peers()).collect();
    let stage = Stage::build(place, authority, &peers).await?;
    let serve = stage.serve().await?;
    let pid = serve.pid().to_string();
    // This warms up prepared statements and page caches.
    for (messages, seal) in [(&plain, Seal::Message), (&whole, Seal::Envelope)] {
        let written = messages.write(&stage, clients, seal)?;
        send_all(&mut connect(authority, &stage, clients).await?, &written).await?;
    }
    let idle = resident(&pid).await?;
    let [mut ours, mut sealed, mut journal] = [Series::default(), Series::default(), Series::default()];
    let (mut verified, mut clients_share, mut hub_share) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=extent.rounds {
        let written = plain.write(&stage, extent.messages, Seal::Message)?;
        // A tenth of the messages are sent once more with both signatures.
        let signed_twice = whole.write(&stage, extent.messages / 10, Seal::Envelope)?;
        RunFolder::settle();
        verified.push(baseline::verify(&plain, &written)?);
        let hub = baseline::Journal::open(place, &stage, clients).await?;
        RunFolder::settle();
        journal.push(hub.write(&written).await?);
        RunFolder::settle();
        // Each round opens new connections, because the hub closes idle ones.
        let mut connections = connect(authority, &stage, clients).await?;
        let cores = Cores::now(&pid);
        ours.push(send_all(&mut connections, &written).await?);
        let shares = cores.since(&pid);
        clients_share.push(shares.clients);
        hub_share.extend(shares.hub);
        sealed.push(send_all(&mut connections, &signed_twice).await?);
        let latest = |values: &[f64]| values.last().copied().unwrap_or_default();
        say!(
            "{clients} clients, round {number} of {}: {:.0}/s, whole envelopes {:.0}/s; verification {:.0}/s, journal {:.0}/s",
            extent.rounds,
            latest(&ours.rates),
            latest(&sealed.rates),
            latest(&verified),
            latest(&journal.rates)
        );
    }
    let held = resident(&pid).await?;
    serve.close().await?;

    let all = extent.rounds * extent.messages;
    let figure =
        |metric: &str, value, unit| Figure::new(BENCH, format!("{metric}_{clients}"), value, unit, all);
    let rate = median(&ours.rates);
    figure("accepted", rate, "1/s").with_baseline("bare_verification", median(&verified)).print()?;
    figure("accepted", rate, "1/s")
        .with_baseline("bare_journal", median(&journal.rates))
        .print_against(Target::AtLeast(0.75))?;
    figure("accepted_p50", median(&ours.p50), "ms")
        .with_baseline("journal_p50", median(&journal.p50))
        .print()?;
    figure("accepted_p99", median(&ours.p99), "ms")
        .with_baseline("journal_p99", median(&journal.p99))
        .print()?;
    Figure::new(BENCH, format!("accepted_whole_{clients}"), median(&sealed.rates), "1/s", all / 10)
        .with_baseline("accepted", rate)
        .print()?;
    figure("cores_of_clients", median(&clients_share), "of all cores").print()?;
    if !hub_share.is_empty() {
        figure("cores_of_hub", median(&hub_share), "of all cores").print()?;
    }
    figure(&format!("resident_after_{all}_messages"), held, "MiB")
        .with_baseline("resident_idle", idle)
        .print()
}

impl Series {
    fn push(&mut self, (times, length): (Vec<Duration>, Duration)) {
        let waits = millis(&times);
        self.rates.push(rate(times.len(), length));
        self.p50.push(median(&waits));
        self.p99.push(percentile(&waits, 0.99));
    }
}

/// Opens a connection for each client.
async fn connect(authority: &Authority, stage: &Stage, clients: usize) -> anyhow::Result<Vec<Client>> {
    let mut connections = Vec::new();
    for number in 0..clients {
        connections.push(Client::connect(authority, stage.port, number).await?);
    }
    Ok(connections)
}

/// Sends each client's messages on that client's connection.
///
/// Returns the latency of each message and the total duration.
async fn send_all(
    clients: &mut [Client],
    messages: &[SignedMessage],
) -> anyhow::Result<(Vec<Duration>, Duration)> {
    let began = Instant::now();
    let count = clients.len();
    let work = clients.iter_mut().enumerate().map(async |(number, client)| {
        let mut times = Vec::new();
        for message in messages.iter().skip(number).step_by(count) {
            let began = Instant::now();
            let status = client.send(&message.request).await?;
            ensure!(status == 200, "a message was answered with {status}");
            times.push(began.elapsed());
        }
        anyhow::Ok(times)
    });
    let times = try_join_all(work).await?.concat();
    Ok((times, began.elapsed()))
}

/// Returns the current time in the format of a message.
fn timestamp() -> String {
    Clock::system().now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
