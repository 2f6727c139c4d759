//! Writer of the pty: types the person's keys, and between them the texts of messages, each without interruption.

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

/// Timeout for a program that does not read typed text; after it, typing counts as failed.
const STALLED: Duration = Duration::from_secs(5);

/// Timeout for the holder of a turn to provide its text, which takes one write to the journal.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two pieces of a text that is typed.
const PIECE_PAUSE: Duration = Duration::from_millis(20);

/// Interval at which the screen is polled while a text waits or is typed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(20);

/// How long the keyboard must be idle before a text may be typed.
const KEYS_IDLE: Duration = Duration::from_millis(500);

/// Maximum bytes of the person's keys that are buffered while a text is typed. When the buffer is full, the person's
/// terminal blocks.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Maximum line length that the system passes to a program which reads by line; longer input is lost.
const LONGEST_LINE: usize = if cfg!(target_os = "linux") { 4095 } else { 1024 };

/// Maximum number of requests that wait for a turn: one for an execute message, one for a notice.
const MAX_TURNS: usize = 2;

/// Control character that Ctrl-C sends; [`END_OF_FILE`] is the one that Ctrl-D sends.
const INTERRUPT: u8 = 0x03;
const END_OF_FILE: u8 = 0x04;

/// Request to type a text: it waits for its turn, holds the keyboard exclusively, and then provides the text.
#[derive(Debug)]
pub(super) struct Turn {
    /// Condition for the turn.
    pub(super) when: TypeCondition,
    /// Reports why the request still waits.
    pub(super) blocked: watch::Sender<Option<Obstacle>>,
    /// Signals that the turn is granted.
    pub(super) granted: oneshot::Sender<()>,
    /// The text; `None` if it is no longer needed.
    pub(super) text: oneshot::Receiver<Option<String>>,
    /// Reports the result.
    pub(super) typed: oneshot::Sender<TypeOutcome>,
}

/// Result of typing a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypeOutcome {
    /// The whole text was entered with Enter.
    Done,
    /// Nothing was entered; it may be retried.
    NotYet(Obstacle),
    /// It failed midway, and is not retried.
    Failed(String),
}

/// When a text may be typed, beside the conditions of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeCondition {
    /// When the person has released the keys.
    LineIsFree,
    /// When the terminal has been quiet for a while.
    AllIsQuiet,
}

/// The program's screen, and recent activity in the terminal.
pub(super) struct Watch {
    emulator: Emulator,
    last_output: Instant,
    last_key: Instant,
    is_line_begun: bool,
    /// True if the output has ended because the program exited.
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

    /// Records the person's keys. Enter and Ctrl-C end a started line. Arrow keys, mouse events and terminal responses
    /// do not start one.
    fn note_keys(&mut self, keys: &[u8]) {
        self.last_key = Instant::now();
        let is_text = !keys.starts_with(b"\x1b") || keys.starts_with(b"\x1b[200~");
        match keys.iter().rposition(|key| matches!(*key, b'\r' | b'\n' | INTERRUPT)) {
            Some(last) => self.is_line_begun = last + 1 < keys.len(),
            None => self.is_line_begun |= is_text,
        }
    }

    /// Returns the obstacle `InUse` if keys or output are too recent for typing.
    fn check_quiet(&self, when: TypeCondition, idle: Duration) -> Result<(), Obstacle> {
        let from = match when {
            TypeCondition::LineIsFree => self.last_key + KEYS_IDLE,
            TypeCondition::AllIsQuiet => self.last_key.max(self.last_output) + idle,
        };
        if Instant::now() < from { Err(Obstacle::InUse) } else { Ok(()) }
    }
}

