//! Unauthorized join requests, each on a real socket, and joins that wait for approval.

use http::StatusCode;
use uuid::Uuid;

use super::rig::{code, join_request, with_member_and};
use crate::invite::Token;
use crate::keys::SecretKey;
use crate::test_peer::{Forged, World};

/// Eight concurrent requests with an invite for one.
#[tokio::test(flavor = "multi_thread")]
async fn single_use_invite_admits_one_concurrently() {
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
    for join in asking {
        answers.push(join.await.unwrap());
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

/// The same token with another header.
fn with_header(token: &str, header: &str) -> String {
    use base64::Engine as _;
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header);
    format!("{header}.{}", token.split_once('.').unwrap().1)
}

/// Forged tokens, ids and keys of others, missing proofs.
#[tokio::test(flavor = "multi_thread")]
async fn unauthorized_joins_are_refused() {
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
        (
            "no algorithm",
            ask(&with_header(&token, r#"{"alg":"none","typ":"JWT"}"#), "bob", &key),
            (400, "INVALID_TOKEN"),
        ),
        (
            "another algorithm",
            ask(&with_header(&token, r#"{"alg":"HS256"}"#), "bob", &key),
            (400, "INVALID_TOKEN"),
        ),
        ("no signature", ask(token.rsplit_once('.').unwrap().0, "bob", &key), (400, "INVALID_TOKEN")),
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
    // A member gets no roster with an expired invite either.
    for (token, expected) in
        [(token, (403, "INVALID_TOKEN")), (expired.sign(&signer), (401, "TOKEN_EXPIRED"))]
    {
        let answer = world.post(&alice, "join", &ask(&token, "bob", &key)).await;
        assert_eq!(code(&answer), expected);
        assert!(answer.1.get("members").is_none(), "{}", answer.1);
    }
}

/// The eleventh join request within an hour.
#[tokio::test(flavor = "multi_thread")]
async fn join_requests_are_rate_limited() {
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

/// A request without a valid signature causes no connection to the address it names (no SSRF).
#[tokio::test(flavor = "multi_thread")]
async fn unverified_requests_cause_no_outgoing_calls() {
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
    // The endpoint of an unsigned join is confirmed, but never at one of these addresses.
    let token = alice.invite().await.token;
    let mut request =
        join_request(&token, "bob", &url, &SecretKey::from_seed(&[3; 32]), "alice", swarm, alice.now());
    request.as_object_mut().unwrap().remove("signature");
    assert_eq!(world.post(&alice, "join", &request).await.0, StatusCode::FORBIDDEN);
    assert_eq!(trap.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody was called");
}

#[tokio::test(flavor = "multi_thread")]
async fn candidate_waits_for_approval() {
    let world = World::new();
    let (alice, bob) = (world.peer("alice").await, world.peer("bob").await);
    let settings = crate::SwarmSettings { require_approval: true, ..<_>::default() };
    alice.swarms.create(None, "Closed", None, settings).await.unwrap();
    let link = alice.invite().await;
    let joined = bob.swarms.join(None, &link, None).await.unwrap();
    assert!(matches!(joined, crate::JoinOutcome::Pending { .. }), "{joined:?}");
    assert_eq!(alice.members(), ["alice"]);
    // The owner who decides is notified once.
    let is_told = |message: &switchboard_core::Message| message.body.contains("swarm approve bob");
    alice.wait_for_message("a word that bob waits", is_told).await;
    bob.swarms.join(None, &link, None).await.unwrap();
    assert_eq!(alice.journal().await.iter().filter(|stored| is_told(&stored.message)).count(), 1);
    alice.swarms.decide_join(None, "bob", true).await.unwrap();
    bob.wait_until("bob has heard", || !bob.swarms.swarms().is_empty()).await;
    assert_eq!(bob.members(), ["alice", "bob"]);
    let carol = world.peer("carol").await;
    carol.swarms.join(None, &link, None).await.unwrap();
    alice.swarms.decide_join(None, "carol", false).await.unwrap();
    let denied = carol.swarms.join(None, &link, None).await.unwrap_err();
    assert!(denied.to_string().contains("denied"), "{denied}");
}
