//! What is written into the pty: the person's keys, and in between, as a whole, what is typed for mail.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::pending;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use door_workspace::{
    Emulator, InputMode, LeftoverText, Obstacle, Screen, Step, Typist, check_field, dismiss_completion,
    encode_keystrokes, paste_end,
};
use pty_process::WritePty;
use rustix::termios::{self, LocalModes, SpecialCodeIndex};
use switchboard_sys::platform;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long a program may leave what is typed unread before the typing counts as failed.
const STALLED: Duration = Duration::from_secs(5);

/// How long whoever got the turn has to say what to type: one write to the journal.
const TURN: Duration = Duration::from_secs(5);

/// The pause between two pieces of a text.
const BETWEEN: Duration = Duration::from_millis(20);

/// How often the screen is looked at while something waits to be typed, and while it is typed.
const LOOK: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(20);

/// How long the person must have let go of the keys.
const KEYS: Duration = Duration::from_millis(500);

/// Most bytes of the person's that wait during one piece of typing; then the person's terminal waits.
const HELD: usize = 64 << 10;

/// The longest line that the system hands to a program which reads line by line; what is longer is lost.
const LONGEST_LINE: usize = if cfg!(target_os = "linux") { 4095 } else { 1024 };

/// Who may wait for a turn at once: one with an execute message, one with a notice. The next one waits in its
/// channel.
const TURNS: usize = 2;

const INTERRUPT: u8 = 0x03;
const END_OF_FILE: u8 = 0x04;

/// A request to type: it waits for its turn, gets the keyboard for itself, and then says what.
#[derive(Debug)]
pub(super) struct Turn {
    /// When it may be.
    pub(super) when: When,
    /// Told why it still waits.
    pub(super) blocked: watch::Sender<Option<Obstacle>>,
    /// Told when it is its turn.
    pub(super) granted: oneshot::Sender<()>,
    /// What to type; nothing where that is off by now.
    pub(super) text: oneshot::Receiver<Option<String>>,
    /// What came of it.
    pub(super) typed: oneshot::Sender<Typed>,
}

/// What came of typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// All of it, with Enter.
    Done,
    /// Nothing of it was entered; it may be tried again.
    NotYet(Obstacle),
    /// It went wrong on the way, and is not tried again.
    Failed(String),
}

/// When something may be typed, beside the screen's own conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When the person has let go of the keys.
    LineIsFree,
    /// When nothing has happened for a while.
    AllIsQuiet,
}

/// The program's screen, and what has happened in the terminal as far as it matters for typing.
pub(super) struct Watch {
    emulator: Emulator,
    last_output: Instant,
    last_key: Instant,
    is_line_begun: bool,
    /// Whether there is no more output: the program has ended.
    is_over: bool,
}

impl Watch {
    pub(super) fn new(rows: u16, columns: u16) -> Self {
        let now = Instant::now();
        let emulator = Emulator::new(rows, columns);
        Self { emulator, last_output: now, last_key: now, is_line_begun: false, is_over: false }
    }

    pub(super) fn note_output(&mut self, output: &[u8]) {
        self.emulator.read(output);
        self.last_output = Instant::now();
    }

    pub(super) fn note_end(&mut self) {
        self.is_over = true;
    }

    pub(super) fn resize(&mut self, rows: u16, columns: u16) {
        self.emulator.resize(rows, columns);
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

    /// Why nothing may be typed now, as far as the keys and the clock tell.
    fn check_quiet(&self, when: When, idle: Duration) -> Result<(), Obstacle> {
        let from = match when {
            When::LineIsFree => self.last_key + KEYS,
            When::AllIsQuiet => self.last_key.max(self.last_output) + idle,
        };
        if Instant::now() < from { Err(Obstacle::InUse) } else { Ok(()) }
    }
}

/// The one that writes into the pty.
pub(super) struct Keyboard<'s> {
    pty: WritePty<'s>,
    control: &'s OwnedFd,
    /// The program's process.
    pid: u32,
    watch: &'s RefCell<Watch>,
    idle: Duration,
    /// The person's keys that came while something else was typed.
    held: VecDeque<Vec<u8>>,
    /// A text of ours that may still show up in the input field.
    leftover: Option<LeftoverText>,
    /// Whether a text of ours has been entered; before, the program may still be starting.
    has_typed: bool,
}

impl<'s> Keyboard<'s> {
    pub(super) fn new(
        pty: WritePty<'s>,
        control: &'s OwnedFd,
        pid: u32,
        watch: &'s RefCell<Watch>,
        idle: Duration,
    ) -> Self {
        Self { pty, control, pid, watch, idle, held: VecDeque::new(), leftover: None, has_typed: false }
    }

