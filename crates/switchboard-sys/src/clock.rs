//! The one place that asks for the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// The machine's clock, or one that a test sets by hand.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    by_hand: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still until it is told otherwise.
    pub fn by_hand(start: Timestamp) -> Self {
        Self { by_hand: Some(Arc::new(AtomicI64::new(start.as_microsecond()))) }
    }

    /// The time now, in whole microseconds: the journal keeps no more.
    #[expect(clippy::disallowed_methods, reason = "this is the rim where the time comes in")]
    pub fn now(&self) -> Timestamp {
        let micros = match &self.by_hand {
            Some(micros) => micros.load(Ordering::Relaxed),
            None => Timestamp::now().as_microsecond(),
        };
        from_micros(micros)
    }

    /// Moves a clock set by hand, forwards or backwards; the machine's clock does not care.
    pub fn advance(&self, by: SignedDuration) {
        if let Some(micros) = &self.by_hand {
            let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            micros.fetch_add(by, Ordering::Relaxed);
        }
    }
}

/// The time that the journal wrote as this number; a number out of range reads as the nearest in range.
pub fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// How long ago, in the largest unit that says enough.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).max(SignedDuration::ZERO).as_secs();
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
