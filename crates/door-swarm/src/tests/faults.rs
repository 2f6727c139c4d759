//! Attacks and faults, each as requests on a real socket.

use http::{HeaderMap, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};
use switchboard_core::DeliveryState;
use uuid::Uuid;

use crate::invite::Token;
use crate::keys::SecretKey;
use crate::ledger::Standing;
use crate::stamp;
use crate::test_peer::{Forged, TestPeer, World};

/// A master with one member whose key the test has, and who has no hub.
async fn with_member(world: &World) -> (TestPeer, Uuid, SecretKey) {
    with_member_and(world, |_| ()).await
}

async fn with_member_and(
    world: &World,
    configure: impl FnOnce(&mut crate::Config),
) -> (TestPeer, Uuid, SecretKey) {
    let alice = world.peer_with("alice", configure).await;
    let swarm = alice.create("Research").await.swarm_id;
    let key = SecretKey::from_seed(&[9; 32]);
    add_member(&alice, "mallory", &key).await;
    (alice, swarm, key)
}

/// Makes somebody a member without a hub behind them.
async fn add_member(peer: &TestPeer, id: &str, key: &SecretKey) {
    let (id, key) = (crate::PeerId::parse(id).unwrap(), key.public());
    let endpoint = crate::Endpoint::parse("https://127.0.0.1:9/swarm").unwrap();
    let (now, swarm) = (peer.now(), peer.swarm().swarm_id);
    let change = move |swarm: &mut crate::Swarm| {
        swarm.put_member(&id, endpoint, key, now);
        Ok(())
    };
    peer.swarms.edit(&peer.id.clone(), swarm, change).await.unwrap();
}

fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_signed_rightly_is_taken_once_and_answered_as_others_expect() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let message = Forged::new(swarm, "mallory", "hello", alice.now()).signed(&key).value;
    let answer = world.post(&alice, "message", &message).await;
    assert_eq!(answer, (StatusCode::OK, json!({ "status": "queued", "message_id": message["message_id"] })));
    // S19, S3: the same again is the same.
    assert_eq!(world.post(&alice, "message", &message).await.0, StatusCode::OK);
    assert_eq!(alice.count("hello").await, 1);
    // Signed anew with another time, it is still the same.
    let later = stamp::render(alice.now().saturating_add(SignedDuration::from_secs(1)).unwrap());
    let again = Forged { value: message.clone() }.with("timestamp", later).signed(&key).value;
    assert_eq!(world.post(&alice, "message", &again).await.0, StatusCode::OK);
    assert_eq!(alice.count("hello").await, 1);
    let other = Forged { value: message.clone() }.with("content", "other").signed(&key).value;
    assert_eq!(code(&world.post(&alice, "message", &other).await), (400, "INVALID_FORMAT"));
    // S3: also after a restart.
    let alice = alice.restart().await;
    assert_eq!(world.post(&alice, "message", &message).await.0, StatusCode::OK);
    assert_eq!(alice.count("hello").await, 1);
    // The aliases, and the two that are read.
    for resource in ["../message", "message"] {
        assert_eq!(world.post(&alice, resource, &message).await.0, StatusCode::OK, "{resource}");
    }
    let (status, info) = world.get(&alice, "info").await;
    assert_eq!((status, info["agent_id"].as_str()), (StatusCode::OK, Some("alice")));
    assert_eq!(info["public_key"], alice.key().public().to_wire());
    assert_eq!(world.get(&alice, "health").await.1["status"], "healthy");
    assert_eq!(world.get(&alice, "message").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(world.get(&alice, "api/wake").await.0, StatusCode::NOT_FOUND, "S24");
}

