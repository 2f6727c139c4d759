//! `bench growth`: cost of each job in a hub with many messages, compared with a hub with few.
//!
//! Two workspaces are filled through the door, so every message has its mailbox file and its receipt. All messages are
//! unread. First, `serve` runs in each workspace until it has nothing left to reconcile. Then the jobs take turns in
//! both workspaces. A job that does not inherently read everything should cost the same in both.

mod fill;
mod serving;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::fill::{READERS, fill, reader};
use self::serving::{Served, serve_for};
use crate::figure::{Figure, Target};
use crate::load::sender;
use crate::mcp::pipe::{Client, Server};
use crate::program::{build_shipped, run_timed, shipped};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis};

const BENCH: &str = "growth";

/// Time that is long enough for `serve` to scan an empty hub.
const STARTUP: Duration = Duration::from_secs(3);

const FEW: &str = "few_messages";

/// Target for a job of constant cost: at most twice the cost in the small hub.
const FLAT: Target = Target::AtMost(2.0);

/// Size and length of the benchmark.
#[derive(Debug, Clone, Copy)]
struct Extent {
    few: usize,
    many: usize,
    turns: usize,
    /// How long the load of `serve` is observed.
    serving: Duration,
}

const FULL: Extent = Extent { few: 10_000, many: 1_000_000, turns: 15, serving: Duration::from_mins(1) };

const QUICK: Extent = Extent { few: 10_000, many: 100_000, turns: 7, serving: Duration::from_secs(15) };

/// Job that runs as a complete process.
struct Job {
    name: &'static str,
    args: Vec<String>,
}

impl Job {
    fn new(name: &'static str, args: &[&str]) -> Self {
        Self { name, args: args.iter().map(|arg| (*arg).to_owned()).collect() }
    }

    async fn turn(&self, program: &Path, folder: &Path) -> anyhow::Result<Duration> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        run_timed(program, &args, folder).await
    }
}

fn jobs() -> Vec<Job> {
    let (writer, reader) = (sender(0), reader(0));
    vec![
        Job::new("send_p50", &["--from", &writer, "send", &reader, "hello"]),
        Job::new("agents_p50", &["--from", &writer, "agents"]),
        Job::new("who_p50", &["--from", &writer, "who"]),
        Job::new("inbox_p50", &["--from", &reader, "inbox"]),
        Job::new("search_p50", &["--from", &writer, "search", "fox"]),
        Job::new("search_one_hit_p50", &["--from", &writer, "search", "unique77"]),
        Job::new("doctor_p50", &["--from", &writer, "doctor"]),
    ]
}

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    build_shipped().await?;
    let program = shipped()?;
    let (few, many) = (place.fresh()?, place.fresh()?);
    for (folder, count) in [(&few, extent.few), (&many, extent.many)] {
        fill::prepare(folder).await?;
        // The first `serve` after boot compares all files, which takes many minutes in the large hub.
        serve_for(&program, folder, STARTUP).await?;
        let began = Instant::now();
        fill(folder, count).await?;
        say!("{count} messages in {:.0} s", began.elapsed().as_secs_f64());
    }
    space(&few, &many, extent)?;
    // This updates the search index and the folder stamps before the measurement.
    for folder in [&few, &many] {
        serve_for(&program, folder, extent.serving).await?;
    }
    RunFolder::settle();
    for job in jobs() {
        run_in_turns(&job, &program, [&few, &many], extent).await?;
    }
    sessions([&few, &many], extent).await?;
    serving(&program, [&few, &many], extent).await?;
    retention(&few, extent.few).await
}

/// Builds the figure of a job in the large hub, with the small one as baseline.
fn figure(metric: &str, [few, many]: [f64; 2], unit: &'static str, n: usize) -> Figure {
    Figure::new(BENCH, metric, many, unit, n).with_baseline(FEW, few)
}

async fn run_in_turns(
    job: &Job,
    program: &Path,
    folders: [&PathBuf; 2],
    extent: Extent,
) -> anyhow::Result<()> {
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..=extent.turns {
        for (folder, times) in folders.into_iter().zip(&mut times) {
            let time = job.turn(program, folder).await?;
            // The first turn does not count, because it reads from disk.
            if turn > 0 {
                times.push(time);
            }
        }
    }
    figure(job.name, times.map(|times| median(&millis(&times))), "ms", extent.turns).print_against(FLAT)
}

/// Measures from the start of `switchboard mcp` without `serve` until the client has the tool list.
async fn sessions(folders: [&PathBuf; 2], extent: Extent) -> anyhow::Result<()> {
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..=extent.turns {
        for (folder, times) in folders.into_iter().zip(&mut times) {
            let began = Instant::now();
            let mut client = Client::start(&Server::ours(&reader(turn % READERS), folder))?;
            client.start_session().await?;
            if turn > 0 {
                times.push(began.elapsed());
            }
            client.close().await?;
        }
    }
    figure("mcp_start_p50", times.map(|times| median(&millis(&times))), "ms", extent.turns)
        .print_against(FLAT)
}

/// Measures the load of `serve` right after its start.
async fn serving(program: &Path, folders: [&PathBuf; 2], extent: Extent) -> anyhow::Result<()> {
    /// Memory limit in MiB without clients.
    ///
    /// It is half of the limit with clients: 256 MB for a million messages and 200 clients.
    const MEMORY: f64 = 128.0;
    let few = serve_for(program, folders[0], extent.serving).await?;
    let many = serve_for(program, folders[1], extent.serving).await?;
    let pair = |what: fn(&Served) -> f64| [what(&few), what(&many)];
    figure("serve_cpu_from_start", pair(|served| served.cpu), "%", 1).print_against(FLAT)?;
    let memory = pair(|served| served.memory);
    figure("serve_memory", memory, "MiB", 1).print_against(FLAT)?;
    say!("serve holds {:.0} MiB with {} messages; the limit is {MEMORY} MiB", memory[1], extent.many);
    Ok(())
}

/// Measures files and bytes per message in the mailbox and outbox, and bytes in the database.
fn space(few: &Path, many: &Path, extent: Extent) -> anyhow::Result<()> {
    let counts = [extent.few, extent.many];
    let mut files = [0.0; 2];
    let mut bytes = [0.0; 2];
    let mut database = [0.0; 2];
    for (at, folder) in [few, many].into_iter().enumerate() {
        let folder = folder.join(".switchboard");
        let held = fill::held_in(&[&folder.join("inbox"), &folder.join("outbox")])?;
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let per = |number: u64| number as f64 / counts[at] as f64;
        (files[at], bytes[at]) = (per(held.files), per(held.bytes));
        database[at] = per(std::fs::metadata(folder.join("hub.db"))?.len());
    }
    figure("files_per_message", files, "files", extent.many).print_against(FLAT)?;
    figure("file_bytes_per_message", bytes, "B", extent.many).print_against(FLAT)?;
    figure("database_bytes_per_message", database, "B", extent.many).print_against(FLAT)
}

/// Measures how much of the database remains after all messages are handled and retention has removed them.
async fn retention(folder: &Path, count: usize) -> anyhow::Result<()> {
    let [before, after] = fill::retire(folder).await?;
    Figure::new(BENCH, "database_after_retention", after, "MiB", count)
        .with_baseline("database_before", before)
        // The hub retains 4 MiB of free space for reuse, which is about half of this database.
        .print_against(Target::AtMost(0.6))
}
