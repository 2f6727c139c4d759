use super::*;
use crate::test_hub::TestHub;

fn coverage(base: i64, low: i64, high: i64, last: i64) -> Coverage {
    Coverage { base, low, high, last }
}

#[test]
fn coverage_counts_gap_and_newest() {
    assert_eq!(coverage(0, 1, 0, 100).missing(), 100);
    assert_eq!(coverage(100, 101, 100, 100).missing(), 0);
    assert_eq!(coverage(10, 60, 90, 100).missing(), 49 + 10);
    assert!(coverage(36, 37, 36, 100).is_due() && !coverage(37, 38, 37, 100).is_due());
}

#[test]
fn full_page_of_newest_messages_needs_no_gap_filled() {
    let gap = coverage(10, 60, 100, 100);
    assert!(gap.answers(None, Some(60)), "everything newer than the oldest hit is indexed");
    assert!(!gap.answers(None, Some(9)), "a hit in the gap would come first");
    assert!(!gap.answers(None, None), "older messages may still fill the page");
    assert!(gap.answers(Some(11), None), "nothing before that is missing");
    assert!(!gap.answers(Some(50), None));
    assert!(!coverage(10, 60, 90, 100).answers(None, Some(80)), "the newest are missing");
}

#[tokio::test]
async fn index_grows_from_newest_down_until_ranges_meet() {
    let test = TestHub::with(&["a", "b"]).await;
    let count = NEWEST_FIRST + 2 * STEP;
    let mut drafts = Vec::new();
    for number in 0..count {
        drafts.push(test.draft("a", "b", if number % 2 == 0 { "even" } else { "odd" }));
    }
    for accepted in test.hub.submit_all(drafts).await {
        accepted.unwrap();
    }
    let page = test.hub.journal().search("even", None, 20).await.unwrap();
    let newest: Vec<i64> = page.items.iter().map(|stored| stored.seq).collect();
    let expected: Vec<i64> = (0..20).map(|n| count - 1 - 2 * n).collect();
    assert_eq!((newest, page.more), (expected, true));
    let covered = test.hub.read(Coverage::read).await.unwrap();
    assert_eq!(covered, coverage(0, count - STEP + 1, count, count));
    test.deliver_all().await;
    let reported = std::cell::Cell::new(0);
    let page = test
        .hub
        .journal()
        .search_with("nowhere", None, 20, |missing| reported.set(reported.get().max(missing)))
        .await;
    assert!(page.unwrap().items.is_empty());
    // The open door has indexed some of it meanwhile.
    assert!((1..=u64::try_from(count - STEP).unwrap()).contains(&reported.get()), "{}", reported.get());
    let covered = test.hub.read(Coverage::read).await.unwrap();
    assert_eq!((covered.base, covered.missing()), (count, 0));
    let all = test.hub.journal().search("odd", None, usize::MAX).await.unwrap();
    assert_eq!(all.items.len(), usize::try_from(count / 2).unwrap());
}
