use super::*;

fn agent(name: &str, silent_ms: u64) -> AwakeAgent {
    AwakeAgent { name: Name::parse(name).unwrap(), status: "working".into(), message: None, silent_ms }
}

#[test]
fn a_sign_of_life_is_dated_by_the_reader_and_never_goes_back() {
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(10);
    let first = status(agent("qc-1", 2_000), &[], now);
    assert_eq!(first.at, now - SignedDuration::from_secs(2));
    // The next one took longer, so that it seems older.
    let again = status(agent("qc-1", 2_005), std::slice::from_ref(&first), now);
    assert_eq!(again.at, first.at);
    let forged = status(agent("qc-1", u64::MAX), &[], now);
    assert!(forged.at <= now);
}

#[test]
fn only_a_change_of_what_is_done_is_told_at_once() {
    assert!(!is_other(&[agent("a", 1)], &[agent("a", 900)]));
    assert!(is_other(&[agent("a", 1)], &[]));
    let idle = AwakeAgent { status: "idle".into(), ..agent("a", 1) };
    assert!(is_other(&[agent("a", 1)], &[idle]));
}
