//! Peers that were offline, have a new key or are restored from a file.

use http::StatusCode;
use switchboard_core::{Delivery, DeliveryState};
use switchboard_hub::HubEvent;
use switchboard_sys::clock::Clock;
use tokio::sync::broadcast::error::TryRecvError;

use crate::keys::SecretKey;
use crate::model::MembershipStatus;
use crate::test_peer::{Forged, TestPeer, World};

/// Alice, who leads a swarm, with Bob and Carol as members; Bob knows all three.
async fn three_members(world: &World) -> (TestPeer, TestPeer, TestPeer) {
    let (alice, bob, carol) = (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    alice.create("Research").await;
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    bob.wait_for_members(&["alice", "bob", "carol"]).await;
    (alice, bob, carol)
}

/// An offline peer gets all messages in order once it is back, and delays no other peer.
#[tokio::test(flavor = "multi_thread")]
async fn offline_peer_catches_up_in_order() {
    let world = World::new();
    let (alice, mut bob, carol) = three_members(&world).await;
    bob.stop().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(alice.send("alice", "all@research", &format!("news {n}"), None).await);
    }
    carol.wait_for_text("news 4").await;
    // The roster also changes while it is offline.
    alice.swarms.kick(None, "carol", None).await.unwrap();
    bob.serve().await;
    for id in ids {
        let states: Vec<_> =
            alice.wait_for_deliveries(id).await.iter().map(|delivery| delivery.state).collect();
        assert!(states.iter().all(|state| *state == DeliveryState::Delivered), "{states:?}");
    }
    bob.wait_for_text("news 4").await;
    let news: Vec<String> = bob
        .journal()
        .await
        .into_iter()
        .map(|stored| stored.message.body)
        .filter(|body| body.starts_with("news"))
        .collect();
    assert_eq!(news, ["news 0", "news 1", "news 2", "news 3", "news 4"]);
    bob.wait_for_members(&["alice", "bob"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_signed_by_old_key_applies() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    let old = bob.key().public();
    let new = bob.swarms.rotate_key(None).await.unwrap().key;
    assert_ne!(old, new);
    bob.send("bob", "alice@research", "with the new key", None).await;
    alice.wait_for_text("with the new key").await;
    let bob_id = bob.id.clone();
    alice.wait_until("alice has the new key", || alice.swarm().members[&bob_id].public_key == new).await;
    assert_eq!(std::fs::read(bob.home().join("agent.key")).unwrap().len(), 32);
    let forged = Forged::new(alice.swarm().swarm_id, "bob", "with the old key", alice.now())
        .signed(&SecretKey::from_seed(&[1; 32]));
    assert_eq!(world.post(&alice, "message", &forged.value).await.0, StatusCode::UNAUTHORIZED);
}

/// A peer that sends a message is online: its pending messages are delivered at once, ahead of the backoff.
#[tokio::test(flavor = "multi_thread")]
async fn sending_peer_gets_pending_messages() {
    let world = World::new();
    // A manual clock: nothing becomes due by itself.
    let clock = Clock::manual(Clock::system().now());
    let (alice, mut bob) = (world.peer_at("alice", clock, |_| ()).await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    bob.stop().await;
    let id = alice.send("alice", "bob@research", "are you there?", None).await;
    alice.delivery(id, "an attempt", |delivery| delivery.note.is_some()).await;
    bob.serve().await;
    bob.send("bob", "alice@research", "here I am", None).await;
    bob.wait_for_text("are you there?").await;
    assert_eq!(alice.wait_for_deliveries(id).await[0].state, DeliveryState::Delivered);
}

/// After a peer is back, each message of its backlog is attempted about once.
#[tokio::test(flavor = "multi_thread")]
async fn long_backlog_drains_with_few_attempts() {
    const BACKLOG: usize = 300;
    let world = World::new();
    // A manual clock: nothing becomes due by itself.
    let clock = Clock::manual(Clock::system().now());
    let no_limits = |config: &mut crate::Config| {
        (config.limits.per_sender, config.limits.per_swarm, config.limits.per_client) = (0, 0, 0);
    };
    let (alice, mut bob) =
        (world.peer_at("alice", clock, |_| ()).await, world.peer_with("bob", no_limits).await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    bob.stop().await;
    let mut last = alice.send("alice", "bob@research", "news 0", None).await;
    for n in 1..BACKLOG {
        last = alice.send("alice", "bob@research", &format!("news {n}"), None).await;
    }
    let is_waiting = |delivery: &Delivery| matches!(delivery.state, DeliveryState::Failed { .. });
    alice.delivery(last, "put off", is_waiting).await;
    bob.serve().await;
    let mut events = alice.hub().subscribe().await.unwrap();
    alice.hub().deliveries().retry_peer_now("bob@research".parse().unwrap()).await.unwrap();
    assert_eq!(alice.wait_for_deliveries(last).await[0].state, DeliveryState::Delivered);
    let mut put_off = 0;
    loop {
        match events.try_recv() {
            Ok(HubEvent::Delivery(delivery)) => put_off += usize::from(is_waiting(&delivery)),
            Ok(_) => {}
            // Thousands of events for these few messages.
            Err(TryRecvError::Lagged(missed)) => put_off += usize::try_from(missed).unwrap(),
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    assert!(put_off < BACKLOG, "{put_off} times a message was taken up and put back");
    let heard = bob.journal().await.into_iter().map(|stored| stored.message.body);
    let expected: Vec<String> = (0..BACKLOG).map(|n| format!("news {n}")).collect();
    assert_eq!(heard.filter(|body| body.starts_with("news")).collect::<Vec<_>>(), expected);
}

/// Messages from before a rotation are signed with the old key, and no alarm is raised.
#[tokio::test(flavor = "multi_thread")]
async fn offline_peer_survives_key_rotation() {
    let world = World::new();
    let (_alice, mut bob, carol) = three_members(&world).await;
    bob.stop().await;
    carol.send("carol", "bob@research", "before", None).await;
    carol.swarms.rotate_key(None).await.unwrap();
    carol.send("carol", "bob@research", "between", None).await;
    carol.swarms.rotate_key(None).await.unwrap();
    let last = carol.send("carol", "bob@research", "after", None).await;
    // After a long time offline, an "unknown sender" answer is final.
    let is_waiting = |delivery: &Delivery| matches!(delivery.state, DeliveryState::Failed { .. });
    carol.delivery(last, "put off", is_waiting).await;
    bob.serve().await;
    carol.hub().deliveries().retry_peer_now("bob@research".parse().unwrap()).await.unwrap();
    bob.wait_for_text("after").await;
    let heard: Vec<String> = bob.journal().await.into_iter().map(|stored| stored.message.body).collect();
    let words: Vec<&str> = heard
        .iter()
        .map(String::as_str)
        .filter(|body| matches!(*body, "before" | "between" | "after"))
        .collect();
    assert_eq!(words, ["before", "between", "after"]);
    assert_eq!(bob.swarm().members[&carol.id].public_key, carol.key().public());
    assert_eq!(bob.swarms.health_issues().await.unwrap(), [], "nobody has to compare keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_file_restores_swarms_on_new_hub() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    let path = bob.home().join("state.json");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(bob.home()).unwrap().permissions().mode() & 0o777, 0o700);
    let state = crate::MembershipState::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(state.swarms.values().next().unwrap().members.len(), 2);
    let exported = bob.swarms.export(None).unwrap();
    assert!(exported.exported_at.is_some());
    let text = String::from_utf8(exported.to_bytes()).unwrap();
    let seed = std::fs::read(bob.home().join("agent.key")).unwrap();
    assert!(!text.contains(&crate::encode_base64(&seed)), "S21: no private key in it");
    // Imported by a hub that has nothing but the key.
    let id = alice.swarm().swarm_id;
    bob.swarms
        .edit_swarm(&bob.id.clone(), id, |swarm| {
            swarm.status = MembershipStatus::Left;
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(
        bob.swarms.import(None, text.as_bytes(), crate::ImportMode::Add, &[]).await.unwrap().swarms,
        1
    );
    assert_eq!(bob.members(), ["alice", "bob"]);
    bob.send("bob", "alice@research", "back again", None).await;
    alice.wait_for_text("back again").await;
}

/// A member that missed an update requests the full roster from the master.
#[tokio::test(flavor = "multi_thread")]
async fn outdated_roster_is_requested() {
    let world = World::new();
    let (alice, bob, carol) = three_members(&world).await;
    let (id, lost) = (alice.swarm().swarm_id, carol.id.clone());
    let forget = move |swarm: &mut crate::Swarm| {
        swarm.members.remove(&lost);
        swarm.epoch -= 1;
        Ok(())
    };
    bob.swarms.edit_swarm(&bob.id.clone(), id, forget).await.unwrap();
    alice.send("alice", "bob@research", "by the way", None).await;
    bob.wait_for_members(&["alice", "bob", "carol"]).await;
    assert_eq!(bob.swarm().epoch, alice.swarm().epoch);
}

/// A roster of long ids exceeds the request limit. It is sent in parts, and in one piece to a new member.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_roster_is_sent_in_parts() {
    let world = World::new();
    let (alice, bob, _carol) = three_members(&world).await;
    let (dave, link) = (world.peer("dave").await, alice.invite().await);
    let now = alice.now();
    let grow = move |swarm: &mut crate::Swarm| {
        for n in 0_u16..700 {
            let mut seed = [7; 32];
            seed[..2].copy_from_slice(&n.to_be_bytes());
            let id = crate::PeerId::parse(&format!("{n:04}{}", "x".repeat(124))).unwrap();
            let endpoint = format!("https://127.0.0.1:9/{}", "p".repeat(120));
            let endpoint = crate::Endpoint::parse(&endpoint).unwrap();
            swarm.insert_member(&id, endpoint, SecretKey::from_seed(&seed).public(), now);
        }
        swarm.epoch += 1;
        Ok(())
    };
    alice.swarms.edit_swarm(&alice.id.clone(), alice.swarm().swarm_id, grow).await.unwrap();
    let roster = serde_json::to_vec(&alice.swarm().roster()).unwrap();
    assert!(roster.len() > alice.swarms.config().limits.body, "{} bytes", roster.len());
    alice.send("alice", "bob@research", "by the way", None).await;
    bob.wait_until("bob knows everybody", || bob.swarm().members.len() == 703).await;
    bob.wait_until("bob has counted", || bob.swarm().epoch == alice.swarm().epoch).await;
    dave.join(&link).await;
    assert!(dave.swarm().members.keys().eq(alice.swarm().members.keys()));
    assert_eq!(dave.swarm().members.len(), 704);
}

/// A member that was offline may get a message from a new member before the announcement, and that ends no delivery.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_new_member_is_retried() {
    let world = World::new();
    let (mut alice, _bob, mut carol) = three_members(&world).await;
    let (dave, to) = (world.peer("dave").await, "carol@research");
    carol.stop().await;
    dave.join(&alice.invite().await).await;
    alice.stop().await;
    let id = dave.send("dave", to, "nice to meet you", None).await;
    for attempts in 1..10 {
        let has_failed =
            |d: &Delivery| d.attempts >= attempts && matches!(d.state, DeliveryState::Failed { .. });
        dave.delivery(id, "another attempt", has_failed).await;
        dave.hub().deliveries().retry_peer_now(to.parse().unwrap()).await.unwrap();
    }
    carol.serve().await;
    dave.hub().deliveries().retry_peer_now(to.parse().unwrap()).await.unwrap();
    let unknown = |note: &String| note.contains("the sender is not a member");
    let delivery = dave.delivery(id, "an answer", |d| d.note.as_ref().is_some_and(unknown)).await;
    assert!(delivery.state.is_pending(), "{:?}", delivery.state);
    alice.serve().await;
    alice.hub().deliveries().retry_peer_now(to.parse().unwrap()).await.unwrap();
    carol.wait_for_members(&["alice", "bob", "carol", "dave"]).await;
    dave.hub().deliveries().retry_peer_now(to.parse().unwrap()).await.unwrap();
    carol.wait_for_text("nice to meet you").await;
}

/// A master without keys has announced a member that is not online yet.
#[tokio::test(flavor = "multi_thread")]
async fn missing_key_is_requested_until_answered() {
    let world = World::new();
    let (alice, swarm, key) = super::rig::with_member(&world).await;
    let mut dave = world.peer("dave").await;
    dave.stop().await;
    let lead = |swarm: &mut crate::Swarm| {
        swarm.master = crate::PeerId::parse("mallory").unwrap();
        Ok(())
    };
    alice.swarms.edit_swarm(&alice.id.clone(), swarm, lead).await.unwrap();
    let content = serde_json::json!({ "type": "system", "action": "member_joined", "agent_id": "dave",
        "endpoint": dave.url("").trim_end_matches('/') });
    let message = Forged::new(swarm, "mallory", "", alice.now()).system(&content).signed(&key);
    assert_eq!(world.post(&alice, "message", &message.value).await.0, StatusCode::OK);
    let is_requested = || alice.swarm().announced.get(&dave.id).is_some_and(|dave| dave.asked == 1);
    alice.wait_until("dave was asked in vain", is_requested).await;
    dave.serve().await;
    alice.swarms.fetch_missing_keys(8, alice.now()).await;
    assert_eq!(alice.members(), ["alice", "mallory"], "not so soon");
    let later = alice.now().checked_add(jiff::SignedDuration::from_mins(2)).unwrap();
    alice.swarms.fetch_missing_keys(8, later).await;
    assert_eq!(alice.members(), ["alice", "dave", "mallory"]);
    assert!(alice.swarm().announced.is_empty());
}