/// S1, S2, S4, S6, S8: what was changed, moved, signed by others or at other times.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_signed_rightly_is_refused() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let now = alice.now();
    let good = || Forged::new(swarm, "mallory", "never", now);
    let at = |minutes: i64| stamp::render(now.saturating_add(SignedDuration::from_mins(minutes)).unwrap());
    let other = SecretKey::from_seed(&[1; 32]);
    let table: Vec<(&str, Value, (u16, &str))> = vec![
        ("another key", good().signed(&other).value, (401, "INVALID_SIGNATURE")),
        ("no signature", good().value, (401, "INVALID_SIGNATURE")),
        ("content changed", good().signed(&key).with("content", "x").value, (401, "INVALID_SIGNATURE")),
        (
            "recipient changed",
            good().signed(&key).with("recipient", "alice").value,
            (401, "INVALID_SIGNATURE"),
        ),
        ("type changed", good().signed(&key).with("type", "notification").value, (401, "INVALID_SIGNATURE")),
        (
            "a stranger",
            Forged::new(swarm, "stranger", "never", now).signed(&key).value,
            (403, "NOT_AUTHORIZED"),
        ),
        ("ourselves", Forged::new(swarm, "alice", "never", now).signed(&key).value, (403, "NOT_AUTHORIZED")),
        (
            "another swarm",
            Forged::new(Uuid::new_v4(), "mallory", "never", now).signed(&key).value,
            (404, "SWARM_NOT_FOUND"),
        ),
        ("for another", good().with("recipient", "bob").signed(&key).value, (400, "INVALID_FORMAT")),
        ("too old", good().with("timestamp", at(-16)).signed(&key).value, (400, "INVALID_FORMAT")),
        ("too far ahead", good().with("timestamp", at(3)).signed(&key).value, (400, "INVALID_FORMAT")),
        (
            "other zone",
            good().with("timestamp", "2026-02-05T14:30:00+02:00").signed(&key).value,
            (400, "INVALID_FORMAT"),
        ),
        (
            "24:00",
            good().with("timestamp", "2026-02-05T24:00:00Z").signed(&key).value,
            (400, "INVALID_FORMAT"),
        ),
        (
            "leap second",
            good().with("timestamp", "2026-06-30T23:59:60Z").signed(&key).value,
            (400, "INVALID_FORMAT"),
        ),
        (
            "another major",
            good().with("protocol_version", "1.0.0").signed(&key).value,
            (400, "INVALID_FORMAT"),
        ),
        ("no UUID", good().with("message_id", "x").signed(&key).value, (400, "INVALID_FORMAT")),
        (
            "UUID in upper case",
            good().with("message_id", "550E8400-E29B-41D4-A716-446655440000").signed(&key).value,
            (400, "INVALID_FORMAT"),
        ),
        ("unknown type", good().signed(&key).with("type", "order").value, (400, "INVALID_FORMAT")),
        ("no content", good().signed(&key).with("content", Value::Null).value, (400, "INVALID_FORMAT")),
        (
            "id with a line break",
            Forged::new(swarm, "evil\nline", "never", now).signed(&key).value,
            (400, "INVALID_FORMAT"),
        ),
    ];
    for (what, message, expected) in table {
        let answer = world.post(&alice, "message", &message).await;
        assert_eq!(code(&answer), expected, "{what}: {}", answer.1);
        assert!(answer.1["error"]["message"].is_string(), "{what}");
    }
    let supported = world.post(&alice, "message", &good().with("protocol_version", "2.0.0").value).await;
    assert_eq!(supported.1["error"]["details"]["supported"], "0.1.0");
    // Two meanings in one text.
    let twice = good().signed(&key).value.to_string().replacen('{', "{\"content\":\"a\",", 1);
    let answer = world.post_bytes(&alice, "message", twice.into_bytes(), HeaderMap::new()).await;
    assert_eq!(code(&answer), (400, "INVALID_FORMAT"));
    // Headers that do not fit.
    for (header, value) in [("x-agent-id", "alice"), ("x-swarm-protocol", "1.0.0"), ("x-swarm-protocol", "x")]
    {
        let headers: HeaderMap = [(header.parse().unwrap(), value.parse().unwrap())].into_iter().collect();
        let body = good().signed(&key).value.to_string().into_bytes();
        assert_eq!(
            code(&world.post_bytes(&alice, "message", body, headers).await),
            (400, "INVALID_FORMAT"),
            "{header}"
        );
    }
    assert_eq!(alice.count("never").await, 0);
}

