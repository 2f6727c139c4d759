//! Rosters converge after lost, late and replayed messages.

use http::StatusCode;
use jiff::SignedDuration;
use serde_json::json;
use switchboard_core::DeliveryState;
use switchboard_sys::clock::Clock;

use super::rig::{code, join_request};
use crate::error::SwarmError;
use crate::keys::SecretKey;
use crate::test_peer::{Forged, TestPeer, World};
use crate::timestamp;

/// A stored `member_left` message is replayed.
#[tokio::test(flavor = "multi_thread")]
async fn replayed_departure_spares_rejoined_member() {
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
    let content = json!({ "action": "member_left", "joined_at": timestamp::render(since) });
    let left = Forged::new(swarm, "bob", "", alice.now()).system(&content).signed(&key).value;
    assert_eq!(world.post(&alice, "message", &left).await.0, StatusCode::OK);
    assert_eq!(alice.members(), ["alice"]);
    // Times on the wire have milliseconds.
    while timestamp::render(alice.now()) == timestamp::render(since) {
        tokio::task::yield_now().await;
    }
    join().await;
    assert_eq!(world.post(&alice, "message", &left).await.0, StatusCode::OK, "it is known");
    assert_eq!(alice.members(), ["alice", "bob"]);
}

async fn three_members(world: &World) -> (TestPeer, TestPeer, TestPeer) {
    let (alice, bob, carol) = (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    alice.create("Research").await;
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    for peer in [&alice, &bob, &carol] {
        peer.wait_for_members(&["alice", "bob", "carol"]).await;
    }
    (alice, bob, carol)
}

/// Asserts that all hubs have the same members, epoch and master.
async fn assert_converged(peers: &[&TestPeer]) {
    let first = peers[0].swarm();
    for peer in peers {
        let same = || {
            let known = peer.swarm();
            (known.epoch, &known.master) == (first.epoch, &first.master)
                && known.members.keys().eq(first.members.keys())
        };
        peer.wait_until(&format!("{} agrees with {first:?}", peer.id), same).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejoined_member_reaches_offline_member() {
    let world = World::new();
    let (alice, bob, mut carol) = three_members(&world).await;
    carol.stop().await;
    bob.swarms.leave(None).await.unwrap();
    alice.wait_for_members(&["alice", "carol"]).await;
    bob.join(&alice.invite().await).await;
    carol.serve().await;
    // Both have messages for it; `member_left` is no longer one of them.
    for (peer, to) in [(&alice, "carol@research"), (&bob, "carol@research")] {
        let id = peer.send(peer.id.as_str(), to, &format!("{} is here", peer.id), None).await;
        peer.hub().deliveries().retry_peer_now(to.parse().unwrap()).await.unwrap();
        assert_eq!(peer.wait_for_deliveries(id).await[0].state, DeliveryState::Delivered);
    }
    carol.wait_for_members(&["alice", "bob", "carol"]).await;
    assert_converged(&[&alice, &bob, &carol]).await;
}

/// The master was offline when a member left, and still has it in its roster when it rejoins.
#[tokio::test(flavor = "multi_thread")]
async fn departure_unseen_by_master_allows_rejoin() {
    let world = World::new();
    let (mut alice, bob, carol) = three_members(&world).await;
    let link = alice.invite().await;
    alice.stop().await;
    bob.swarms.leave(None).await.unwrap();
    carol.wait_for_members(&["alice", "carol"]).await;
    // `member_left` may still arrive before that, or not at all.
    alice.serve().await;
    bob.join(&link).await;
    carol.wait_for_members(&["alice", "bob", "carol"]).await;
    alice.wait_for_members(&["alice", "bob", "carol"]).await;
}

/// A lost `member_left` message of a former member: the master has counted it.
#[tokio::test(flavor = "multi_thread")]
async fn lost_departure_is_relayed_by_master() {
    let world = World::new();
    let (alice, mut bob, mut carol) = three_members(&world).await;
    carol.stop().await;
    bob.swarms.leave(None).await.unwrap();
    alice.wait_for_members(&["alice", "carol"]).await;
    bob.stop().await;
    carol.serve().await;
    alice.send("alice", "carol@research", "by the way", None).await;
    alice.hub().deliveries().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    carol.wait_for_members(&["alice", "carol"]).await;
    assert_converged(&[&alice, &carol]).await;
}

/// The master leads until the asked member has answered: it admits and removes members.
#[tokio::test(flavor = "multi_thread")]
async fn master_leads_until_transfer_is_accepted() {
    let world = World::new();
    let (alice, bob, mut carol) = three_members(&world).await;
    let (dave, link) = (world.peer("dave").await, alice.invite().await);
    carol.stop().await;
    alice.swarms.transfer(None, "carol").await.unwrap();
    dave.join(&link).await;
    alice.swarms.kick(None, "dave", None).await.unwrap();
    bob.wait_for_members(&["alice", "bob", "carol"]).await;
    // After the cancellation it is as if no transfer was requested.
    assert_eq!(alice.swarms.cancel_transfer(None).await.unwrap().as_str(), "carol");
    assert!(alice.swarms.cancel_transfer(None).await.is_err());
    carol.serve().await;
    let mark = alice.send("alice", "carol@research", "never mind", None).await;
    alice.hub().deliveries().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    assert_eq!(alice.wait_for_deliveries(mark).await[0].state, DeliveryState::Delivered);
    assert_eq!(carol.swarm().master.as_str(), "alice");
    assert_converged(&[&alice, &bob, &carol]).await;

    // Asked again while it is offline, it leads with all changes in between.
    carol.stop().await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    alice.wait_until("bob leads", || alice.swarm().master.as_str() == "bob").await;
    bob.wait_until("bob leads", || bob.swarm().master.as_str() == "bob").await;
    bob.swarms.transfer(None, "carol").await.unwrap();
    dave.join(&bob.invite().await).await;
    carol.serve().await;
    bob.hub().deliveries().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    alice.hub().deliveries().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    for peer in [&alice, &bob, &carol, &dave] {
        peer.wait_until("carol leads", || peer.swarm().master.as_str() == "carol").await;
        peer.wait_for_members(&["alice", "bob", "carol", "dave"]).await;
    }
    assert_eq!(bob.swarm().handover, None);
    carol.swarms.kick(None, "dave", None).await.unwrap();
    alice.wait_for_members(&["alice", "bob", "carol"]).await;
    assert_converged(&[&carol, &alice, &bob]).await;
    let link = alice.swarms.invite(None, None, None).await;
    assert!(matches!(link, Err(SwarmError::NotMaster { .. })), "{link:?}");
}

/// A transfer request without an answer expires, and a later answer is ignored.
#[tokio::test(flavor = "multi_thread")]
async fn transfer_request_expires_after_a_day() {
    let world = World::new();
    let clock = Clock::manual(Clock::system().now());
    let alice = world.peer_at("alice", clock.clone(), |_| ()).await;
    let mut bob = world.peer("bob").await;
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    bob.stop().await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    let request_id = alice.swarm().handover.unwrap().asked.to_string();
    alice.swarms.expire_transfers(alice.now()).await;
    assert!(alice.swarm().handover.is_some(), "not before");
    let later = alice.now().checked_add(SignedDuration::from_hours(24)).unwrap();
    alice.swarms.expire_transfers(later).await;
    assert_eq!(alice.swarm().handover, None);
    alice
        .wait_for_message("a word of it", |message| message.body.contains("has not answered within a day"))
        .await;
    alice.swarms.complete_transfer(&alice.id, alice.swarm().swarm_id, &request_id).await.unwrap();
    assert_eq!(alice.swarm().master.as_str(), "alice");
}

/// A member that was offline while the role was transferred and the old master left is in a swarm that continues.
#[tokio::test(flavor = "multi_thread")]
async fn swarm_survives_transfer_unseen_by_member() {
    let world = World::new();
    let (alice, bob, mut carol) = three_members(&world).await;
    carol.stop().await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    alice.wait_until("bob leads", || alice.swarm().master.as_str() == "bob").await;
    alice.swarms.leave(None).await.unwrap();
    bob.wait_for_members(&["bob", "carol"]).await;
    carol.serve().await;
    for peer in [&alice, &bob] {
        peer.hub().deliveries().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    }
    carol.wait_until("bob leads", || carol.swarm().master.as_str() == "bob").await;
    carol.wait_for_members(&["bob", "carol"]).await;
    assert_eq!(carol.swarm().status, crate::model::MembershipStatus::Active);
    assert_converged(&[&bob, &carol]).await;
}

/// The announcement of a new master may be lost. A member that missed it asks the old master.
#[tokio::test(flavor = "multi_thread")]
async fn lost_master_change_is_resent_by_old_master() {
    let world = World::new();
    let (alice, bob, carol) = three_members(&world).await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    for peer in [&alice, &bob, &carol] {
        peer.wait_until("bob leads", || peer.swarm().master.as_str() == "bob").await;
    }
    let before = alice.id.clone();
    let forget = move |swarm: &mut crate::Swarm| {
        (swarm.master, swarm.epoch) = (before, swarm.epoch - 1);
        Ok(())
    };
    carol.swarms.edit_swarm(&carol.id.clone(), carol.swarm().swarm_id, forget).await.unwrap();
    bob.send("bob", "carol@research", "by the way", None).await;
    carol.wait_until("bob leads", || carol.swarm().master.as_str() == "bob").await;
    assert_converged(&[&bob, &carol, &alice]).await;
}

/// A member revokes its own invite, which the master has never seen.
#[tokio::test(flavor = "multi_thread")]
async fn member_revokes_invite_at_master() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    let settings = crate::SwarmSettings { allow_member_invite: true, ..<_>::default() };
    let swarm = alice.swarms.create(None, "Open", None, settings).await.unwrap().swarm_id;
    bob.join(&alice.invite().await).await;
    let made = bob.swarms.invite(None, Some(crate::INVITE_LIFETIME), None).await.unwrap();
    bob.swarms.revoke(None, &made.digest[..8]).await.unwrap();
    assert!(bob.swarms.revoke(None, "").await.is_err(), "nothing is no beginning");
    alice
        .wait_until("alice has heard", || alice.swarm().invites.get(&made.digest).is_some_and(|i| i.revoked))
        .await;
    let (key, endpoint) = (SecretKey::from_seed(&[9; 32]), "https://127.0.0.1:9/swarm");
    let request = join_request(&made.link.token, "dave", endpoint, &key, "alice", swarm, alice.now());
    assert_eq!(code(&world.post(&alice, "join", &request).await), (403, "INVALID_TOKEN"));
}
