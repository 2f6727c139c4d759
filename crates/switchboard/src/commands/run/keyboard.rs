//! What is written into the pty: the person's keys, and in between, as a whole, what is typed for mail.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::time::Duration;

use door_workspace::{PasteMode, keystrokes, paste_end};
use pty_process::WritePty;
use rustix::termios::{self, LocalModes, SpecialCodeIndex};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a program may leave what is typed unread before the typing counts as failed.
const STALLED: Duration = Duration::from_secs(5);

/// How long whoever got the turn has to say what to type: one write to the journal.
const TURN: Duration = Duration::from_secs(5);

/// Pauses between two pieces of a text, and before the Enter: a program that looks for pastes by their
/// speed takes an Enter that comes with the text for a part of it.
const BETWEEN: Duration = Duration::from_millis(20);
const BEFORE_ENTER: Duration = Duration::from_millis(150);

/// Most bytes of the person's that wait during one piece of typing; then the person's terminal waits.
const HELD: usize = 64 << 10;

/// The longest line that the system hands to a program which reads line by line; what is longer is lost.
const LONGEST_LINE: usize = if cfg!(target_os = "linux") { 4095 } else { 1024 };

/// Who may wait for a turn at once: one with an execute message, one with a notice. The next one waits in its
/// channel.
const TURNS: usize = 2;

const INTERRUPT: u8 = 0x03;
const END_OF_FILE: u8 = 0x04;

/// Somebody wants to type. It waits for its turn, gets the keyboard for itself, and then says what.
#[derive(Debug)]
pub(super) struct Turn {
    /// When it may be.
    pub(super) when: When,
    /// Told when it is its turn.
    pub(super) granted: oneshot::Sender<()>,
    /// What to type; nothing where that is off by now.
    pub(super) text: oneshot::Receiver<Option<String>>,
    /// What came of it.
    pub(super) typed: oneshot::Sender<Result<(), String>>,
}

/// When something may be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When the person has not typed half a line, or has left it alone for a while.
    LineIsFree,
    /// When nothing has happened for a while.
    AllIsQuiet,
}

/// What has happened in the terminal, as far as it matters for typing.
#[derive(Debug)]
pub(super) struct Watch {
    paste: PasteMode,
    last_output: Instant,
    last_key: Instant,
    is_line_begun: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { paste: PasteMode::default(), last_output: now, last_key: now, is_line_begun: false }
    }

    pub(super) fn note_output(&mut self, output: &[u8]) {
        self.paste.read(output);
        self.last_output = Instant::now();
    }

    /// Enter ends a line and so does Ctrl-C. Arrow keys, the mouse and what a terminal answers begin none.
    fn note_keys(&mut self, keys: &[u8]) {
        self.last_key = Instant::now();
        let is_text = !keys.starts_with(b"\x1b") || keys.starts_with(b"\x1b[200~");
        match keys.iter().rposition(|key| matches!(*key, b'\r' | b'\n' | INTERRUPT)) {
            Some(last) => self.is_line_begun = last + 1 < keys.len(),
            None => self.is_line_begun |= is_text,
        }
    }

    /// The moment from which it may be typed, as far as can be told now.
    fn free_from(&self, when: When, idle: Duration) -> Instant {
        match when {
            When::LineIsFree if !self.is_line_begun => self.last_key,
            When::LineIsFree => self.last_key + idle,
            When::AllIsQuiet => self.last_key.max(self.last_output) + idle,
        }
    }
}

/// The one that writes into the pty.
pub(super) struct Keyboard<'s> {
    pty: WritePty<'s>,
    control: &'s OwnedFd,
    watch: &'s RefCell<Watch>,
    idle: Duration,
    /// The person's keys that came while something else was typed.
    held: VecDeque<Vec<u8>>,
}

impl<'s> Keyboard<'s> {
    pub(super) fn new(
        pty: WritePty<'s>,
        control: &'s OwnedFd,
        watch: &'s RefCell<Watch>,
        idle: Duration,
    ) -> Self {
        Self { pty, control, watch, idle, held: VecDeque::new() }
    }

    /// Writes what the person types and what is wanted, each as a whole, for as long as the program lives.
    ///
    /// `ends` says that the end of stdin is the end of the input, rather than of the terminal.
    pub(super) async fn run(
        mut self,
        mut keys: mpsc::Receiver<Vec<u8>>,
        mut wanted: mpsc::Receiver<Turn>,
        ends: bool,
    ) {
        let mut turns: Vec<Turn> = Vec::with_capacity(TURNS);
        let (mut is_open, mut is_wanted) = (true, true);
        loop {
            while let Some(held) = self.held.pop_front() {
                self.pass_on(&held).await;
            }
            let whens: Vec<When> = turns.iter().map(|turn| turn.when).collect();
            tokio::select! {
                // The person comes first.
                biased;
                piece = keys.recv(), if is_open => if let Some(piece) = piece {
                    self.pass_on(&piece).await;
                } else {
                    is_open = false;
                    if ends {
                        self.end_input().await;
                    }
                },
                next = wanted.recv(), if is_wanted && turns.len() < TURNS => match next {
                    Some(next) => turns.push(next),
                    None => is_wanted = false,
                },
                next = self.is_free(&whens) => {
                    let turn = turns.swap_remove(next);
                    self.give(turn, &mut keys).await;
                }
            }
        }
    }

