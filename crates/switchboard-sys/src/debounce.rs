//! Debounce and throttle: events that follow each other cause one round of work.
//!
//! All durations are here, each with its reason.

use std::time::Duration;

use tokio::time::Instant;

/// Rest after a round as a multiple of its duration: the work uses at most a tenth of one core.
pub const REST_FACTOR: u32 = 9;

/// Timing of a [`Debouncer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debounce {
    /// How long after an event further ones join its round.
    pub delay: Duration,
    /// After so long without a round, the first event is handled without delay.
    pub idle_after: Option<Duration>,
    /// Longest rest after a round. A rest is [`REST_FACTOR`] times as long as the round.
    pub max_rest: Duration,
}

impl Debounce {
    /// Files that events name and that are read one by one. A careless writer causes several events per file; a single
    /// file after a pause is a message that a reader waits for.
    pub const NAMED_FILES: Self =
        Self { idle_after: Some(Duration::from_millis(20)), ..Self::after(Duration::from_millis(2)) };

    /// Folders that are scanned after each event. One message causes several events, our own deliveries among them. The
    /// rest ends after 2 s: a scan that ingested thousands of files took long for a good reason, and the next file must
    /// not wait nine times as long.
    pub const SCANNED_FOLDERS: Self =
        Self { max_rest: Duration::from_secs(2), ..Self::after(Duration::from_millis(5)) };

    /// Small files that many processes rewrite every few seconds, all read after each event. No reader waits for one of
    /// them.
    pub const STATUS_FILES: Self =
        Self { max_rest: Duration::MAX, ..Self::after(Duration::from_millis(200)) };

    /// Settings, which editors write in several steps.
    pub const SETTINGS: Self = Self::after(Duration::from_millis(200));

    /// Presence that is published to other hosts: an agent's steps follow each other within milliseconds.
    pub const PUBLISHED_PRESENCE: Self = Self::after(Duration::from_millis(50));

    /// Subscriptions at a server: each change replaces a consumer. The first change takes effect at once.
    pub const SUBSCRIPTIONS: Self = Self::after(Duration::from_millis(100));

    /// Resources whose changes clients are notified of: they read the whole resource after each notification.
    pub const NOTIFIED_RESOURCES: Self = Self::after(Duration::from_millis(20));

    /// Lists of tools whose changes a child announces, often one by one while it starts.
    pub const ANNOUNCED_LISTS: Self = Self::after(Duration::from_millis(100));

    /// Receipts for other hosts. No sender waits for them, and reading a mailbox causes many.
    pub const RECEIPTS: Self = Self::after(Duration::from_millis(200));

    /// Work that is debounced elsewhere, with the rest of [`SCANNED_FOLDERS`](Self::SCANNED_FOLDERS).
    pub const REST_ONLY: Self = Self { delay: Duration::ZERO, ..Self::SCANNED_FOLDERS };

    /// Waits for events that follow the current one, in a loop without rounds that take long.
    pub async fn wait(self) {
        tokio::time::sleep(self.delay).await;
    }

    const fn after(delay: Duration) -> Self {
        Self { delay, idle_after: None, max_rest: Duration::ZERO }
    }
}

/// Waits after an event until the round of work may begin.
#[derive(Debug)]
pub struct Debouncer {
    timing: Debounce,
    /// End of the last round.
    ended: Option<Instant>,
    rest: Duration,
}

impl Debouncer {
    /// Creates the debouncer of one loop.
    pub fn new(timing: Debounce) -> Self {
        Self { timing, ended: None, rest: Duration::ZERO }
    }

    /// Waits for events that follow the current one, and until the rest after the last round is over.
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

    /// Records that a round, which began then, ends now.
    pub fn record_round(&mut self, began: Instant) {
        let now = Instant::now();
        self.rest = now.duration_since(began).saturating_mul(REST_FACTOR).min(self.timing.max_rest);
        self.ended = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a round of this length, then waits so long for an event; returns how long the debouncer waits then.
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
            // A tenth of one core.
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