/// The only writer of the pty.
pub(super) struct Keyboard<'s> {
    pty: WritePty<'s>,
    control: &'s OwnedFd,
    /// Pid of the program.
    pid: u32,
    watch: &'s RefCell<Watch>,
    idle: Duration,
    /// Keys that the person pressed while a text was typed.
    held: VecDeque<Vec<u8>>,
    /// A text that this process typed and that may still appear in the input field.
    leftover: Option<LeftoverText>,
    /// True once this process has typed a text. Until then, the program may still be starting.
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

    /// Reads the program's current screen.
    fn screen(&self) -> Screen {
        screen(self.watch, self.control, self.pid)
    }

    /// Writes the person's keys and the requested texts, one text at a time, until the program exits.
    ///
    /// `ends` is true if the end of stdin is passed on as the end of input, because stdin is not a terminal.
    pub(super) async fn run(
        mut self,
        mut keys: mpsc::Receiver<Vec<u8>>,
        mut wanted: mpsc::Receiver<Turn>,
        ends: bool,
    ) {
        let mut turns: Vec<Turn> = Vec::with_capacity(MAX_TURNS);
        let (mut is_open, mut is_wanted) = (true, true);
        loop {
            while let Some(held) = self.held.pop_front() {
                self.write_keys(&held).await;
            }
            let waiting: Vec<_> = turns.iter().map(|turn| (turn.when, turn.blocked.clone())).collect();
            tokio::select! {
                // Poll the person's keys first, because they take precedence.
                biased;
                piece = keys.recv(), if is_open => if let Some(piece) = piece {
                    self.write_keys(&piece).await;
                } else {
                    is_open = false;
                    if ends {
                        self.end_input().await;
                    }
                },
                next = wanted.recv(), if is_wanted && turns.len() < MAX_TURNS => match next {
                    Some(next) => turns.push(next),
                    None => is_wanted = false,
                },
                next = self.next_grant(&waiting) => {
                    let turn = turns.swap_remove(next);
                    self.grant_turn(turn, &mut keys).await;
                }
            }
        }
    }

    /// Waits until a request may type, and returns its index. Tells the others which obstacle they wait for.
    async fn next_grant(&self, waiting: &[(TypeCondition, watch::Sender<Option<Obstacle>>)]) -> usize {
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
            // Poll, because a change of the terminal's settings produces no output.
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Writes the person's keys. If the program does not read, the person's input blocks as in any terminal.
    async fn write_keys(&mut self, keys: &[u8]) {
        self.watch.borrow_mut().note_keys(keys);
        // A write fails only if the program closed its terminal, and then the program exits soon.
        let _ = self.pty.write_all(keys).await;
    }

    /// Sends the end-of-input key, twice on a started line because the first one only submits the line.
    async fn end_input(&mut self) {
        let settings = termios::tcgetattr(self.control).ok();
        let key = settings.as_ref().map_or(END_OF_FILE, |set| set.special_codes[SpecialCodeIndex::VEOF]);
        let by_line = settings.is_some_and(|set| set.local_modes.contains(LocalModes::ICANON));
        let twice = by_line && self.watch.borrow().is_line_begun;
        let keys = [key, key];
        let _ = self.pty.write_all(if twice { &keys } else { &keys[..1] }).await;
    }

    /// Grants the keyboard to one request exclusively, until its text is typed.
    async fn grant_turn(&mut self, turn: Turn, keys: &mut mpsc::Receiver<Vec<u8>>) {
        if turn.granted.send(()).is_err() {
            return;
        }
        let Ok(Ok(Some(text))) = timeout(TURN_TIMEOUT, turn.text).await else { return };
        let typed = self.type_text(&text, keys).await;
        let _ = turn.typed.send(typed);
    }

    /// Types a text and one Enter. The person's keys are buffered meanwhile; Ctrl-C cancels the typing.
    async fn type_text(&mut self, text: &str, keys: &mut mpsc::Receiver<Vec<u8>>) -> TypeOutcome {
        let mode = self.screen().mode();
        let paste = mode == InputMode::Paste;
        let writes = if paste {
            encode_keystrokes(&dismiss_completion(text), true)
        } else {
            encode_keystrokes(text, false)
        };
        let size: usize = writes.iter().map(Vec::len).sum();
        if mode == InputMode::Lines && size > LONGEST_LINE {
            return TypeOutcome::Failed(format!(
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
                        // The terminal's mode changed during typing, so the next poll starts over.
                        Step::Paste if now.mode() != mode => return Ok(Some(Obstacle::NotReady)),
                        Step::Paste => {
                            for write in &writes {
                                write_all(pty, write, done).await?;
                                sleep(PIECE_PAUSE).await;
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
            Ok(None) => TypeOutcome::Done,
            Ok(Some(Obstacle::NotSent)) => TypeOutcome::Failed(Obstacle::NotSent.to_string()),
            Ok(Some(obstacle)) => TypeOutcome::NotYet(obstacle),
            // Once Enter is written, the text counts as typed even if a later step fails.
            Err(_) if is_entered.get() => TypeOutcome::Done,
            Err(_) if done == 0 => TypeOutcome::NotYet(Obstacle::InUse),
            Err(reason) => {
                if paste && done < size {
                    // End the open paste; otherwise the person's next keys would become part of it.
                    self.held.push_front(paste_end().to_vec());
                }
                TypeOutcome::Failed(format!("{reason}; {done} of {size} bytes were typed, without Enter"))
            }
        }
    }
}

/// Reads the program's current screen.
fn screen(watch: &RefCell<Watch>, control: &OwnedFd, pid: u32) -> Screen {
    // If the system does not report whether a process waits for a line, assume that it does if the terminal edits
    // lines.
    let reads_lines = || platform::edits_lines(control.as_fd()) && platform::awaits_line(pid).unwrap_or(true);
    let watch = watch.borrow();
    let uses_bracketed_paste = watch.emulator.uses_bracketed_paste();
    watch.emulator.screen(!uses_bracketed_paste && reads_lines())
}

/// Writes all of `bytes` and counts them in `done`; fails if the program does not read.
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

/// Buffers the person's keys, and returns when one of them is Ctrl-C.
async fn interrupted(keys: &mut mpsc::Receiver<Vec<u8>>, held: &mut VecDeque<Vec<u8>>) {
    let mut size = 0;
    while size < MAX_HELD_BYTES {
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
