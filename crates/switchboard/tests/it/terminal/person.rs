//! A person at a terminal: the binary in a real pty, in its own session.

use std::io::{Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios;
use test_support::{Sandbox, poll};

/// Longest wait for the end after a hangup; `run` kills its program three seconds after it.
const LEAVING: Duration = Duration::from_secs(8);

/// A user who types and reads the screen.
pub(crate) struct Person {
    child: Child,
    pty: Arc<Pty>,
    shown: Arc<Mutex<Vec<u8>>>,
    looking: Option<JoinHandle<()>>,
}

impl Person {
    /// Starts the binary in a terminal of 33 rows and 101 columns.
    pub(crate) fn sit_down(sandbox: &Sandbox, args: &[&str]) -> Self {
        Self::start(&sandbox.command(args))
    }

    /// Starts a command in a terminal, in its own folder and with its variables.
    pub(crate) fn start(plain: &std::process::Command) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(33, 101)).unwrap();
        let set = plain.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let child = Command::new(plain.get_program())
            .args(plain.get_args())
            .env_clear()
            .envs(set)
            .env("TERM", "xterm")
            .env("PS1", "$ ")
            .current_dir(plain.get_current_dir().unwrap())
            .spawn(pts)
            .unwrap();
        let (pty, shown) = (Arc::new(pty), Arc::new(Mutex::new(Vec::new())));
        let (screen, seen) = (pty.clone(), shown.clone());
        let looking = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = (&*screen).read(&mut piece) {
                seen.lock().unwrap().extend_from_slice(&piece[..read]);
            }
        });
        Self { child, pty, shown, looking: Some(looking) }
    }

    /// Returns the settings of a new terminal.
    pub(crate) fn settings_of_a_new_terminal() -> String {
        let (pty, _pts) = open().unwrap();
        settings(&pty)
    }

    /// Returns the current settings of the person's terminal.
    pub(crate) fn settings(&self) -> String {
        settings(&self.pty)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn types(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns everything that was on the screen so far.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until a text is on the screen.
    pub(crate) fn until_shown(&self, text: &str) {
        poll::within(poll::TIMEOUT, || self.shown().contains(text).then_some(()))
            .unwrap_or_else(|| panic!("'{text}' was never shown; shown was {:?}", self.shown()));
    }

    /// Waits until the binary has ended and all its output was read.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let ended = poll::within(poll::TIMEOUT, || self.child.try_wait().unwrap());
        let ended = ended.unwrap_or_else(|| panic!("it still runs; shown was {:?}", self.shown()));
        // The last process at the terminal has ended, so the read ends.
        if let Some(looking) = self.looking.take() {
            looking.join().unwrap();
        }
        ended
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // After a hangup, `run` ends its program too. After a kill, it leaves a program that ignores the hangup of its
        // terminal, as Gemini does.
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::HUP);
            poll::within(LEAVING, || self.child.try_wait().ok().flatten());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(pty: &Pty) -> String {
    let set = termios::tcgetattr(pty).unwrap();
    // Without the control modes: systems store the speed of a line there, each in its own way.
    format!("{:?} {:?} {:?}", set.input_modes, set.output_modes, set.local_modes)
}
