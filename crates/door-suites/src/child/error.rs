//! Errors of requests to a child.

use std::time::Duration;

use crate::host::RpcError;

/// Error of a request to a child.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The child returned a JSON-RPC error, which is passed through unchanged.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The child could not be started or reached.
    #[error("`{child}` cannot be started: {cause}{}; {hint}", quoted(.last_line))]
    CannotStart {
        /// Name of the child.
        child: String,
        /// Cause of the failure.
        cause: String,
        /// Last line of the child's stderr.
        last_line: String,
        /// Suggested next step.
        hint: String,
    },
    /// The child started but did not answer `initialize` in time.
    #[error(
        "`{child}` did not answer `initialize` within {}{}; {hint}",
        seconds(*.after), quoted(.last_line)
    )]
    SpawnTimeout {
        /// Name of the child.
        child: String,
        /// Time waited for the answer.
        after: Duration,
        /// Last line of the child's stderr.
        last_line: String,
        /// Suggested next step.
        hint: String,
    },
    /// The child did not answer a request in time.
    #[error(
        "`{child}` did not answer `{method}` within {}; the call was cancelled; request less, or raise \
         `rpcTimeoutMs` in its file",
        seconds(*.after)
    )]
    Timeout {
        /// Name of the child.
        child: String,
        /// Method of the request.
        method: String,
        /// Time waited for the answer.
        after: Duration,
    },
    /// The child or its connection ended before the request was answered.
    #[error(
        "`{child}` disconnected before it answered: {cause}{}; whether the call took effect is unknown, so it was not \
         retried; the next call starts it again",
        quoted(.last_line)
    )]
    Disconnected {
        /// Name of the child.
        child: String,
        /// How the child or its connection ended.
        cause: String,
        /// Last line of the child's stderr.
        last_line: String,
    },
    /// The child is reachable but rejected the request.
    #[error("`{child}` refused the request: {cause}{}", unknown_outcome_note(*.is_outcome_unknown))]
    Refused {
        /// Name of the child.
        child: String,
        /// The rejection, with the child's own text.
        cause: String,
        /// True if the call may still have taken effect.
        is_outcome_unknown: bool,
    },
    /// The circuit breaker is open, so the child is not started.
    ///
    /// The child failed to start too often and is not retried for a while.
    #[error(
        "`{child}` failed to start {failures} times in a row and is {}; the last time: {cause}",
        retry_note(*.retry_in)
    )]
    CircuitOpen {
        /// Name of the child.
        child: String,
        /// Number of consecutive failed starts.
        failures: u32,
        /// Time until the next start is attempted.
        retry_in: Duration,
        /// Cause of the last failed start.
        cause: String,
    },
    /// The child's request queue is full, or no request slot became free in time.
    #[error("`{child}` is busy: {waiting} calls are waiting already; try again later")]
    Busy {
        /// Name of the child.
        child: String,
        /// Number of waiting requests.
        waiting: usize,
    },
    /// The caller cancelled the request.
    #[error("the call was cancelled")]
    Cancelled,
    /// The HTTP server dropped the session. The request is retried once in a new session.
    #[error("`{child}` dropped the session and a new one as well; try again later")]
    SessionEnded {
        /// Name of the child.
        child: String,
    },
}

fn quoted(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("; its last output was \"{line}\"") }
}

fn unknown_outcome_note(is_outcome_unknown: bool) -> &'static str {
    if is_outcome_unknown { "; whether the call took effect is unknown, so it was not retried" } else { "" }
}

fn retry_note(retry_in: Duration) -> String {
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
