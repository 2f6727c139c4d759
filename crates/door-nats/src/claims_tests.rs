use super::*;

const NOON: i64 = 1_772_366_400_000_000;
const SECOND: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_microsecond(NOON + seconds * SECOND).expect("a time")
}

fn request(act: ClaimAction, fence: i64) -> ClaimRequest {
    let (task, agent) = ("T-1".to_owned(), "codex".to_owned());
    ClaimRequest { act, task, agent, fence, until: NOON + 600 * SECOND, note: None }
}

fn current(holder: Option<&str>, fence: i64, until: i64) -> ClaimEntry {
    let holder = holder.map(str::to_owned);
    ClaimEntry { task: "T-1".into(), holder, fence, until: NOON + until * SECOND, note: None }
}

#[test]
fn expired_claim_is_free_after_clock_skew() {
    let me = "codex@office";
    for (before, now, fence) in [
        (None, 0, Some(1)),
        (Some(current(None, 4, 500)), 0, Some(5)),
        (Some(current(Some("a@home"), 4, 10)), 0, None),
        (Some(current(Some("a@home"), 4, 10)), 39, None),
        (Some(current(Some("a@home"), 4, 10)), 40, Some(5)),
        // The same agent as well: another of its sessions may hold the claim.
        (Some(current(Some(me), 4, 10)), 0, None),
    ] {
        let answer = next_entry(&request(ClaimAction::Claim, 1), before.clone(), me, at(now));
        assert_eq!(answer.ok().map(|current| current.fence), fence, "{before:?} at {now}");
    }
    let higher =
        next_entry(&request(ClaimAction::Claim, 9), Some(current(None, 4, 0)), me, at(0)).expect("free");
    assert_eq!(higher.fence, 9, "above what this hub has given out by itself");
}

#[test]
fn only_active_claim_can_be_renewed() {
    let me = "codex@office";
    for (before, now, is_ours) in [
        (Some(current(Some(me), 4, 10)), 0, true),
        (Some(current(Some(me), 4, 10)), 10, false),
        (Some(current(Some(me), 5, 10)), 0, false),
        (Some(current(Some("codex@home"), 4, 10)), 0, false),
        (Some(current(None, 4, 10)), 0, false),
        (None, 0, false),
    ] {
        let renewed = next_entry(&request(ClaimAction::Renew, 4), before.clone(), me, at(now));
        assert_eq!(renewed.is_ok(), is_ours, "{before:?} at {now}");
    }
    let after = next_entry(&request(ClaimAction::Release, 4), Some(current(Some(me), 4, 10)), me, at(0))
        .expect("given back");
    assert_eq!((after.holder, after.fence), (None, 4));
    let late = next_entry(&request(ClaimAction::Release, 4), Some(current(Some("a@home"), 5, 10)), me, at(0));
    assert_eq!(late, Err(ClaimAnswer::Stale { holder: Some("a@home".into()) }));
}

#[test]
fn key_has_no_special_characters() {
    assert_eq!(key("T-1"), key("t-1"));
    assert_ne!(key("a b"), key("a.b"));
    assert!(key(r"a b.>*/\ü").bytes().all(|byte| byte.is_ascii_hexdigit()));
}