    /// Returns when somebody waits for a turn and may have it, with the place among those who wait.
    async fn is_free(&self, whens: &[When]) -> usize {
        loop {
            let from = |when: &When| self.watch.borrow().free_from(*when, self.idle);
            let first = whens.iter().map(from).enumerate().min_by_key(|(_, from)| *from);
            match first {
                None => return pending().await,
                Some((next, from)) if from <= Instant::now() => return next,
                // Something may happen in the meantime, so look again then.
                Some((_, from)) => sleep_until(from).await,
            }
        }
    }

    /// Writes the person's keys. A program that does not read has the person wait, as in any terminal.
    async fn pass_on(&mut self, keys: &[u8]) {
        self.watch.borrow_mut().note_keys(keys);
        // It fails only when the program has closed its terminal, and then its end is near.
        let _ = self.pty.write_all(keys).await;
    }

    /// Says that there is no more input, with the key that says so. On a line that has begun the first one
    /// only sends the line.
    async fn end_input(&mut self) {
        let settings = termios::tcgetattr(self.control).ok();
        let key = settings.as_ref().map_or(END_OF_FILE, |set| set.special_codes[SpecialCodeIndex::VEOF]);
        let by_line = settings.is_some_and(|set| set.local_modes.contains(LocalModes::ICANON));
        let twice = by_line && self.watch.borrow().is_line_begun;
        let keys = [key, key];
        let _ = self.pty.write_all(if twice { &keys } else { &keys[..1] }).await;
    }

    /// Gives the keyboard to one who waited, and to nobody else until that is done.
    async fn give(&mut self, turn: Turn, keys: &mut mpsc::Receiver<Vec<u8>>) {
        if turn.granted.send(()).is_err() {
            return;
        }
        let Ok(Ok(Some(text))) = timeout(TURN, turn.text).await else { return };
        let typed = self.type_text(&text, keys).await;
        let _ = turn.typed.send(typed);
    }

    /// Types a text and one Enter. The person's keys wait meanwhile, but for Ctrl-C, which ends it.
    async fn type_text(&mut self, text: &str, keys: &mut mpsc::Receiver<Vec<u8>>) -> Result<(), String> {
        let paste = self.watch.borrow().paste.is_on();
        let writes = keystrokes(text, paste);
        let size: usize = writes.iter().map(Vec::len).sum();
        let by_line =
            termios::tcgetattr(self.control).is_ok_and(|set| set.local_modes.contains(LocalModes::ICANON));
        if by_line && size > LONGEST_LINE {
            return Err(format!(
                "the program reads lines of at most {LONGEST_LINE} bytes and this one has {size}; nothing was typed"
            ));
        }
        let mut done = 0;
        let typed = {
            let (pty, done) = (&mut self.pty, &mut done);
            let typing = async move {
                for write in &writes {
                    write_all(pty, write, done).await?;
                    sleep(BETWEEN).await;
                }
                sleep(BEFORE_ENTER).await;
                let mut enter = 0;
                write_all(pty, b"\r", &mut enter).await
            };
            tokio::select! {
                typed = typing => typed,
                () = interrupted(keys, &mut self.held) => Err("the person pressed Ctrl-C".to_owned()),
            }
        };
        typed.map_err(|reason| {
            if paste && (1..size).contains(&done) {
                // Or what the person types next would be a part of the paste.
                self.held.push_front(paste_end().to_vec());
            }
            format!("{reason}; {done} of {size} bytes were typed, without Enter")
        })
    }
}

/// Writes all of `bytes` and counts them; gives up when the program does not read.
async fn write_all(pty: &mut WritePty<'_>, bytes: &[u8], done: &mut usize) -> Result<(), String> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match timeout(STALLED, pty.write(rest)).await {
            Ok(Ok(written)) => {
                *done += written;
                rest = &rest[written..];
            }
            Ok(Err(error)) => return Err(format!("the program closed its terminal: {error}")),
            Err(_) => return Err(format!("the program did not read for {} s", STALLED.as_secs())),
        }
    }
    Ok(())
}

/// Takes the person's keys aside; returns when Ctrl-C is among them.
async fn interrupted(keys: &mut mpsc::Receiver<Vec<u8>>, held: &mut VecDeque<Vec<u8>>) {
    let mut size = 0;
    while size < HELD {
        let Some(piece) = keys.recv().await else { break };
        let is_interrupt = piece.contains(&INTERRUPT);
        size += piece.len();
        held.push_back(piece);
        if is_interrupt {
            return;
        }
    }
    pending::<()>().await;
}

#[cfg(test)]
#[path = "keyboard_tests.rs"]
mod tests;
