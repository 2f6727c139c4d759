//! Types one text into an input field and presses Enter, step by step. Pure.
//!
//! The driver (a pty of `switchboard run`, a tmux pane) shows the screen again and again; each look answers with the
//! next step. Enter is pressed only where exactly the text stands in the field. Otherwise the text is removed again,
//! and only where it is to be seen there.

use std::time::Duration;

use super::field::{Echo, Field, Obstacle, squeeze};
use super::screen::{InputMode, Screen};

/// How long a screen must not change before something is pasted: a dialog is drawn in less.
const STABLE: Duration = Duration::from_millis(300);

/// The same, and [`GONE`], for the first text into an agent's command line. Gemini shows its field, takes text, and redraws
/// itself half a second later: an Enter before that is lost.
const STARTING: Duration = Duration::from_secs(2);

/// How long the echo must stand before Enter. A program that tells pastes by their speed takes an Enter that comes
/// with the text for a part of it.
const BEFORE_ENTER: Duration = Duration::from_millis(150);

/// How long the echo may take to appear: an agent at work under load.
const ECHO: Duration = Duration::from_secs(3);

/// How long a text may stay in its field after Enter: an agent at work under load.
const SENT: Duration = Duration::from_secs(3);

/// How long the text must be gone from the field after Enter. A program that is still starting may take the field away,
/// drop the key, and show the field with the text again.
const GONE: Duration = Duration::from_millis(500);

/// How long one key of a removal may take to show.
const REMOVAL: Duration = Duration::from_millis(400);

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
    stray: Option<Stray>,
    state: State,
    seen: Option<Screen>,
    /// Since when the screen has not changed.
    since: Duration,
}

/// Text that was pasted and neither confirmed nor removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    field: Field,
    text: String,
}

#[derive(Debug)]
enum State {
    Before,
    Pasted { field: Field, at: Duration },
    Removing { field: Field, at: Duration, keys: u32, last: u8, next: After },
    Entered { field: Field, at: Duration, gone: Gone },
}

/// Whether the text has left its field after Enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// A terminal that edits lines itself has passed it on.
    Passed,
    /// It was there at the last look.
    NotYet,
    /// It has not been there since this time.
    Since(Duration),
}

/// What follows a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Paste,
    GiveUp,
}

/// True if something can be typed now, as far as the screen tells; a stray text counts as an empty field.
pub fn check_field(screen: &Screen, stray: Option<&Stray>) -> Result<(), Obstacle> {
    match Field::find(screen) {
        Err(Obstacle::Occupied) if stray.is_some_and(|stray| stray.is_shown(screen)) => Ok(()),
        found => found.map(drop),
    }
}

impl Stray {
    fn is_shown(&self, screen: &Screen) -> bool {
        self.field.echo(screen, &self.text) == Echo::Exact
    }
}

impl Typist {
    /// An attempt at a text; `stray` is what the one before left behind. `is_alone` says that the person's keys wait
    /// meanwhile.
    pub fn new(text: String, stray: Option<Stray>, is_alone: bool) -> Self {
        Self {
            text,
            is_alone,
            is_first: false,
            stray,
            state: State::Before,
            seen: None,
            since: Duration::ZERO,
        }
    }

    /// The same attempt into a program that may still be starting.
    #[must_use]
    pub fn first(self, is_first: bool) -> Self {
        Self { is_first, ..self }
    }

    /// How long to wait: longer where the program may still be starting.
    fn patience(&self, field: &Field, usual: Duration) -> Duration {
        if self.is_first && field.is_framed() { STARTING } else { usual }
    }

    /// The text that may still appear in the field or stand there.
    pub fn stray(self) -> Option<Stray> {
        match self.state {
            State::Pasted { field, .. } | State::Removing { field, next: After::GiveUp, .. } => {
                Some(Stray { field, text: self.text })
            }
            State::Before | State::Removing { .. } => self.stray,
            State::Entered { .. } => None,
        }
    }

