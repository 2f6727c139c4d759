//! What is counted of each call, for whoever installed a recorder.

use std::time::Duration;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The child answered.
    Ok,
    /// The child said that it failed.
    Failed,
    /// It never got to the child.
    Refused,
    /// The answer was still known.
    Cached,
    /// The child could not be reached, or answered with a protocol error.
    Error,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Cached => "cached",
            Self::Error => "error",
        }
    }
}

/// Counts a call. `tool` is a tool that the child has, or nothing: whatever a caller makes up never becomes a
/// label, since every label stays in memory.
pub(crate) fn called(
    suite: &str,
    action: &'static str,
    tool: Option<&str>,
    outcome: Outcome,
    took: Duration,
) {
    let labels = [
        ("suite", suite.to_owned()),
        ("action", action.to_owned()),
        ("tool", tool.unwrap_or_default().to_owned()),
        ("outcome", outcome.as_str().to_owned()),
    ];
    ::metrics::counter!("switchboard_suite_calls_total", &labels).increment(1);
    ::metrics::histogram!("switchboard_suite_call_seconds", &labels[..3]).record(took.as_secs_f64());
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