    /// The program's screen now.
    fn screen(&self) -> Screen {
        screen(self.watch, self.control, self.pid)
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
            let waiting: Vec<_> = turns.iter().map(|turn| (turn.when, turn.blocked.clone())).collect();
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
                next = self.is_free(&waiting) => {
                    let turn = turns.swap_remove(next);
                    self.give(turn, &mut keys).await;
                }
            }
        }
    }

    /// Returns when one that waits may type, with its place among them. The others are told why they wait.
    async fn is_free(&self, waiting: &[(When, watch::Sender<Option<Obstacle>>)]) -> usize {
        if waiting.is_empty() {
            return pending().await;
        }
        loop {
            let screen = self.screen();
            for (place, (when, blocked)) in waiting.iter().enumerate() {
                let free = check_field(&screen, self.leftover.as_ref())
                    .and_then(|()| self.watch.borrow().check_quiet(*when, self.idle));
                let Err(obstacle) = free else { return place };
                blocked.send_if_modified(|known| known.replace(obstacle) != Some(obstacle));
            }
            // By the clock: what the terminal's own settings say changes without output.
            sleep(LOOK).await;
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
    async fn type_text(&mut self, text: &str, keys: &mut mpsc::Receiver<Vec<u8>>) -> Typed {
        let mode = self.screen().mode();
        let paste = mode == InputMode::Paste;
        let writes = if paste {
            encode_keystrokes(&dismiss_completion(text), true)
        } else {
            encode_keystrokes(text, false)
        };
        let size: usize = writes.iter().map(Vec::len).sum();
        if mode == InputMode::Lines && size > LONGEST_LINE {
            return Typed::Failed(format!(
                "the program reads lines of at most {LONGEST_LINE} bytes and this one has {size}; nothing was typed"
            ));
        }
        let (mut done, is_entered) = (0, Cell::new(false));
        let mut typist = Typist::new(text.to_owned(), self.leftover.take(), true).starting(!self.has_typed);
        let typed = {
            let (pty, watch, control, pid) = (&mut self.pty, self.watch, self.control, self.pid);
            let (done, typist, is_entered) = (&mut done, &mut typist, &is_entered);
            let typing = async move {
                let began = Instant::now();
                loop {
                    if is_entered.get() && watch.borrow().is_over {
                        return Ok(None);
                    }
                    let now = screen(watch, control, pid);
                    match typist.next_step(&now, began.elapsed()) {
                        Step::Wait => sleep(GLANCE).await,
                        // The settings have changed since: the next look starts over.
                        Step::Paste if now.mode() != mode => return Ok(Some(Obstacle::NotReady)),
                        Step::Paste => {
                            for write in &writes {
                                write_all(pty, write, done).await?;
                                sleep(BETWEEN).await;
                            }
                        }
                        Step::Enter => {
                            write_all(pty, b"\r", &mut 0).await?;
                            is_entered.set(true);
                        }
                        Step::Key(key) => {
                            write_all(pty, &[key], &mut 0).await?;
                            sleep(GLANCE).await;
                        }
                        Step::Typed => return Ok(None),
                        Step::NotTyped(obstacle) => return Ok(Some(obstacle)),
                    }
                }
            };
            tokio::select! {
                typed = typing => typed,
                () = interrupted(keys, &mut self.held) => Err("the person pressed Ctrl-C".to_owned()),
            }
        };
        self.leftover = typist.into_leftover();
        self.has_typed |= matches!(typed, Ok(None));
        match typed {
            Ok(None) => Typed::Done,
            Ok(Some(Obstacle::NotSent)) => Typed::Failed(Obstacle::NotSent.to_string()),
            Ok(Some(obstacle)) => Typed::NotYet(obstacle),
            // With Enter it was typed, whatever came then.
            Err(_) if is_entered.get() => Typed::Done,
            Err(_) if done == 0 => Typed::NotYet(Obstacle::InUse),
            Err(reason) => {
                if paste && done < size {
                    // Or what the person types next would be a part of the paste.
                    self.held.push_front(paste_end().to_vec());
                }
                Typed::Failed(format!("{reason}; {done} of {size} bytes were typed, without Enter"))
            }
        }
    }
}

/// The program's screen now.
fn screen(watch: &RefCell<Watch>, control: &OwnedFd, pid: u32) -> Screen {
    // Where the system does not tell whether a process waits, one that edits no lines itself does.
    let reads_lines = || platform::edits_lines(control.as_fd()) && platform::awaits_line(pid).unwrap_or(true);
    let watch = watch.borrow();
    let uses_bracketed_paste = watch.emulator.uses_bracketed_paste();
    watch.emulator.screen(!uses_bracketed_paste && reads_lines())
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
