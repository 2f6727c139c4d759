use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::{Outcome, called};

/// Records the metrics.
#[derive(Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

struct Note(String, Arc<Mutex<Vec<String>>>);

impl CounterFn for Note {
    fn increment(&self, value: u64) {
        self.1.lock().push(format!("{} +{value}", self.0));
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Notes {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Note(key.to_string(), self.0.clone())))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.lock().push(key.to_string());
        Histogram::noop()
    }
}

#[test]
fn call_is_counted_and_timed() {
    let notes = Notes::default();
    ::metrics::with_local_recorder(&notes, || {
        called("box", "call", Some("echo"), Outcome::Ok, Duration::from_millis(3));
        called("box", "call", None, Outcome::Refused, Duration::ZERO);
    });
    let noted = notes.0.lock().join("\n");
    for part in [
        "switchboard_suite_calls_total",
        "suite = box",
        "tool = echo",
        "outcome = refused",
        "switchboard_suite_call_seconds",
    ] {
        assert!(noted.contains(part), "{part} is not in {noted}");
    }
}
