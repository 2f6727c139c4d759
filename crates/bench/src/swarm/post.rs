//! Messages of a peer, signed beforehand, and posting them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use switchboard_core::{Door, Kind, NativeId};
use switchboard_https::{Client, Limits, Url};
use switchboard_hub::clock::Clock;
use switchboard_hub::{Draft, Hub};

/// The peer's key.
pub(super) const SEED: [u8; 32] = [7; 32];

/// Messages that are ready to be sent.
pub(super) struct Letters {
    bodies: Vec<String>,
    signed: Vec<([u8; 32], Signature)>,
}

impl Letters {
    /// Signs as many messages as the protocol has it.
    pub(super) fn sign(swarm: &str, count: usize) -> Self {
        let key = SigningKey::from_bytes(&SEED);
        let at = Clock::system().now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
        let (mut bodies, mut signed) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for n in 0..count {
            let id = uuid_of(n);
            let content =
                format!("Message {n}: the tests of the parser pass now; please look at the branch.");
            let digest: [u8; 32] = Sha256::digest(format!("{id}{at}{swarm}broadcastmessage{content}")).into();
            let signature = key.sign(&digest);
            let body = json!({
                "protocol_version": "0.1.0", "message_id": id, "timestamp": at,
                "sender": { "agent_id": "peer", "endpoint": "https://127.0.0.1:9/swarm" }, "recipient": "broadcast",
                "swarm_id": swarm, "type": "message", "content": content,
                "signature": door_swarm::base64(&signature.to_bytes()),
            });
            bodies.push(body.to_string());
            signed.push((digest, signature));
        }
        Self { bodies, signed }
    }

    /// Verifies one of them.
    pub(super) fn verify(&self, n: usize, key: &VerifyingKey) -> bool {
        let (digest, signature) = &self.signed[n];
        key.verify_strict(digest, signature).is_ok()
    }
}

fn uuid_of(n: usize) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{n:012x}",
        fastrand::u32(..),
        fastrand::u16(..),
        n & 0xfff,
        n >> 12 & 0xfff
    )
}

/// Posts all of them over so many connections; how long each took.
pub(super) async fn post_all(
    client: &Client,
    url: &str,
    letters: Letters,
    connections: usize,
) -> anyhow::Result<Vec<Duration>> {
    let (letters, next, url) = (Arc::new(letters.bodies), Arc::new(AtomicUsize::new(0)), Url::parse(url)?);
    let posters: Vec<_> = (0..connections)
        .map(|_| {
            let (client, letters, next, url) = (client.clone(), letters.clone(), next.clone(), url.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while let Some(letter) = letters.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let limits = Limits { time: Duration::from_secs(30), body: 64 * 1024 };
                    let answer =
                        client.post_json(&url, <_>::default(), letter.clone().into(), limits).await?;
                    ensure!(answer.status.as_u16() == 200, "refused: {:?}", answer.body);
                    times.push(began.elapsed());
                }
                Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for poster in posters {
        times.extend(poster.await??);
    }
    Ok(times)
}

/// The same message as it would be submitted without the door.
pub(super) fn draft(hub: &Hub) -> anyhow::Result<Draft> {
    let id = hub.next_id();
    Ok(Draft {
        id,
        from: "peer@bench".parse()?,
        to: "alice".parse()?,
        kind: Kind::parse("message")?,
        body: "Message: the tests of the parser pass now; please look at the branch.".to_owned(),
        in_reply_to: None,
        sent_at: hub.now(),
        expires_at: None,
        metadata: Map::new(),
        native: NativeId { door: Door::Swarm, scope: "bench".to_owned(), id: id.to_string() },
        key: None,
        native_is_id: false,
        verified: true,
        route: None,
        signed: None,
        allow_unregistered: true,
        restored: None,
    })
}
