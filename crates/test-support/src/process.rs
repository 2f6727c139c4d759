//! Processes that a test starts, observes and ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::poll::{self, TIMEOUT};

/// Maximum number of unread lines; when it is reached, the process must wait.
const LINES: usize = 4096;

/// Environment variables that a started program inherits. No other variable may affect a test.
const INHERITED: [&str; 4] = ["PATH", "TMPDIR", "SWITCHBOARD_TOOLS", "CI"];

/// Creates a command with a small, known environment and an empty stdin.
#[expect(clippy::disallowed_methods, reason = "the one place where tests start programs")]
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().stdin(Stdio::null());
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// Removes log lines from the stderr of a program.
pub fn without_log(text: &str) -> String {
    let is_log = |line: &&str| line.starts_with(" WARN ") || line.starts_with("ERROR ");
    text.lines().filter(|line| !is_log(line)).collect::<Vec<_>>().join("\n")
}

/// A process that runs alongside the test and is killed on drop.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts a program and reads its output in the background.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let (out, lines) = sync_channel(LINES);
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // An incomplete last line was cut off by a kill and does not count.
            while stdout.read_line(&mut line).is_ok() && line.ends_with('\n') {
                line.pop();
                if out.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let captured = errors.clone();
        let listener = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut piece) {
                captured.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        Self { child, input, lines, errors, listener: Some(listener), ended: None }
    }

    /// Starts a program that receives the lines of [`Self::write_line`] on stdin.
    pub fn start_with_stdin(command: &mut Command) -> Self {
        Self::start(command.stdin(Stdio::piped()))
    }

    /// Writes a line to the process's stdin; returns an error if the process no longer reads.
    pub fn write_line(&mut self, line: &str) -> std::io::Result<()> {
        let input = self.input.as_mut().expect("a stdin that is open");
        input.write_all(format!("{line}\n").as_bytes())
    }

    /// Closes the process's stdin.
    pub fn close_stdin(&mut self) {
        self.input = None;
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of stdout; panics if there is none within [`TIMEOUT`].
    pub fn line(&self) -> String {
        self.line_within(TIMEOUT).unwrap_or_else(|| panic!("no line came; stderr: {}", self.errors()))
    }

    /// Returns the next line of stdout; `None` after the time limit or at the end of stdout.
    pub fn line_within(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Collects the lines of stdout until a deadline or the end of stdout; returns true if stdout has ended.
    pub fn lines_until(&self, moment: Instant, lines: &mut Vec<String>) -> bool {
        loop {
            match self.lines.recv_timeout(moment.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Returns the process's stderr so far.
    pub fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Returns true if the process still runs.
    pub fn is_running(&mut self) -> bool {
        self.ended = self.ended.or(self.child.try_wait().unwrap());
        self.ended.is_none()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Asks the process to terminate and waits until it has exited.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills the process immediately.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.ended = Some(self.child.wait().unwrap());
    }

    /// Waits until the process exits by itself.
    pub fn wait(&mut self) -> ExitStatus {
        poll::until(&format!("the end of process {}; stderr: {}", self.id(), self.errors()), || {
            (!self.is_running()).then_some(())
        });
        // The process has exited, so joining the reader ensures that all of its stderr was read.
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        self.ended.unwrap()
    }

    /// Waits until the process exits by itself; returns its status and the remaining lines of stdout.
    pub fn wait_for_rest(&mut self, limit: Duration) -> (ExitStatus, Vec<String>) {
        let mut lines = Vec::new();
        assert!(
            self.lines_until(Instant::now() + limit, &mut lines),
            "process {} still runs after {limit:?}; stderr: {}",
            self.id(),
            self.errors()
        );
        (self.wait(), lines)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the peak resident memory of a process in bytes; `None` if the system does not report it.
pub fn peak_memory(process: u32) -> Option<u64> {
    memory_line(process, "VmHWM:")
}

/// Returns the resident memory of a process in bytes; `None` if the system does not report it.
pub fn resident_memory(process: u32) -> Option<u64> {
    memory_line(process, "VmRSS:")
}

fn memory_line(process: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}
