//! What an interruption, an old file or a lost key leaves behind.

use crate::keys::SecretKey;
use crate::ledger::Standing;
use crate::operations::Merge;
use crate::roster::prove_key;
use crate::test_peer::{TestPeer, World};

async fn two(world: &World) -> (TestPeer, TestPeer) {
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    (alice, bob)
}

/// The file is written after the ledger: one from before brings nothing back that is over.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_state_file_brings_no_swarm_back() {
    let world = World::new();
    for standing in [Standing::Left, Standing::Kicked, Standing::Dissolved] {
        let (alice, bob) = two(&world).await;
        bob.swarms.mute_agent(None, "alice", true).await.unwrap();
        let old = std::fs::read(bob.home().join("state.json")).unwrap();
        bob.swarms.mute_agent(None, "alice", false).await.unwrap();
        let end = move |swarm: &mut crate::Swarm| {
            swarm.standing = standing;
            Ok(())
        };
        bob.swarms.edit(&bob.id.clone(), alice.swarm().swarm_id, end).await.unwrap();
        test_support::files::put(bob.home().join("state.json"), &old);
        let bob = bob.restart().await;
        assert_eq!(bob.swarm().standing, standing);
        assert!(bob.swarms.identity(None).unwrap().muted_agents.is_empty(), "nor a mute");
    }
}

/// What an older export says of the roster is asked for again, and of keys is not believed.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_export_is_followed_by_the_roster_of_now() {
    let world = World::new();
    let (alice, bob) = two(&world).await;
    let old = bob.swarms.export(None).unwrap().to_bytes();
    let carol = world.peer("carol").await;
    carol.join(&alice.invite().await).await;
    let new = alice.swarms.rotate_key(None).await.unwrap().key;
    bob.swarms.rotate_key(None).await.unwrap();
    bob.until("bob has the key", || bob.swarm().members[&alice.id].public_key == new).await;
    bob.knows(&["alice", "bob", "carol"]).await;
    assert_eq!(bob.swarms.import(None, &old, Merge::Replace, &[]).await.unwrap().swarms, 1);
    assert_eq!(bob.swarm().members[&alice.id].public_key, new);
    assert_eq!(bob.swarm().members[&bob.id].public_key, bob.key().public());
    alice.send("alice", "bob@research", "by the way", None).await;
    bob.knows(&["alice", "bob", "carol"]).await;
    assert_eq!(bob.swarm().epoch, alice.swarm().epoch);
}

/// Killed after the swarm was told of the new key and before the key was in its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_key_that_was_interrupted_is_finished() {
    let world = World::new();
    for is_swapped in [false, true] {
        let (alice, mut bob) = two(&world).await;
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
        bob.swarms.edit(&bob.id.clone(), alice.swarm().swarm_id, tell).await.unwrap();
        let told = bob.swarms.ailments().await.unwrap();
        assert!(told.iter().any(|ailment| ailment.message.contains("was interrupted")), "{told:?}");
        let bob = bob.restart().await;
        assert_eq!(bob.swarms.identity(None).unwrap().public_key, new.public());
        assert_eq!(bob.swarms.ailments().await.unwrap(), []);
        bob.send("bob", "alice@research", "still here", None).await;
        alice.gets("still here").await;
        assert_eq!(alice.swarm().members[&bob.id].public_key, new.public());
    }
}

/// A key that is gone cannot sign for its successor; others accept that one on their own word.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_lost_has_a_way_out() {
    let world = World::new();
    let (alice, mut bob) = two(&world).await;
    std::fs::remove_file(bob.home().join("agent.key")).unwrap();
    let rotated = bob.swarms.rotate_key(None).await.unwrap();
    assert!(rotated.was_lost);
    bob.stop().await;
    let bob = bob.restart().await;
    let offered = rotated.key.clone();
    bob.send("bob", "alice@research", "it is me", None).await;
    alice
        .until("alice sees another key", || {
            alice.swarm().members[&bob.id].offered_key.as_ref() == Some(&offered)
        })
        .await;
    alice.swarms.accept_key(None, "bob", None).await.unwrap();
    bob.hub().retry_peer_now("alice@research".parse().unwrap()).await.unwrap();
    alice.gets("it is me").await;
}

/// Open invites are signed with the key before, so a new one ends them, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_ends_open_invites() {
    let world = World::new();
    let (alice, _bob) = two(&world).await;
    alice.invite().await;
    let rotated = alice.swarms.rotate_key(None).await.unwrap();
    assert!(!rotated.was_lost);
    assert_eq!(rotated.ended_invites, alice.swarm().invites.len());
    assert!(alice.swarm().invites.values().all(|invite| invite.revoked));
    let carol = world.peer("carol").await;
    carol.join(&alice.invite().await).await;
}
