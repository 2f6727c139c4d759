//! The life cycle of a swarm: three hubs, from the first invite to the dissolution.

use switchboard_core::DeliveryState;

use crate::model::MembershipStatus;
use crate::test_peer::{World, agent};

#[tokio::test(flavor = "multi_thread")]
async fn swarm_life_cycle_of_three_hubs() {
    let world = World::new();
    let (alice, bob, carol) = (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    let created = alice.create("Research").await;
    assert_eq!(created.realm.as_str(), "research");
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    for peer in [&alice, &bob, &carol] {
        peer.wait_for_members(&["alice", "bob", "carol"]).await;
    }

    // A broadcast from any door reaches each member once.
    alice.register("codex").await;
    let id = alice.send("codex", "all@research", "good morning", None).await;
    let deliveries = alice.wait_for_deliveries(id).await;
    assert!(deliveries.iter().all(|d| d.state == DeliveryState::Delivered), "{deliveries:?}");
    assert_eq!(deliveries.len(), 2);
    let got = bob.wait_for_text("good morning").await.message;
    assert_eq!((got.from.clone(), got.to.clone()), (agent("alice@research"), agent("bob").into()));
    assert!(got.origin.verified);
    assert_eq!(got.kind.as_str(), "delegate_task");
    carol.wait_for_text("good morning").await;

    // A direct message, and a reply to the agent of the other hub that sent it.
    let id = alice.send("codex", "bob@research", "can you look?", None).await;
    let question = bob.wait_for_text("can you look?").await.message;
    let reply = bob.send("bob", "alice@research", "I looked", Some(question.id)).await;
    assert_eq!(bob.wait_for_deliveries(reply).await[0].state, DeliveryState::Delivered);
    let answer = alice.wait_for_text("I looked").await.message;
    assert_eq!((answer.to.clone(), answer.in_reply_to), (agent("codex").into(), Some(id)));
    assert_eq!(carol.count("can you look?").await, 0);

    // A kicked member is notified and cannot rejoin with the same invite.
    alice.swarms.kick(None, "carol", Some("a \"quoted\" reason")).await.unwrap();
    carol.wait_until("carol is out", || carol.swarm().status == MembershipStatus::Kicked).await;
    bob.wait_for_members(&["alice", "bob"]).await;
    let refused = carol.swarms.join(None, &link, None).await.unwrap_err();
    assert!(refused.to_string().contains("removed from the swarm"), "{refused}");
    carol.join(&alice.invite().await).await;
    bob.wait_for_members(&["alice", "bob", "carol"]).await;

    // After the transfer of the master role, messages of the old master no longer count.
    alice.swarms.transfer(None, "bob").await.unwrap();
    for peer in [&alice, &bob, &carol] {
        peer.wait_until("bob leads", || peer.swarm().master.as_str() == "bob").await;
    }
    assert!(alice.swarms.kick(None, "carol", None).await.is_err());
    carol.swarms.leave(None).await.unwrap();
    alice.wait_for_members(&["alice", "bob"]).await;
    bob.wait_for_members(&["alice", "bob"]).await;
    bob.swarms.dissolve(None, None).await.unwrap();
    alice.wait_until("it is over", || alice.swarm().status == MembershipStatus::Dissolved).await;
}