/// S2: once a member signs whole envelopes, it always must, and no unsigned field counts before that.
#[tokio::test(flavor = "multi_thread")]
async fn unsigned_fields_drive_nothing_and_signed_ones_cannot_be_changed() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let past = stamp::render(alice.now().saturating_sub(SignedDuration::from_mins(1)).unwrap());
    let unsigned = Forged::new(swarm, "mallory", "plain", alice.now())
        .with("priority", "high")
        .with("expires_at", past.clone())
        .with("metadata", json!({ "kind": "execute" }))
        .signed(&key);
    assert_eq!(world.post(&alice, "message", &unsigned.value).await.0, StatusCode::OK);
    let got = alice.gets("plain").await.message;
    assert_eq!((got.expires_at, got.kind.as_str()), (None, "message"));
    assert_eq!(got.metadata["swarm.unsigned"]["priority"], "high");
    assert!(got.metadata.get("swarm.signed").is_none());

    let whole = Forged::new(swarm, "mallory", "whole", alice.now())
        .with("priority", "high")
        .with("metadata", json!({ "kind": "execute" }))
        .whole(&key);
    let mut changed = whole.value.clone();
    changed["priority"] = "low".into();
    assert_eq!(code(&world.post(&alice, "message", &changed).await), (401, "INVALID_SIGNATURE"));
    assert_eq!(world.post(&alice, "message", &whole.value).await.0, StatusCode::OK);
    let got = alice.gets("whole").await.message;
    assert_eq!(got.metadata["swarm.signed"]["priority"], "high");
    assert_eq!(got.kind.as_str(), "message", "nobody has a peer type into a terminal");

    let stripped = Forged::new(swarm, "mallory", "stripped", alice.now()).signed(&key);
    assert_eq!(code(&world.post(&alice, "message", &stripped.value).await), (401, "INVALID_SIGNATURE"));
    let expired = Forged::new(swarm, "mallory", "expired", alice.now()).with("expires_at", past).whole(&key);
    assert_eq!(code(&world.post(&alice, "message", &expired.value).await), (400, "INVALID_FORMAT"));
}

/// S11, S13: only the master's word changes the roster.
#[tokio::test(flavor = "multi_thread")]
async fn members_cannot_speak_for_the_master() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let victim = SecretKey::from_seed(&[8; 32]);
    add_member(&alice, "victim", &victim).await;
    let now = alice.now();
    let forged = [
        (json!({ "action": "member_kicked", "agent_id": "victim" }), 403),
        (json!({ "action": "member_left", "agent_id": "victim" }), 403),
        (
            json!({ "action": "member_joined", "agent_id": "evil", "endpoint": "https://127.0.0.1:1/swarm" }),
            403,
        ),
        (json!({ "action": "master_changed", "new_master": "mallory" }), 403),
        (json!({ "action": "swarm_dissolved" }), 403),
        (json!({ "action": "key_rotated", "agent_id": "victim", "public_key": key.public().to_wire() }), 403),
        (json!({ "action": "key_rotated", "public_key": victim.public().to_wire(), "proof": "" }), 401),
        (
            json!({ "action": "roster", "epoch": 99, "master": "mallory", "name": "x", "members": [],
            "settings": {} }),
            403,
        ),
        (json!({ "action": "member_left", "swarm_id": Uuid::new_v4().to_string() }), 400),
    ];
    for (content, expected) in forged {
        let message = Forged::new(swarm, "mallory", "", now).system(&content).signed(&key);
        let answer = world.post(&alice, "message", &message.value).await;
        assert_eq!(answer.0.as_u16(), expected, "{content}: {}", answer.1);
    }
    for content in
        [json!({ "action": "kicked" }), json!({ "action": "master_transfer", "new_master": "alice" })]
    {
        let message =
            Forged::new(swarm, "mallory", "", now).system(&content).with("recipient", "alice").signed(&key);
        let answer = world.post(&alice, "message", &message.value).await;
        let is_harmless = answer.0 == StatusCode::FORBIDDEN || alice.swarm().master.as_str() == "alice";
        assert!(is_harmless, "{content}: {answer:?}");
    }
    assert_eq!(alice.members(), ["alice", "mallory", "victim"]);
    assert_eq!(alice.swarm().standing, Standing::Active);
    // What cannot be read is kept as news, and changes nothing.
    let broken = Forged::new(swarm, "mallory", "{\"action\":\"kicked\",\"reason\":\"a \"b\"\"}", now)
        .with("type", "system");
    assert_eq!(world.post(&alice, "message", &broken.signed(&key).value).await.0, StatusCode::OK);
    // Anyone may leave, once.
    let left =
        Forged::new(swarm, "mallory", "", now).system(&json!({ "action": "member_left" })).signed(&key);
    assert_eq!(world.post(&alice, "message", &left.value).await.0, StatusCode::OK);
    alice.knows(&["alice", "victim"]).await;
    // S12: whoever is out stays out.
    let after = Forged::new(swarm, "mallory", "after", now).signed(&key);
    assert_eq!(code(&world.post(&alice, "message", &after.value).await), (403, "NOT_AUTHORIZED"));
}

