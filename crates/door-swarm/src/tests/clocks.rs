//! Clock skew between hubs.

use jiff::SignedDuration;
use switchboard_core::DeliveryState;
use switchboard_sys::clock::Clock;

use crate::test_peer::World;

/// The peer's answer contains its time, the owner is notified of the skew, and refused messages arrive once the clock is
/// set.
#[tokio::test(flavor = "multi_thread")]
async fn clock_skew_is_reported_and_retried() {
    let world = World::new();
    let clock = Clock::manual(Clock::system().now());
    let alice = world.peer_at("alice", clock.clone(), |_| ()).await;
    let bob = world.peer("bob").await;
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    assert_eq!(alice.swarms.health_issues().await.unwrap(), []);

    clock.advance(SignedDuration::from_hours(-1));
    let id = alice.send("alice", "bob@research", "what time is it?", None).await;
    let refused =
        alice.delivery(id, "a refusal", |delivery| delivery.note.is_some() && delivery.attempts > 0).await;
    let note = refused.note.unwrap();
    assert!(note.contains("timestamp is too old") && note.contains("set the clock"), "{note}");
    assert!(refused.state.is_pending(), "{:?}", refused.state);
    assert_eq!(bob.count("what time is it?").await, 0);
    let issues = alice.swarms.health_issues().await.unwrap();
    assert!(issues[0].message.contains("away from that of 'bob'"), "{issues:?}");
    assert!(issues[0].hint.contains("NTP"), "{issues:?}");

    clock.advance(SignedDuration::from_hours(1) + SignedDuration::from_mins(1));
    bob.wait_for_text("what time is it?").await;
    assert_eq!(alice.wait_for_deliveries(id).await[0].state, DeliveryState::Delivered);
}
