//! State machine that types one text into an input field and presses Enter. Pure.
//!
//! The driver (a pty of `switchboard run`, or a tmux pane) polls the screen; each poll returns the next step. Enter is
//! pressed only if the field shows exactly the text. Otherwise the text is removed again, provided that it is visible
//! in the field.

use std::time::Duration;

use super::field::{Echo, Field, Obstacle, strip_blanks};
use super::screen::{InputMode, Screen};

/// Time for which the screen must be unchanged before a paste; drawing a dialog takes less.
const STABLE_SCREEN: Duration = Duration::from_millis(300);

/// Settle time for the first text into an agent's command line.
///
/// Replaces [`STABLE_SCREEN`] before the paste and [`SUBMIT_SETTLE`] after Enter. Gemini shows its field, accepts text,
/// and redraws itself half a second later. An Enter before the redraw is lost.
const STABLE_AT_START: Duration = Duration::from_secs(2);

/// Time for which the echo must be unchanged before Enter is pressed.
///
/// A program that detects pastes by their speed treats an Enter that arrives with the text as part of the paste.
const ENTER_DELAY: Duration = Duration::from_millis(150);

/// Timeout for the echo of the text, long enough for a busy agent under load.
const ECHO_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout for the text to leave its field after Enter.
///
/// This is long enough for a busy agent under load.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for which the field must stay clear after Enter.
///
/// A program that is still starting may remove the field, drop the key, and then show the field with the text again.
const SUBMIT_SETTLE: Duration = Duration::from_millis(500);

/// Timeout for one key of a removal to take effect on the screen.
const REMOVAL_STEP: Duration = Duration::from_millis(400);

/// Maximum number of key presses to remove a text from the input field.
///
/// A long text needs one or two keys for each line.
const REMOVAL_KEYS: u32 = 400;

/// Key code of Ctrl-U, which removes a line of text.
const KILL_LINE: u8 = 0x15;
const BACKSPACE: u8 = 0x7f;

/// The next step of the driver, which polls again soon after each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Do nothing and poll again.
    Wait,
    /// Type the text, as a bracketed paste if the program supports it.
    Paste,
    /// Press Enter.
    Enter,
    /// Press this key.
    Key(u8),
    /// Stop: the text was typed and submitted with Enter.
    Typed,
    /// Stop: the text was not typed.
    NotTyped(Obstacle),
}

/// One attempt to type a text into a field.
#[derive(Debug)]
pub struct Typist {
    text: String,
    /// True if the person's keystrokes are held back during the attempt.
    ///
    /// All text in the field then comes from this process.
    is_alone: bool,
    /// True if nothing has been typed into this program before.
    is_first: bool,
    /// Text that an earlier attempt may have left in the field.
    leftover: Option<LeftoverText>,
    state: State,
    seen: Option<Screen>,
    /// Time at which the screen last changed.
    since: Duration,
}

/// Text that was pasted but neither submitted nor removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftoverText {
    field: Field,
    text: String,
}

#[derive(Debug)]
enum State {
    Before,
    Pasted { field: Field, at: Duration },
    Removing { field: Field, at: Duration, keys: u32, last: u8, next: AfterRemoval },
    Entered { field: Field, at: Duration, submit: SubmitState },
}

/// State of the field after Enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubmitState {
    /// The line was submitted by a terminal that edits lines itself.
    Submitted,
    /// The field showed the text at the last poll.
    StillShown,
    /// The field has been clear since this time.
    ClearedSince(Duration),
}

/// The next step after a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRemoval {
    Paste,
    GiveUp,
}

/// Checks whether the screen accepts text now. A field with only leftover text counts as empty.
pub fn check_field(screen: &Screen, leftover: Option<&LeftoverText>) -> Result<(), Obstacle> {
    match Field::find(screen) {
        Err(Obstacle::Occupied) if leftover.is_some_and(|leftover| leftover.is_shown(screen)) => Ok(()),
        found => found.map(drop),
    }
}

impl LeftoverText {
    fn is_shown(&self, screen: &Screen) -> bool {
        self.field.echo(screen, &self.text) == Echo::Exact
    }
}

