//! The life of a swarm: three hubs, from the first invite to the last word.

use switchboard_core::DeliveryState;

use crate::ledger::Standing;
use crate::test_peer::{World, agent};

#[tokio::test(flavor = "multi_thread")]
async fn three_hubs_meet_talk_and_part() {
    let world = World::new();
    let (alice, bob, carol) = (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    let created = alice.create("Research").await;
    assert_eq!(created.realm.as_str(), "research");
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    for peer in [&alice, &bob, &carol] {
        peer.knows(&["alice", "bob", "carol"]).await;
    }

    // A broadcast from any door reaches all of them once.
    alice.register("codex").await;
    let id = alice.send("codex", "all@research", "good morning", None).await;
    let deliveries = alice.settled(id).await;
    assert!(deliveries.iter().all(|d| d.state == DeliveryState::Delivered), "{deliveries:?}");
    assert_eq!(deliveries.len(), 2);
    let got = bob.gets("good morning").await.message;
    assert_eq!((got.from.clone(), got.to.clone()), (agent("alice@research"), agent("bob").into()));
    assert!(got.origin.verified);
    assert_eq!(got.kind.as_str(), "delegate_task");
    carol.gets("good morning").await;

    // A direct message, and the reply to whoever of the other hub wrote it.
    let id = alice.send("codex", "bob@research", "can you look?", None).await;
    let asked = bob.gets("can you look?").await.message;
    let reply = bob.send("bob", "alice@research", "I looked", Some(asked.id)).await;
    assert_eq!(bob.settled(reply).await[0].state, DeliveryState::Delivered);
    let answer = alice.gets("I looked").await.message;
    assert_eq!((answer.to.clone(), answer.in_reply_to), (agent("codex").into(), Some(id)));
    assert_eq!(carol.count("can you look?").await, 0);

    // A kick: the kicked one is told, and may not come back with the same invite.
    alice.swarms.kick(None, "carol", Some("a \"quoted\" reason")).await.unwrap();
    carol.until("carol is out", || carol.swarm().standing == Standing::Kicked).await;
    bob.knows(&["alice", "bob"]).await;
    let refused = carol.swarms.join(None, &link, None).await.unwrap_err();
    assert!(refused.to_string().contains("removed from the swarm"), "{refused}");
    carol.join(&alice.invite().await).await;
    bob.knows(&["alice", "bob", "carol"]).await;

    // The role goes over, and what the old master says no longer counts.
    alice.swarms.transfer(None, "bob").await.unwrap();
    for peer in [&alice, &bob, &carol] {
        peer.until("bob leads", || peer.swarm().master.as_str() == "bob").await;
    }
    assert!(alice.swarms.kick(None, "carol", None).await.is_err());
    carol.swarms.leave(None).await.unwrap();
    alice.knows(&["alice", "bob"]).await;
    bob.knows(&["alice", "bob"]).await;
    bob.swarms.dissolve(None, None).await.unwrap();
    alice.until("it is over", || alice.swarm().standing == Standing::Dissolved).await;
}
