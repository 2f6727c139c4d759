use std::collections::HashSet;

use switchboard_core::DeliveryState;
use switchboard_sys::owner::Owner;

use super::{Appended, take_back};
use crate::test_hub::{TestHub, bodies};
use crate::{Accepted, BreakReason, Draft};

fn back(test: &TestHub, messages: &[&Accepted]) -> HashSet<switchboard_core::MessageId> {
    let entry = |accepted: &&Accepted| Appended { job: 0, seq: accepted.seq, id: accepted.id };
    let entries: Vec<_> = messages.iter().map(entry).collect();
    let owner = Owner::this_process().to_string();
    take_back(&mut test.sql(), &entries, &owner, test.hub.now(), || ()).unwrap()
}

#[tokio::test]
async fn what_was_taken_back_is_gone_and_the_chain_goes_on() {
    let test = TestHub::with(&["a", "b"]).await;
    test.send("a", "b", "first").await;
    let draft = test.draft("a", "b", "refused");
    let refused = test.hub.submit(draft.clone()).await.unwrap();
    test.hub.search("refused", None, 10).await.unwrap();
    let other = test.send("a", "b", "of another process").await;
    let last = test.send("a", "b", "refused too").await;

    assert_eq!(back(&test, &[&last, &refused]), HashSet::new());
    assert_eq!(bodies(&test.hub).await, ["first", "of another process"]);
    assert!(test.hub.search("refused", None, 10).await.unwrap().items.is_empty());
    let audit = test.hub.audit(None).await.unwrap();
    let breaks: Vec<_> = audit.breaks.iter().map(|noted| (noted.seq, noted.reason)).collect();
    assert_eq!((audit.bad, breaks), (0, vec![(other.seq, BreakReason::Refused)]));

    // Sent again under the same name it is a new message, under a number that nobody has read past.
    let again = test.hub.submit(Draft { id: test.hub.next_id(), ..draft }).await.unwrap();
    assert!(!again.duplicate && again.seq > last.seq, "{again:?}");
    assert_eq!(test.hub.audit(None).await.unwrap().bad, 0);
    // Taken back once is enough.
    assert_eq!(back(&test, &[&last, &refused]), HashSet::new());
    assert_eq!(bodies(&test.hub).await, ["first", "of another process", "refused"]);
}

#[tokio::test]
async fn the_only_message_can_be_taken_back() {
    let test = TestHub::with(&["a", "b"]).await;
    let refused = test.send("a", "b", "refused").await;
    back(&test, &[&refused]);
    let next = test.send("a", "b", "next").await;
    assert!(next.seq > refused.seq);
    let audit = test.hub.audit(None).await.unwrap();
    assert_eq!((audit.entries, audit.bad, audit.breaks), (1, 0, vec![]));
}

#[tokio::test]
async fn what_somebody_else_has_taken_on_stays() {
    let test = TestHub::with(&["a", "b"]).await;
    let delivered = test.send("a", "b", "delivered").await;
    test.deliver_all().await;
    let leased = test.send("a", "b", "leased").await;
    let lease = "UPDATE deliveries SET state = 1, attempts = 1, owner = 'another' WHERE id = ?1";
    test.sql().execute(lease, [leased.deliveries[0].id.0]).unwrap();
    let ours = test.send("a", "b", "ours").await;
    let lease = "UPDATE deliveries SET state = 1, attempts = 1, owner = ?2 WHERE id = ?1";
    let us = Owner::this_process().to_string();
    test.sql().execute(lease, rusqlite::params![ours.deliveries[0].id.0, us]).unwrap();

    assert_eq!(back(&test, &[&delivered, &leased, &ours]), HashSet::from([delivered.id, leased.id]));
    assert_eq!(bodies(&test.hub).await, ["delivered", "leased"]);
    assert_eq!(test.state(delivered.id).await, DeliveryState::Delivered);
}
