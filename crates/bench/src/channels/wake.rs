//! Wake-up latency of channel readers and watchers, from the call of `post` on.
//!
//! Measures the shipped `switchboard channel tail`, and the shipped `switchboard watch`, which also has to start its
//! program.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use door_channels::{Channels, Config, Post};
use door_workspace::{Tree, Workspace};
use switchboard_core::{AgentId, Name};
use switchboard_sys::files::{Created, Dir, Durability};
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::reader::{self, MAIL, READY, WaitMode};
use super::{BENCH, Extent};
use crate::figure::{Figure, Target};
use crate::program::shipped;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile};

/// Timeout: longer than any wake-up without a fault.
const TOO_LONG: Duration = Duration::from_secs(20);

/// Maximum ratio of a wake-up to a wake-up by bare inotify.
const BAR: f64 = 5.0;

const CHANNEL: &str = "general";

pub(super) async fn run(place: &RunFolder, extent: Extent) -> anyhow::Result<()> {
    RunFolder::settle();
    let posting = Posting::create(&place.fresh()?).await?;
    let (bare, tail) = readers(place, &posting, extent.wakes).await?;
    let (started, program) = programs(place, &posting, extent.wakes).await?;
    let looked = polling(place, extent.looks).await?;
    posting.workspace.close().await;
    let wakes = extent.wakes;
    let wake = || Figure::new(BENCH, "wake_p50", median(&tail), "ms", wakes);
    wake().with_baseline("inotify", median(&bare)).print_against(Target::AtMost(BAR))?;
    wake().with_baseline("polling_2_s", median(&looked)).print()?;
    Figure::new(BENCH, "wake_p99", percentile(&tail, 0.99), "ms", wakes)
        .with_baseline("inotify", percentile(&bare, 0.99))
        .print()?;
    Figure::new(BENCH, "watcher_runs_p50", median(&program), "ms", wakes)
        .with_baseline("inotify_and_program", median(&started))
        .print_against(Target::AtMost(BAR))
}

/// Workspace with a channel to post to.
struct Posting {
    folder: PathBuf,
    workspace: Workspace,
    channels: Channels,
}

impl Posting {
    async fn create(folder: &Path) -> anyhow::Result<Self> {
        Tree::create(folder)?;
        let key = crate::binding::key_of(folder)?;
        let workspace =
            Workspace::open(folder, door_workspace::Config::default(), |hub| hub.key = Some(key)).await?;
        let root = workspace.tree().root().path().to_owned();
        let channels = Channels::open(Config::new(root), workspace.hub().clone()).await?;
        let posting = Self { folder: folder.to_owned(), workspace, channels };
        // The first post creates the channel in which all later posts are made.
        posting.post("all").await?;
        Ok(posting)
    }

    async fn post(&self, to: &str) -> anyhow::Result<()> {
        // A person posts here, because posts of a person have no rate limit, unlike posts of an agent.
        let post = Post::new(AgentId::human(), Name::parse(CHANNEL)?, "x".repeat(256));
        Box::pin(self.channels.post(Post { to: to.to_owned(), ..post })).await?;
        Ok(())
    }

