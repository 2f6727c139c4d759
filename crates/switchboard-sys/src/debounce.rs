//! Debounce and throttle: events that follow each other cause a single round of work.
//!
//! All durations are defined here, each with its reason.

use std::time::Duration;

use tokio::time::Instant;

/// Throttle factor: the rest after a round, as a multiple of the round's duration.
///
/// With this factor, the work uses at most a tenth of one core.
pub const REST_FACTOR: u32 = 9;

/// Debounce and throttle durations of a [`Debouncer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debounce {
    /// Debounce delay: events within this time after the first one join the same round.
    pub delay: Duration,
    /// Time without a round after which the next event is handled without delay.
    pub idle_after: Option<Duration>,
    /// Maximum rest after a round. A rest is [`REST_FACTOR`] times as long as the round.
    pub max_rest: Duration,
}

impl Debounce {
    /// Timing for files that events name and that are read one by one.
    ///
    /// A careless writer causes several events per file. A single file after a pause is a message that a reader waits
    /// for.
    pub const NAMED_FILES: Self =
        Self { idle_after: Some(Duration::from_millis(20)), ..Self::after(Duration::from_millis(2)) };

    /// Timing for folders that are scanned after each event.
    ///
    /// One message causes several events, and our own deliveries cause some too. The rest is at most 2 s: a scan that
    /// ingested thousands of files took long for a good reason, and the next file must not wait nine times as long.
    pub const SCANNED_FOLDERS: Self =
        Self { max_rest: Duration::from_secs(2), ..Self::after(Duration::from_millis(5)) };

    /// Timing for small files that many processes rewrite every few seconds.
    ///
    /// All of these files are read after each event, and no reader waits for one of them.
    pub const STATUS_FILES: Self =
        Self { max_rest: Duration::MAX, ..Self::after(Duration::from_millis(200)) };

    /// Timing for settings, which editors write in several steps.
    pub const SETTINGS: Self = Self::after(Duration::from_millis(200));

    /// Timing for presence that is published to other hosts.
    ///
    /// An agent's steps follow each other within milliseconds.
    pub const PUBLISHED_PRESENCE: Self = Self::after(Duration::from_millis(50));

    /// Timing for subscriptions at a server, where each change replaces a consumer.
    ///
    /// The first change takes effect at once.
    pub const SUBSCRIPTIONS: Self = Self::after(Duration::from_millis(100));

    /// Timing for resources whose changes are notified to clients.
    ///
    /// A client reads the whole resource after each notification.
    pub const NOTIFIED_RESOURCES: Self = Self::after(Duration::from_millis(20));

    /// Timing for tool lists whose changes a child announces.
    ///
    /// A child often announces the changes one by one while it starts.
    pub const ANNOUNCED_LISTS: Self = Self::after(Duration::from_millis(100));

    /// Timing for receipts to other hosts.
    ///
    /// No sender waits for these receipts, and reading a mailbox causes many of them.
    pub const RECEIPTS: Self = Self::after(Duration::from_millis(200));

    /// Timing for work that is debounced elsewhere and needs only the rest of
    /// [`SCANNED_FOLDERS`](Self::SCANNED_FOLDERS).
    pub const REST_ONLY: Self = Self { delay: Duration::ZERO, ..Self::SCANNED_FOLDERS };

    /// Waits for the debounce delay, in which further events join the current one.
    ///
    /// Use it in a loop whose rounds are short, so that no rest is needed after them.
    pub async fn wait(self) {
        tokio::time::sleep(self.delay).await;
    }

    const fn after(delay: Duration) -> Self {
        Self { delay, idle_after: None, max_rest: Duration::ZERO }
    }
}

/// Debouncer of one loop: delays each round of work after an event.
#[derive(Debug)]
pub struct Debouncer {
    timing: Debounce,
    /// When the last round ended.
    ended: Option<Instant>,
    rest: Duration,
}

impl Debouncer {
    /// Creates the debouncer of one loop.
    pub fn new(timing: Debounce) -> Self {
        Self { timing, ended: None, rest: Duration::ZERO }
    }

    /// Waits for the debounce delay, and until the rest after the last round is over.
    pub async fn wait(&self) {
        let now = Instant::now();
        let idle = self.ended.map_or(Duration::MAX, |ended| now - ended);
        let delay = match self.timing.idle_after {
            Some(limit) if idle > limit => Duration::ZERO,
            _ => self.timing.delay,
        };
        let pause = delay.max(self.rest.saturating_sub(idle));
        if pause > Duration::ZERO {
            tokio::time::sleep(pause).await;
        }
    }

    /// Records that the round that started at `began` ends now.
    pub fn record_round(&mut self, began: Instant) {
        let now = Instant::now();
        self.rest = now.duration_since(began).saturating_mul(REST_FACTOR).min(self.timing.max_rest);
        self.ended = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a round of `round` ms, idles for `idle` ms, and returns the debouncer's delay for the next event in ms.
    async fn waited(timing: Debounce, round: Option<u64>, idle: u64) -> u128 {
        let mut debouncer = Debouncer::new(timing);
        if let Some(round) = round {
            let began = Instant::now();
            tokio::time::sleep(Duration::from_millis(round)).await;
            debouncer.record_round(began);
        }
        tokio::time::sleep(Duration::from_millis(idle)).await;
        let event = Instant::now();
        debouncer.wait().await;
        event.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn event_waits_for_delay_and_rest() {
        for (timing, round, idle, expected) in [
            (Debounce::SETTINGS, None, 0, 200),
            (Debounce::SETTINGS, Some(1000), 0, 200),
            // The first event after a pause is handled at once.
            (Debounce::NAMED_FILES, None, 0, 0),
            (Debounce::NAMED_FILES, Some(1), 21, 0),
            (Debounce::NAMED_FILES, Some(1), 19, 2),
            // A rest of nine times the round limits the work to a tenth of one core.
            (Debounce::SCANNED_FOLDERS, Some(100), 0, 900),
            (Debounce::SCANNED_FOLDERS, Some(100), 600, 300),
            (Debounce::SCANNED_FOLDERS, Some(100), 1000, 5),
            (Debounce::SCANNED_FOLDERS, Some(1000), 0, 2000),
            (Debounce::STATUS_FILES, Some(1000), 0, 9000),
            (Debounce::STATUS_FILES, Some(1), 0, 200),
        ] {
            let waited = waited(timing, round, idle).await;
            assert_eq!(waited, expected, "{timing:?} {round:?} {idle}");
        }
    }
}
