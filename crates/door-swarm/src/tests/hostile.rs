//! Keys, ids and rosters that only an attacker writes, each on a real socket.

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use switchboard_https::{ListenerHandle, Mode, Settings};
use test_support::ca::Validity;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rig::{code, join_request, with_member, with_member_and};
use crate::invite::{Invite, InviteLink};
use crate::keys::SecretKey;
use crate::roster::MAX_ROSTER_BYTES;
use crate::test_peer::{Forged, World, with_timeout};

/// DER prefix of a raw Ed25519 key.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A signature has one encoding, and a key under which any signature verifies is refused.
#[tokio::test(flavor = "multi_thread")]
async fn signatures_and_keys_have_one_encoding() {
    let world = World::new();
    let (alice, swarm, key) = with_member_and(&world, |config| config.limits.joins = 0).await;
    let message = Forged::new(swarm, "mallory", "spelled otherwise", alice.now()).signed(&key).value;
    let good = message["signature"].as_str().unwrap();
    let bytes = STANDARD.decode(good).unwrap();
    // S + L is the same number to a verifier without a range check.
    let order =
        [0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14];
    let mut carry = 0_u16;
    let mut larger = bytes.clone();
    for (n, byte) in larger[32..].iter_mut().enumerate() {
        let more = order.get(n).copied().unwrap_or(if n == 31 { 0x10 } else { 0 });
        carry += u16::from(*byte) + more;
        *byte = u8::try_from(carry & 0xff).unwrap();
        carry >>= 8;
    }
    let odd = [
        String::new(),
        good.trim_end_matches('=').to_owned(),
        format!("{good}="),
        format!(" {good}"),
        format!("{good}\n"),
        good.replace('/', "_").replace('+', "-"),
        STANDARD.encode(&bytes[..63]),
        STANDARD.encode([&bytes[..], &[0]].concat()),
        STANDARD.encode([0; 64]),
        STANDARD.encode(&larger),
        // R of small order, which verifies under many keys at once.
        STANDARD.encode([&[1], &[0; 63][..]].concat()),
    ];
    for signature in odd.iter().filter(|odd| *odd != good) {
        let spelled = Forged { value: message.clone() }.with("signature", signature.as_str());
        let answer = world.post(&alice, "message", &spelled.value).await;
        assert_eq!(code(&answer), (401, "INVALID_SIGNATURE"), "{signature:?}");
    }
    assert_eq!(alice.count("spelled otherwise").await, 0);

    let token = alice.invite().await.token;
    let candidate = SecretKey::from_seed(&[3; 32]);
    let ask = |spelling: &str| {
        let mut request =
            join_request(&token, "bob", "https://127.0.0.1:9/swarm", &candidate, "alice", swarm, alice.now());
        request["sender"]["public_key"] = spelling.into();
        request
    };
    let wire = candidate.public().to_wire();
    let raw = STANDARD.decode(&wire).unwrap();
    let neutral = STANDARD.encode([&[1], &[0; 31][..]].concat());
    // RSA of 1024 bits.
    let small = [&[0x30_u8, 0x81, 0x89, 0x02, 0x81, 0x81, 0], &[0xa5; 128][..], &[0x02, 3, 1, 0, 1]].concat();
    let small = STANDARD.encode(small);
    let zeros = STANDARD.encode([0; 32]);
    for weak in [neutral.as_str(), "", "zzz", &wire[..40], &format!("{wire}\n"), &zeros, &small] {
        let answer = world.post(&alice, "join", &ask(weak)).await;
        assert_eq!(code(&answer), (400, "INVALID_FORMAT"), "{weak:?}: {}", answer.1);
        assert_eq!(answer.1["error"]["details"]["field"], "sender.public_key", "{weak:?}");
    }
    // The DER form is accepted, and the raw form is announced.
    let der = STANDARD.encode([&SPKI[..], &raw].concat());
    let answer = world.post(&alice, "join", &ask(&der)).await;
    assert_eq!(answer.0, StatusCode::OK, "{}", answer.1);
    let listed = answer.1["members"].as_array().unwrap().iter().find(|member| member["agent_id"] == "bob");
    assert_eq!(listed.unwrap()["public_key"], *wire);
}

