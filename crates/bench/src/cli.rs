//! `bench cli`: complete processes, from start to end, compared with `/bin/true`.
//!
//! All commands are started alike and take turns. The mailboxes are warm: they were read before, so the measured time
//! is that of a repeated read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::figure::{Figure, Target};
use crate::load::READER;
use crate::ours::fill;
use crate::program::{build_shipped, run_timed, shipped};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis};

const BENCH: &str = "cli";
const TRUE: &str = "/bin/true";

/// Number of messages in the small mailbox.
const FEW: usize = 10;
const MANY: usize = 10_000;

/// Agent that sends one message per turn.
const SENDER: &str = "sender";

/// Number of warm-up turns, which do not count.
const WARM_UP: usize = 5;

/// Command that is measured in turn with others.
struct Job {
    program: PathBuf,
    args: Vec<&'static str>,
    folder: PathBuf,
    /// True if the mailbox folder is changed right before each run.
    disturbed: bool,
    times: Vec<Duration>,
}

impl Job {
    fn new(program: &Path, args: &[&'static str], folder: &Path) -> Self {
        let (program, folder) = (program.to_owned(), folder.to_owned());
        Self { program, args: args.to_vec(), folder, disturbed: false, times: Vec::new() }
    }

    /// Creates a command whose mailbox folder changes right before each run.
    ///
    /// Each delivery changes the folder in this way; the cached listing is then stale.
    fn disturbed(program: &Path, args: &[&'static str], folder: &Path) -> Self {
        Self { disturbed: true, ..Self::new(program, args, folder) }
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.disturbed {
            let mailbox = self.folder.join(".switchboard/inbox").join(READER);
            drop(tempfile::NamedTempFile::new_in(mailbox)?);
        }
        self.times.push(run_timed(&self.program, &self.args, &self.folder).await?);
        Ok(())
    }

    fn p50(&self) -> f64 {
        median(&millis(&self.times))
    }
}

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let turns = if quick { 40 } else { 300 };
    build_shipped().await?;
    let program = shipped()?;
    let (few, many, sent) = (place.fresh()?, place.fresh()?, place.fresh()?);
    fill(&few, FEW).await?;
    fill(&many, MANY).await?;
    fill(&sent, FEW).await?;
    say!("{FEW} and {MANY} messages wait");
    RunFolder::settle();
    let inbox = ["--from", READER, "inbox"];
    let send = ["--from", SENDER, "send", READER, "is the build green?"];
    let mut jobs = [
        Job::new(Path::new(TRUE), &[], &few),
        Job::new(&program, &["--help"], &few),
        Job::new(&program, &inbox, &few),
        Job::new(&program, &inbox, &many),
        Job::new(&program, &["--from", READER, "who"], &few),
        Job::new(&program, &send, &sent),
    ];
    run_in_turns(&mut jobs, turns).await?;
    // These commands run last, because in turn with the others they would change the folders for those as well.
    let mut changed = [Job::disturbed(&program, &inbox, &few), Job::disturbed(&program, &inbox, &many)];
    run_in_turns(&mut changed, turns).await?;
    let [nothing, help, few, many, who, send] = jobs.map(|job| job.p50());
    let [few_changed, many_changed] = changed.map(|job| job.p50());
    let figure = |metric: String, value| Figure::new(BENCH, metric, value, "ms", turns);
    figure("help_p50".into(), help).with_baseline(TRUE, nothing).print()?;
    figure("send_p50".into(), send).with_baseline(TRUE, nothing).print_against(Target::AtMost(5.0))?;
    figure("who_p50".into(), who).with_baseline(TRUE, nothing).print_against(Target::AtMost(3.5))?;
    figure(format!("inbox_{FEW}_p50"), few)
        .with_baseline(TRUE, nothing)
        .print_against(Target::AtMost(3.5))?;
    figure(format!("inbox_{MANY}_p50"), many)
        .with_baseline("inbox_10_p50", few)
        .print_against(Target::AtMost(3.0))?;
    figure(format!("inbox_{FEW}_after_change_p50"), few_changed).with_baseline(TRUE, nothing).print()?;
    figure(format!("inbox_{MANY}_after_change_p50"), many_changed)
        .with_baseline("inbox_10_after_change_p50", few_changed)
        .print()
}

async fn run_in_turns(jobs: &mut [Job], turns: usize) -> anyhow::Result<()> {
    for turn in 0..WARM_UP + turns {
        for job in &mut *jobs {
            if turn == WARM_UP {
                job.times.clear();
            }
            job.turn().await?;
        }
    }
    say!("{turns} turns of {} commands", jobs.len());
    Ok(())
}
