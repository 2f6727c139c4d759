use switchboard_core::DeliveryState;

use super::*;
use crate::test_hub::{TestHub, name};

fn peer(text: &str) -> Peer {
    Peer { name: name(text), role: None }
}

#[tokio::test]
async fn swarm_members_are_reached_singly_and_together() {
    let hub = TestHub::with(&["codex", "alice"]).await;
    let research = name("research");
    let peers = vec![peer("alice"), peer("bob")];
    assert!(hub.hub.agents().put_peers(research.clone(), Some(peers.clone())).await.expect("noted"));
    assert!(
        !hub.hub.agents().put_peers(research.clone(), Some(peers)).await.expect("noted"),
        "the same again is no news"
    );

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

    assert!(hub.hub.agents().put_peers(research, Some(vec![peer("alice")])).await.expect("noted"));
    let gone = hub.hub.submit(hub.draft("codex", "bob@research", "hello")).await;
    assert!(gone.is_err(), "{gone:?}");
}

#[tokio::test]
async fn swarm_without_others_is_known() {
    let hub = TestHub::with(&["codex"]).await;
    let research = name("Research");
    for (peers, is_known) in [(Some(Vec::new()), true), (None, false)] {
        assert!(hub.hub.agents().put_peers(research.clone(), peers.clone()).await.expect("noted"));
        assert!(!hub.hub.agents().put_peers(name("research"), peers).await.expect("noted"), "the same again");
        assert_eq!(hub.hub.directory().await.expect("read").has_realm(&name("research")), is_known);
    }
}

#[tokio::test]
async fn undelivered_messages_to_peer_retry_in_order() {
    let hub = TestHub::with(&["codex"]).await;
    hub.hub
        .agents()
        .put_peers(name("research"), Some(vec![peer("alice"), peer("bob")]))
        .await
        .expect("noted");
    let mut door = hub.hub.deliveries().open_door(switchboard_core::Door::Swarm).await.expect("opened");
    let (alice, bob) =
        (crate::test_hub::agent_id("alice@research"), crate::test_hub::agent_id("bob@research"));
    let first = hub.send("codex", "alice@research", "one").await;
    hub.send("codex", "alice@research", "two").await;
    assert_eq!(hub.hub.deliveries().first_unsent(alice.clone()).await.expect("read"), Some(first.seq));
    assert_eq!(hub.hub.deliveries().first_unsent(bob).await.expect("read"), None);
    let away = switchboard_core::Outcome::Unreachable { reason: "away".into() };
    for handoff in crate::test_hub::with_timeout(door.next(2)).await {
        handoff.report(away.clone()).await.expect("reported");
    }
    assert!(matches!(hub.state(first.id).await, DeliveryState::Failed { .. }));
    hub.hub.deliveries().retry_peer_now(alice.clone()).await.expect("hurried");
    let again = crate::test_hub::with_timeout(door.next(1)).await;
    assert_eq!(again[0].message.body, "one", "due at once, by a clock that stands still, in its order");
}

/// The queue view has the column names of the protocol.
#[tokio::test]
async fn message_of_peer_is_in_protocol_queue() {
    let hub = TestHub::with(&["codex"]).await;
    let mut draft = hub.draft("alice@research", "codex", "hello");
    draft.native = switchboard_core::NativeId {
        door: switchboard_core::Door::Swarm,
        scope: "550e8400-e29b-41d4-a716-446655440000 alice codex".to_owned(),
        id: "660e8400-e29b-41d4-a716-446655440001".to_owned(),
    };
    draft.native_is_id = false;
    draft.metadata.insert("swarm.type".to_owned(), "notification".into());
    hub.hub.submit(draft).await.expect("accepted");
    let row: (String, String, String, String, String, String, String) = hub
        .sql()
        .query_row(
            "SELECT message_id, swarm_id, sender_id, type, content, received_at, status FROM message_queue",
            [],
            |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                    row.get(5)?,
                    row.get(6)?,
                ))
            },
        )
        .expect("one row");
    assert_eq!(row.0, "660e8400-e29b-41d4-a716-446655440001");
    assert_eq!(row.1, "550e8400-e29b-41d4-a716-446655440000");
    assert_eq!((row.2.as_str(), row.3.as_str(), row.4.as_str()), ("alice", "notification", "hello"));
    assert!(row.5.ends_with('Z') && row.5.contains('T'), "{}", row.5);
    assert_eq!(row.6, "pending");
}
