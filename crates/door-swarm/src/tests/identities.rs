//! Several agents of one hub, each with its own endpoint, key and swarms.

use http::{HeaderMap, StatusCode};
use switchboard_core::{DeliveryState, Message};
use switchboard_https::{Limits, Url};

use super::rig::code;
use crate::error::SwarmError;
use crate::join_client::JoinOutcome;
use crate::test_peer::{Forged, TestPeer, World, agent, with_timeout};

/// Fetches the agent id of `/info` below a path.
async fn fetch_agent_id(world: &World, peer: &TestPeer, path: &str) -> Option<String> {
    let url = Url::parse(&format!("https://127.0.0.1:{}{path}/info", peer.port)).unwrap();
    let answer = world.client.get(&url, HeaderMap::new(), Limits::default()).await.unwrap();
    let info: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    info["agent_id"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_one_hub_are_separate() {
    let world = World::new();
    let (home, bob) = (world.peer("alice").await, world.peer("bob").await);
    let second = format!("https://127.0.0.1:{}/ann/swarm", home.port);
    // One path belongs to one agent, and so does one id.
    assert!(home.swarms.init("ann", &home.url("")).await.is_err());
    let ann = home.swarms.init("ann", &second).await.unwrap();
    assert_ne!(ann.public_key, home.key().public());
    assert_eq!(ann.home, home.home().join("ann"));
    assert!(matches!(home.swarms.identity(None), Err(SwarmError::WhichIdentity { .. })));
    assert_eq!(fetch_agent_id(&world, &home, "/swarm").await.as_deref(), Some("alice"));
    assert_eq!(fetch_agent_id(&world, &home, "/ann/swarm").await.as_deref(), Some("ann"));
    assert_eq!(fetch_agent_id(&world, &home, "/ann").await.as_deref(), Some("ann"));
    assert_eq!(fetch_agent_id(&world, &home, "/other/swarm").await, None);

    // Both join a swarm of another owner, and each has its own local name for it.
    let swarm = bob.create("Research").await.swarm_id;
    let link = bob.invite().await;
    for (name, realm) in [("alice", "first"), ("ann", "second")] {
        let realm = realm.parse().unwrap();
        let joined = with_timeout(home.swarms.join(Some(name), &link, Some(&realm))).await.unwrap();
        assert!(matches!(joined, JoinOutcome::Joined(_)), "{joined:?}");
    }
    bob.wait_for_members(&["alice", "ann", "bob"]).await;

    // A message to one of them goes to its mailbox; its messages are signed with its key.
    let to_ann = bob.send("bob", "ann@research", "for ann alone", None).await;
    assert_eq!(bob.wait_for_deliveries(to_ann).await[0].state, DeliveryState::Delivered);
    assert_eq!(home.wait_for_text("for ann alone").await.message.to, agent("ann").into());
    assert_eq!(home.count("for ann alone").await, 1);
    let to_all = bob.send("bob", "all@research", "for both", None).await;
    assert!(
        bob.wait_for_deliveries(to_all)
            .await
            .iter()
            .all(|delivery| delivery.state == DeliveryState::Delivered)
    );
    let mut readers: Vec<String> = home
        .journal()
        .await
        .into_iter()
        .filter(|stored| stored.message.body == "for both")
        .map(|stored| stored.message.to.to_string())
        .collect();
    readers.sort_unstable();
    assert_eq!(readers, ["alice", "ann"]);
    home.send("ann", "bob@second", "from ann", None).await;
    assert_eq!(bob.wait_for_text("from ann").await.message.from, agent("ann@research"));

    // The two also exchange messages, over the same path as with other hubs.
    home.send("alice", "ann@first", "next door", None).await;
    let is_hers = |message: &Message| message.body == "next door" && message.to == agent("ann").into();
    assert_eq!(home.wait_for_message("next door", is_hers).await.message.from, agent("alice@second"));

    // The key of one proves nothing for the other, and messages for one are refused at the other's endpoint.
    let forged = Forged::new(swarm, "ann", "not me", bob.now()).signed(&home.key());
    let refused = world.post(&bob, "message", &forged.value).await;
    assert_eq!(code(&refused), (401, "INVALID_SIGNATURE"));
    let misled = Forged::new(swarm, "bob", "astray", home.now()).with("recipient", "ann").signed(&bob.key());
    let refused = world.post(&home, "message", &misled.value).await;
    assert_eq!(refused.0, StatusCode::UNAUTHORIZED, "bob signs whole envelopes: {}", refused.1);
    let misled = Forged::new(swarm, "bob", "astray", home.now()).with("recipient", "ann").whole(&bob.key());
    assert_eq!(code(&world.post(&home, "message", &misled.value).await), (400, "INVALID_FORMAT"));
    assert_eq!(home.count("astray").await, 0);
}
