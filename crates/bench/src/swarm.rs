//! `bench swarm`: signed messages of other owners, taken in over HTTPS, and a broadcast to peers that are slow.
//!
//! The hub is the shipped binary running `serve` with a certificate of a CA that was made for the run. Eight clients keep
//! a connection each and send messages that were signed beforehand, one after the other. By turns with them run the two
//! things that no such hub can do without: the bare verification of as many signatures on all cores, and the bare
//! journal, which as many tasks of one process write the same messages to. Clients and hub share the machine.

mod authority;
mod baseline;
mod broadcast;
mod client;
mod cores;
mod letters;
mod stage;

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;
use switchboard_hub::clock::Clock;

use self::authority::Authority;
use self::client::Client;
use self::cores::Cores;
use self::letters::{Letter, Letters, Seal};
use self::stage::{Peer, Stage};
use crate::figure::{Figure, Target};
use crate::mcp::memory::resident;
use crate::place::Place;
use crate::program::bring_up_to_date;
use crate::progress::say;
use crate::stats::{median, millis, percentile, rate};

const BENCH: &str = "swarm";

/// How many clients there are, each with a connection and a key of its own.
const CLIENTS: usize = 8;

/// How often and how much.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    /// Messages of one client in one round.
    each: usize,
    /// Broadcasts to the slow peers.
    broadcasts: usize,
}

/// 100,000 messages with one signature.
const FULL: Extent = Extent { rounds: 10, each: 1250, broadcasts: 10 };

const QUICK: Extent = Extent { rounds: 3, each: 150, broadcasts: 3 };

/// One number per round.
#[derive(Debug, Default)]
struct Series {
    rates: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

pub(crate) async fn run(place: &Place, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    bring_up_to_date().await?;
    let authority = Authority::new()?;
    accepted(place, &authority, extent).await?;
    broadcast::run(place, &authority, extent.broadcasts).await
}

/// How many messages a second are verified, in the journal, and answered.
async fn accepted(place: &Place, authority: &Authority, extent: Extent) -> anyhow::Result<()> {
    // Whoever has signed a whole envelope once must always do so: two kinds of senders.
    let (plain, whole) = (Letters::new(CLIENTS, "plain"), Letters::new(CLIENTS, "whole"));
    let peers: Vec<Peer> = plain.peers().chain(whole.peers()).collect();
    let stage = Stage::build(place, authority, &peers).await?;
    let serve = stage.serve().await?;
    let pid = serve.pid().to_string();
    // Statements, and the first pages of everything.
    for (letters, seal) in [(&plain, Seal::Message), (&whole, Seal::Envelope)] {
        let written = letters.write(&stage, CLIENTS, seal)?;
        taken_in(&mut connect(authority, &stage).await?, &written).await?;
    }
    let idle = resident(&pid).await?;
    let [mut ours, mut sealed, mut journal] = [Series::default(), Series::default(), Series::default()];
    let (mut verified, mut clients_share, mut hub_share) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=extent.rounds {
        let written = plain.write(&stage, CLIENTS * extent.each, Seal::Message)?;
        // A tenth of them again with both signatures.
        let signed_twice = whole.write(&stage, (CLIENTS * extent.each / 10).max(CLIENTS), Seal::Envelope)?;
        Place::settle();
        verified.push(baseline::verify(&plain, &written)?);
        let hub = baseline::Journal::open(place, &stage).await?;
        Place::settle();
        journal.push(hub.write(&written).await?);
        Place::settle();
        // Anew for each round: those of the last one were idle, and the hub closes what is idle for long.
        let mut clients = connect(authority, &stage).await?;
        let cores = Cores::now(&pid);
        ours.push(taken_in(&mut clients, &written).await?);
        let shares = cores.since(&pid);
        clients_share.push(shares.clients);
        hub_share.extend(shares.hub);
        sealed.push(taken_in(&mut clients, &signed_twice).await?);
        let latest = |values: &[f64]| values.last().copied().unwrap_or_default();
        say!(
            "round {number} of {}: {:.0}/s, whole envelopes {:.0}/s; verification {:.0}/s, journal {:.0}/s",
            extent.rounds,
            latest(&ours.rates),
            latest(&sealed.rates),
            latest(&verified),
            latest(&journal.rates)
        );
    }
    let held = resident(&pid).await?;
    serve.close().await?;

    let all = extent.rounds * extent.each * CLIENTS;
    let figure = |metric: &str, value, unit| Figure::new(BENCH, metric, value, unit, all);
    let (bare_verification, bare_journal) = (median(&verified), median(&journal.rates));
    let rate = median(&ours.rates);
    figure("accepted_8", rate, "1/s").beside("bare_verification", bare_verification).print()?;
    figure("accepted_8", rate, "1/s").beside("bare_journal", bare_journal).print()?;
    figure("accepted_8", rate, "1/s")
        .beside("slower_of_the_two", bare_verification.min(bare_journal))
        .print_against(Target::AtLeast(0.5))?;
    figure("accepted_8_p50", median(&ours.p50), "ms")
        .beside("journal_8_p50", median(&journal.p50))
        .print()?;
    figure("accepted_8_p99", median(&ours.p99), "ms")
        .beside("journal_8_p99", median(&journal.p99))
        .print()?;
    Figure::new(BENCH, "accepted_whole_8", median(&sealed.rates), "1/s", all / 10)
        .beside("accepted_8", rate)
        .print()?;
    figure("cores_of_8_clients", median(&clients_share), "of all cores").print()?;
    if !hub_share.is_empty() {
        figure("cores_of_hub", median(&hub_share), "of all cores").print()?;
    }
    figure(&format!("resident_after_{all}"), held, "MiB").beside("resident_idle", idle).print()
}

impl Series {
    fn push(&mut self, (times, length): (Vec<Duration>, Duration)) {
        let waits = millis(&times);
        self.rates.push(rate(times.len(), length));
        self.p50.push(median(&waits));
        self.p99.push(percentile(&waits, 0.99));
    }
}

/// A connection for each client.
async fn connect(authority: &Authority, stage: &Stage) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(authority, stage.port).await?);
    }
    Ok(clients)
}

/// Has the hub take in messages, those of each client on its own connection; how long each of them and all of them took.
async fn taken_in(clients: &mut [Client], letters: &[Letter]) -> anyhow::Result<(Vec<Duration>, Duration)> {
    let began = Instant::now();
    let work = clients.iter_mut().enumerate().map(async |(number, client)| {
        let mut times = Vec::new();
        for letter in letters.iter().skip(number).step_by(CLIENTS) {
            let began = Instant::now();
            let status = client.send(&letter.request).await?;
            ensure!(status == 200, "a message was answered with {status}");
            times.push(began.elapsed());
        }
        anyhow::Ok(times)
    });
    let times = try_join_all(work).await?.concat();
    Ok((times, began.elapsed()))
}

/// The time now, as a message has it.
fn stamp() -> String {
    Clock::system().now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
