//! Setup for the attack tests.

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::keys::SecretKey;
use crate::test_peer::{Forged, TestPeer, World};

/// A master with one member that has no hub; the test has its key.
pub(super) async fn with_member(world: &World) -> (TestPeer, Uuid, SecretKey) {
    with_member_and(world, |_| ()).await
}

pub(super) async fn with_member_and(
    world: &World,
    configure: impl FnOnce(&mut crate::Config),
) -> (TestPeer, Uuid, SecretKey) {
    let alice = world.peer_with("alice", configure).await;
    let swarm = alice.create("Research").await.swarm_id;
    let key = SecretKey::from_seed(&[9; 32]);
    add_member(&alice, "mallory", &key).await;
    (alice, swarm, key)
}

/// Adds a member without a hub.
pub(super) async fn add_member(peer: &TestPeer, id: &str, key: &SecretKey) {
    let (id, key) = (crate::PeerId::parse(id).unwrap(), key.public());
    let endpoint = crate::Endpoint::parse("https://127.0.0.1:9/swarm").unwrap();
    let (now, swarm) = (peer.now(), peer.swarm().swarm_id);
    let change = move |swarm: &mut crate::Swarm| {
        swarm.insert_member(&id, endpoint, key, now);
        Ok(())
    };
    peer.swarms.edit_swarm(&peer.id.clone(), swarm, change).await.unwrap();
}

/// Returns status and code of an answer.
pub(super) fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["error"]["code"].as_str().unwrap_or_default())
}

/// Builds a join request that is signed with `key`.
pub(super) fn join_request(
    token: &str,
    id: &str,
    endpoint: &str,
    key: &SecretKey,
    master: &str,
    swarm: Uuid,
    now: jiff::Timestamp,
) -> Value {
    let message =
        Forged::new(swarm, id, token, now).with("recipient", master).with("type", "system").signed(key).value;
    json!({
        "type": "system", "action": "join_request", "invite_token": token,
        "sender": { "agent_id": id, "endpoint": endpoint, "public_key": key.public().to_wire() },
        "message_id": message["message_id"], "timestamp": message["timestamp"], "signature": message["signature"],
    })
}
