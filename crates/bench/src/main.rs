//! Benchmarks: each job compared with its baseline, interleaved in one run on the same disk.
//!
//! `cargo run --release -p bench -- NAME [--quick]` prints one JSON line per figure on stdout (see [`figure`]) and its
//! progress on stderr. It measures the shipped crate or the shipped binary. Short rounds of Switchboard and of each
//! baseline alternate, and a figure is the median over the rounds, so a busy machine disturbs all of them alike.

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
mod program;
mod progress;
mod run_folder;
mod sessions;
mod stats;
mod suites;
mod swarm;
mod waiter;
mod wake;
mod workers;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, ValueEnum};

use crate::progress::say;
use crate::run_folder::RunFolder;

/// Measure Switchboard against baselines and print one JSON line per figure.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
struct Args {
    /// Benchmark to run
    name: Name,

    /// Fewer and shorter rounds: done within 30 seconds, `growth` within some minutes
    #[arg(long)]
    quick: bool,

    /// How a reader of `channels` waits
    #[arg(long, hide = true)]
    by: Option<channels::WaitMode>,

    /// Folder to write to; the figures hold for its disk [default: the build folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The benchmarks.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    /// Durable sends, deliveries, and the wake-up latency of a reader
    Mailbox,
    /// Complete processes: `--help`, `send`, `who` and `inbox`, compared with `/bin/true`
    Cli,
    /// `switchboard mcp` and `serve` as an MCP host uses them
    Mcp,
    /// Memory of the last of twenty `switchboard mcp` sessions; Linux only
    Sessions,
    /// Tool calls through a suite, and the cost of many suites
    Suites,
    /// Posts that wake readers and watchers, the cost of many idle watchers, and catching up over NATS
    Channels,
    /// The NATS part of `channels` alone
    Nats,
    /// Cost per hub linked over NATS, for up to fifty hubs, extrapolated to a thousand
    Hubs,
    /// Signed messages of other owners over HTTPS, and a broadcast to slow peers
    Swarm,
    /// Latency from each door to each other door
    Grid,
    /// Each job in a hub of 1,000,000 messages compared with one of 10,000; needs 10 GB and 2.1 million files
    Growth,
    /// Baseline reader that `channels` starts
    #[value(hide = true)]
    ChannelReader,
    /// Program that the watchers of `channels` start
    #[value(hide = true)]
    ChannelProgram,
    /// Injections and answers through the router
    Workers,
    /// Echo server behind `suites`
    #[value(hide = true)]
    EchoChild,
    /// Waiting reader that `mailbox` starts as a separate process
    #[value(hide = true)]
    Waiter,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // The benchmarks use the same kind of runtime as the shipped binary.
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
    let place = RunFolder::find(args.dir.as_deref())?;
    say!("writing to {}", place.path().display());
    match args.name {
        Name::Mailbox => mailbox::run(&place, args.quick).await,
        Name::Cli => cli::run(&place, args.quick).await,
        Name::Mcp => mcp::run(&place, args.quick).await,
        Name::Sessions => sessions::run(&place, args.quick).await,
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
