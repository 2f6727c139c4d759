//! Wake-up latency of a reader in another process, from the call of `send` on.
//!
//! There are two readers. One is a process of this program that does what any waiting program does ([`crate::waiter`]),
//! compared with a byte that is echoed over the same pipes. The other is the shipped `switchboard wait`, whose time
//! includes printing its line.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::figure::{Figure, Target};
use crate::load::{READER, body};
use crate::ours::{DoorPart, Serving, send};
use crate::program::shipped;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis, percentile};
use crate::waiter::{ECHO, MAIL, READY};

const PIPE: &str = "pipe_echo";

/// Name of a bound, not a measured baseline: the longest acceptable wake-up, 10 ms.
const BOUND: &str = "bound_10_ms";

/// Timeout: longer than any wake-up without a fault.
const TOO_LONG: Duration = Duration::from_secs(20);

/// Time for a started `switchboard wait` to begin waiting, because it does not report when it does.
const STARTING: Duration = Duration::from_millis(300);

pub(crate) async fn run(place: &RunFolder, bench: &'static str, wakes: (usize, usize)) -> anyhow::Result<()> {
    let (wakes, starts) = wakes;
    RunFolder::settle();
    let folder = place.fresh()?;
    let serving = Serving::create(&folder, DoorPart::Everything).await?;
    let (echoes, woken) = staying_reader(&serving, &folder, wakes).await?;
    serving.close().await?;
    say!("woke a waiting reader {wakes} times");
    RunFolder::settle();
    // The mailbox is a separate one, because `switchboard wait` returns at once if a message is unseen.
    let folder = place.fresh()?;
    let serving = Serving::create(&folder, DoorPart::Everything).await?;
    let mut waited = Vec::with_capacity(starts);
    for _ in 0..starts {
        waited.push(shipped_reader(&serving, &folder).await?);
    }
    serving.close().await?;
    say!("woke `switchboard wait` {starts} times");
    let (echo, woken, waited) = (median(&millis(&echoes)), millis(&woken), millis(&waited));
    let wake = || Figure::new(bench, "wake_p50", median(&woken), "ms", wakes);
    wake().with_baseline(PIPE, echo).print()?;
    wake().with_baseline(BOUND, 10.0).print_against(Target::AtMost(1.0))?;
    Figure::new(bench, "wake_p99", percentile(&woken, 0.99), "ms", wakes)
        .with_baseline(PIPE, echo)
        .print()?;
    Figure::new(bench, "wait_command_p50", median(&waited), "ms", starts).with_baseline(PIPE, echo).print()
}

/// The reader's process with the two pipes to it.
struct Reader {
    child: Child,
    ask: ChildStdin,
    answers: ChildStdout,
}

impl Reader {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let mut child = Spawn::new(std::env::current_exe()?)
            .args(["waiter".as_ref(), "--dir".as_ref(), folder.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let ask = child.stdin_writer().context("no stdin")?;
        let answers = child.stdout_reader().context("no stdout")?;
        Ok(Self { child, ask, answers })
    }

    async fn expect(&mut self, expected: u8) -> anyhow::Result<()> {
        let answer = timeout(TOO_LONG, self.answers.read_u8()).await.context("the reader sleeps on")??;
        ensure!(answer == expected, "the reader said {answer} instead of {expected}");
        Ok(())
    }
}

/// Measures echoes and wake-ups of a reader that keeps running, in turn; returns both in that order.
async fn staying_reader(
    serving: &Serving,
    folder: &Path,
    count: usize,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let mut reader = Reader::start(folder)?;
    reader.expect(READY).await?;
    let (mut echoes, mut woken) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        // The pause is random, so that it stays out of step with every timer, and long enough for both sides to become
        // idle.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..50))).await;
        let began = Instant::now();
        reader.ask.write_u8(ECHO).await?;
        reader.expect(ECHO).await?;
        echoes.push(began.elapsed());
        let began = Instant::now();
        let woke = async {
            reader.expect(MAIL).await?;
            anyhow::Ok(began.elapsed())
        };
        let (sent, woke) = tokio::join!(send(&serving.workspace, 0, body()), woke);
        sent?;
        woken.push(woke?);
    }
    drop(reader.ask);
    ensure!(reader.child.wait().await?.success(), "the reader failed");
    Ok((echoes, woken))
}

/// Starts `switchboard wait`, sends a message, and measures the time until `wait` prints its line.
///
/// The reader owns the mailbox, so a message that it was shown counts as seen, and the next call waits again.
async fn shipped_reader(serving: &Serving, folder: &Path) -> anyhow::Result<Duration> {
    let mut child = Spawn::new(shipped()?)
        .args(["--from", READER, "wait", "--json", "--timeout", "30s"])
        .cwd(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout_reader().context("no stdout")?).lines();
    tokio::time::sleep(STARTING).await;
    let began = Instant::now();
    let woke = async {
        let line = timeout(TOO_LONG, lines.next_line()).await.context("`switchboard wait` sleeps on")??;
        line.context("`switchboard wait` printed nothing")?;
        anyhow::Ok(began.elapsed())
    };
    let (sent, woke) = tokio::join!(send(&serving.workspace, 0, body()), woke);
    sent?;
    let woke = woke?;
    ensure!(child.wait().await?.success(), "`switchboard wait` failed");
    Ok(woke)
}
