use std::collections::HashSet;

use switchboard_core::DeliveryState;
use switchboard_sys::process_identity::ProcessIdentity;

use super::{AppendedEntry, roll_back};
use crate::test_hub::{TestHub, bodies};
use crate::{Accepted, BreakReason, Draft};

fn roll_back_entries(test: &TestHub, messages: &[&Accepted]) -> HashSet<switchboard_core::MessageId> {
    let entry = |accepted: &&Accepted| AppendedEntry { job: 0, seq: accepted.seq, id: accepted.id };
    let entries: Vec<_> = messages.iter().map(entry).collect();
    let owner = ProcessIdentity::this_process().to_string();
    roll_back(&mut test.sql(), &entries, &owner, test.hub.now(), || ()).unwrap()
}

#[tokio::test]
async fn rolled_back_entry_is_removed_from_chain() {
    let test = TestHub::with(&["a", "b"]).await;
    test.send("a", "b", "first").await;
    let draft = test.draft("a", "b", "refused");
    let refused = test.hub.submit(draft.clone()).await.unwrap();
    test.hub.journal().search("refused", None, 10).await.unwrap();
    let other = test.send("a", "b", "of another process").await;
    let last = test.send("a", "b", "refused too").await;

    assert_eq!(roll_back_entries(&test, &[&last, &refused]), HashSet::new());
    assert_eq!(bodies(&test.hub).await, ["first", "of another process"]);
    assert!(test.hub.journal().search("refused", None, 10).await.unwrap().items.is_empty());
    let audit = test.hub.journal().audit(None).await.unwrap();
    let breaks: Vec<_> = audit.breaks.iter().map(|noted| (noted.seq, noted.reason)).collect();
    assert_eq!((audit.bad, breaks), (0, vec![(other.seq, BreakReason::Refused)]));

    // A retry under the same native id is a new message, with a number that no reader has passed.
    let again = test.hub.submit(Draft { id: test.hub.next_id(), ..draft }).await.unwrap();
    assert!(!again.duplicate && again.seq > last.seq, "{again:?}");
    assert_eq!(test.hub.journal().audit(None).await.unwrap().bad, 0);
    // A second rollback changes nothing.
    assert_eq!(roll_back_entries(&test, &[&last, &refused]), HashSet::new());
    assert_eq!(bodies(&test.hub).await, ["first", "of another process", "refused"]);
}

#[tokio::test]
async fn only_message_can_be_rolled_back() {
    let test = TestHub::with(&["a", "b"]).await;
    let refused = test.send("a", "b", "refused").await;
    roll_back_entries(&test, &[&refused]);
    let next = test.send("a", "b", "next").await;
    assert!(next.seq > refused.seq);
    let audit = test.hub.journal().audit(None).await.unwrap();
    assert_eq!((audit.entries, audit.bad, audit.breaks), (1, 0, vec![]));
}

#[tokio::test]
async fn message_being_delivered_elsewhere_stays() {
    let test = TestHub::with(&["a", "b"]).await;
    let delivered = test.send("a", "b", "delivered").await;
    test.deliver_all().await;
    let leased = test.send("a", "b", "leased").await;
    let lease = "UPDATE deliveries SET state = 1, attempts = 1, owner = 'another' WHERE id = ?1";
    test.sql().execute(lease, [leased.deliveries[0].id.0]).unwrap();
    let ours = test.send("a", "b", "ours").await;
    let lease = "UPDATE deliveries SET state = 1, attempts = 1, owner = ?2 WHERE id = ?1";
    let us = ProcessIdentity::this_process().to_string();
    test.sql().execute(lease, rusqlite::params![ours.deliveries[0].id.0, us]).unwrap();

    assert_eq!(
        roll_back_entries(&test, &[&delivered, &leased, &ours]),
        HashSet::from([delivered.id, leased.id])
    );
    assert_eq!(bodies(&test.hub).await, ["delivered", "leased"]);
    assert_eq!(test.state(delivered.id).await, DeliveryState::Delivered);
}
