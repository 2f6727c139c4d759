//! Benchmarks: each job beside its baseline, interleaved in one run, on the same disk.
//!
//! `cargo run --release -p bench -- NAME [--quick]` prints one JSON line per figure on stdout (see
//! [`figure`]) and its progress on stderr. What is measured is the shipped crate or the shipped
//! binary. Short rounds of ours and of each baseline alternate, and a figure is the median over the
//! rounds, so that a busy machine disturbs all of them alike.

mod baseline_bare;
mod baseline_files;
mod baseline_fsync;
mod baseline_sqlite;
mod binding;
mod channels;
mod cli;
mod figure;
mod grid;
mod growth;
mod hubs;
mod load;
mod mailbox;
mod mcp;
mod nats;
mod ours;
mod place;
mod program;
mod progress;
mod stats;
mod suites;
mod swarm;
mod waiter;
mod wake;
mod workers;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, ValueEnum};

use crate::place::Place;
use crate::progress::say;

/// Measure Switchboard beside a baseline; one JSON line per figure.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
struct Args {
    /// What to measure
    name: Name,

    /// Fewer and shorter rounds: done within 30 seconds, `growth` within some minutes
    #[arg(long)]
    quick: bool,

    /// What a reader of `channels` waits by
    #[arg(long, hide = true)]
    by: Option<channels::By>,

    /// Where to write; the figures hold for the disk that this is on [default: the build folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The benchmarks.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    /// Durable sends, deliveries, and how soon a waiting reader wakes
    Mailbox,
    /// Whole processes: `--help`, `send`, `who` and `inbox`
    Cli,
    /// `switchboard mcp` and `serve` as a model's program uses them
    Mcp,
    /// Calls of tools through a suite, and what having many suites costs
    Suites,
    /// Posts that wake readers and watchers, what it costs to have many watchers wait, and catching up over NATS
    Channels,
    /// The part of `channels` about NATS, by itself
    Nats,
    /// What hubs linked over NATS cost by their number, up to fifty, extrapolated to a thousand
    Hubs,
    /// Signed messages of other owners over HTTPS, and a broadcast to slow peers
    Swarm,
    /// From a send at one door to the arrival at each other
    Grid,
    /// Each job in a hub of 1,000,000 messages beside the same in one of 10,000; takes 10 GB and 2.1 million files
    Growth,
    /// A reader of the baseline of `channels`
    #[value(hide = true)]
    ChannelReader,
    /// The program that watchers of `channels` start
    #[value(hide = true)]
    ChannelProgram,
    /// Injections and answers through the router
    Workers,
    /// The server behind `suites`, which does nothing but answer
    #[value(hide = true)]
    EchoChild,
    /// The waiting reader of `mailbox`, which starts it as a process of its own
    #[value(hide = true)]
    Waiter,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // The runtime of the shipped binary.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<()> {
    if let Name::Waiter = args.name {
        return waiter::run(&args.dir.context("the waiter needs --dir")?).await;
    }
    if let Name::EchoChild = args.name {
        return suites::echo_child();
    }
    if let Name::ChannelReader = args.name {
        let by = args.by.context("the reader needs --by")?;
        return channels::reader(&args.dir.context("the reader needs --dir")?, by).await;
    }
    if let Name::ChannelProgram = args.name {
        return channels::program(&args.dir.context("the program needs --dir")?);
    }
    if cfg!(debug_assertions) {
        say!("not a release build: these figures say nothing about the shipped program");
    }
    let place = Place::find(args.dir.as_deref())?;
    say!("writing to {}", place.path().display());
    match args.name {
        Name::Mailbox => mailbox::run(&place, args.quick).await,
        Name::Cli => cli::run(&place, args.quick).await,
        Name::Mcp => mcp::run(&place, args.quick).await,
        Name::Suites => suites::run(&place, args.quick).await,
        Name::Channels => channels::run(&place, args.quick).await,
        Name::Nats => nats::run(&place, args.quick).await,
        Name::Hubs => hubs::run(&place, args.quick).await,
        Name::Swarm => swarm::run(&place, args.quick).await,
        Name::Grid => grid::run(&place, args.quick).await,
        Name::Growth => growth::run(&place, args.quick).await,
        Name::Waiter | Name::EchoChild | Name::ChannelReader | Name::ChannelProgram => Ok(()),
        Name::Workers => workers::run(&place, args.quick).await,
    }
}
