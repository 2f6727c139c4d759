//! `bench channels`: wake-up latency of readers and watchers, the cost of waiting, and catching up over NATS.
//!
//! The baseline for wake-ups gives the same guarantee with the least work: one durable file, and a process that waits
//! for bare inotify events. The poll every two seconds that the protocol itself uses is measured as well.

mod idle;
mod reader;
mod wake;

use crate::nats;
use crate::program::build_shipped;
use crate::run_folder::RunFolder;

pub(crate) use self::reader::{WaitMode, program, run as reader};

const BENCH: &str = "channels";

/// Number and length of the measurements in a run.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Number of wake-ups of each kind.
    wakes: usize,
    /// Number of wake-ups of a reader that polls every two seconds.
    looks: usize,
    /// Number of seconds during which waiting processes are observed.
    seconds: u64,
}

const FULL: Extent = Extent { wakes: 200, looks: 20, seconds: 30 };

const QUICK: Extent = Extent { wakes: 40, looks: 3, seconds: 5 };

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    build_shipped().await?;
    wake::run(place, extent).await?;
    idle::run(place, extent).await?;
    nats::run(place, quick).await
}
