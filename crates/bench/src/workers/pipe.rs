//! Readers on separate threads, and a pipe that only copies lines.

use std::io::{BufRead, BufReader, Write, pipe};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, anyhow};

use super::rate;

/// Client that reads until a turn is complete.
pub(super) struct Reader {
    ready: Receiver<()>,
    thread: JoinHandle<anyhow::Result<(Vec<String>, Instant)>>,
}

impl Reader {
    pub(super) fn start(address: &str, job: &str) -> anyhow::Result<Self> {
        let path = address.strip_prefix("unix:").context("a socket")?;
        let mut stream = UnixStream::connect(path)?;
        let subscribe = format!(
            r#"{{"protocol":"codeswarm.router.v1","type":"command","timestamp":"2026-01-01T00:00:00Z","command":"subscribe","request_id":"s","payload":{{"jobs":["{job}"]}}}}"#
        );
        writeln!(stream, "{subscribe}")?;
        let (tell, ready) = sync_channel(1);
        let thread = thread::spawn(move || {
            let (mut lines, mut reader) = (Vec::new(), BufReader::with_capacity(1 << 16, stream));
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Err(anyhow!("the router closed the connection"));
                }
                if line.contains(r#""event":"subscribed""#) {
                    let _ = tell.send(());
                    continue;
                }
                let is_last = line.contains(r#""event":"turn_complete""#);
                lines.push(line);
                if is_last {
                    return Ok((lines, Instant::now()));
                }
            }
        });
        Ok(Self { ready, thread })
    }

    /// Waits until the router has confirmed the reader's subscription.
    pub(super) fn is_ready(&self) -> anyhow::Result<()> {
        Ok(self.ready.recv()?)
    }

    /// Waits for the end of the turn; returns the lines that were read, and the time at the end.
    pub(super) fn finish(self) -> anyhow::Result<(Vec<String>, Instant)> {
        self.thread.join().map_err(|_| anyhow!("the reader failed"))?
    }
}

/// Measures lines per second through two pipes: the lines are written, copied and read one by one.
pub(super) fn copy(lines: &[String]) -> anyhow::Result<f64> {
    let (first_out, mut first_in) = pipe()?;
    let (second_out, mut second_in) = pipe()?;
    let began = Instant::now();
    let count = thread::scope(|scope| {
        scope.spawn(move || {
            for line in lines {
                first_in.write_all(line.as_bytes())?;
            }
            std::io::Result::Ok(())
        });
        scope.spawn(move || {
            let mut reader = BufReader::new(first_out);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                second_in.write_all(&line)?;
                line.clear();
            }
            std::io::Result::Ok(())
        });
        BufReader::new(second_out).lines().count()
    });
    Ok(rate(count, began.elapsed()))
}
