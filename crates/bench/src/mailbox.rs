//! `bench mailbox`: durable sends of 1, 8 and 64 senders, and the wake-up latency of a reader.
//!
//! A send counts when its sender has the acknowledgement: the message is in the journal, on disk. `accepted` is the
//! rate of the journal while another process would deliver, as for the baselines of the same name. `serving` is the
//! same rate with the door in the same process, as in `switchboard serve`, which also writes two files per message.
//! `delivered` counts messages from the first send until the last message is in its mailbox and has its receipt.

use std::time::Duration;

use crate::figure::{Figure, Target};
use crate::load::{Load, Round};
use crate::program::build_shipped;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile, rate};
use crate::{baseline_bare, baseline_files, baseline_fsync, baseline_sqlite, ours, wake};

const BENCH: &str = "mailbox";
const SQLITE: &str = "sqlite_full_group_commit";
const FILES: &str = "write_fsync_rename_fsync_dir";
const FSYNC: &str = "fsync_4k";
const GROWING: &str = "fdatasync_growing_file";
const BARE: &str = "bare_files_two_threads";

/// Numbers of concurrent senders.
const SENDERS: [usize; 3] = [1, 8, 64];

/// Number and length of the measurements in a run.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    warm_up: Duration,
    length: Duration,
    /// Number of fsync calls per round.
    fsyncs: usize,
    /// Number of wake-ups of a reader that keeps running, and of a reader that is restarted each time.
    wakes: (usize, usize),
}

const FULL: Extent = Extent {
    rounds: 9,
    warm_up: Duration::from_millis(200),
    length: Duration::from_secs(1),
    fsyncs: 100,
    wakes: (200, 40),
};

const QUICK: Extent = Extent {
    rounds: 3,
    warm_up: Duration::from_millis(100),
    length: Duration::from_millis(300),
    fsyncs: 50,
    wakes: (40, 5),
};

/// Results with one number per round, and the total count of measurements.
#[derive(Debug, Default)]
struct Series {
    rates: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    n: usize,
}

impl Series {
    fn push(&mut self, round: &Round) {
        let times = millis(&round.latencies);
        self.rates.push(rate(times.len(), round.length));
        self.p50.push(percentile(&times, 0.5));
        self.p99.push(percentile(&times, 0.99));
        self.n += times.len();
    }
}

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    build_shipped().await?;
    for senders in SENDERS {
        sends(place, extent, senders).await?;
    }
    wake::run(place, BENCH, extent.wakes).await
}

async fn sends(place: &RunFolder, extent: Extent, senders: usize) -> anyhow::Result<()> {
    let load = Load { senders, warm_up: extent.warm_up, length: extent.length };
    let (mut mine, mut serving) = (Series::default(), Series::default());
    let (mut sqlite, mut files) = (Series::default(), Series::default());
    let mut bare = Series::default();
    let (mut delivered, mut delivered_count) = (Vec::new(), 0);
    let (mut fsync, mut growing, mut fsync_count) = (Vec::new(), Vec::new(), 0);
    for number in 1..=extent.rounds {
        RunFolder::settle();
        mine.push(&ours::journal_round(&place.fresh()?, load).await?);
        RunFolder::settle();
        let sent = ours::serving_round(&place.fresh()?, load).await?;
        serving.push(&sent.round);
        delivered.push(rate(sent.round.all, sent.until_delivered));
        delivered_count += sent.round.all;
        RunFolder::settle();
        sqlite.push(&baseline_sqlite::round(&place.fresh()?, load).await?);
        RunFolder::settle();
        files.push(&baseline_files::round(&place.fresh()?, load)?);
        RunFolder::settle();
        bare.push(&baseline_bare::round(&place.fresh()?, load)?);
        if senders == 1 {
            RunFolder::settle();
            let samples = baseline_fsync::overwriting(&place.fresh()?, extent.fsyncs)?;
            fsync_count += samples.len();
            fsync.push(median(&millis(&samples)));
            let samples = baseline_fsync::growing(&place.fresh()?, extent.fsyncs)?;
            growing.push(median(&millis(&samples)));
        }
        let latest = |series: &Series| series.rates.last().copied().unwrap_or_default();
        say!(
            "{senders} senders, round {number} of {}: {:.0} accepted/s; serving {:.0} accepted/s, {:.0} delivered/s; sqlite {:.0}/s, files {:.0}/s, bare {:.0}/s",
            extent.rounds,
            latest(&mine),
            latest(&serving),
            delivered.last().copied().unwrap_or_default(),
            latest(&sqlite),
            latest(&files),
            latest(&bare),
        );
    }
    let figure = |metric: &str, values: &[f64], unit, n| {
        Figure::new(BENCH, format!("{metric}_{senders}"), median(values), unit, n)
    };
    let accepted = || figure("accepted", &mine.rates, "1/s", mine.n);
    let (by_sqlite, by_files) = (
        accepted().with_baseline(SQLITE, median(&sqlite.rates)),
        accepted().with_baseline(FILES, median(&files.rates)),
    );
    if senders == 64 {
        by_sqlite.print_against(Target::AtLeast(0.75))?;
        by_files.print_against(Target::AtLeast(3.0))?;
    } else {
        by_sqlite.print()?;
        by_files.print()?;
    }
    figure("acceptance_p50", &mine.p50, "ms", mine.n).with_baseline(SQLITE, median(&sqlite.p50)).print()?;
    figure("acceptance_p99", &mine.p99, "ms", mine.n).with_baseline(SQLITE, median(&sqlite.p99)).print()?;
    figure("serving", &serving.rates, "1/s", serving.n).with_baseline(FILES, median(&files.rates)).print()?;
    figure("serving_p50", &serving.p50, "ms", serving.n)
        .with_baseline(SQLITE, median(&sqlite.p50))
        .print()?;
    let delivered =
        figure("delivered", &delivered, "1/s", delivered_count).with_baseline(BARE, median(&bare.rates));
    if senders == 64 {
        delivered.print_against(Target::AtLeast(0.55))?;
    } else {
        delivered.print()?;
    }
    if senders == 1 {
        Figure::new(BENCH, "fsync_p50", median(&fsync), "ms", fsync_count).print()?;
        figure("acceptance_p50", &mine.p50, "ms", mine.n).with_baseline(FSYNC, median(&fsync)).print()?;
        figure("acceptance_p50", &mine.p50, "ms", mine.n)
            .with_baseline(GROWING, median(&growing))
            .print_against(Target::AtMost(1.5))?;
    }
    Ok(())
}
