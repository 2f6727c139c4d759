use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_770_000_000 + second).unwrap()
}

#[test]
fn excess_event_waits_others_pass() {
    let limit = RateLimit::new(60, SignedDuration::from_mins(1));
    for _ in 0..60 {
        limit.acquire("a", at(0)).unwrap();
    }
    let wait = limit.acquire("a", at(1)).unwrap_err();
    assert!((1..=60).contains(&wait), "{wait}");
    limit.acquire("b", at(1)).unwrap();
    assert!(limit.acquire("a", at(60)).is_err(), "the last minute still counts");
    limit.acquire("a", at(121)).unwrap();
}

#[test]
fn sliding_window_bounds_bursts() {
    let limit = RateLimit::new(10, SignedDuration::from_mins(1));
    let taken = (0..120).filter(|second| limit.acquire((), at(*second)).is_ok()).count();
    assert!((20..=22).contains(&taken), "{taken}");
}

#[test]
fn zero_is_unlimited_and_memory_bounded() {
    let none = RateLimit::new(0, SignedDuration::from_mins(1));
    assert!((0..1000).all(|_| none.acquire(1, at(0)).is_ok()));
    let limit = RateLimit::new(5, SignedDuration::from_mins(1));
    let refused = (0..MAX_COUNTERS + 100).filter(|key| limit.acquire(*key, at(0)).is_err()).count();
    assert_eq!(refused, 95, "those beyond share one count");
    assert!(limit.counts.lock().each.len() <= MAX_COUNTERS);
    limit.acquire(MAX_COUNTERS + 1, at(200)).unwrap();
}

#[test]
fn ipv6_network_is_one_client() {
    let key = |text: &str| rate_limit_key(text.parse().unwrap());
    assert_eq!(key("2001:db8:1:2:3:4:5:6"), key("2001:db8:1:2::1"));
    assert_ne!(key("2001:db8:1:3::1"), key("2001:db8:1:2::1"));
    assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
}

#[test]
fn released_event_can_be_acquired_again() {
    let limit = RateLimit::new(1, SignedDuration::from_mins(1));
    limit.acquire("a", at(0)).unwrap();
    limit.release(&"b", at(0));
    assert!(limit.acquire("a", at(0)).is_err());
    limit.release(&"a", at(0));
    limit.acquire("a", at(0)).unwrap();
}
