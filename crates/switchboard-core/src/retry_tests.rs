use proptest::prelude::*;

use super::*;

const ACCEPTED: Timestamp = Timestamp::UNIX_EPOCH;
const DAY: i64 = 24 * 60 * 60;

fn unreachable() -> Outcome {
    Outcome::Unreachable { reason: "connection refused".into() }
}

fn millis(count: i64) -> SignedDuration {
    SignedDuration::from_millis(count)
}

fn second(count: i64) -> Timestamp {
    ACCEPTED + SignedDuration::from_secs(count)
}

/// The state after a failed attempt, with the default policy and whole seconds since it was accepted.
fn failed(attempts: u32, expires_at: Option<i64>, now: i64, jitter: f64) -> DeliveryState {
    let expires_at = expires_at.map(second);
    after_attempt(&unreachable(), attempts, ACCEPTED, expires_at, second(now), jitter, RetryPolicy::default())
}

#[test]
fn delivered_and_refused_are_final() {
    let refused = Outcome::Refused { reason: "unknown sender".into() };
    for (outcome, expected) in [
        (Outcome::Delivered, DeliveryState::Delivered),
        (Outcome::Shown, DeliveryState::Seen),
        (refused, DeliveryState::Refused),
    ] {
        for now in [0, 100, 30 * DAY] {
            let policy = RetryPolicy::default();
            let state = after_attempt(&outcome, 1, ACCEPTED, Some(second(100)), second(now), 0.5, policy);
            assert_eq!(state, expected, "after {now} s");
        }
    }
}

#[test]
fn blocked_delivery_is_retried_after_minutes() {
    let behind = Outcome::Blocked { reason: "an earlier one waits".into() };
    for attempts in [0, 1, 30] {
        let state = after_attempt(&behind, attempts, ACCEPTED, None, second(0), 1.0, RetryPolicy::default());
        assert_eq!(state, DeliveryState::Failed { retry_at: second(300) });
    }
    let last = after_attempt(&behind, 1, ACCEPTED, Some(second(100)), second(0), 1.0, RetryPolicy::default());
    assert_eq!(last, DeliveryState::Failed { retry_at: second(99) }, "one attempt before the end");
}

#[test]
fn backoff_doubles_with_half_jitter() {
    let table = [
        (0, 0.0, 500),
        (1, 0.0, 500),
        (1, 0.5, 750),
        (1, 1.0, 1000),
        (2, 0.0, 1000),
        (2, 1.0, 2000),
        (3, 1.0, 4000),
        (10, 1.0, 512_000),
        (11, 1.0, 900_000),
        (11, 0.0, 450_000),
        (11, 0.5, 675_000),
        (64, 1.0, 900_000),
        (u32::MAX, 1.0, 900_000),
        (1, -3.0, 500),
        (1, 7.0, 1000),
    ];
    for (attempts, jitter, pause) in table {
        let expected = DeliveryState::Failed { retry_at: second(60) + millis(pause) };
        assert_eq!(failed(attempts, None, 60, jitter), expected, "attempt {attempts}, jitter {jitter}");
    }
}

#[test]
fn last_retry_is_shortly_before_expiry() {
    let retry = |at| DeliveryState::Failed { retry_at: second(at) };
    let expired = DeliveryState::Expired;
    let table = [
        // Its own expiry, whether earlier or later than the policy's.
        (1, Some(102), 100, retry(101)),
        (1, Some(101), 100, expired),
        (1, Some(100), 100, expired),
        (1, Some(50), 100, expired),
        (1, Some(30 * DAY), 8 * DAY, retry(8 * DAY + 1)),
        (1, Some(30 * DAY), 30 * DAY, expired),
        // The eleventh pause is 900 s.
        (11, Some(1001), 100, retry(1000)),
        (11, Some(1000), 100, retry(999)),
        (11, Some(500), 100, retry(499)),
        (11, Some(102), 100, retry(101)),
        (11, Some(101), 100, expired),
        (12, Some(500), 499, expired), // that was the last one
        // Without one, a week from when it was accepted.
        (1, None, 7 * DAY - 2, retry(7 * DAY - 1)),
        (1, None, 7 * DAY - 1, expired),
        (1, None, 8 * DAY, expired),
        (11, None, 7 * DAY - 600, retry(7 * DAY - 1)),
        (12, None, 7 * DAY - 1, expired),
    ];
    for (attempts, expires_at, now, expected) in table {
        let state = failed(attempts, expires_at, now, 1.0);
        assert_eq!(state, expected, "attempt {attempts}, expires {expires_at:?}, now {now}");
    }
}

#[test]
fn last_attempt_is_one_first_delay_before_expiry() {
    let expiry = second(100);
    for first in [1, 250, 5000] {
        let policy = RetryPolicy { first: millis(first), ..RetryPolicy::default() };
        let after =
            |attempts, now| after_attempt(&unreachable(), attempts, ACCEPTED, Some(expiry), now, 0.0, policy);
        let retry_at = expiry - millis(first);
        assert_eq!(after(40, second(60)), DeliveryState::Failed { retry_at }, "{first} ms");
        assert_eq!(after(41, retry_at), DeliveryState::Expired, "{first} ms");
    }
}

#[test]
fn absent_peer_is_retried_for_a_week() {
    let policy = RetryPolicy::default();
    let week = ACCEPTED + policy.give_up_after;
    for jitter in [0.0, 0.999] {
        let mut now = ACCEPTED;
        let mut attempts = 1;
        while let DeliveryState::Failed { retry_at } =
            after_attempt(&unreachable(), attempts, ACCEPTED, None, now, jitter, policy)
        {
            assert!(retry_at > now, "attempt {attempts} again at {now}");
            now = retry_at;
            attempts += 1;
        }
        assert_eq!(now, week - policy.first, "the last attempt, jitter {jitter}");
    }
}

proptest! {
    #[test]
    fn backoff_is_between_half_and_full(
        attempts in 1..20_u32,
        first in 1..10_000_i64,
        longest in 1..3_600_000_i64,
        left in prop::option::of(-1000..3_600_000_i64),
        jitter in 0.0..1.0_f64,
    ) {
        let policy = RetryPolicy { first: millis(first), longest: millis(longest), ..RetryPolicy::default() };
        let now = second(60);
        let expiry = left.map(|left| now + millis(left));
        let full = millis((first << (attempts - 1)).min(longest));
        let (earliest, latest) = (now + full / 2, now + full);
        let last = expiry.filter(|expiry| *expiry <= latest).map(|expiry| expiry - policy.first);
        match after_attempt(&unreachable(), attempts, ACCEPTED, expiry, now, jitter, policy) {
            DeliveryState::Failed { retry_at } => {
                let spaced = (earliest..=latest).contains(&retry_at);
                prop_assert!(spaced || last == Some(retry_at) && retry_at > now, "{} of {}", retry_at, full);
                prop_assert!(expiry.is_none_or(|expiry| retry_at < expiry));
            }
            state => {
                prop_assert_eq!(state, DeliveryState::Expired);
                prop_assert!(last.is_some_and(|last| last <= now));
            }
        }
    }
}
