//! Session of a program in a pty, from start to end.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::Duration;

use pty_process::{Pty, ReadPty};
use rustix::process::{Pid, Signal};
use rustix::termios::{self, OptionalActions};
use switchboard_sys::process::{Child, Spawn, SpawnError};
use switchboard_sys::reaper::ReaperClient;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::keyboard::{Keyboard, Turn, Watch};
use super::outer::{self, RawMode};

/// Time that a program may take to exit before the next signal is sent.
const GRACE: Duration = Duration::from_secs(3);

/// Timeout for the last output after the program exited, if a descendant still has the pty open.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// Timeout for recording a typed message after the program exited.
const SETTLE: Duration = Duration::from_secs(10);

/// Number of the signal SIGTSTP. Signals are given by number, because tokio names only some of them.
const STOP_KEY: i32 = Signal::TSTP.as_raw();

/// A program in its pty.
pub(super) struct Session {
    pty: Pty,
    child: Child,
    guard: ReaperClient,
    group: Pid,
    /// Duplicate of the pty, for its size and settings.
    control: OwnedFd,
    raw: RawMode,
}

/// End of a session.
#[derive(Debug)]
pub(super) struct SessionEnd {
    /// Exit code of the program; 128 plus the signal's number if a signal ended it.
    pub(super) code: i32,
}

impl Session {
    /// Starts the program in its own pty, with the size and settings of our terminal, under a reaper.
    pub(super) async fn start(
        command: &[OsString],
        environment: &[(&str, OsString)],
        guard: ReaperClient,
    ) -> io::Result<Self> {
        let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
        let control = pty.as_fd().try_clone_to_owned()?;
        if let Some(settings) = outer::settings() {
            termios::tcsetattr(&pts, OptionalActions::Now, &settings)?;
        }
        termios::tcsetwinsize(&control, outer::window_size())?;
        let mut spawn = Spawn::new(program).args(args);
        for (name, value) in environment {
            spawn = spawn.env(name, value);
        }
        let child = spawn.start_in_terminal(pts.as_fd(), &guard).await.map_err(SpawnError::into_io_error)?;
        let pid = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
        let group = pid.ok_or_else(|| io::Error::other("the program has no process id"))?;
        let raw = RawMode::set()?;
        Ok(Self { pty, child, guard, group, control, raw })
    }

    /// Returns the pid of the program, which leads its process group.
    pub(super) fn pid(&self) -> u32 {
        self.group.as_raw_pid().unsigned_abs()
    }

    /// Copies bytes in both directions until the program exits, and types the texts that `mail` requests.
    ///
    /// `is_typing` is true while `mail` types a text whose outcome is not yet recorded.
    pub(super) async fn run(
        mut self,
        wanted: mpsc::Receiver<Turn>,
        idle: Duration,
        mail: impl Future<Output = ()>,
        is_typing: &Cell<bool>,
    ) -> io::Result<SessionEnd> {
        let keys = outer::keys()?;
        let (screen, writer) = outer::screen()?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut stopped = signal(SignalKind::from_raw(STOP_KEY))?;
        let mut signals = ForwardedSignals::listen()?;
        let size = outer::window_size();
        let watch = RefCell::new(Watch::new(size.ws_row, size.ws_col));
        let pid = self.pid();
        let (reader, keyboard_end) = self.pty.split();
        let mut output = Box::pin(show(reader, screen, &watch));
        let keyboard = Keyboard::new(keyboard_end, &self.control, pid, &watch, idle);
        let mut input = Box::pin(keyboard.run(keys, wanted, !outer::is_terminal()));
        let mut mail = Box::pin(mail);
        let mut end = KillEscalation::default();
        let (mut is_shown, mut is_mailed) = (false, false);
        let status = loop {
            tokio::select! {
                status = self.child.wait_and_detach() => break status?,
                gone = &mut output, if !is_shown => {
                    is_shown = true;
                    watch.borrow_mut().note_end();
                    if gone == ScreenEnd::Gone {
                        end.send_signal(self.group, &self.control, Signal::HUP);
                    }
                }
                () = &mut input => {}
                () = &mut mail, if !is_mailed => is_mailed = true,
                _ = resized.recv() => resize(&self.control, &watch),
                _ = stopped.recv() => {
                    self.raw.suspend()?;
                    resize(&self.control, &watch);
                }
                signal = signals.next() => end.send_signal(self.group, &self.control, signal),
                () = end.is_due() => end.escalate(self.group, &self.control),
            }
        };
        // Detach, so that processes that the person left running on purpose continue.
        self.guard.detach();
        // The typed text may have ended the program; record the outcome and notify the sender before returning.
        let settled = poll_fn(|cx| {
            if !is_typing.get() || is_mailed {
                return Poll::Ready(());
            }
            // Only the last output shows whether the text has left the input field.
            if !is_shown && output.as_mut().poll(cx).is_ready() {
                is_shown = true;
                watch.borrow_mut().note_end();
            }
            let _ = input.as_mut().poll(cx);
            is_mailed = mail.as_mut().poll(cx).is_ready();
            if is_typing.get() && !is_mailed { Poll::Pending } else { Poll::Ready(()) }
        });
        let _ = tokio::time::timeout(SETTLE, settled).await;
        if !is_shown {
            let _ = tokio::time::timeout(LAST_OUTPUT, &mut output).await;
        }
        // Dropping `output` drops the sender, after which the writer thread writes the rest and ends.
        drop(output);
        let _ = tokio::task::spawn_blocking(|| writer.join()).await;
        Ok(SessionEnd { code: code_of(status) })
    }
}

