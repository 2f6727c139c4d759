//! What can go wrong with a child.

use std::time::Duration;

use crate::host::RpcError;

/// Why a request to a child has no answer, or not the one that was hoped for.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The child answered with an error: what it said, unchanged.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// It could not be started or reached.
    #[error("`{child}` cannot be started: {cause}{}; {hint}", quoted(.said))]
    CannotStart {
        /// Its name.
        child: String,
        /// What went wrong.
        cause: String,
        /// The last thing it wrote to stderr.
        said: String,
        /// What to do about it.
        hint: String,
    },
    /// It was started and did not answer `initialize` in time.
    #[error(
        "`{child}` did not answer `initialize` within {}{}; {hint}",
        seconds(*.after), quoted(.said)
    )]
    SpawnTimeout {
        /// Its name.
        child: String,
        /// How long it was waited for.
        after: Duration,
        /// The last thing it wrote to stderr.
        said: String,
        /// What to do about it.
        hint: String,
    },
    /// It did not answer a request in time.
    #[error(
        "`{child}` did not answer `{method}` within {}; it was told that the call is off; ask for less, or raise \
         `rpcTimeoutMs` in its file",
        seconds(*.after)
    )]
    Timeout {
        /// Its name.
        child: String,
        /// What it was asked.
        method: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// It ended, or the connection to it did, before the answer came.
    #[error(
        "`{child}` was gone before it answered: {cause}{}; whether the call took effect is not known, so it was not \
         repeated; the next call starts it again",
        quoted(.said)
    )]
    Gone {
        /// Its name.
        child: String,
        /// How it ended.
        cause: String,
        /// The last thing it wrote to stderr.
        said: String,
    },
    /// It is there, and does not take the request.
    #[error("`{child}` refused the request: {cause}{}", doubt(*.is_outcome_unknown))]
    Refused {
        /// Its name.
        child: String,
        /// How, and what it said.
        cause: String,
        /// Whether the call may have taken effect all the same.
        is_outcome_unknown: bool,
    },
    /// It failed to start so often that it is left alone for a while.
    #[error(
        "`{child}` failed to start {failures} times in a row and is {}; the last time: {cause}",
        next_try(*.retry_in)
    )]
    CircuitOpen {
        /// Its name.
        child: String,
        /// How often in a row.
        failures: u32,
        /// When it is tried again.
        retry_in: Duration,
        /// Why the last start failed.
        cause: String,
    },
    /// More requests wait for it than may.
    #[error("`{child}` is busy: {waiting} calls wait for it already; try again when some are done")]
    Busy {
        /// Its name.
        child: String,
        /// How many wait.
        waiting: usize,
    },
    /// The caller no longer wants the answer.
    #[error("the call was called off")]
    Cancelled,
    /// The server no longer knows the session; a new one is opened, once.
    #[error("`{child}` no longer knows the session, and did not know a new one either; call again later")]
    SessionEnded {
        /// Its name.
        child: String,
    },
}

fn quoted(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("; it last said \"{line}\"") }
}

fn doubt(is_outcome_unknown: bool) -> &'static str {
    if is_outcome_unknown {
        "; whether the call took effect is not known, so it was not repeated"
    } else {
        ""
    }
}

fn next_try(retry_in: Duration) -> String {
    if retry_in.is_zero() {
        "just being tried again, so call again in a moment".to_owned()
    } else {
        format!("next tried in {}", seconds(retry_in))
    }
}

fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.0} s", duration.as_secs_f64())
    }
}
