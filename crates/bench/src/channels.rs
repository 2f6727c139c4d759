//! `bench channels`: how soon a post wakes whoever waits for it, and what waiting costs; then how fast hubs catch up.
//!
//! The baseline of waking is as little as can be done with the same promise: one durable file, and a process that
//! waits on bare inotify. The protocol's own way, a look every two seconds, stands beside it.

mod idle;
mod reader;
mod wake;

use crate::nats;
use crate::place::Place;
use crate::program::bring_up_to_date;

pub(crate) use self::reader::{By, program, run as reader};

const BENCH: &str = "channels";

/// How long and how often.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Wakes, of each kind.
    wakes: usize,
    /// Wakes of a reader that looks every two seconds.
    looks: usize,
    /// For how many seconds to watch those who wait.
    seconds: u64,
}

const FULL: Extent = Extent { wakes: 200, looks: 20, seconds: 30 };

const QUICK: Extent = Extent { wakes: 40, looks: 3, seconds: 5 };

pub(crate) async fn run(place: &Place, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    bring_up_to_date().await?;
    wake::run(place, extent).await?;
    idle::run(place, extent).await?;
    nats::run(place, quick).await
}
