//! Overhead of a tool call that sends a message, compared with a bare send.
//!
//! The baseline is the least possible work: a hub in the caller's own process, with its door running as in `switchboard
//! mcp`, that accepts the same message, plus a byte that is echoed between two processes. Messages are sent in two
//! ways: with a pause between them, as agents send, so that each call runs alone; and in a row, where each call shares
//! the machine with the delivery of the previous message.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::pipe::Client;
use super::{BENCH, fresh, message_arguments};
use crate::figure::{Figure, Target};
use crate::load::body;
use crate::ours::{DoorPart, Serving, send};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile};

const LEAST: &str = "hub_submit_and_pipe_round_trip";

/// Number of warm-up messages per round, which do not count.
///
/// They are enough for the journal's log to restart, as it does regularly in a workspace that is in use. While the log
/// still grows, the disk has more work per message.
const WARM_UP: usize = 250;

/// Number of messages of one kind that are sent with pauses before the next kind has its turn.
const TURN: usize = 20;

/// Durations that were measured in one round.
#[derive(Debug, Default)]
struct Times {
    in_a_row: Vec<Duration>,
    apart: Vec<Duration>,
}

/// Results with one number per round, in milliseconds.
#[derive(Debug, Default)]
struct Series {
    in_a_row: Vec<f64>,
    apart: Vec<f64>,
    apart_p99: Vec<f64>,
}

/// Echo program, with the pipes to it.
struct Echo {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

pub(super) async fn run(place: &RunFolder, (rounds, count): (usize, usize)) -> anyhow::Result<()> {
    let (mut calls, mut submits, mut echoes) = (Series::default(), Series::default(), Series::default());
    for number in 1..=rounds {
        let [called, submitted, echoed] = round(place, count).await?;
        calls.push(&called);
        submits.push(&submitted);
        echoes.push(&echoed);
        let latest = |series: &Series| series.apart.last().copied().unwrap_or_default();
        say!(
            "round {number} of {rounds}: send_message {:.3} ms; submit {:.3} ms, pipe {:.3} ms",
            latest(&calls),
            latest(&submits),
            latest(&echoes)
        );
    }
    let figure = |metric, values: &[f64]| Figure::new(BENCH, metric, median(values), "ms", rounds * count);
    figure("hub_submit_p50", &submits.apart).print()?;
    figure("pipe_round_trip_p50", &echoes.apart).print()?;
    let least = median(&submits.in_a_row) + median(&echoes.in_a_row);
    figure("send_message_in_a_row_p50", &calls.in_a_row).with_baseline(LEAST, least).print()?;
    let least = median(&submits.apart) + median(&echoes.apart);
    figure("send_message_p99", &calls.apart_p99).with_baseline(LEAST, least).print()?;
    figure("send_message_p50", &calls.apart).with_baseline(LEAST, least).print_against(Target::AtMost(1.3))
}

impl Series {
    fn push(&mut self, times: &Times) {
        let apart = millis(&times.apart);
        self.in_a_row.push(median(&millis(&times.in_a_row)));
        self.apart_p99.push(percentile(&apart, 0.99));
        self.apart.push(median(&apart));
    }
}

/// Runs calls, bare submits and echoes: first each kind in a row, then in turns with a pause before each operation.
async fn round(place: &RunFolder, count: usize) -> anyhow::Result<[Times; 3]> {
    let serving = Serving::create(&place.fresh()?, DoorPart::Everything).await?;
    let (mut client, message) = (Client::open(&fresh(place).await?).await?, message_arguments());
    let mut echo = Echo::start()?;
    let [mut called, mut submitted, mut echoed] = [Times::default(), Times::default(), Times::default()];
    RunFolder::settle();
    submitted.row(count, async || submit(&serving).await).await?;
    echoed.row(count, async || echo.once().await).await?;
    called.row(count, async || client.call("send_message", &message).await).await?;
    RunFolder::settle();
    for _ in 0..count / TURN {
        submitted.turn(async || submit(&serving).await).await?;
        echoed.turn(async || echo.once().await).await?;
        called.turn(async || client.call("send_message", &message).await).await?;
    }
    client.close().await?;
    serving.close().await?;
    drop(echo.input);
    ensure!(echo.child.wait().await?.success(), "cat failed");
    Ok([called, submitted, echoed])
}

impl Times {
    async fn row(
        &mut self,
        count: usize,
        mut once: impl AsyncFnMut() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<()> {
        for number in 0..WARM_UP + count {
            let time = once().await?;
            if number >= WARM_UP {
                self.in_a_row.push(time);
            }
        }
        Ok(())
    }

    async fn turn(&mut self, mut once: impl AsyncFnMut() -> anyhow::Result<Duration>) -> anyhow::Result<()> {
        for _ in 0..TURN {
            // The pause is random, so that it stays out of step with every timer, and longer than a delivery and the
            // mailbox scan that follows it.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(8..14))).await;
            self.apart.push(once().await?);
        }
        Ok(())
    }
}

/// Submits the same message to the hub of this process.
async fn submit(serving: &Serving) -> anyhow::Result<Duration> {
    let (body, began) = (body(), Instant::now());
    send(&serving.workspace, 0, body).await?;
    Ok(began.elapsed())
}

impl Echo {
    fn start() -> anyhow::Result<Self> {
        let mut child = Spawn::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin_writer().context("no stdin")?;
        let output = child.stdout_reader().context("no stdout")?;
        Ok(Self { child, input, output })
    }

    async fn once(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.input.write_u8(b'.').await?;
        self.output.read_u8().await?;
        Ok(began.elapsed())
    }
}
