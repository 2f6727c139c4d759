use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_770_000_000 + second).unwrap()
}

#[test]
fn s15_one_more_than_allowed_waits_and_others_do_not() {
    let limit = Limit::new(60, SignedDuration::from_mins(1));
    for _ in 0..60 {
        limit.take("a", at(0)).unwrap();
    }
    let wait = limit.take("a", at(1)).unwrap_err();
    assert!((1..=60).contains(&wait), "{wait}");
    limit.take("b", at(1)).unwrap();
    assert!(limit.take("a", at(60)).is_err(), "the last minute still counts");
    limit.take("a", at(121)).unwrap();
}

#[test]
fn no_span_of_the_length_holds_much_more_than_allowed() {
    let limit = Limit::new(10, SignedDuration::from_mins(1));
    let taken = (0..120).filter(|second| limit.take((), at(*second)).is_ok()).count();
    assert!((20..=22).contains(&taken), "{taken}");
}

#[test]
fn zero_is_no_limit_and_memory_is_bounded() {
    let none = Limit::new(0, SignedDuration::from_mins(1));
    assert!((0..1000).all(|_| none.take(1, at(0)).is_ok()));
    let limit = Limit::new(5, SignedDuration::from_mins(1));
    let refused = (0..MOST + 100).filter(|key| limit.take(*key, at(0)).is_err()).count();
    assert_eq!(refused, 95, "those beyond share one count");
    assert!(limit.counts.lock().each.len() <= MOST);
    limit.take(MOST + 1, at(200)).unwrap();
}

#[test]
fn a_network_of_64_bits_is_one_client() {
    let key = |text: &str| client_key(text.parse().unwrap());
    assert_eq!(key("2001:db8:1:2:3:4:5:6"), key("2001:db8:1:2::1"));
    assert_ne!(key("2001:db8:1:3::1"), key("2001:db8:1:2::1"));
    assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
}

#[test]
fn what_is_given_back_can_be_taken_again() {
    let limit = Limit::new(1, SignedDuration::from_mins(1));
    limit.take("a", at(0)).unwrap();
    limit.give_back(&"b", at(0));
    assert!(limit.take("a", at(0)).is_err());
    limit.give_back(&"a", at(0));
    limit.take("a", at(0)).unwrap();
}
