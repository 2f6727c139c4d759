//! Telemetry: log lines on stderr, and metrics for Prometheus.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::log;

/// Installs the log subscriber, which writes lines to stderr, filtered by `-v` or `SWITCHBOARD_LOG`.
pub(crate) fn install_log(verbose: u8) {
    // rmcp logs errors for normal events of a server, such as a client that disconnects, so its log is off by default.
    let default = ["warn,rmcp=off", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_env("SWITCHBOARD_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt::layer()
        // Lines have no time of day, but the duration of each span: with `-v` every request logs how long it took.
        .event_format(tracing_subscriber::fmt::format().with_target(false).without_time())
        .with_span_events(FmtSpan::CLOSE)
        // Stdout is reserved for data and protocols.
        .with_writer(log::writer)
        // Internal errors would be printed to stderr, which panics if stderr is a file on a full disk.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
}

/// Installs the metrics recorder, once per process; the handle renders the metrics in Prometheus' format.
pub(crate) fn install_metrics() -> Option<PrometheusHandle> {
    PrometheusBuilder::new()
        .install_recorder()
        .inspect_err(|error| tracing::warn!(%error, "cannot install the metrics recorder"))
        .ok()
}
