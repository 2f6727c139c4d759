//! Peers with an invalid certificate get no messages.

use std::path::PathBuf;
use std::time::Duration;

use switchboard_core::DeliveryState;
use switchboard_https::Mode;
use test_support::ca::{Issued, PrivateCa, Validity};

use crate::test_peer::World;

#[tokio::test(flavor = "multi_thread")]
async fn delivery_waits_for_valid_certificate() {
    let world = World::new();
    let stranger = PrivateCa::new();
    let bad: [(&str, Issued); 3] = [
        ("over", world.ca().issue(&["127.0.0.1"], Validity::Expired, 2)),
        ("another-name", world.ca().issue(&["elsewhere.example.com"], Validity::Valid, 3)),
        ("another-authority", stranger.issue(&["127.0.0.1"], Validity::Valid, 4)),
    ];
    let alice = world.peer("alice").await;
    alice.create("Research").await;
    let link = alice.invite().await;
    let folder = tempfile::tempdir().unwrap();
    let files = |id: &str| -> [PathBuf; 2] {
        [folder.path().join(format!("{id}.pem")), folder.path().join(format!("{id}.key"))]
    };
    let mut peers = Vec::new();
    for (id, issued) in bad {
        let [cert, key] = files(id);
        issued.write(&cert, &key);
        let peer = world
            .peer_with(id, |config| {
                let listen = config.listen.as_mut().unwrap();
                listen.mode = Mode::Files { cert, key };
                listen.poll_interval = Duration::from_millis(20);
            })
            .await;
        peer.join(&link).await;
        peers.push(peer);
    }
    for peer in &peers {
        let id = alice.send("alice", &format!("{}@research", peer.id), "in confidence", None).await;
        let tried = alice.delivery(id, "an attempt", |delivery| delivery.note.is_some()).await;
        let note = tried.note.unwrap();
        assert!(note.contains("certificate"), "{}: {note}", peer.id);
        assert!(tried.state.is_pending(), "{}: {:?}", peer.id, tried.state);
        assert_eq!(peer.count("in confidence").await, 0);
        // Nothing is lost: delivery succeeds once the certificate is valid.
        let [cert, key] = files(peer.id.as_str());
        world.ca().issue(&["127.0.0.1"], Validity::Valid, 5).write(&cert, &key);
        peer.wait_for_text("in confidence").await;
        assert_eq!(alice.wait_for_deliveries(id).await[0].state, DeliveryState::Delivered);
    }
}
