//! Wake-up latency of a model that waits for messages, from just before the sender's call on.
//!
//! Sender and reader are clients in two processes. The sender uses `switchboard mcp`. The reader waits on the stream of
//! `switchboard serve`, or in its own `switchboard mcp`.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::http::{Serve, SseClient};
use super::pipe::{Client, Server};
use super::{BENCH, message_arguments, workspace};
use crate::figure::{Figure, Target};
use crate::load::{READER, sender};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile};

/// Name of a bound, not a measured baseline: the longest acceptable wake-up, 50 ms.
const BOUND: &str = "bound_50_ms";

pub(super) async fn run(place: &RunFolder, count: usize) -> anyhow::Result<()> {
    let folder = place.fresh()?;
    workspace(&folder).await?;
    RunFolder::settle();
    report("wake_sse", &by_sse(&folder, count).await?)?;
    let folder = place.fresh()?;
    workspace(&folder).await?;
    RunFolder::settle();
    report("wake_stdio", &by_stdio(&folder, count).await?)
}

fn report(metric: &str, times: &[Duration]) -> anyhow::Result<()> {
    say!("{metric}: woke {} times", times.len());
    let times = millis(times);
    let figure = |part, value| Figure::new(BENCH, format!("{metric}_{part}"), value, "ms", times.len());
    figure("p99", percentile(&times, 0.99)).print()?;
    figure("p50", median(&times)).with_baseline(BOUND, 50.0).print_against(Target::AtMost(1.0))
}

async fn by_sse(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    let serve = Serve::start(folder).await?;
    let mut reader = SseClient::open(&serve, READER).await?;
    let mut writer = Client::open(&Server::ours(&sender(0), folder)).await?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        reader.call("wait_for_message", &json!({ "timeout": 20 })).await?;
        fall_idle().await;
        let began = Instant::now();
        let woken = async {
            reader.answer().await?;
            anyhow::Ok(began.elapsed())
        };
        let message = message_arguments();
        let (sent, woken) = tokio::join!(writer.call("send_message", &message), woken);
        sent?;
        times.push(woken?);
    }
    writer.close().await?;
    serve.close().await?;
    Ok(times)
}

async fn by_stdio(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut reader = Client::open(&Server::ours(READER, folder)).await?;
    let mut writer = Client::open(&Server::ours(&sender(0), folder)).await?;
    let (mut times, message, patience) =
        (Vec::with_capacity(count), message_arguments(), json!({ "timeout": 20 }));
    for _ in 0..count {
        let waiting = async {
            reader.call("wait_for_message", &patience).await?;
            anyhow::Ok(Instant::now())
        };
        let sending = async {
            fall_idle().await;
            let began = Instant::now();
            writer.call("send_message", &message).await?;
            anyhow::Ok(began)
        };
        let (woke, began) = tokio::join!(waiting, sending);
        times.push(woke? - began?);
    }
    writer.close().await?;
    reader.close().await?;
    Ok(times)
}

/// Sleeps for a random time before a measurement.
///
/// The time is random, so that it stays out of step with every timer, and long enough for the wait to start.
async fn fall_idle() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(30..60))).await;
}
