//! Terminals: what is typed into them for an agent, by whom, and what the sender is told.
//!
//! An `execute` message is typed into the terminal of the agent it is for. Whoever types (the pty of
//! `switchboard run`, [`run_terminals`] for tmux panes and for hosts) stands at that agent's
//! [`TerminalExecutor`], of which there is one at a time, and gets from it only what may be typed. The rule
//! is in `permission`, the text as keys in `encode`. A text is typed only into an input field: `screen` holds the program's
//! screen, `field` finds the field, `dialog` the dialogs that no text may answer, and `typist` decides each step.
//! All but the emulator in `screen` are pure.

mod bridge;
mod dialog;
mod encode;
mod executor;
mod field;
mod notices;
mod permission;
mod results;
mod run_in;
mod screen;
mod serve;
mod tmux;
mod typist;

use std::time::Duration;

pub use self::encode::{dismiss_completion, encode_keystrokes, paste_end, sanitize_input};
pub use self::executor::{ExecuteRequest, TerminalExecutor};
pub use self::field::Obstacle;
pub use self::notices::{Notice, Notices};
pub(crate) use self::permission::EXECUTE;
pub use self::permission::Refusal;
pub use self::results::ExecuteResult;
pub use self::run_in::{TerminalOutcome, TerminalRun};
pub use self::screen::{Emulator, InputMode, Screen};
pub use self::serve::run_terminals;
pub(crate) use self::serve::{PANES, pane_key};
pub(crate) use self::tmux::Pane;
pub use self::typist::{LeftoverText, Step, Typist, check_field};

/// What may be typed into terminals. Without a word from the owner: verified `execute` messages into
/// terminals under `switchboard run`, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a permission of its own, and none excludes another"
)]
pub struct TerminalConfig {
    /// Whether an `execute` that was dropped as a file may be typed, though nobody vouches for its sender.
    pub execute_from_files: bool,
    /// Whether a one-line notice of new mail is typed.
    pub notify_mail: bool,
    /// How long nothing must have happened in a terminal before a notice is typed.
    pub idle: Duration,
    /// Whether `serve` types into tmux panes.
    pub tmux: bool,
    /// Whether `serve` hands input to the hosts of other terminals through `bridge.json`.
    pub bridge: bool,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self {
            execute_from_files: false,
            notify_mail: false,
            // A person who stops for three seconds is reading, not typing.
            idle: Duration::from_secs(3),
            tmux: false,
            bridge: false,
        }
    }
}
