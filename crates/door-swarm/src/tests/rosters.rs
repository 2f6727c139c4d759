//! Rosters that agree in the end, whatever was missed, came late or was said again.

use http::StatusCode;
use serde_json::json;
use switchboard_core::DeliveryState;

use super::rig::{code, join_request};
use crate::error::SwarmError;
use crate::keys::SecretKey;
use crate::stamp;
use crate::test_peer::{Forged, TestPeer, World};

/// S3: a farewell that somebody has kept and sends again.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_farewell_is_nothing_to_whoever_came_back() {
    let world = World::new();
    let alice = world.peer("alice").await;
    let swarm = alice.create("Research").await.swarm_id;
    let (key, token) = (SecretKey::from_seed(&[9; 32]), alice.invite().await.token);
    let join = async || {
        let endpoint = "https://127.0.0.1:9/swarm";
        let request = join_request(&token, "bob", endpoint, &key, "alice", swarm, alice.now());
        assert_eq!(world.post(&alice, "join", &request).await.0, StatusCode::OK);
    };
    join().await;
    let since = alice.swarm().members[&crate::PeerId::parse("bob").unwrap()].joined_at;
    let content = json!({ "action": "member_left", "joined_at": stamp::render(since) });
    let left = Forged::new(swarm, "bob", "", alice.now()).system(&content).signed(&key).value;
    assert_eq!(world.post(&alice, "message", &left).await.0, StatusCode::OK);
    assert_eq!(alice.members(), ["alice"]);
    // The clock goes by milliseconds on the wire.
    while stamp::render(alice.now()) == stamp::render(since) {
        tokio::task::yield_now().await;
    }
    join().await;
    assert_eq!(world.post(&alice, "message", &left).await.0, StatusCode::OK, "it is known");
    assert_eq!(alice.members(), ["alice", "bob"]);
}