/// Sets the pty and the emulator to the size of the person's window. Errors of a closed pty are ignored.
fn resize(control: &OwnedFd, watch: &RefCell<Watch>) {
    let size = outer::window_size();
    watch.borrow_mut().resize(size.ws_row, size.ws_col);
    let _ = termios::tcsetwinsize(control, size);
}

/// Whether the output could still be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScreenEnd {
    There,
    Gone,
}

/// Copies the program's output to the screen until it ends, and feeds the emulator.
///
/// It reserves capacity in the queue before reading, so that unread output stays in the pty and blocks the program
/// (backpressure).
async fn show(mut pty: ReadPty<'_>, screen: mpsc::Sender<Vec<u8>>, watch: &RefCell<Watch>) -> ScreenEnd {
    let mut piece = [0; 4096];
    loop {
        let Ok(room) = screen.reserve().await else { return ScreenEnd::Gone };
        match pty.read(&mut piece).await {
            // If no process has the pty open, reading fails with EIO on Linux, and returns 0 elsewhere.
            Ok(0) | Err(_) => return ScreenEnd::There,
            Ok(read) => {
                watch.borrow_mut().note_output(&piece[..read]);
                room.send(piece[..read].to_vec());
            }
        }
    }
}

/// Signals to forward to the program.
struct ForwardedSignals {
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
}

impl ForwardedSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
        }
    }
}

/// Escalation for a program that has to exit: a shell ignores SIGTERM, some programs ignore SIGHUP too.
#[derive(Debug, Default)]
struct KillEscalation {
    due: Option<Instant>,
    next: Option<Signal>,
}

impl KillEscalation {
    /// Forwards a signal to the program's group and to the foreground group of its terminal.
    fn send_signal(&mut self, group: Pid, control: &OwnedFd, signal: Signal) {
        let foreground = termios::tcgetpgrp(control).ok().filter(|foreground| *foreground != group);
        for group in [Some(group), foreground].into_iter().flatten() {
            // It is not an error if no process remains.
            let _ = rustix::process::kill_process_group(group, signal);
        }
        let next = match signal {
            Signal::TERM => Some(Signal::HUP),
            Signal::HUP => Some(Signal::KILL),
            _ => None,
        };
        if next.is_some() {
            (self.next, self.due) = (next, Some(Instant::now() + GRACE));
        }
    }

    fn escalate(&mut self, group: Pid, control: &OwnedFd) {
        self.due = None;
        if let Some(signal) = self.next.take() {
            self.send_signal(group, control, signal);
        }
    }

    async fn is_due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => pending().await,
        }
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
