//! Several agents of one hub, each with an endpoint, a key and swarms of its own.

use http::{HeaderMap, StatusCode};
use switchboard_core::{DeliveryState, Message};
use switchboard_https::{Limits, Url};

use super::rig::code;
use crate::error::SwarmError;
use crate::joining::JoinOutcome;
use crate::test_peer::{Forged, TestPeer, World, agent, soon};

/// What `/info` of an endpoint says of the agent there.
async fn told(world: &World, peer: &TestPeer, path: &str) -> Option<String> {
    let url = Url::parse(&format!("https://127.0.0.1:{}{path}/info", peer.port)).unwrap();
    let answer = world.client.get(&url, HeaderMap::new(), Limits::default()).await.unwrap();
    let info: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    info["agent_id"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_agent_of_a_hub_is_one_of_its_own() {
    let world = World::new();
    let (home, bob) = (world.peer("alice").await, world.peer("bob").await);
    let second = format!("https://127.0.0.1:{}/ann/swarm", home.port);
    // One path is one agent, and so is one id.
    assert!(home.swarms.init("ann", &home.url("")).await.is_err());
    let ann = home.swarms.init("ann", &second).await.unwrap();
    assert_ne!(ann.public_key, home.key().public());
    assert_eq!(ann.home, home.home().join("ann"));
    assert!(matches!(home.swarms.identity(None), Err(SwarmError::WhichIdentity { .. })));
    assert_eq!(told(&world, &home, "/swarm").await.as_deref(), Some("alice"));
    assert_eq!(told(&world, &home, "/ann/swarm").await.as_deref(), Some("ann"));
    assert_eq!(told(&world, &home, "/ann").await.as_deref(), Some("ann"));
    assert_eq!(told(&world, &home, "/other/swarm").await, None);

    // Both join the swarm of somebody else, and each has its own name for it.
    let swarm = bob.create("Research").await.swarm_id;
    let link = bob.invite().await;
    for (name, realm) in [("alice", "first"), ("ann", "second")] {
        let realm = realm.parse().unwrap();
        let joined = soon(home.swarms.join(Some(name), &link, Some(&realm))).await.unwrap();
        assert!(matches!(joined, JoinOutcome::Joined(_)), "{joined:?}");
    }
    bob.knows(&["alice", "ann", "bob"]).await;

    // What is for one of them goes to its mailbox, and is signed with its key.
    let to_ann = bob.send("bob", "ann@research", "for ann alone", None).await;
    assert_eq!(bob.settled(to_ann).await[0].state, DeliveryState::Delivered);
    assert_eq!(home.gets("for ann alone").await.message.to, agent("ann").into());
    assert_eq!(home.count("for ann alone").await, 1);
    let to_all = bob.send("bob", "all@research", "for both", None).await;
    assert!(bob.settled(to_all).await.iter().all(|delivery| delivery.state == DeliveryState::Delivered));
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
    assert_eq!(bob.gets("from ann").await.message.from, agent("ann@research"));

    // The two also write to each other, by the same way as everybody.
    home.send("alice", "ann@first", "next door", None).await;
    let is_hers = |message: &Message| message.body == "next door" && message.to == agent("ann").into();
    assert_eq!(home.finds("next door", is_hers).await.message.from, agent("alice@second"));

    // The key of one says nothing for the other, and one's messages are not taken at the other's endpoint.
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
