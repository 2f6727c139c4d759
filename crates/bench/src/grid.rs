//! `bench grid`: latency from each door to each other door.
//!
//! All processes run the shipped binary: a hub with `serve`, a second hub of the same owner over a real nats-server,
//! and another owner's hub over TLS. A measurement begins when the sender starts to send, which for the command line
//! and the channel means a new process. It ends when the message has reached its reader: its file is in the mailbox or
//! the channel, the waiting tool has returned, or the worker has received it.

mod door;
mod stage;

use std::fmt::Write as _;

use self::door::{SOURCES, Source, TARGETS, Target};
use self::stage::Stage;
use crate::figure::Figure;
use crate::program::{build_shipped, shipped};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile};

const BENCH: &str = "grid";

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let rounds = if quick { 12 } else { 200 };
    build_shipped().await?;
    let mut stage = Stage::build(place, &shipped()?)?;
    // A warm-up round runs first, so that the start-up work of the first message is not measured.
    round(&mut stage, 0)?;
    let mut times = vec![Vec::new(); SOURCES.len() * TARGETS.len()];
    for number in 1..=rounds {
        for (place, time) in round(&mut stage, number)? {
            times[place].push(time);
        }
    }
    let mut table = format!("{:14}", "ms, p50 / p99");
    for into in TARGETS {
        let _ = write!(table, "{:>16}", into.name());
    }
    for (row, from) in SOURCES.into_iter().enumerate() {
        let _ = write!(table, "\n{:14}", from.name());
        for (column, into) in TARGETS.into_iter().enumerate() {
            let taken = millis(&times[row * TARGETS.len() + column]);
            if taken.is_empty() {
                let _ = write!(table, "{:>16}", "");
                continue;
            }
            let (middle, tail) = (median(&taken), percentile(&taken, 0.99));
            let _ = write!(table, "{:>16}", format!("{middle:.1} / {tail:.1}"));
            let metric = |share| format!("{}_to_{}_{share}", from.name(), into.name());
            Figure::new(BENCH, metric("p50"), middle, "ms", taken.len()).print()?;
            Figure::new(BENCH, metric("p99"), tail, "ms", taken.len()).print()?;
        }
    }
    say!("{table}");
    Ok(())
}

/// Sends one message from each door to each other door, one after the other.
fn round(stage: &mut Stage, number: usize) -> anyhow::Result<Vec<(usize, std::time::Duration)>> {
    let mut times = Vec::new();
    for (row, from) in SOURCES.into_iter().enumerate() {
        for (column, into) in TARGETS.into_iter().enumerate() {
            if !is_measured(from, into) {
                continue;
            }
            let text = format!("{number} from {} to {}", from.name(), into.name());
            times.push((row * TARGETS.len() + column, stage.measure(from, into, &text)?));
        }
    }
    Ok(times)
}

/// Returns true if the pair of doors is measured.
///
/// A sender writes to every reader except itself. The mailbox is measured from the command line too, because a
/// command-line sender has a mailbox other than the one that is read.
fn is_measured(from: Source, into: Target) -> bool {
    !matches!(
        (from, into),
        (Source::Session, Target::Session)
            | (Source::Channel, Target::Channel)
            | (Source::Hub, Target::Hub)
            | (Source::Swarm, Target::Swarm)
    )
}
