//! Cost of twenty idle watchers over a channel of ten thousand messages.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use door_channels::{Channels, Config};
use door_workspace::{Tree, Workspace};
use serde_json::json;
use switchboard_sys::files::{Dir, Durability};
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use super::{BENCH, Extent};
use crate::figure::{Figure, Target};
use crate::mcp::http::Serve;
use crate::program::shipped;
use crate::progress::say;
use crate::run_folder::RunFolder;

const WATCHERS: usize = 20;

const FILES: usize = 10_000;

/// Maximum CPU time of all watchers together, in percent of one core.
const BOUND: f64 = 1.0;

/// Time after which a started process is idle.
const SETTLING: Duration = Duration::from_secs(3);

pub(super) async fn run(place: &RunFolder, extent: Extent) -> anyhow::Result<()> {
    let folder = place.fresh()?;
    fill(&folder).await?;
    say!("a channel of {FILES} messages");
    for (metric, detection) in [("idle_cpu_20_watchers", "auto"), ("idle_cpu_20_watchers_polling", "polling")]
    {
        configure(&folder, detection, WATCHERS)?;
        let serve = Serve::start_with(&folder, |spawn| spawn.env("HOME", &folder)).await?;
        let share = share(&[serve.pid()], extent.seconds).await?;
        serve.close().await?;
        print(metric, share, extent)?;
    }
    configure(&folder, "auto", 0)?;
    let mut watchers = Vec::new();
    for number in 0..WATCHERS {
        watchers.push(watch(&folder, number).await?);
    }
    let pids: Vec<u32> = watchers.iter().map(Child::pid).collect();
    print("idle_cpu_20_processes", share(&pids, extent.seconds).await?, extent)
}

fn print(metric: &str, share: f64, extent: Extent) -> anyhow::Result<()> {
    let seconds = usize::try_from(extent.seconds)?;
    Figure::new(BENCH, metric, share, "%", seconds)
        .with_baseline("bound", BOUND)
        .print_against(Target::AtMost(1.0))
}

/// Creates a workspace whose channel has a history written by another program, and whose journal has ingested it.
async fn fill(folder: &Path) -> anyhow::Result<()> {
    Tree::create(folder)?;
    let key = crate::binding::key_of(folder)?;
    let workspace =
        Workspace::open(folder, door_workspace::Config::default(), |hub| hub.key = Some(key)).await?;
    let root = workspace.tree().root().clone();
    let channel = root.ensure_subdir("channels")?.ensure_subdir("general")?;
    for number in 0..FILES {
        let id = format!("msg-20260111-163315-codex-{number:04x}");
        let message = json!({
            "id": id, "timestamp": "2026-01-11T16:33:15.123Z", "session_id": "general", "from": "codex",
            "to": "all", "type": "chat", "content": { "text": "x".repeat(256), "code": null, "artifacts": [] },
        });
        channel.create_new(&format!("{id}.json"), message.to_string().as_bytes(), Durability::Unsynced)?;
    }
    let channels = Channels::open(Config::new(root.path()), workspace.hub().clone()).await?;
    channels.scan().await?;
    workspace.close().await;
    RunFolder::settle();
    Ok(())
}

/// Writes user settings that define watchers of agents that get no messages.
fn configure(folder: &Path, detection: &str, watchers: usize) -> anyhow::Result<()> {
    let watchers: Vec<_> = (0..watchers)
        .map(|number| json!({ "agent": format!("qc-{number}"), "channel": "general", "command": ["true"] }))
        .collect();
    let settings = json!({ "channels": { "detection": detection, "watchers": watchers } });
    let home = Dir::open_root(folder)?.ensure_subdir(".config")?.ensure_subdir("switchboard")?;
    Ok(home.replace("config.json", settings.to_string().as_bytes(), 0o600)?)
}

/// Starts one watcher as a separate process.
async fn watch(folder: &Path, number: usize) -> anyhow::Result<Child> {
    let agent = format!("qc-{number}");
    let mut child = Spawn::new(shipped()?)
        .args(["watch", "--agent", &agent, "--channel", "general", "--", "true"])
        .cwd(folder)
        .env("HOME", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut output = BufReader::new(child.stdout_reader().context("no stdout")?);
    let mut line = String::new();
    timeout(Duration::from_secs(20), output.read_line(&mut line)).await.context("`watch` says nothing")??;
    Ok(child)
}

/// Measures the CPU time of these processes together, in percent of one core.
async fn share(pids: &[u32], seconds: u64) -> anyhow::Result<f64> {
    tokio::time::sleep(SETTLING).await;
    let all = || pids.iter().map(|pid| spent(*pid)).sum::<anyhow::Result<Duration>>();
    let (before, began) = (all()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let spent = all()?.saturating_sub(before);
    Ok(100.0 * spent.as_secs_f64() / began.elapsed().as_secs_f64())
}

/// Returns the CPU time of a process so far, including threads that have ended.
///
/// It is the sum of the fields 14 and 15 of proc_pid_stat(5), in ticks.
fn spent(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .context("only Linux tells what a process spends")?;
    let (_, after_name) = stat.rsplit_once(')').context("a strange stat")?;
    let ticks = after_name.split_ascii_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}
