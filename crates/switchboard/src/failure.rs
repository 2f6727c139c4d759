//! Errors as the person sees them, with a next step and an exit code.

mod actions;
mod doors;
mod hub;
mod workspace;

use switchboard_core::{TripReason, error_chain};

/// Exit codes, the same for every verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    Temporary = 3,
    NotAllowed = 4,
    NotFound = 5,
}

/// An error that is reported to the person.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Machine-readable code.
    pub(crate) code: &'static str,
    /// Description of the problem, for people.
    pub(crate) message: String,
    /// Next step that solves the problem.
    pub(crate) hint: Option<String>,
    pub(crate) exit: Exit,
}

/// Hint for a channels folder that is not the one used before.
pub(crate) const ANOTHER_FOLDER: &str =
    "mount it; if the folder was replaced on purpose, run `switchboard channel root --accept`";

impl Failure {
    /// Returns true if the channels folder is temporarily unavailable.
    pub(crate) fn is_unmounted(&self) -> bool {
        matches!(self.code, "channels_unmounted" | "channels_unmarked" | "no_channels")
    }

    pub(crate) fn new(code: &'static str, exit: Exit, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, exit }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Converts a usage error of clap. Its first paragraph becomes the message.
    pub(crate) fn usage(kind: String, text: &str) -> Self {
        let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
        let message = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        let message = message.collect::<Vec<_>>().join(" ");
        let message = message.strip_prefix("error: ").map_or(message.clone(), str::to_owned);
        let message = if message.is_empty() { kind } else { message };
        Self::new("usage", Exit::Usage, message).hint(tip.unwrap_or("see `switchboard --help`"))
    }

    /// Builds the failure for a message stopped by loop limits or budgets. `what` says what happens to the message.
    pub(crate) fn stopped(stop: &TripReason, what: &str) -> Self {
        let or =
            if stop.is_reset_by_human() { "; a message from them in the thread lifts the limit" } else { "" };
        Self::new("stopped", Exit::NotAllowed, stop.to_string())
            .hint(format!("{what}; a person resumes it with `switchboard resume ID`{or}"))
    }

    pub(crate) fn temporary(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, Exit::Temporary, message)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new("failed", Exit::Failed, error_chain(error.as_ref()))
    }
}

fn or_list(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" or ")
}
