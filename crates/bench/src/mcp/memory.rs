//! Memory of a server after a thousand calls.

use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::json;
use switchboard_sys::process::Spawn;
use tokio::io::AsyncReadExt;

use super::pipe::{Client, Server};
use super::{BENCH, NODE, message_arguments};
use crate::figure::{Figure, Target};
use crate::load::body;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::median;

const CALLS: usize = 1000;

/// Memory of a process, in MiB.
#[derive(Debug, Default)]
struct Held {
    /// Resident set size.
    resident: Vec<f64>,
    /// Proportional set size, which counts shared pages in part; Linux only.
    share: Vec<f64>,
}

pub(super) async fn run(ours: &Server, node: &Server, rounds: usize) -> anyhow::Result<()> {
    RunFolder::settle();
    let (mut mine, mut theirs) = (Held::default(), Held::default());
    for _ in 0..rounds {
        let mut client = Client::open(ours).await?;
        for _ in 0..CALLS / 2 {
            client.call("send_message", &message_arguments()).await?;
            client.call("check_inbox", &json!({})).await?;
        }
        mine.measure(client).await?;
        let mut client = Client::open(node).await?;
        client.calls("echo", &json!({ "text": body() }), 1, CALLS).await?;
        theirs.measure(client).await?;
    }
    say!("{CALLS} calls to each server, {rounds} times");
    let figure = |metric, values: &[f64]| Figure::new(BENCH, metric, median(values), "MiB", rounds);
    figure("resident_after_1000_calls", &mine.resident)
        .with_baseline(NODE, median(&theirs.resident))
        .print_against(Target::AtMost(0.25))?;
    if mine.share.is_empty() {
        return Ok(());
    }
    figure("proportional_after_1000_calls", &mine.share).with_baseline(NODE, median(&theirs.share)).print()
}

impl Held {
    async fn measure(&mut self, client: Client) -> anyhow::Result<()> {
        let pid = client.pid().to_string();
        self.resident.push(resident(&pid).await?);
        self.share.extend(share(&pid));
        client.close().await
    }
}

/// Returns the resident memory of a process, in MiB.
pub(crate) async fn resident(pid: &str) -> anyhow::Result<f64> {
    let mut child = Spawn::new("ps").args(["-o", "rss=", "-p", pid]).stdout(Stdio::piped()).spawn()?;
    let mut printed = String::new();
    child.stdout_reader().context("no stdout")?.read_to_string(&mut printed).await?;
    ensure!(child.wait().await?.success(), "ps failed");
    let kibibytes: f64 = printed.trim().parse()?;
    Ok(kibibytes / 1024.0)
}

fn share(pid: &str) -> Option<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes / 1024.0)
}