impl Typist {
    /// Creates an attempt to type a text.
    ///
    /// `leftover` is text that the previous attempt left in the field. `is_alone` means that the person's keystrokes
    /// are held back.
    pub fn new(text: String, leftover: Option<LeftoverText>, is_alone: bool) -> Self {
        Self {
            text,
            is_alone,
            is_first: false,
            leftover,
            state: State::Before,
            seen: None,
            since: Duration::ZERO,
        }
    }

    /// Sets whether the program may still be starting.
    #[must_use]
    pub fn starting(self, is_first: bool) -> Self {
        Self { is_first, ..self }
    }

    /// Returns the settle time of a field.
    ///
    /// If the program may still be starting, the time is longer than usual.
    fn settle_time(&self, field: &Field, usual: Duration) -> Duration {
        if self.is_first && field.is_framed() { STABLE_AT_START } else { usual }
    }

    /// Returns the text that the field shows or may still show after this attempt.
    pub fn into_leftover(self) -> Option<LeftoverText> {
        match self.state {
            State::Pasted { field, .. } | State::Removing { field, next: AfterRemoval::GiveUp, .. } => {
                Some(LeftoverText { field, text: self.text })
            }
            State::Before | State::Removing { .. } => self.leftover,
            State::Entered { .. } => None,
        }
    }

    /// Returns the next step for a screen at time `now`, measured from any fixed moment.
    pub fn next_step(&mut self, screen: &Screen, now: Duration) -> Step {
        if self.seen.as_ref() != Some(screen) {
            self.seen = Some(screen.clone());
            self.since = now;
        }
        let quiet = now.saturating_sub(self.since);
        match std::mem::replace(&mut self.state, State::Before) {
            State::Before => self.start(screen, now, quiet),
            State::Pasted { field, at } => self.confirm(field, at, screen, now, quiet),
            State::Removing { field, at, keys, last, next } => {
                self.remove(Removal { field, at, keys, last, next }, screen, now)
            }
            State::Entered { field, at, submit } => self.check_submitted(field, at, submit, screen, now),
        }
    }

    /// Checks whether Enter submitted the text; a completion list may have consumed the key.
    fn check_submitted(
        &mut self,
        field: Field,
        at: Duration,
        submit: SubmitState,
        screen: &Screen,
        now: Duration,
    ) -> Step {
        let is_held = field.holds_text(screen, &self.text);
        let submit = match submit {
            SubmitState::Submitted => SubmitState::Submitted,
            SubmitState::StillShown | SubmitState::ClearedSince(_) if is_held => SubmitState::StillShown,
            SubmitState::StillShown => SubmitState::ClearedSince(now),
            SubmitState::ClearedSince(since) => SubmitState::ClearedSince(since),
        };
        let settle_time = self.settle_time(&field, SUBMIT_SETTLE);
        self.state = State::Entered { field, at, submit };
        match submit {
            SubmitState::Submitted => Step::Typed,
            SubmitState::ClearedSince(since) if now.saturating_sub(since) >= settle_time => Step::Typed,
            // Leave the text in the field: a slow program may still submit it.
            SubmitState::StillShown if now.saturating_sub(at) >= SUBMIT_TIMEOUT => {
                Step::NotTyped(Obstacle::NotSent)
            }
            SubmitState::StillShown | SubmitState::ClearedSince(_) => Step::Wait,
        }
    }

    fn start(&mut self, screen: &Screen, now: Duration, quiet: Duration) -> Step {
        if let Err(obstacle) = check_field(screen, self.leftover.as_ref()) {
            return Step::NotTyped(obstacle);
        }
        if quiet < STABLE_SCREEN {
            return Step::Wait;
        }
        match (Field::find(screen), self.leftover.take()) {
            (Ok(field), leftover) if quiet < self.settle_time(&field, STABLE_SCREEN) => {
                self.leftover = leftover;
                Step::Wait
            }
            (Ok(field), _) => {
                self.state = State::Pasted { field, at: now };
                Step::Paste
            }
            (Err(_), Some(LeftoverText { field, .. })) => {
                self.press(Removal::of(field, AfterRemoval::Paste), screen, now)
            }
            (Err(obstacle), None) => Step::NotTyped(obstacle),
        }
    }