async fn three(world: &World) -> (TestPeer, TestPeer, TestPeer) {
    let (alice, bob, carol) = (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    alice.create("Research").await;
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    for peer in [&alice, &bob, &carol] {
        peer.knows(&["alice", "bob", "carol"]).await;
    }
    (alice, bob, carol)
}

/// All of them have the same members, count and master.
async fn agree(peers: &[&TestPeer]) {
    let first = peers[0].swarm();
    for peer in peers {
        let same = || {
            let known = peer.swarm();
            (known.epoch, &known.master) == (first.epoch, &first.master)
                && known.members.keys().eq(first.members.keys())
        };
        peer.until(&format!("{} agrees with {first:?}", peer.id), same).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_and_comes_back_is_there_for_one_who_was_away() {
    let world = World::new();
    let (alice, bob, mut carol) = three(&world).await;
    carol.stop().await;
    bob.swarms.leave(None).await.unwrap();
    alice.knows(&["alice", "carol"]).await;
    bob.join(&alice.invite().await).await;
    carol.serve().await;
    // Both have things to tell it; the farewell is no longer one of them.
    for (peer, to) in [(&alice, "carol@research"), (&bob, "carol@research")] {
        let id = peer.send(peer.id.as_str(), to, &format!("{} is here", peer.id), None).await;
        peer.hub().hurry(to.parse().unwrap()).await.unwrap();
        assert_eq!(peer.settled(id).await[0].state, DeliveryState::Delivered);
    }
    carol.knows(&["alice", "bob", "carol"]).await;
    agree(&[&alice, &bob, &carol]).await;
}

/// The master was away when somebody left, and has it in its roster when it asks to come back.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_left_without_the_master_comes_back_for_everybody() {
    let world = World::new();
    let (mut alice, bob, carol) = three(&world).await;
    let link = alice.invite().await;
    alice.stop().await;
    bob.swarms.leave(None).await.unwrap();
    carol.knows(&["alice", "carol"]).await;
    // The farewell may still arrive before that, or not at all.
    alice.serve().await;
    bob.join(&link).await;
    carol.knows(&["alice", "bob", "carol"]).await;
    alice.knows(&["alice", "bob", "carol"]).await;
}

/// A farewell that never arrived, from one who is gone: the master has counted it.
#[tokio::test(flavor = "multi_thread")]
async fn a_farewell_that_was_missed_is_learned_from_the_master() {
    let world = World::new();
    let (alice, mut bob, mut carol) = three(&world).await;
    carol.stop().await;
    bob.swarms.leave(None).await.unwrap();
    alice.knows(&["alice", "carol"]).await;
    bob.stop().await;
    carol.serve().await;
    alice.send("alice", "carol@research", "by the way", None).await;
    alice.hub().hurry("carol@research".parse().unwrap()).await.unwrap();
    carol.knows(&["alice", "carol"]).await;
    agree(&[&alice, &carol]).await;
}

/// Until the one who was asked to lead has answered, nobody can say whose roster counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_roster_stays_as_it_is_while_the_role_is_handed_over() {
    let world = World::new();
    let (alice, bob, mut carol) = three(&world).await;
    let (dave, link) = (world.peer("dave").await, alice.invite().await);
    carol.stop().await;
    alice.swarms.transfer(None, "carol").await.unwrap();
    let refused = dave.swarms.join(None, &link, None).await.unwrap_err();
    assert!(refused.is_temporary() && refused.to_string().contains("hands its role over"), "{refused}");
    for refused in [
        alice.swarms.kick(None, "bob", None).await.map(drop),
        alice.swarms.transfer(None, "bob").await.map(drop),
        alice.swarms.dissolve(None, None).await.map(drop),
    ] {
        assert!(matches!(refused, Err(SwarmError::HandingOver { .. })), "{refused:?}");
    }
    // Taken back, it is as if nobody had been asked.
    assert_eq!(alice.swarms.cancel_transfer(None).await.unwrap().as_str(), "carol");
    assert!(alice.swarms.cancel_transfer(None).await.is_err());
    dave.join(&link).await;
    carol.serve().await;
    let mark = alice.send("alice", "carol@research", "never mind", None).await;
    alice.hub().hurry("carol@research".parse().unwrap()).await.unwrap();
    assert_eq!(alice.settled(mark).await[0].state, DeliveryState::Delivered);
    assert_eq!(carol.swarm().master.as_str(), "alice");
    agree(&[&alice, &bob, &carol, &dave]).await;

    alice.swarms.transfer(None, "carol").await.unwrap();
    for peer in [&alice, &bob, &carol, &dave] {
        peer.until("carol leads", || peer.swarm().master.as_str() == "carol").await;
    }
    assert_eq!(alice.swarm().handover, None);
    carol.swarms.kick(None, "dave", None).await.unwrap();
    alice.knows(&["alice", "bob", "carol"]).await;
    agree(&[&carol, &alice, &bob]).await;
    let link = alice.swarms.invite(None, None, None).await;
    assert!(matches!(link, Err(SwarmError::NotMaster { .. })), "{link:?}");
}

/// A member takes its own invite back, of which the master has never heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_members_invite_is_taken_back_at_the_master() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    let settings = crate::SwarmSettings { allow_member_invite: true, ..<_>::default() };
    let swarm = alice.swarms.create(None, "Open", None, settings).await.unwrap().swarm_id;
    bob.join(&alice.invite().await).await;
    let made = bob.swarms.invite(None, Some(crate::INVITE_LIFETIME), None).await.unwrap();
    bob.swarms.revoke(None, &made.digest[..8]).await.unwrap();
    assert!(bob.swarms.revoke(None, "").await.is_err(), "nothing is no beginning");
    alice
        .until("alice has heard", || alice.swarm().invites.get(&made.digest).is_some_and(|i| i.revoked))
        .await;
    let (key, endpoint) = (SecretKey::from_seed(&[9; 32]), "https://127.0.0.1:9/swarm");
    let request = join_request(&made.link.token, "dave", endpoint, &key, "alice", swarm, alice.now());
    assert_eq!(code(&world.post(&alice, "join", &request).await), (403, "INVALID_TOKEN"));
}
