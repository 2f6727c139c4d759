//! Metrics of tool calls, reported to the installed recorder.

use std::time::Duration;

/// Outcome of a call, as a metrics label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The child returned a result.
    Ok,
    /// The child returned a result that is a tool error.
    Failed,
    /// Switchboard refused the call before it reached the child.
    Refused,
    /// The result came from the cache.
    Cached,
    /// The child could not be reached, or returned a JSON-RPC error.
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

/// Records the metrics of a call.
///
/// `tool` must be `None` unless the child has the tool. Labels stay in memory, so a name invented by a caller must not
/// become a label.
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