    fn confirm(
        &mut self,
        field: Field,
        at: Duration,
        screen: &Screen,
        now: Duration,
        quiet: Duration,
    ) -> Step {
        match field.echo(screen, &self.text) {
            Echo::Exact if quiet >= ENTER_DELAY => {
                let submit = if screen.mode == InputMode::Lines {
                    SubmitState::Submitted
                } else {
                    SubmitState::StillShown
                };
                self.state = State::Entered { field, at: now, submit };
                return Step::Enter;
            }
            Echo::Other(found) if now.saturating_sub(at) >= ECHO_TIMEOUT && self.may_remove(&found) => {
                return self.press(Removal::of(field, AfterRemoval::GiveUp), screen, now);
            }
            // A dialog has replaced the field, so stop and release the person's keystrokes.
            Echo::Hidden if Field::find(screen) == Err(Obstacle::Question) && quiet >= ENTER_DELAY => {
                self.state = State::Pasted { field, at };
                return Step::NotTyped(Obstacle::Question);
            }
            _ if now.saturating_sub(at) >= ECHO_TIMEOUT && quiet >= ENTER_DELAY => {
                self.state = State::Pasted { field, at };
                return Step::NotTyped(Obstacle::NotRemoved);
            }
            _ => {}
        }
        // Set an upper limit, because some programs never stop redrawing.
        let is_overdue = now.saturating_sub(at) >= ECHO_TIMEOUT * 2;
        self.state = State::Pasted { field, at };
        if is_overdue { Step::NotTyped(Obstacle::NotRemoved) } else { Step::Wait }
    }

    /// Returns true if the text in the field may be removed.
    ///
    /// Only text that this process typed may be removed.
    fn may_remove(&self, found: &str) -> bool {
        self.is_alone || strip_blanks(&self.text).contains(found)
    }

    /// Presses the next key of a removal.
    fn press(&mut self, removal: Removal, screen: &Screen, now: Duration) -> Step {
        let Removal { field, keys, last, next, .. } = removal;
        // One Ctrl-U clears a line that the terminal edits. A program may stop at the start of each of its lines, so
        // Ctrl-U and Backspace alternate.
        let key = if last == KILL_LINE && screen.mode != InputMode::Lines { BACKSPACE } else { KILL_LINE };
        self.state = State::Removing { field, at: now, keys: keys + 1, last: key, next };
        Step::Key(key)
    }

    fn remove(&mut self, removal: Removal, screen: &Screen, now: Duration) -> Step {
        let shown = removal.field.echo(screen, &self.text);
        match (shown, removal.next) {
            (Echo::Empty, AfterRemoval::Paste) => {
                self.state = State::Before;
                Step::Wait
            }
            (Echo::Empty, AfterRemoval::GiveUp) => {
                self.state = State::Before;
                Step::NotTyped(Obstacle::NotEchoed)
            }
            (Echo::Hidden, _) => self.abandon(removal),
            _ if removal.keys >= REMOVAL_KEYS => self.abandon(removal),
            _ if self.since > removal.at || now.saturating_sub(removal.at) >= REMOVAL_STEP => {
                self.press(removal, screen, now)
            }
            _ => {
                let Removal { field, at, keys, last, next } = removal;
                self.state = State::Removing { field, at, keys, last, next };
                Step::Wait
            }
        }
    }

    /// Gives up a removal and leaves the text, which is not visible or cannot be removed.
    fn abandon(&mut self, removal: Removal) -> Step {
        let Removal { field, at, keys, last, .. } = removal;
        self.state = State::Removing { field, at, keys, last, next: AfterRemoval::GiveUp };
        Step::NotTyped(Obstacle::NotRemoved)
    }
}

/// State of a removal in progress.
struct Removal {
    field: Field,
    at: Duration,
    keys: u32,
    /// The last key pressed in this removal.
    last: u8,
    next: AfterRemoval,
}

impl Removal {
    fn of(field: Field, next: AfterRemoval) -> Self {
        Self { field, at: Duration::ZERO, keys: 0, last: 0, next }
    }
}

#[cfg(test)]
#[path = "typist_tests.rs"]
mod tests;
