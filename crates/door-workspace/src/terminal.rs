//! Types `execute` messages into terminals and reports the results to their senders.
//!
//! An `execute` message is typed into the terminal of its recipient: by the pty of `switchboard run`, or by
//! [`run_terminals`] for tmux panes and other hosts. One process at a time holds an agent's [`TerminalExecutor`], which
//! returns only messages that may be typed. Text is typed only into an empty input field.
//!
//! - `permission` has the rules, and `encode` the keystrokes.
//! - `screen` holds the program's screen, and `field` finds the input field.
//! - `dialog` detects dialogs that no text may answer.
//! - `typist` decides each step.
//!
//! All of these modules except the emulator in `screen` are pure.

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
pub use self::permission::{EXECUTE, Refusal};
pub use self::results::ExecuteResult;
pub use self::run_in::{TerminalOutcome, TerminalRun};
pub use self::screen::{Emulator, InputMode, Screen};
pub use self::serve::run_terminals;
pub(crate) use self::serve::{PANES, pane_key};
pub(crate) use self::tmux::Pane;
pub use self::typist::{LeftoverText, Step, Typist, check_field};

/// Permissions for typing into terminals.
///
/// By default, verified `execute` messages are typed into terminals under `switchboard run`, and nothing else is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a permission of its own, and none excludes another"
)]
pub struct TerminalConfig {
    /// True to type `execute` messages that were dropped as files.
    ///
    /// The sender of such a file is not authenticated.
    pub execute_from_files: bool,
    /// True to type a one-line notice of new messages.
    pub notify_mail: bool,
    /// Time for which a terminal must be idle before a notice is typed.
    pub idle: Duration,
    /// True if `serve` types into tmux panes.
    pub tmux: bool,
    /// True if `serve` sends input to the hosts of other terminals through `bridge.json`.
    pub bridge: bool,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self {
            execute_from_files: false,
            notify_mail: false,
            // A person who pauses for three seconds is reading, not typing.
            idle: Duration::from_secs(3),
            tmux: false,
            bridge: false,
        }
    }
}