/// S12: the muted are answered as if they were heard.
#[tokio::test(flavor = "multi_thread")]
async fn the_muted_are_dropped_in_silence_also_after_a_restart() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    alice.swarms.mute_agent(None, "mallory", true).await.unwrap();
    let alice = alice.restart().await;
    let message = Forged::new(swarm, "mallory", "psst", alice.now()).signed(&key);
    assert_eq!(world.post(&alice, "message", &message.value).await.0, StatusCode::OK);
    alice.swarms.mute_agent(None, "mallory", false).await.unwrap();
    alice.swarms.mute_swarm(None, true).await.unwrap();
    let message = Forged::new(swarm, "mallory", "psst", alice.now()).signed(&key);
    assert_eq!(world.post(&alice, "message", &message.value).await.0, StatusCode::OK);
    alice.swarms.mute_swarm(None, false).await.unwrap();
    assert_eq!(alice.count("psst").await, 0);
    let message = Forged::new(swarm, "mallory", "hello", alice.now()).signed(&key);
    assert_eq!(world.post(&alice, "message", &message.value).await.0, StatusCode::OK);
    alice.gets("hello").await;
}

/// S15: one too many is told when to come back; another sender is served.
#[tokio::test(flavor = "multi_thread")]
async fn floods_are_stopped_and_others_are_served() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let other = SecretKey::from_seed(&[8; 32]);
    add_member(&alice, "other", &other).await;
    let stranger = Forged::new(swarm, "mallory", "forged", alice.now()).signed(&other).value;
    for _ in 0..5 {
        // What others send in a name uses nothing of its limit.
        assert_eq!(world.post(&alice, "message", &stranger).await.0, StatusCode::UNAUTHORIZED);
    }
    let mut refused = 0;
    for n in 0..62 {
        let message = Forged::new(swarm, "mallory", &format!("flood {n}"), alice.now()).signed(&key);
        let answer = world.post(&alice, "message", &message.value).await;
        if answer.0 == StatusCode::TOO_MANY_REQUESTS {
            assert!(answer.1["error"]["details"]["retry_after"].as_u64().unwrap() <= 60);
            refused += 1;
        }
    }
    assert!((1..=2).contains(&refused), "{refused}");
    let message = Forged::new(swarm, "other", "still here", alice.now()).signed(&other);
    assert_eq!(world.post(&alice, "message", &message.value).await.0, StatusCode::OK);
}

/// S16: large bodies are refused before they are read, and nothing is fetched.
#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_refused() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let body = Forged::new(swarm, "mallory", &"x".repeat(300 * 1024), alice.now()).signed(&key).value;
    assert_eq!(world.post(&alice, "message", &body).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let answer = world.post_bytes(&alice, "message", deep.into_bytes(), HeaderMap::new()).await;
    assert_eq!(code(&answer), (400, "INVALID_FORMAT"));
}

