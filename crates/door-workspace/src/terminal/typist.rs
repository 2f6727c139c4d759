//! Types one text into an input field and presses Enter, step by step. Pure.
//!
//! The driver (a pty of `switchboard run`, a tmux pane) shows the screen again and again; each look answers with the
//! next step. Enter is pressed only where exactly the text stands in the field. Otherwise the text is removed again,
//! and only where it is to be seen there.

use std::time::Duration;

use super::field::{Echo, Field, Obstacle, squeeze};
use super::screen::{InputMode, Screen};

/// How long a screen must not change before something is pasted: a dialog is drawn in less.
const STABLE_SCREEN: Duration = Duration::from_millis(300);

/// The same, and [`SUBMIT_SETTLE`], for the first text into an agent's command line. Gemini shows its field, takes text, and redraws
/// itself half a second later: an Enter before that is lost.
const STABLE_AT_START: Duration = Duration::from_secs(2);

/// How long the echo must stand before Enter. A program that tells pastes by their speed takes an Enter that comes
/// with the text for a part of it.
const ENTER_DELAY: Duration = Duration::from_millis(150);

/// How long the echo may take to appear: an agent at work under load.
const ECHO_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a text may stay in its field after Enter: an agent at work under load.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the text must be gone from the field after Enter. A program that is still starting may take the field away,
/// drop the key, and show the field with the text again.
const SUBMIT_SETTLE: Duration = Duration::from_millis(500);

/// How long one key of a removal may take to show.
const REMOVAL_STEP: Duration = Duration::from_millis(400);

/// Most keys of one removal: one or two for each line of a long text.
const REMOVAL_KEYS: u32 = 400;

const KILL_LINE: u8 = 0x15;
const BACKSPACE: u8 = 0x7f;

/// What to do next. The driver looks again soon after each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing: look again.
    Wait,
    /// Type the text, as a paste where the program takes pastes.
    Paste,
    /// Press Enter.
    Enter,
    /// Press this key.
    Key(u8),
    /// The text was typed, with Enter.
    Typed,
    /// It was not typed.
    NotTyped(Obstacle),
}

/// One attempt at typing a text.
#[derive(Debug)]
pub struct Typist {
    text: String,
    /// Whether the person's keys wait meanwhile, so that all text in the field is ours.
    is_alone: bool,
    /// Whether nothing was typed into this program before.
    is_first: bool,
    /// Where a former attempt may have left its text.
    leftover: Option<LeftoverText>,
    state: State,
    seen: Option<Screen>,
    /// Since when the screen has not changed.
    since: Duration,
}

/// Text that was pasted and neither confirmed nor removed.
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

/// Whether the text has left its field after Enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubmitState {
    /// A terminal that edits lines itself has passed it on.
    Submitted,
    /// It was there at the last look.
    StillShown,
    /// It has not been there since this time.
    ClearedSince(Duration),
}

/// What follows a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRemoval {
    Paste,
    GiveUp,
}

/// True if something can be typed now, as far as the screen tells; a stray text counts as an empty field.
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
    /// An attempt at a text; `leftover` is what the one before left behind. `is_alone` says that the person's keys wait
    /// meanwhile.
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

    /// The same attempt into a program that may still be starting.
    #[must_use]
    pub fn starting(self, is_first: bool) -> Self {
        Self { is_first, ..self }
    }

    /// How long to wait: longer where the program may still be starting.
    fn settle_time(&self, field: &Field, usual: Duration) -> Duration {
        if self.is_first && field.is_framed() { STABLE_AT_START } else { usual }
    }

    /// The text that may still appear in the field or stand there.
    pub fn into_leftover(self) -> Option<LeftoverText> {
        match self.state {
            State::Pasted { field, .. } | State::Removing { field, next: AfterRemoval::GiveUp, .. } => {
                Some(LeftoverText { field, text: self.text })
            }
            State::Before | State::Removing { .. } => self.leftover,
            State::Entered { .. } => None,
        }
    }

    /// Looks at the screen at the time `now`, counted from any moment.
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

    /// Looks whether Enter has sent the text; a list of completions may have taken it.
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
            // It stays: a slow program may still send it.
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
            // A dialog in place of the field: the person's keys are for the person again.
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
        // A program that never stops drawing is not waited for.
        let is_overdue = now.saturating_sub(at) >= ECHO_TIMEOUT * 2;
        self.state = State::Pasted { field, at };
        if is_overdue { Step::NotTyped(Obstacle::NotRemoved) } else { Step::Wait }
    }

    /// True if what the field holds is ours to remove.
    fn may_remove(&self, found: &str) -> bool {
        self.is_alone || squeeze(&self.text).contains(found)
    }

    /// Presses the next key of a removal.
    fn press(&mut self, removal: Removal, screen: &Screen, now: Duration) -> Step {
        let Removal { field, keys, last, next, .. } = removal;
        // A line of the terminal's own goes at once; a program may stop at the beginning of each of its lines.
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

    /// Leaves the text where it is: it cannot be seen, or does not go.
    fn abandon(&mut self, removal: Removal) -> Step {
        let Removal { field, at, keys, last, .. } = removal;
        self.state = State::Removing { field, at, keys, last, next: AfterRemoval::GiveUp };
        Step::NotTyped(Obstacle::NotRemoved)
    }
}

/// A removal under way.
struct Removal {
    field: Field,
    at: Duration,
    keys: u32,
    /// The key pressed last.
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