/// Each of many message ids is accepted once, even across a restart: ids are in the journal and not in memory.
#[tokio::test(flavor = "multi_thread")]
async fn many_messages_are_deduplicated() {
    let world = World::new();
    let no_limits = |config: &mut crate::Config| {
        (config.limits.per_sender, config.limits.per_swarm, config.limits.per_client) = (0, 0, 0);
    };
    let (alice, swarm, key) = with_member_and(&world, no_limits).await;
    let messages: Vec<Value> = (0..120)
        .map(|n| Forged::new(swarm, "mallory", &format!("one of many {n}"), alice.now()).signed(&key).value)
        .collect();
    let count = async |alice: &crate::test_peer::TestPeer| {
        let journal = alice.journal().await;
        journal.iter().filter(|stored| stored.message.body.starts_with("one of many")).count()
    };
    let send_all = async |url: String| {
        let sending = messages.chunks(20).map(|part| {
            let (world, url, part) = (world.clone(), url.clone(), part.to_vec());
            tokio::spawn(async move {
                for message in part {
                    assert_eq!(world.post_url(&url, &message).await.0, StatusCode::OK);
                }
            })
        });
        for sent in sending.collect::<Vec<_>>() {
            with_timeout(sent).await.unwrap();
        }
    };
    send_all(alice.url("message")).await;
    assert_eq!(count(&alice).await, messages.len());
    send_all(alice.url("message")).await;
    let alice = alice.restart().await;
    send_all(alice.url("message")).await;
    assert_eq!(count(&alice).await, messages.len());
}

/// Rosters of peers are bounded and ASCII, and name each fact once.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_rosters_are_refused() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let mallory = crate::PeerId::parse("mallory").unwrap();
    // Mallory leads the swarm, so that its roster counts.
    let lead = move |swarm: &mut crate::Swarm| {
        swarm.master = mallory;
        Ok(())
    };
    alice.swarms.edit_swarm(&alice.id.clone(), swarm, lead).await.unwrap();
    let member = |id: &str, seed: u16| {
        let mut bytes = [7; 32];
        bytes[..2].copy_from_slice(&seed.to_be_bytes());
        json!({ "agent_id": id, "endpoint": format!("https://{seed}.example.com/swarm"),
            "public_key": SecretKey::from_seed(&bytes).public().to_wire(), "joined_at": "2026-01-01T00:00:00.000Z" })
    };
    let own = |peer: &str, key: String| json!({ "agent_id": peer, "endpoint": "https://127.0.0.1:9/swarm", "public_key": key });
    let both = || vec![own("alice", alice.key().public().to_wire()), own("mallory", key.public().to_wire())];
    let roster = |members: Vec<Value>| {
        json!({ "action": "roster", "epoch": 99, "master": "mallory", "name": "x", "members": members,
            "settings": {} })
    };
    let many = |count: u16| both().into_iter().chain((0..count).map(|n| member(&format!("a{n}"), n)));
    let joined = |id: &str| json!({ "action": "member_joined", "epoch": 99, "member": member(id, 1) });
    let table: [(&str, Value, u16); 9] = [
        ("an id ambiguous with ours", roster(many(1).chain([member("alicemessage", 7)]).collect()), 400),
        ("a member that is a word of ours", joined("Human"), 400),
        ("a thousand and one", roster(many(999).collect()), 400),
        ("ten thousand", roster(vec![member("a0", 0); 10_000]), 413),
        ("one twice", roster(many(1).chain([member("a0", 5)]).collect()), 400),
        ("a key twice", roster(many(1).chain([member("b", 0)]).collect()), 400),
        ("a name of a megabyte", joined(&"x".repeat(1 << 20)), 413),
        ("a name that is too long", joined(&"x".repeat(129)), 400),
        ("a name that looks like another", joined("\u{430}lice"), 400),
    ];
    for (what, content, expected) in table {
        let message = Forged::new(swarm, "mallory", "", alice.now()).system(&content).signed(&key);
        let answer = world.post(&alice, "message", &message.value).await;
        assert_eq!(answer.0.as_u16(), expected, "{what}: {}", answer.1);
        assert_eq!(alice.members(), ["alice", "mallory"], "{what}");
    }
    // The maximum is accepted.
    let content = roster(many(998).collect());
    let message = Forged::new(swarm, "mallory", "", alice.now()).system(&content).signed(&key);
    let answer = world.post(&alice, "message", &message.value).await;
    assert_eq!(answer.0, StatusCode::OK, "{}", answer.1);
    assert_eq!(alice.members().len(), 1000);
}

