//! The person's side of the pty: the terminal that started `run`, or pipes.

use std::io::{self, Read, Write};
use std::thread::{self, JoinHandle};

use rustix::termios::{self, OptionalActions, Termios, Winsize};
use tokio::sync::mpsc;

/// Bytes per piece. At most [`PIECES`] pieces are queued in either direction.
///
/// When the queue is full, its sender blocks (backpressure): a program that writes faster than the screen waits, and so
/// does a person who types faster than the program reads.
const PIECE: usize = 4096;
const PIECES: usize = 16;

/// Window size for a program without a terminal: the traditional 80 × 24.
const NO_TERMINAL: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

/// The person's terminal in raw mode. Dropping it restores the settings: at the end, on an error and on a panic.
#[derive(Debug)]
pub(super) struct RawMode {
    before: Option<Termios>,
}

impl RawMode {
    /// Enters raw mode if stdin is a terminal.
    pub(super) fn set() -> io::Result<Self> {
        let mut raw = Self { before: None };
        raw.enter()?;
        Ok(raw)
    }

    fn enter(&mut self) -> io::Result<()> {
        let stdin = io::stdin();
        if !termios::isatty(&stdin) {
            return Ok(());
        }
        let before = termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        // `Now` does not flush the input, so keys typed ahead are retained.
        termios::tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        self.before = Some(before);
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &before);
        }
    }

    /// Restores the terminal and suspends this process; re-enters raw mode when the shell resumes it.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.enter()
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the terminal's settings, which include the erase and interrupt keys.
pub(super) fn settings() -> Option<Termios> {
    let stdin = io::stdin();
    if termios::isatty(&stdin) { termios::tcgetattr(&stdin).ok() } else { None }
}

/// Returns true if stdin is a terminal, so that a person may be typing.
pub(super) fn is_terminal() -> bool {
    termios::isatty(io::stdin())
}

/// Returns the size of the person's window, queried from any standard stream that is a terminal.
pub(super) fn window_size() -> Winsize {
    let size = termios::tcgetwinsize(io::stdout())
        .or_else(|_| termios::tcgetwinsize(io::stdin()))
        .or_else(|_| termios::tcgetwinsize(io::stderr()));
    size.ok().filter(|size| size.ws_row > 0 && size.ws_col > 0).unwrap_or(NO_TERMINAL)
}

/// Starts a thread that reads stdin in pieces until its end.
///
/// It is a thread because stdin cannot be made non-blocking: the shell that started this process shares the open file.
/// The thread ends with the process.
pub(super) fn keys() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, keys) = mpsc::channel(PIECES);
    let read = move || {
        let mut piece = [0; PIECE];
        loop {
            match io::stdin().lock().read(&mut piece) {
                Ok(0) => return,
                Ok(read) => {
                    if sender.blocking_send(piece[..read].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    };
    thread::Builder::new().name("stdin".into()).spawn(read)?;
    Ok(keys)
}

/// Starts the thread that writes to stdout. After the sender is dropped and the thread joined, everything sent has been
/// written.
pub(super) fn screen() -> io::Result<(mpsc::Sender<Vec<u8>>, JoinHandle<()>)> {
    let (screen, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES);
    let write = move || {
        let mut stdout = io::stdout().lock();
        while let Some(piece) = pieces.blocking_recv() {
            // After stdout is closed, the sender gets an error at its next piece.
            if stdout.write_all(&piece).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    };
    Ok((screen, thread::Builder::new().name("stdout".into()).spawn(write)?))
}