    /// Looks at the screen at the time `now`, counted from any moment.
    pub fn look(&mut self, screen: &Screen, now: Duration) -> Step {
        if self.seen.as_ref() != Some(screen) {
            self.seen = Some(screen.clone());
            self.since = now;
        }
        let quiet = now.saturating_sub(self.since);
        match std::mem::replace(&mut self.state, State::Before) {
            State::Before => self.begin(screen, now, quiet),
            State::Pasted { field, at } => self.confirm(field, at, screen, now, quiet),
            State::Removing { field, at, keys, last, next } => {
                self.remove(Removal { field, at, keys, last, next }, screen, now)
            }
            State::Entered { field, at, gone } => self.check_sent(field, at, gone, screen, now),
        }
    }

    /// Looks whether Enter has sent the text; a list of completions may have taken it.
    fn check_sent(&mut self, field: Field, at: Duration, gone: Gone, screen: &Screen, now: Duration) -> Step {
        let is_held = field.holds_text(screen, &self.text);
        let gone = match gone {
            Gone::Passed => Gone::Passed,
            Gone::NotYet | Gone::Since(_) if is_held => Gone::NotYet,
            Gone::NotYet => Gone::Since(now),
            Gone::Since(since) => Gone::Since(since),
        };
        let patience = self.patience(&field, GONE);
        self.state = State::Entered { field, at, gone };
        match gone {
            Gone::Passed => Step::Typed,
            Gone::Since(since) if now.saturating_sub(since) >= patience => Step::Typed,
            // It stays: a slow program may still send it.
            Gone::NotYet if now.saturating_sub(at) >= SENT => Step::NotTyped(Obstacle::NotSent),
            Gone::NotYet | Gone::Since(_) => Step::Wait,
        }
    }

    fn begin(&mut self, screen: &Screen, now: Duration, quiet: Duration) -> Step {
        if let Err(obstacle) = check_field(screen, self.stray.as_ref()) {
            return Step::NotTyped(obstacle);
        }
        if quiet < STABLE {
            return Step::Wait;
        }
        match (Field::find(screen), self.stray.take()) {
            (Ok(field), stray) if quiet < self.patience(&field, STABLE) => {
                self.stray = stray;
                Step::Wait
            }
            (Ok(field), _) => {
                self.state = State::Pasted { field, at: now };
                Step::Paste
            }
            (Err(_), Some(Stray { field, .. })) => self.press(Removal::of(field, After::Paste), screen, now),
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
            Echo::Exact if quiet >= BEFORE_ENTER => {
                let gone = if screen.mode == InputMode::Lines { Gone::Passed } else { Gone::NotYet };
                self.state = State::Entered { field, at: now, gone };
                return Step::Enter;
            }
            Echo::Other(found) if now.saturating_sub(at) >= ECHO && self.may_remove(&found) => {
                return self.press(Removal::of(field, After::GiveUp), screen, now);
            }
            // A dialog in place of the field: the person's keys are for the person again.
            Echo::Hidden if Field::find(screen) == Err(Obstacle::Question) && quiet >= BEFORE_ENTER => {
                self.state = State::Pasted { field, at };
                return Step::NotTyped(Obstacle::Question);
            }
            _ if now.saturating_sub(at) >= ECHO && quiet >= BEFORE_ENTER => {
                self.state = State::Pasted { field, at };
                return Step::NotTyped(Obstacle::NotRemoved);
            }
            _ => {}
        }
        // A program that never stops drawing is not waited for.
        let is_late = now.saturating_sub(at) >= ECHO * 2;
        self.state = State::Pasted { field, at };
        if is_late { Step::NotTyped(Obstacle::NotRemoved) } else { Step::Wait }
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
            (Echo::Empty, After::Paste) => {
                self.state = State::Before;
                Step::Wait
            }
            (Echo::Empty, After::GiveUp) => {
                self.state = State::Before;
                Step::NotTyped(Obstacle::NotEchoed)
            }
            (Echo::Hidden, _) => self.leave(removal),
            _ if removal.keys >= REMOVAL_KEYS => self.leave(removal),
            _ if self.since > removal.at || now.saturating_sub(removal.at) >= REMOVAL => {
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
    fn leave(&mut self, removal: Removal) -> Step {
        let Removal { field, at, keys, last, .. } = removal;
        self.state = State::Removing { field, at, keys, last, next: After::GiveUp };
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
    next: After,
}

impl Removal {
    fn of(field: Field, next: After) -> Self {
        Self { field, at: Duration::ZERO, keys: 0, last: 0, next }
    }
}

#[cfg(test)]
#[path = "typist_tests.rs"]
mod tests;