    /// Starts the shipped program in the workspace.
    fn start(&self, args: &[&str]) -> anyhow::Result<(Child, BufReader<ChildStdout>)> {
        let mut child = Spawn::new(shipped()?)
            .args(args)
            .cwd(&self.folder)
            .env("HOME", &self.folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let output = BufReader::new(child.stdout_reader().context("no stdout")?);
        Ok((child, output))
    }
}

/// The baseline: a folder, and a process that waits for files in that folder.
struct Bare {
    folder: Folder,
    _child: Child,
    output: ChildStdout,
}

/// Folder with the number of files that were written to it.
struct Folder {
    dir: Dir,
    written: usize,
}

impl Bare {
    async fn start(folder: &Path, by: WaitMode) -> anyhow::Result<Self> {
        let mut child = Spawn::new(std::env::current_exe()?)
            .args([
                "channel-reader".as_ref(),
                "--by".as_ref(),
                by.name().as_ref(),
                "--dir".as_ref(),
                folder.as_os_str(),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let mut output = child.stdout_reader().context("no stdout")?;
        expect(&mut output, READY).await?;
        let folder = Folder { dir: Dir::open_root(folder)?, written: 0 };
        Ok(Self { folder, _child: child, output })
    }
}

impl Folder {
    /// Writes a file of the size of a post; the file is durable before it becomes visible.
    async fn write(&mut self) -> anyhow::Result<()> {
        self.written += 1;
        let (dir, name) = (self.dir.clone(), format!("msg-20260111-163315-codex-{:04x}.json", self.written));
        let made = tokio::task::spawn_blocking(move || {
            dir.create_new(&name, "x".repeat(512).as_bytes(), Durability::Synced)
        });
        ensure!(made.await?? == Created::Created, "the name was taken");
        Ok(())
    }
}

async fn expect(output: &mut (impl tokio::io::AsyncRead + Unpin), expected: u8) -> anyhow::Result<()> {
    let reply = timeout(TOO_LONG, output.read_u8()).await.context("the reader sleeps on")??;
    ensure!(reply == expected, "the reader said {reply} instead of {expected}");
    Ok(())
}

/// Measures the time from the start of one action until an event. The action may still be running at the event.
async fn time(
    act: impl Future<Output = anyhow::Result<()>>,
    until: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let woke = async {
        until.await?;
        anyhow::Ok(began.elapsed())
    };
    let (acted, woke) = tokio::join!(act, woke);
    acted?;
    woke
}

/// Sleeps for a random time before a measurement.
///
/// The time is random, so that it stays out of step with every timer, and long enough for both sides to become idle.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(120..160))).await;
}

/// Measures wake-ups by inotify and by `channel tail`, in turn.
async fn readers(place: &RunFolder, posting: &Posting, wakes: usize) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let mut bare = Bare::start(&place.fresh()?, WaitMode::Inotify).await?;
    let (tail, mut lines) = posting.start(&["channel", "tail", "--channel", CHANNEL, "--json"])?;
    let mut line = String::new();
    timeout(TOO_LONG, lines.read_line(&mut line)).await.context("`channel tail` shows nothing")??;
    let (mut least, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..wakes {
        pause().await;
        least.push(time(bare.folder.write(), expect(&mut bare.output, MAIL)).await?);
        pause().await;
        line.clear();
        let shown = async {
            timeout(TOO_LONG, lines.read_line(&mut line)).await.context("`channel tail` sleeps on")??;
            Ok(())
        };
        ours.push(time(posting.post("all"), shown).await?);
    }
    drop(tail);
    say!("woke a reader {wakes} times");
    Ok((millis(&least), millis(&ours)))
}

/// Measures programs started by an inotify reader and by `switchboard watch`, in turn.
async fn programs(
    place: &RunFolder,
    posting: &Posting,
    wakes: usize,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let folder = place.fresh()?;
    let (theirs, ours) = (reader::pipe(&folder), reader::pipe(&posting.folder));
    for pipe in [&theirs, &ours] {
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)?;
    }
    // The pipe is also opened for writing, because it would otherwise reach its end with each program.
    let open = |path: &Path| pipe::OpenOptions::new().read_write(true).open_receiver(path);
    let (mut started, mut ran) = (open(&theirs)?, open(&ours)?);
    let mut bare = Bare::start(&folder, WaitMode::InotifyProgram).await?;
    let exe = std::env::current_exe()?;
    let (exe, dir) =
        (exe.to_str().context("a strange path")?, posting.folder.to_str().context("a strange path")?);
    let (watch, mut lines) = posting.start(&[
        "watch",
        "--agent",
        "qc-1",
        "--channel",
        CHANNEL,
        "--",
        exe,
        "channel-program",
        "--dir",
        dir,
    ])?;
    timeout(TOO_LONG, lines.read_line(&mut String::new())).await.context("`watch` says nothing")??;
    let (mut least, mut mine) = (Vec::new(), Vec::new());
    for _ in 0..wakes {
        pause().await;
        least.push(time(bare.folder.write(), expect(&mut started, MAIL)).await?);
        pause().await;
        mine.push(time(posting.post("qc-1"), expect(&mut ran, MAIL)).await?);
    }
    drop(watch);
    say!("had a program run {wakes} times");
    Ok((millis(&least), millis(&mine)))
}

/// Measures wake-ups of a reader that polls every two seconds.
async fn polling(place: &RunFolder, looks: usize) -> anyhow::Result<Vec<f64>> {
    let mut bare = Bare::start(&place.fresh()?, WaitMode::Polling).await?;
    let mut times = Vec::new();
    for _ in 0..looks {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..2000))).await;
        times.push(time(bare.folder.write(), expect(&mut bare.output, MAIL)).await?);
    }
    say!("waited for a look {looks} times");
    Ok(millis(&times))
}
