//! Metrics of tool calls, for an installed recorder.

use std::time::Duration;

/// Outcome of a call, as a metrics label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The child answered.
    Ok,
    /// The child returned a tool error.
    Failed,
    /// Refused before the child was called.
    Refused,
    /// Answered from the cache.
    Cached,
    /// The child could not be reached, or answered with a JSON-RPC error.
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

/// Records a call. `tool` is set only if the child has the tool: labels stay in memory, so names invented by a caller
/// must not become labels.
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