fn join_request(
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

/// S9: eight at once on an invite for one.
#[tokio::test(flavor = "multi_thread")]
async fn an_invite_for_one_lets_one_in_however_many_ask_at_once() {
    let world = World::new();
    let alice = world.peer("alice").await;
    let swarm = alice.create("Research").await.swarm_id;
    let link = alice.swarms.invite(None, Some(crate::INVITE_LIFETIME), Some(1)).await.unwrap().link;
    let mut asking = Vec::new();
    for n in 0..8_u8 {
        let key = SecretKey::from_seed(&[n + 10; 32]);
        let (id, endpoint) =
            (format!("agent-{n}"), format!("https://127.0.0.1:{}/swarm", 1000 + u16::from(n)));
        let request = join_request(&link.token, &id, &endpoint, &key, "alice", swarm, alice.now());
        let (world, url) = (world.clone(), alice.url("join"));
        asking.push(tokio::spawn(async move { world.post_url(&url, &request).await }));
    }
    let mut answers = Vec::new();
    for asked in asking {
        answers.push(asked.await.unwrap());
    }
    let accepted: Vec<_> = answers.iter().filter(|(status, _)| *status == StatusCode::OK).collect();
    assert_eq!(accepted.len(), 1, "{answers:?}");
    assert!(
        answers.iter().all(|answer| answer.0 == StatusCode::OK || code(answer) == (403, "TOKEN_EXHAUSTED")),
        "{answers:?}"
    );
    assert_eq!(alice.members().len(), 2);
    let answer = &accepted[0].1;
    assert_eq!(
        (answer["status"].as_str(), answer["swarm_name"].as_str()),
        (Some("accepted"), Some("Research"))
    );
    assert_eq!(answer["members"].as_array().unwrap().len(), 2);
}

/// S6, S9, S10: tokens that were tampered with, ids and keys of others, no proof.
#[tokio::test(flavor = "multi_thread")]
async fn joins_without_right_are_refused() {
    let world = World::new();
    let alice = world.peer_with("alice", |config| config.limits.joins = 0).await;
    let swarm = alice.create("Research").await.swarm_id;
    let made = alice.swarms.invite(None, Some(crate::INVITE_LIFETIME), None).await.unwrap();
    let token = made.link.token.clone();
    let key = SecretKey::from_seed(&[9; 32]);
    let ask = |token: &str, id: &str, key: &SecretKey| {
        join_request(token, id, "https://127.0.0.1:9/swarm", key, "alice", swarm, alice.now())
    };
    let other = SecretKey::from_seed(&[1; 32]);
    let mut unsigned = ask(&token, "bob", &key);
    unsigned.as_object_mut().unwrap().remove("signature");
    let mut swapped = ask(&token, "bob", &key);
    swapped["sender"]["public_key"] = other.public().to_wire().into();
    let invite = Token::read(&token).unwrap().invite;
    let forged = invite.sign(&other);
    let mut expired = invite.clone();
    expired.expires_at = Some("2020-01-01T00:00:00.000Z".to_owned());
    let mut old = invite.clone();
    old.iat = 1_700_000_000;
    let mut elsewhere = invite.clone();
    elsewhere.endpoint = crate::Endpoint::parse("https://evil.example.com/swarm").unwrap();
    let mut another = invite.clone();
    another.swarm_id = Uuid::new_v4();
    let signer = alice.key();
    let table = [
        ("no proof", unsigned, (403, "NOT_AUTHORIZED")),
        ("another key", swapped, (401, "INVALID_SIGNATURE")),
        ("forged token", ask(&forged, "bob", &key), (401, "INVALID_SIGNATURE")),
        ("expired", ask(&expired.sign(&signer), "bob", &key), (401, "TOKEN_EXPIRED")),
        ("from before the count", ask(&old.sign(&signer), "bob", &key), (403, "INVALID_TOKEN")),
        ("edited endpoint", ask(&elsewhere.sign(&signer), "bob", &key), (400, "INVALID_TOKEN")),
        ("another swarm", ask(&another.sign(&signer), "bob", &key), (404, "SWARM_NOT_FOUND")),
        ("the master's id", ask(&token, "alice", &key), (403, "ALREADY_MEMBER")),
        ("the master's id in other case", ask(&token, "Alice", &key), (403, "ALREADY_MEMBER")),
        ("the master's id and a type", ask(&token, "alicemessage", &key), (403, "ALREADY_MEMBER")),
        ("everybody", ask(&token, "broadcast", &key), (400, "INVALID_FORMAT")),
        ("no token", ask("a.b.c", "bob", &key), (400, "INVALID_TOKEN")),
    ];
    for (what, request, expected) in table {
        let answer = world.post(&alice, "join", &request).await;
        assert_eq!(code(&answer), expected, "{what}: {}", answer.1);
        assert!(answer.1.get("members").is_none(), "{what}: no roster for strangers");
    }
    assert_eq!(world.post(&alice, "join", &ask(&token, "bob", &key)).await.0, StatusCode::OK);
    assert_eq!(code(&world.post(&alice, "join", &ask(&token, "bob", &other)).await), (403, "ALREADY_MEMBER"));
    assert_eq!(code(&world.post(&alice, "join", &ask(&token, "rob", &key)).await), (403, "ALREADY_MEMBER"));
    assert_eq!(
        world.post(&alice, "join", &ask(&token, "bob", &key)).await.0,
        StatusCode::OK,
        "again is no harm"
    );
    alice.swarms.revoke(None, &made.digest[..10]).await.unwrap();
    let third = SecretKey::from_seed(&[2; 32]);
    assert_eq!(code(&world.post(&alice, "join", &ask(&token, "carl", &third)).await), (403, "INVALID_TOKEN"));
    assert_eq!(alice.members(), ["alice", "bob"]);
}

/// S15: the eleventh request to join within an hour.
#[tokio::test(flavor = "multi_thread")]
async fn requests_to_join_are_limited() {
    let world = World::new();
    let alice = world.peer("alice").await;
    let swarm = alice.create("Research").await.swarm_id;
    let key = SecretKey::from_seed(&[9; 32]);
    let token = alice.invite().await.token;
    let mut answers = Vec::new();
    for _ in 0..11 {
        let request =
            join_request(&token, "alice", "https://127.0.0.1:9/swarm", &key, "alice", swarm, alice.now());
        answers.push(world.post(&alice, "join", &request).await.0.as_u16());
    }
    assert_eq!(answers[..10], [403; 10]);
    assert_eq!(answers[10], 429);
}

/// S5, S7: a stranger, or a failed signature, makes no connection to where they say.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_called_on_the_word_of_a_stranger() {
    let world = World::new();
    let (alice, swarm, key) = with_member_and(&world, |config| config.client.allow.clear()).await;
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let url = format!("https://127.0.0.1:{}/swarm", trap.local_addr().unwrap().port());
    for endpoint in
        [url.as_str(), "https://169.254.169.254/latest", "https://localhost:22", "https://[::ffff:10.0.0.1]"]
    {
        let mut message = Forged::new(swarm, "stranger", "hi", alice.now()).signed(&key).value;
        message["sender"]["endpoint"] = endpoint.into();
        assert_eq!(world.post(&alice, "message", &message).await.0, StatusCode::FORBIDDEN);
        message["sender"]["agent_id"] = "mallory".into();
        message["signature"] = "AAAA".into();
        assert_eq!(world.post(&alice, "message", &message).await.0, StatusCode::UNAUTHORIZED);
    }
    // An unsigned join is confirmed at its endpoint, but never at one of these.
    let token = alice.invite().await.token;
    let mut request =
        join_request(&token, "bob", &url, &SecretKey::from_seed(&[3; 32]), "alice", swarm, alice.now());
    request.as_object_mut().unwrap().remove("signature");
    assert_eq!(world.post(&alice, "join", &request).await.0, StatusCode::FORBIDDEN);
    assert_eq!(trap.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody was called");
}

/// S18: a peer that is away gets everything in its order once it is back, and holds up nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_was_away_catches_up_in_order() {
    let world = World::new();
    let (alice, mut bob, carol) =
        (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    alice.create("Research").await;
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    bob.knows(&["alice", "bob", "carol"]).await;
    bob.stop().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(alice.send("alice", "all@research", &format!("news {n}"), None).await);
    }
    carol.gets("news 4").await;
    // The roster changes while it is away, too.
    alice.swarms.kick(None, "carol", None).await.unwrap();
    bob.serve().await;
    for id in ids {
        let states: Vec<_> = alice.settled(id).await.iter().map(|delivery| delivery.state).collect();
        assert!(states.iter().all(|state| *state == DeliveryState::Delivered), "{states:?}");
    }
    bob.gets("news 4").await;
    let news: Vec<String> = bob
        .journal()
        .await
        .into_iter()
        .map(|stored| stored.message.body)
        .filter(|body| body.starts_with("news"))
        .collect();
    assert_eq!(news, ["news 0", "news 1", "news 2", "news 3", "news 4"]);
    bob.knows(&["alice", "bob"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_taken_over_on_the_word_of_the_old_one() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    let old = bob.key().public();
    let new = bob.swarms.rotate_key(None).await.unwrap();
    assert_ne!(old, new);
    bob.send("bob", "alice@research", "with the new key", None).await;
    alice.gets("with the new key").await;
    let bob_id = bob.id.clone();
    alice.until("alice has the new key", || alice.swarm().members[&bob_id].public_key == new).await;
    assert_eq!(std::fs::read(bob.home().join("agent.key")).unwrap().len(), 32);
    let forged = Forged::new(alice.swarm().swarm_id, "bob", "with the old key", alice.now())
        .signed(&SecretKey::from_seed(&[1; 32]));
    assert_eq!(world.post(&alice, "message", &forged.value).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_json_is_the_owners_alone_and_brings_a_new_hub_back_to_its_swarms() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    alice.create("Research").await;
    bob.join(&alice.invite().await).await;
    let path = bob.home().join("state.json");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(bob.home()).unwrap().permissions().mode() & 0o777, 0o700);
    let state = crate::MembershipState::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(state.swarms.values().next().unwrap().members.len(), 2);
    let exported = bob.swarms.export(None).unwrap();
    assert!(exported.exported_at.is_some());
    let text = String::from_utf8(exported.to_bytes()).unwrap();
    let seed = std::fs::read(bob.home().join("agent.key")).unwrap();
    assert!(!text.contains(&crate::base64(&seed)), "S21: no private key in it");
    // Taken over by a hub that knows nothing but the key.
    let id = alice.swarm().swarm_id;
    bob.swarms
        .edit(&bob.id.clone(), id, |swarm| {
            swarm.standing = Standing::Left;
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(bob.swarms.import(None, text.as_bytes(), crate::Merge::Add).await.unwrap(), 1);
    assert_eq!(bob.members(), ["alice", "bob"]);
    bob.send("bob", "alice@research", "back again", None).await;
    alice.gets("back again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_needs_approval_waits_for_it() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    let settings = crate::SwarmSettings { require_approval: true, ..<_>::default() };
    alice.swarms.create(None, "Closed", None, settings).await.unwrap();
    let link = alice.invite().await;
    let asked = bob.swarms.join(None, &link, None).await.unwrap();
    assert!(matches!(asked, crate::JoinOutcome::Pending { .. }), "{asked:?}");
    assert_eq!(alice.members(), ["alice"]);
    alice.swarms.decide(None, "bob", true).await.unwrap();
    bob.join(&link).await;
    assert_eq!(bob.members(), ["alice", "bob"]);
    let carol = world.peer("carol").await;
    carol.swarms.join(None, &link, None).await.unwrap();
    alice.swarms.decide(None, "carol", false).await.unwrap();
    let denied = carol.swarms.join(None, &link, None).await.unwrap_err();
    assert!(denied.to_string().contains("denied"), "{denied}");
}

/// A member that missed a change asks the master for the whole roster.
#[tokio::test(flavor = "multi_thread")]
async fn a_roster_that_fell_behind_is_asked_for() {
    let world = World::new();
    let (alice, bob, carol) = (world.peer("alice").await, world.peer("bob").await, world.peer("carol").await);
    alice.create("Research").await;
    let link = alice.invite().await;
    bob.join(&link).await;
    carol.join(&link).await;
    bob.knows(&["alice", "bob", "carol"]).await;
    let (id, lost) = (alice.swarm().swarm_id, carol.id.clone());
    let forget = move |swarm: &mut crate::Swarm| {
        swarm.members.remove(&lost);
        swarm.epoch -= 1;
        Ok(())
    };
    bob.swarms.edit(&bob.id.clone(), id, forget).await.unwrap();
    alice.send("alice", "bob@research", "by the way", None).await;
    bob.knows(&["alice", "bob", "carol"]).await;
    assert_eq!(bob.swarm().epoch, alice.swarm().epoch);
}
