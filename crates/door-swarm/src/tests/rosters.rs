//! Rosters that agree in the end, whatever was missed, came late or was said again.

use http::StatusCode;
use jiff::SignedDuration;
use serde_json::json;
use switchboard_core::DeliveryState;
use switchboard_sys::clock::Clock;

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
        peer.hub().retry_peer_now(to.parse().unwrap()).await.unwrap();
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
    alice.hub().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    carol.knows(&["alice", "carol"]).await;
    agree(&[&alice, &carol]).await;
}

/// Until the one who was asked to lead has answered, the master leads: it lets others in and removes members.
#[tokio::test(flavor = "multi_thread")]
async fn the_master_leads_until_the_one_it_asked_has_answered() {
    let world = World::new();
    let (alice, bob, mut carol) = three(&world).await;
    let (dave, link) = (world.peer("dave").await, alice.invite().await);
    carol.stop().await;
    alice.swarms.transfer(None, "carol").await.unwrap();
    dave.join(&link).await;
    alice.swarms.kick(None, "dave", None).await.unwrap();
    bob.knows(&["alice", "bob", "carol"]).await;
    // Taken back, it is as if nobody had been asked.
    assert_eq!(alice.swarms.cancel_transfer(None).await.unwrap().as_str(), "carol");
    assert!(alice.swarms.cancel_transfer(None).await.is_err());
    carol.serve().await;
    let mark = alice.send("alice", "carol@research", "never mind", None).await;
    alice.hub().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    assert_eq!(alice.settled(mark).await[0].state, DeliveryState::Delivered);
    assert_eq!(carol.swarm().master.as_str(), "alice");
    agree(&[&alice, &bob, &carol]).await;

    // Asked again while it is away, it leads with everything that was changed meanwhile.
    carol.stop().await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    alice.until("bob leads", || alice.swarm().master.as_str() == "bob").await;
    bob.until("bob leads", || bob.swarm().master.as_str() == "bob").await;
    bob.swarms.transfer(None, "carol").await.unwrap();
    dave.join(&bob.invite().await).await;
    carol.serve().await;
    bob.hub().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    alice.hub().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    for peer in [&alice, &bob, &carol, &dave] {
        peer.until("carol leads", || peer.swarm().master.as_str() == "carol").await;
        peer.knows(&["alice", "bob", "carol", "dave"]).await;
    }
    assert_eq!(bob.swarm().handover, None);
    carol.swarms.kick(None, "dave", None).await.unwrap();
    alice.knows(&["alice", "bob", "carol"]).await;
    agree(&[&carol, &alice, &bob]).await;
    let link = alice.swarms.invite(None, None, None).await;
    assert!(matches!(link, Err(SwarmError::NotMaster { .. })), "{link:?}");
}

/// A question that nobody answers ends by itself, and an answer that comes after that is none.
#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_question_to_lead_ends_after_a_day() {
    let world = World::new();
    let clock = Clock::by_hand(Clock::system().now());
    let alice = world.peer_at("alice", clock.clone(), |_| ()).await;
    let mut bob = world.peer("bob").await;
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    bob.stop().await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    let asked = alice.swarm().handover.unwrap().asked.to_string();
    alice.swarms.end_unanswered(alice.now()).await;
    assert!(alice.swarm().handover.is_some(), "not before");
    let later = alice.now().checked_add(SignedDuration::from_hours(24)).unwrap();
    alice.swarms.end_unanswered(later).await;
    assert_eq!(alice.swarm().handover, None);
    alice.finds("a word of it", |message| message.body.contains("has not answered within a day")).await;
    alice.swarms.transferred(&alice.id, alice.swarm().swarm_id, &asked).await.unwrap();
    assert_eq!(alice.swarm().master.as_str(), "alice");
}

/// Whoever was away while the role went over and its old bearer left is in a swarm that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hands_over_and_leaves_ends_nothing_for_one_who_was_away() {
    let world = World::new();
    let (alice, bob, mut carol) = three(&world).await;
    carol.stop().await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    alice.until("bob leads", || alice.swarm().master.as_str() == "bob").await;
    alice.swarms.leave(None).await.unwrap();
    bob.knows(&["bob", "carol"]).await;
    carol.serve().await;
    for peer in [&alice, &bob] {
        peer.hub().retry_peer_now("carol@research".parse().unwrap()).await.unwrap();
    }
    carol.until("bob leads", || carol.swarm().master.as_str() == "bob").await;
    carol.knows(&["bob", "carol"]).await;
    assert_eq!(carol.swarm().standing, crate::ledger::Standing::Active);
    agree(&[&bob, &carol]).await;
}

/// The news that another leads may be lost for good. Whoever has missed it asks the one it takes for the master.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_master_that_was_missed_is_learned_from_the_old_one() {
    let world = World::new();
    let (alice, bob, carol) = three(&world).await;
    alice.swarms.transfer(None, "bob").await.unwrap();
    for peer in [&alice, &bob, &carol] {
        peer.until("bob leads", || peer.swarm().master.as_str() == "bob").await;
    }
    let before = alice.id.clone();
    let forget = move |swarm: &mut crate::Swarm| {
        (swarm.master, swarm.epoch) = (before, swarm.epoch - 1);
        Ok(())
    };
    carol.swarms.edit(&carol.id.clone(), carol.swarm().swarm_id, forget).await.unwrap();
    bob.send("bob", "carol@research", "by the way", None).await;
    carol.until("bob leads", || carol.swarm().master.as_str() == "bob").await;
    agree(&[&bob, &carol, &alice]).await;
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
