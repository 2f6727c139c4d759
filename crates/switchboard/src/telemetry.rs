//! What happens on the way, for people and for their tools: log lines on stderr, spans to an OpenTelemetry
//! collector, counts for Prometheus.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::log;

/// Sends what is left when it is dropped, which is at the end of the program.
#[derive(Debug)]
#[must_use = "what was not sent yet is lost"]
pub(crate) struct Telemetry(Option<SdkTracerProvider>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Begins to tell. Spans are sent only where the standard `OTEL_*` variables name a collector.
pub(crate) fn begin(verbose: u8) -> Telemetry {
    // What rmcp calls an error, such as a client that hangs up, is everyday life to a server.
    let default = ["warn,rmcp=off", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_env("SWITCHBOARD_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // stdout belongs to data and protocols.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(log::writer)
        // It would complain on stderr, and panic where stderr is a file on a full disk.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .with_filter(filter);
    let provider = collector();
    let spans = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("switchboard"))
            .with_filter(LevelFilter::INFO)
    });
    tracing_subscriber::registry().with(lines).with(spans).init();
    Telemetry(provider)
}

/// The way to the collector, where there is one.
fn collector() -> Option<SdkTracerProvider> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value != "otlp");
    let is_named = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
        .iter()
        .any(|name| set(name).is_some());
    if is_off || !is_named {
        return None;
    }
    // Its other variables it reads by itself.
    let exporter = SpanExporter::builder().with_http().build();
    let mut resource = opentelemetry_sdk::Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("switchboard");
    }
    match exporter {
        Ok(exporter) => Some(
            SdkTracerProvider::builder()
                .with_resource(resource.build())
                .with_batch_exporter(exporter)
                .build(),
        ),
        Err(error) => {
            // The log is not there yet.
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "no spans are sent: OTEL_EXPORTER_OTLP_*: {error}");
            None
        }
    }
}

/// Begins to count; the handle shows the counts in the form of Prometheus. Once per process.
pub(crate) fn count() -> Option<PrometheusHandle> {
    PrometheusBuilder::new()
        .install_recorder()
        .inspect_err(|error| tracing::warn!(%error, "nothing is counted"))
        .ok()
}
