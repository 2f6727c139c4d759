//! Recovery after an interruption, with an old file, or without a key.

use crate::keys::SecretKey;
use crate::model::MembershipStatus;
use crate::operations::ImportMode;
use crate::roster::prove_key;
use crate::test_peer::{TestPeer, World};

async fn two_members(world: &World) -> (TestPeer, TestPeer) {
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    (alice, bob)
}

/// The file is written after the store, so an old one restores no ended membership.
#[tokio::test(flavor = "multi_thread")]
async fn old_state_file_restores_no_swarm() {
    let world = World::new();
    for status in [MembershipStatus::Left, MembershipStatus::Kicked, MembershipStatus::Dissolved] {
        let (alice, bob) = two_members(&world).await;
        bob.swarms.mute_agent(None, "alice", true).await.unwrap();
        let old = std::fs::read(bob.home().join("state.json")).unwrap();
        bob.swarms.mute_agent(None, "alice", false).await.unwrap();
        let end = move |swarm: &mut crate::Swarm| {
            swarm.status = status;
            Ok(())
        };
        bob.swarms.edit_swarm(&bob.id.clone(), alice.swarm().swarm_id, end).await.unwrap();
        test_support::files::put(bob.home().join("state.json"), &old);
        let bob = bob.restart().await;
        assert_eq!(bob.swarm().status, status);
        assert!(bob.swarms.identity(None).unwrap().muted_agents.is_empty(), "nor a mute");
    }
}

/// The roster of an older export is requested again, and its keys are not trusted.
#[tokio::test(flavor = "multi_thread")]
async fn older_export_gets_current_roster() {
    let world = World::new();
    let (alice, bob) = two_members(&world).await;
    let old = bob.swarms.export(None).unwrap().to_bytes();
    let carol = world.peer("carol").await;
    carol.join(&alice.invite().await).await;
    let new = alice.swarms.rotate_key(None).await.unwrap().key;
    bob.swarms.rotate_key(None).await.unwrap();
    bob.wait_until("bob has the key", || bob.swarm().members[&alice.id].public_key == new).await;
    bob.wait_for_members(&["alice", "bob", "carol"]).await;
    assert_eq!(bob.swarms.import(None, &old, ImportMode::Replace, &[]).await.unwrap().swarms, 1);
    assert_eq!(bob.swarm().members[&alice.id].public_key, new);
    assert_eq!(bob.swarm().members[&bob.id].public_key, bob.key().public());
    alice.send("alice", "bob@research", "by the way", None).await;
    bob.wait_for_members(&["alice", "bob", "carol"]).await;
    assert_eq!(bob.swarm().epoch, alice.swarm().epoch);
}

/// Killed after the announcement of the new key and before the key file was replaced.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_key_rotation_is_finished() {
    let world = World::new();
    for is_swapped in [false, true] {
        let (alice, mut bob) = two_members(&world).await;
        bob.stop().await;
        let (old, new) = (bob.key(), SecretKey::from_seed(&[77; 32]));
        let folder = switchboard_sys::files::Dir::open_root(&bob.home()).unwrap();
        new.replace(&folder, "agent.key.next").unwrap();
        if is_swapped {
            let former = format!("agent.key.{}", old.public().fingerprint().replace(':', ""));
            old.replace(&folder, &former).unwrap();
            new.replace(&folder, "agent.key").unwrap();
        }
        let (me, key, former) = (bob.id.clone(), new.public(), old.public());
        let proof = prove_key(&new, alice.swarm().swarm_id, &bob.id);
        let tell = move |swarm: &mut crate::Swarm| {
            let content = crate::wire::SystemContent {
                agent_id: Some(me.to_string()),
                public_key: Some(key.to_wire()),
                old_key: Some(former.to_wire()),
                proof: Some(proof),
                ..crate::wire::SystemContent::new("key_rotated")
            };
            swarm.announce(uuid::Uuid::new_v4(), None, content.to_text());
            swarm.members.get_mut(&me).unwrap().public_key = key;
            Ok(())
        };
        bob.swarms.edit_swarm(&bob.id.clone(), alice.swarm().swarm_id, tell).await.unwrap();
        let issues = bob.swarms.health_issues().await.unwrap();
        assert!(issues.iter().any(|ailment| ailment.message.contains("was interrupted")), "{issues:?}");
        let bob = bob.restart().await;
        assert_eq!(bob.swarms.identity(None).unwrap().public_key, new.public());
        assert_eq!(bob.swarms.health_issues().await.unwrap(), []);
        bob.send("bob", "alice@research", "still here", None).await;
        alice.wait_for_text("still here").await;
        assert_eq!(alice.swarm().members[&bob.id].public_key, new.public());
    }
}

/// A lost key cannot sign for its successor; other owners accept the new key by their own decision.
#[tokio::test(flavor = "multi_thread")]
async fn lost_key_can_be_replaced() {
    let world = World::new();
    let (alice, mut bob) = two_members(&world).await;
    std::fs::remove_file(bob.home().join("agent.key")).unwrap();
    let rotated = bob.swarms.rotate_key(None).await.unwrap();
    assert!(rotated.was_lost);
    bob.stop().await;
    let bob = bob.restart().await;
    let offered = rotated.key.clone();
    bob.send("bob", "alice@research", "it is me", None).await;
    alice
        .wait_until("alice sees another key", || {
            alice.swarm().members[&bob.id].offered_key.as_ref() == Some(&offered)
        })
        .await;
    alice.swarms.accept_key(None, "bob", None).await.unwrap();
    bob.hub().deliveries().retry_peer_now("alice@research".parse().unwrap()).await.unwrap();
    alice.wait_for_text("it is me").await;
}

/// Open invites are signed with the old key, so a rotation revokes them and reports it.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_revokes_open_invites() {
    let world = World::new();
    let (alice, _bob) = two_members(&world).await;
    alice.invite().await;
    let rotated = alice.swarms.rotate_key(None).await.unwrap();
    assert!(!rotated.was_lost);
    assert_eq!(rotated.ended_invites, alice.swarm().invites.len());
    assert!(alice.swarm().invites.values().all(|invite| invite.revoked));
    let carol = world.peer("carol").await;
    carol.join(&alice.invite().await).await;
}
