//! `bench workers`: overhead of the router between a program and its agents.
//!
//! The worker only echoes. Measured are: how soon an injection is acknowledged and complete, compared with a bare
//! submit to a separate journal, in turn; how many deltas of an answer reach two clients, compared with a pipe that
//! copies the same lines; and the router's memory after a hundred jobs.

mod pipe;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use door_workers::Client;
use serde_json::{Value, json};
use switchboard_core::{Door, Kind, Name};
use switchboard_hub::{Draft, Hub, HubConfig, Registration};
use switchboard_sys::process::{Child, Spawn};
use tokio::time::timeout;

use crate::figure::{Figure, Target};
use crate::load::{READER, body};
use crate::mcp::memory::resident;
use crate::program::{build_shipped, run_timed, shipped};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile};

const BENCH: &str = "workers";

/// Baseline: the same message, only journaled.
const JOURNAL: &str = "journal_submit";

/// Number of deltas of an answer.
const PIECES: usize = 100_000;

/// Number of jobs in the history.
const JOBS: usize = 100;

/// Timeout: longer than any operation that is not stuck.
const TOO_LONG: Duration = Duration::from_mins(2);

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let (injections, rounds) = if quick { (300, 3) } else { (2_000, 7) };
    build_shipped().await?;
    let folder = place.fresh()?;
    ensure!(run_timed(&shipped()?, &["init"], &folder).await? < TOO_LONG, "init took too long");
    let router = Router::start(&folder)?;
    let mut client = router.connect().await?;
    latencies(place, &mut client, injections).await?;
    pieces(&router, &mut client, rounds).await?;
    memory(&router, &mut client).await?;
    router.child.stop(Duration::from_secs(5)).await?;
    Ok(())
}

struct Router {
    child: Child,
    address: String,
}

impl Router {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let socket = folder.join("bench.sock");
        let address = format!("unix:{}", socket.display());
        let child = Spawn::new(shipped()?)
            .args(["router", "--listen", &address])
            .cwd(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Self { child, address })
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let began = Instant::now();
        loop {
            match Client::connect_to(&self.address).await {
                Ok(client) => return Ok(client),
                Err(error) if began.elapsed() > TOO_LONG => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

async fn launch(client: &mut Client, payload: &Value) -> anyhow::Result<String> {
    let launched = client.request("launch", payload).await?;
    Ok(launched.data["job_id"].as_str().context("a job without an id")?.to_owned())
}

/// Injects a prompt and measures the time until each of these events.
async fn inject(
    client: &mut Client,
    job: &str,
    content: &str,
    events: &[&str],
) -> anyhow::Result<Vec<Duration>> {
    let began = Instant::now();
    client.send("inject", &json!({ "job_id": job, "node_id": 0, "content": content })).await?;
    let mut times = Vec::with_capacity(events.len());
    while times.len() < events.len() {
        let event = timeout(TOO_LONG, client.next()).await.context("the router says nothing")??;
        ensure!(event.event != "command_rejected", "{}", event.line);
        if event.event == events[times.len()] {
            times.push(began.elapsed());
        }
    }
    Ok(times)
}

async fn latencies(place: &RunFolder, client: &mut Client, count: usize) -> anyhow::Result<()> {
    RunFolder::settle();
    let hub = Hub::open(HubConfig::new(place.fresh()?)).await?;
    hub.agents().register(Registration::mailbox(Name::parse(READER)?)).await?;
    let job = launch(client, &json!({ "agent": "echo" })).await?;
    let text = body();
    let (mut acks, mut ends, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let times = inject(client, &job, &text, &["inject_ack", "turn_complete"]).await?;
        acks.push(times[0]);
        ends.push(times[1]);
        let draft = draft(&hub, &text)?;
        let began = Instant::now();
        hub.submit(draft).await?;
        bare.push(began.elapsed());
    }
    hub.shut_down().await;
    say!("injected {count} times, and submitted as often");
    let (acks, ends, bare) = (millis(&acks), millis(&ends), millis(&bare));
    let figure = |metric, values: &[f64], share| {
        let (value, baseline) = (percentile(values, share), percentile(&bare, share));
        Figure::new(BENCH, metric, value, "ms", count).with_baseline(JOURNAL, baseline)
    };
    figure("ack_p50", &acks, 0.5).print_against(Target::AtMost(2.0))?;
    figure("ack_p99", &acks, 0.99).print()?;
    figure("complete_p50", &ends, 0.5).print()?;
    figure("complete_p99", &ends, 0.99).print()
}

fn draft(hub: &Hub, text: &str) -> anyhow::Result<Draft> {
    let (from, to) = ("orchestrator".parse()?, READER.parse()?);
    Ok(hub.draft(Door::Workers, from, to, Kind::delegate_task(), text))
}

/// Measures two clients that read one long answer, and a pipe that copies the same lines.
async fn pieces(router: &Router, client: &mut Client, rounds: usize) -> anyhow::Result<()> {
    RunFolder::settle();
    let job = launch(client, &json!({ "agent": "echo", "echo": { "deltas": PIECES } })).await?;
    let (mut ours, mut piped) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let readers =
            [pipe::Reader::start(&router.address, &job)?, pipe::Reader::start(&router.address, &job)?];
        for reader in &readers {
            reader.is_ready()?;
        }
        let began = Instant::now();
        client
            .send("inject", &json!({ "job_id": job, "node_id": 0, "content": "a piece of an answer" }))
            .await?;
        let mut lines = Vec::new();
        let mut last = began;
        for reader in readers {
            let (read, at) = tokio::task::spawn_blocking(move || reader.finish()).await??;
            ensure!(read.len() >= PIECES, "{} lines", read.len());
            (lines, last) = (read, last.max(at));
        }
        ours.push(rate(PIECES, last - began));
        let copied = tokio::task::spawn_blocking(move || pipe::copy(&lines)).await??;
        piped.push(copied);
        client_skips(client).await?;
    }
    say!("{PIECES} pieces to two clients, {rounds} times");
    Figure::new(BENCH, "pieces_to_two_clients", median(&ours), "1/s", rounds)
        .with_baseline("pipe_copying_lines", median(&piped))
        .print_against(Target::AtLeast(0.25))
}

/// Reads the events of the injecting client up to the end of the answer.
async fn client_skips(client: &mut Client) -> anyhow::Result<()> {
    loop {
        let event = timeout(TOO_LONG, client.next()).await.context("no end")??;
        if event.event == "turn_complete" {
            return Ok(());
        }
    }
}

async fn memory(router: &Router, client: &mut Client) -> anyhow::Result<()> {
    for _ in 0..JOBS {
        let job = launch(client, &json!({ "agent": "echo" })).await?;
        inject(client, &job, "one turn", &["turn_complete"]).await?;
        client.send("terminate", &json!({ "job_id": job })).await?;
        while client.next().await?.event != "job_terminated" {}
    }
    let held = resident(&router.child.pid().to_string()).await?;
    Figure::new(BENCH, "resident_after_100_jobs", held, "MiB", 1).print()
}

#[expect(clippy::cast_precision_loss, reason = "no run comes near 2^52 lines")]
fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