/// A listener that gives the same answer to every join request.
async fn master_that_answers(world: &World, answer: Value) -> (ListenerHandle, CancellationToken) {
    let (cert, key) = world.ca().issue_files(&["127.0.0.1"], Validity::Valid);
    let settings = Settings::new("127.0.0.1:0".parse().unwrap(), Mode::Files { cert, key });
    let answer = Arc::new(answer.to_string());
    let app = Router::new().route("/swarm/join", post(move || async move { answer.as_str().to_owned() }));
    let shutdown = CancellationToken::new();
    (switchboard_https::listen(settings, app, shutdown.clone()).await.unwrap(), shutdown)
}

/// Impossible values in the answer of a hostile master are refused.
#[tokio::test(flavor = "multi_thread")]
async fn answers_of_hostile_masters_are_refused() {
    let world = World::new();
    let bob = world.peer("bob").await;
    let master = SecretKey::from_seed(&[5; 32]);
    let swarm = Uuid::new_v4();
    let member = |id: &str, endpoint: &str, key: &SecretKey| json!({ "agent_id": id, "endpoint": endpoint, "public_key": key.public().to_wire() });
    let endpoint = "https://127.0.0.1:9/swarm";
    let (evil, me) = (member("evil", endpoint, &master), member("bob", endpoint, &bob.key()));
    let accepted = |members: Vec<Value>| json!({ "status": "accepted", "swarm_id": swarm.to_string(), "swarm_name": "Trap", "members": members });
    let crowd = |count: u16| {
        let other = |n: u16| {
            let mut seed = [6; 32];
            seed[..2].copy_from_slice(&n.to_be_bytes());
            member(&format!("a{n}"), endpoint, &SecretKey::from_seed(&seed))
        };
        [evil.clone(), me.clone()].into_iter().chain((0..count).map(other)).collect::<Vec<_>>()
    };
    let other = SecretKey::from_seed(&[8; 32]);
    let twice = member("evil2", endpoint, &master);
    let mut counted = accepted(vec![evil.clone(), me.clone(), twice]);
    counted["epoch"] = 1.into();
    let mut endless = accepted(crowd(0));
    endless["name"] = "x".repeat(MAX_ROSTER_BYTES).into();
    let too_large = format!("exceeds {MAX_ROSTER_BYTES} bytes");
    let table: [(&str, Value, &str); 8] = [
        ("too many", accepted(crowd(999)), "too long"),
        ("more bytes than any roster", endless, &too_large),
        (
            "another swarm",
            json!({ "status": "accepted", "swarm_id": Uuid::new_v4().to_string(), "members": [] }),
            "another swarm",
        ),
        ("without us", accepted(vec![evil.clone()]), "lacks our agent"),
        ("without itself", accepted(vec![me.clone()]), "lacks the issuer of the invite"),
        (
            "another key for us",
            accepted(vec![evil.clone(), member("bob", endpoint, &other)]),
            "another key for our agent",
        ),
        (
            "another key than the invite's",
            accepted(vec![member("evil", endpoint, &other), me.clone()]),
            "did not sign the invite",
        ),
        ("a key twice, by a master that checks proofs", counted, "as well"),
    ];
    for (what, answer, expected) in table {
        let (listening, shutdown) = master_that_answers(&world, answer).await;
        let endpoint = format!("https://127.0.0.1:{}/swarm", listening.local_addr().port());
        let invite = Invite {
            swarm_id: swarm,
            master: crate::PeerId::parse("evil").unwrap(),
            endpoint: crate::Endpoint::parse(&endpoint).unwrap(),
            iat: bob.now().as_second(),
            expires_at: None,
            exp: None,
            max_uses: None,
            master_key: None,
            issuer: None,
        };
        let link: InviteLink = invite.link(invite.sign(&master));
        let refused = with_timeout(bob.swarms.join(None, &link, None)).await.unwrap_err();
        let text = switchboard_core::error_chain(&refused);
        assert!(text.contains(expected), "{what}: {text}");
        assert!(bob.swarms.swarms().is_empty(), "{what}");
        shutdown.cancel();
        with_timeout(listening.finished()).await;
    }
}
