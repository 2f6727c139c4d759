//! Clock: the only place that reads the system time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// The system clock, or a manual clock for tests.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    manual: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Returns a manual clock, which stands still until [`advance`](Self::advance) moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self { manual: Some(Arc::new(AtomicI64::new(start.as_microsecond()))) }
    }

    /// Returns the current time in whole microseconds, the precision of the journal.
    #[expect(clippy::disallowed_methods, reason = "this is the rim where the time comes in")]
    pub fn now(&self) -> Timestamp {
        let micros = match &self.manual {
            Some(micros) => micros.load(Ordering::Relaxed),
            None => Timestamp::now().as_microsecond(),
        };
        timestamp_from_micros(micros)
    }

    /// Moves a manual clock forwards or backwards. The system clock is not affected.
    pub fn advance(&self, by: SignedDuration) {
        if let Some(micros) = &self.manual {
            let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            micros.fetch_add(by, Ordering::Relaxed);
        }
    }
}

/// Converts microseconds of the journal to a timestamp. Out-of-range values are clamped.
pub fn timestamp_from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Formats the age of a timestamp in one unit: `5 min ago`.
pub fn format_ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).max(SignedDuration::ZERO).as_secs();
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
