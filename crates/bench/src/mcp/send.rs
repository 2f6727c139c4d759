//! What a tool call adds to the sending of a message.
//!
//! Beside it stands the least that it can be: the journal taking the same message in, in the caller's own
//! process, and a byte there and back between two processes. Messages are sent one after the other, in two
//! ways: with a pause between them, as agents do, so that each call is by itself; and in a row, where a call
//! shares the machine with the delivery of the message before it, which the bare journal does not make.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use switchboard_hub::process::{Child, Spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::pipe::{Client, Server};
use super::{BENCH, fresh, letter};
use crate::figure::{Figure, Target};
use crate::load::body;
use crate::ours::{At, Serving, send};
use crate::place::Place;
use crate::progress::say;
use crate::stats::{median, millis, percentile};

const LEAST: &str = "hub_submit_and_pipe_round_trip";

/// Before it counts, in each round: enough for the journal's log to have been begun anew, as it is over and over
/// in a workspace that is used. While the log still grows, the disk has more to do for each message.
const WARM_UP: usize = 250;

/// What one round measured, in milliseconds.
#[derive(Debug, Default)]
struct Times {
    in_a_row: Vec<Duration>,
    apart: Vec<Duration>,
}

/// One number per round.
#[derive(Debug, Default)]
struct Series {
    in_a_row: Vec<f64>,
    apart: Vec<f64>,
    apart_p99: Vec<f64>,
}

/// A program that gives back what it gets, and the pipes to it.
struct Echo {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

pub(super) async fn run(place: &Place, (rounds, count): (usize, usize)) -> anyhow::Result<()> {
    let (mut calls, mut submits, mut echoes) = (Series::default(), Series::default(), Series::default());
    for round in 1..=rounds {
        let folder = place.fresh()?;
        Place::settle();
        submits.push(&submitted(&folder, count).await?);
        echoes.push(&echoed(count).await?);
        let ours = fresh(place).await?;
        Place::settle();
        calls.push(&called(&ours, count).await?);
        let latest = |series: &Series| series.apart.last().copied().unwrap_or_default();
        say!(
            "round {round} of {rounds}: send_message {:.3} ms; submit {:.3} ms, pipe {:.3} ms",
            latest(&calls),
            latest(&submits),
            latest(&echoes)
        );
    }
    let figure = |metric, values: &[f64]| Figure::new(BENCH, metric, median(values), "ms", rounds * count);
    figure("hub_submit_p50", &submits.apart).print()?;
    figure("pipe_round_trip_p50", &echoes.apart).print()?;
    let least = median(&submits.in_a_row) + median(&echoes.in_a_row);
    figure("send_message_in_a_row_p50", &calls.in_a_row).beside(LEAST, least).print()?;
    let least = median(&submits.apart) + median(&echoes.apart);
    figure("send_message_p99", &calls.apart_p99).beside(LEAST, least).print()?;
    figure("send_message_p50", &calls.apart).beside(LEAST, least).print_against(Target::AtMost(1.5))
}

impl Series {
    fn push(&mut self, times: &Times) {
        let apart = millis(&times.apart);
        self.in_a_row.push(median(&millis(&times.in_a_row)));
        self.apart_p99.push(percentile(&apart, 0.99));
        self.apart.push(median(&apart));
    }
}

impl Times {
    /// Warms up, then measures `count` times in a row and `count` times with a pause before each.
    async fn measure(
        count: usize,
        mut once: impl AsyncFnMut() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Self> {
        let mut times = Self::default();
        for _ in 0..WARM_UP {
            once().await?;
        }
        for _ in 0..count {
            times.in_a_row.push(once().await?);
        }
        for _ in 0..count {
            // Uneven, so that no timer stays in step; longer than a delivery takes.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(3000..6000))).await;
            times.apart.push(once().await?);
        }
        Ok(times)
    }
}

async fn called(server: &Server, count: usize) -> anyhow::Result<Times> {
    let mut client = Client::open(server).await?;
    let letter = letter();
    let times = Times::measure(count, async || client.call("send_message", &letter).await).await?;
    client.close().await?;
    Ok(times)
}

/// The same messages, taken in by the journal in this process, with nobody at work who delivers them.
async fn submitted(folder: &Path, count: usize) -> anyhow::Result<Times> {
    let serving = Serving::make(folder, At::Nothing).await?;
    let times = Times::measure(count, async || {
        let (body, began) = (body(), Instant::now());
        send(&serving.workspace, 0, body).await?;
        Ok(began.elapsed())
    });
    let times = times.await?;
    serving.close().await?;
    Ok(times)
}

async fn echoed(count: usize) -> anyhow::Result<Times> {
    let mut echo = Echo::start()?;
    let times = Times::measure(count, async || echo.once().await).await?;
    drop(echo.input);
    ensure!(echo.child.wait().await?.success(), "cat failed");
    Ok(times)
}

impl Echo {
    fn start() -> anyhow::Result<Self> {
        let mut child = Spawn::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.take_stdin().context("no stdin")?;
        let output = child.take_stdout().context("no stdout")?;
        Ok(Self { child, input, output })
    }

    async fn once(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.input.write_u8(b'.').await?;
        self.output.read_u8().await?;
        Ok(began.elapsed())
    }
}
