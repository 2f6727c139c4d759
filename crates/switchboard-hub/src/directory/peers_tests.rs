use switchboard_core::DeliveryState;

use super::*;
use crate::test_hub::{TestHub, name};

fn peer(text: &str) -> Peer {
    Peer { name: name(text), role: None }
}

#[tokio::test]
async fn members_of_a_swarm_are_reached_by_name_and_all_at_once() {
    let hub = TestHub::with(&["codex", "alice"]).await;
    let research = name("research");
    let told = vec![peer("alice"), peer("bob")];
    assert!(hub.hub.put_peers(research.clone(), told.clone()).await.expect("noted"));
    assert!(!hub.hub.put_peers(research.clone(), told).await.expect("noted"), "the same again is no news");

    let routes = |to: &'static str| {
        let hub = &hub;
        async move {
            let sent = hub.send("codex", to, "hello").await;
            sent.deliveries.iter().map(|delivery| delivery.route.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(routes("alice@research").await, ["peer:alice@research"]);
    assert_eq!(routes("alice").await, ["mailbox:alice"], "our own come first");
    assert_eq!(routes("all@research").await, ["peer:alice@research", "peer:bob@research"]);
    assert_eq!(routes("all").await, ["mailbox:alice", "mailbox:human"], "other owners are not everyone");
    let sent = hub.send("codex", "bob@research", "hello").await;
    assert_eq!(hub.state(sent.id).await, DeliveryState::Queued);

    assert!(hub.hub.put_peers(research, vec![peer("alice")]).await.expect("noted"));
    let gone = hub.hub.submit(hub.draft("codex", "bob@research", "hello")).await;
    assert!(gone.is_err(), "{gone:?}");
}

#[tokio::test]
async fn what_a_peer_has_not_got_is_told_in_order_and_hurried() {
    let hub = TestHub::with(&["codex"]).await;
    hub.hub.put_peers(name("research"), vec![peer("alice"), peer("bob")]).await.expect("noted");
    let mut door = hub.hub.open_door(switchboard_core::Door::Swarm).await.expect("opened");
    let (alice, bob) =
        (crate::test_hub::agent_id("alice@research"), crate::test_hub::agent_id("bob@research"));
    let first = hub.send("codex", "alice@research", "one").await;
    hub.send("codex", "alice@research", "two").await;
    assert_eq!(hub.hub.first_unsent(alice.clone()).await.expect("read"), Some(first.seq));
    assert_eq!(hub.hub.first_unsent(bob).await.expect("read"), None);
    let away = switchboard_core::Outcome::Unreachable { reason: "away".into() };
    for handoff in crate::test_hub::soon(door.next(2)).await {
        handoff.report(away.clone()).await.expect("reported");
    }
    assert!(matches!(hub.state(first.id).await, DeliveryState::Failed { .. }));
    hub.hub.hurry(alice.clone()).await.expect("hurried");
    let again = crate::test_hub::soon(door.next(1)).await;
    assert_eq!(again[0].message.body, "one", "due at once, by a clock that stands still, in its order");
}
