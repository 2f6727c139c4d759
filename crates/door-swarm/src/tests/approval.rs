//! Approval, and endpoint changes, between hubs over real TLS.

use http::StatusCode;
use serde_json::json;
use switchboard_sys::clock::Clock;

use super::rig::code;
use crate::keys::SecretKey;
use crate::test_peer::{Forged, World};

/// Only the master whose key is in the invite can trigger a retry.
#[tokio::test(flavor = "multi_thread")]
async fn approval_reaches_candidate_at_once() {
    let world = World::new();
    // A manual clock: the candidate never retries by itself.
    let still = Clock::manual(Clock::system().now());
    let (alice, bob) = (world.peer("alice").await, world.peer_at("bob", still, |_| ()).await);
    let settings = crate::SwarmSettings { require_approval: true, ..<_>::default() };
    let swarm = alice.swarms.create(None, "Closed", None, settings).await.unwrap().swarm_id;
    let link = alice.invite().await;
    bob.swarms.join(None, &link, None).await.unwrap();
    let attempts = || bob.swarms.identities()[0].joining[&swarm].asked;
    assert_eq!(attempts(), 1);

    let content = json!({ "action": "join_approved", "agent_id": "bob" });
    let approved =
        |sender: &str| Forged::new(swarm, sender, "", bob.now()).system(&content).with("recipient", "bob");
    let forged = [
        approved("alice").signed(&SecretKey::from_seed(&[9; 32])),
        approved("mallory").signed(&alice.key()),
        approved("alice").with("recipient", "broadcast").signed(&alice.key()),
        approved("alice").system(&json!({ "action": "kicked" })).signed(&alice.key()),
    ];
    for message in forged {
        let answer = world.post(&bob, "message", &message.value).await;
        assert_eq!(code(&answer), (404, "SWARM_NOT_FOUND"), "{}", message.value);
    }
    let old = approved("alice").with("timestamp", "2026-01-01T00:00:00.000Z").signed(&alice.key());
    assert_eq!(world.post(&bob, "message", &old.value).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(attempts(), 1);

    alice.swarms.decide_join(None, "bob", true).await.unwrap();
    bob.wait_until("bob has joined", || !bob.swarms.swarms().is_empty()).await;
    assert_eq!(bob.members(), ["alice", "bob"]);
    bob.wait_for_message("a word of it", |message| message.body.contains("join_approved")).await;
    assert!(!alice.swarm().members[&bob.id].provisional);
}

/// A join request whose endpoint was changed after signing is no proof.
#[tokio::test(flavor = "multi_thread")]
async fn altered_join_request_is_refused() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    let swarm = alice.create("Research").await.swarm_id;
    let link = alice.invite().await;
    bob.join(&link).await;
    bob.send("bob", "alice@research", "hello", None).await;
    alice.wait_for_text("hello").await;
    let (place, other) = ("https://127.0.0.1:9/swarm", "https://127.0.0.1:10/swarm");
    let plain = super::rig::join_request(&link.token, "bob", place, &bob.key(), "alice", swarm, alice.now());
    let answer = world.post(&alice, "join", &plain).await;
    assert_eq!(code(&answer), (403, "NOT_AUTHORIZED"), "it signs whole envelopes");
    let mut whole = plain.clone();
    let signature = crate::signing::sign_envelope(&bob.key(), &whole).unwrap();
    whole["metadata"] = json!({ "envelope_signature": signature });
    let mut altered = whole.clone();
    altered["sender"]["endpoint"] = other.into();
    let answer = world.post(&alice, "join", &altered).await;
    assert_eq!(code(&answer), (401, "INVALID_SIGNATURE"));
    assert_eq!(world.post(&alice, "join", &whole).await.0, StatusCode::OK);
    assert_eq!(alice.swarm().members[&bob.id].endpoint.to_string(), place);
}
