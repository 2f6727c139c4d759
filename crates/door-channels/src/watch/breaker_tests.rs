use super::*;

fn minute(minute: i64) -> Timestamp {
    Timestamp::from_second(1_768_000_000 + minute * 60).unwrap()
}

#[test]
fn breaker_opens_after_three_failures() {
    let mut breaker = Breaker::default();
    assert!(!breaker.failed(minute(0)));
    assert!(!breaker.failed(minute(10)));
    assert!(!breaker.failed(minute(16)), "the first is too long ago");
    assert!(breaker.failed(minute(17)));
    assert_eq!(breaker.rest(minute(20)), Some(SignedDuration::from_mins(7)));
    assert_eq!(breaker.rest(minute(27)), None);
    assert!(!breaker.failed(minute(28)), "counted anew");
}

#[test]
fn success_does_not_reset_failures() {
    let mut breaker = Breaker::default();
    breaker.failed(minute(0));
    breaker.failed(minute(1));
    breaker.worked();
    assert!(breaker.failed(minute(2)));
    breaker.worked();
    assert_eq!(breaker.rest(minute(3)), None, "it works again");
}

#[test]
fn rate_limit_is_per_agent() {
    let mut breaker = Breaker::default();
    let (codex, claude) = ("codex".parse().unwrap(), "claude".parse().unwrap());
    assert!(breaker.may_answer(&codex, 2, minute(0)) && breaker.may_answer(&codex, 2, minute(0)));
    assert!(!breaker.may_answer(&codex, 2, minute(0)));
    assert!(breaker.may_answer(&claude, 2, minute(0)));
    assert!(breaker.may_answer(&codex, 2, minute(1)));
}
