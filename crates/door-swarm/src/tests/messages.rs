//! Invalid messages, each as a request on a real socket.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};
use switchboard_https::{Limits, Url};
use uuid::Uuid;

use super::rig::{add_member, code, with_member, with_member_and};
use crate::keys::SecretKey;
use crate::model::MembershipStatus;
use crate::test_peer::{Forged, World};
use crate::timestamp;

#[tokio::test(flavor = "multi_thread")]
async fn valid_message_is_accepted_once() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let message = Forged::new(swarm, "mallory", "hello", alice.now()).signed(&key).value;
    let answer = world.post(&alice, "message", &message).await;
    assert_eq!(answer, (StatusCode::OK, json!({ "status": "queued", "message_id": message["message_id"] })));
    // A retry is a duplicate.
    assert_eq!(world.post(&alice, "message", &message).await.0, StatusCode::OK);
    assert_eq!(alice.count("hello").await, 1);
    // Signed again with a new time, it is still a duplicate.
    let later = timestamp::render(alice.now().saturating_add(SignedDuration::from_secs(1)).unwrap());
    let again = Forged { value: message.clone() }.with("timestamp", later).signed(&key).value;
    assert_eq!(world.post(&alice, "message", &again).await.0, StatusCode::OK);
    assert_eq!(alice.count("hello").await, 1);
    let other = Forged { value: message.clone() }.with("content", "other").signed(&key).value;
    assert_eq!(code(&world.post(&alice, "message", &other).await), (400, "INVALID_FORMAT"));
    // Also after a restart.
    let alice = alice.restart().await;
    assert_eq!(world.post(&alice, "message", &message).await.0, StatusCode::OK);
    assert_eq!(alice.count("hello").await, 1);
    // The URL aliases of both resources.
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

/// Altered, redirected, wrongly signed and badly timed messages.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_refused() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let now = alice.now();
    let good = || Forged::new(swarm, "mallory", "never", now);
    let at =
        |minutes: i64| timestamp::render(now.saturating_add(SignedDuration::from_mins(minutes)).unwrap());
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
    // Headers that contradict the message.
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

/// Once a member signs whole envelopes it always must, and no unsigned field counts before that.
#[tokio::test(flavor = "multi_thread")]
async fn unsigned_fields_have_no_effect() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let past = timestamp::render(alice.now().saturating_sub(SignedDuration::from_mins(1)).unwrap());
    let unsigned = Forged::new(swarm, "mallory", "plain", alice.now())
        .with("priority", "high")
        .with("expires_at", past.clone())
        .with("metadata", json!({ "kind": "execute" }))
        .signed(&key);
    assert_eq!(world.post(&alice, "message", &unsigned.value).await.0, StatusCode::OK);
    let got = alice.wait_for_text("plain").await.message;
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
    let got = alice.wait_for_text("whole").await.message;
    assert_eq!(got.metadata["swarm.signed"]["priority"], "high");
    assert_eq!(got.kind.as_str(), "message", "nobody has a peer type into a terminal");

    let stripped = Forged::new(swarm, "mallory", "stripped", alice.now()).signed(&key);
    assert_eq!(code(&world.post(&alice, "message", &stripped.value).await), (401, "INVALID_SIGNATURE"));
    let expired = Forged::new(swarm, "mallory", "expired", alice.now()).with("expires_at", past).whole(&key);
    assert_eq!(code(&world.post(&alice, "message", &expired.value).await), (400, "INVALID_FORMAT"));
}

/// Only the master changes the roster.
#[tokio::test(flavor = "multi_thread")]
async fn members_cannot_act_as_master() {
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
    assert_eq!(alice.swarm().status, MembershipStatus::Active);
    // Unparsable content is stored as a notice and changes nothing.
    let broken = Forged::new(swarm, "mallory", "{\"action\":\"kicked\",\"reason\":\"a \"b\"\"}", now)
        .with("type", "system");
    assert_eq!(world.post(&alice, "message", &broken.signed(&key).value).await.0, StatusCode::OK);
    // Any member may leave, once.
    let left =
        Forged::new(swarm, "mallory", "", now).system(&json!({ "action": "member_left" })).signed(&key);
    assert_eq!(world.post(&alice, "message", &left.value).await.0, StatusCode::OK);
    alice.wait_for_members(&["alice", "victim"]).await;
    // A kicked member stays out.
    let after = Forged::new(swarm, "mallory", "after", now).signed(&key);
    assert_eq!(code(&world.post(&alice, "message", &after.value).await), (403, "NOT_AUTHORIZED"));
}

/// Muted senders get the same answer as others.
#[tokio::test(flavor = "multi_thread")]
async fn muted_senders_are_dropped_silently() {
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
    alice.wait_for_text("hello").await;
}

/// The tool mutes for the agent of the session, and for no other.
#[tokio::test(flavor = "multi_thread")]
async fn mute_tool_applies_to_own_agent() {
    let world = World::new();
    let (alice, _swarm, _key) = with_member(&world).await;
    let call = async |caller: &str, arguments: Value| {
        let arguments = arguments.as_object().unwrap().clone();
        alice.swarms.call_tool(Some(&caller.parse().unwrap()), "swarm_mute", arguments).await
    };
    let muted = call("alice", json!({ "agent": "mallory@research" })).await.unwrap();
    assert_eq!(muted.data, json!({ "agent_id": "mallory", "muted": true }));
    let listed = || alice.swarms.identity(None).unwrap().muted_agents.len();
    assert_eq!(listed(), 1);
    assert!(call("codex", json!({ "agent": "mallory" })).await.is_err(), "it takes part in no swarm");
    assert!(call("alice", json!({ "agent": "mallory@elsewhere" })).await.is_err());
    call("alice", json!({ "agent": "mallory", "mute": false })).await.unwrap();
    assert_eq!(listed(), 0);
}

/// The sender above the limit gets a `Retry-After`; another sender is served.
#[tokio::test(flavor = "multi_thread")]
async fn flood_is_limited_per_sender() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let other = SecretKey::from_seed(&[8; 32]);
    add_member(&alice, "other", &other).await;
    let stranger = Forged::new(swarm, "mallory", "forged", alice.now()).signed(&other).value;
    for _ in 0..5 {
        // Forged messages in a sender's name do not count against its limit.
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

/// Large bodies are refused before they are read, and no URL is fetched.
#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_refused() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let body = Forged::new(swarm, "mallory", &"x".repeat(300 * 1024), alice.now()).signed(&key).value;
    assert_eq!(world.post(&alice, "message", &body).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    // Also if an HTTP/2 client is still sending when it is answered.
    for size in [600 << 10, 2 << 20, 8 << 20] {
        let answer = world.post_bytes(&alice, "message", vec![b'x'; size], HeaderMap::new()).await;
        assert_eq!(code(&answer), (413, "INVALID_FORMAT"), "{size}");
    }
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let answer = world.post_bytes(&alice, "message", deep.into_bytes(), HeaderMap::new()).await;
    assert_eq!(code(&answer), (400, "INVALID_FORMAT"));
}

/// A resent copy of another sender's message does not count against a limit, and gets the same answer as before.
#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_not_counted() {
    let world = World::new();
    let (alice, swarm, key) = with_member_and(&world, |config| config.limits.per_sender = 3).await;
    let message = |text: &str| Forged::new(swarm, "mallory", text, alice.now()).signed(&key).value;
    let first = message("first");
    for _ in 0..8 {
        assert_eq!(world.post(&alice, "message", &first).await.0, StatusCode::OK);
    }
    for text in ["second", "third"] {
        assert_eq!(world.post(&alice, "message", &message(text)).await.0, StatusCode::OK, "{text}");
    }
    assert_eq!(code(&world.post(&alice, "message", &message("fourth")).await), (429, "RATE_LIMITED"));
    assert_eq!(world.post(&alice, "message", &first).await.0, StatusCode::OK, "beyond the limit as well");
    assert_eq!(alice.count("first").await, 1);
}

/// The hundred and first message of a swarm within a minute, from any sender, and its `Retry-After`.
#[tokio::test(flavor = "multi_thread")]
async fn swarm_has_its_own_limit() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let other = SecretKey::from_seed(&[8; 32]);
    add_member(&alice, "other", &other).await;
    let mut refused = None;
    for n in 0..104 {
        let (sender, key) = if n % 2 == 0 { ("mallory", &key) } else { ("other", &other) };
        let message = Forged::new(swarm, sender, &format!("message {n}"), alice.now()).signed(key).value;
        let url = Url::parse(&alice.url("message")).unwrap();
        let body = Bytes::from(message.to_string());
        let answer = world.client.post_json(&url, HeaderMap::new(), body, Limits::default()).await.unwrap();
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            refused = Some((n, answer));
            break;
        }
        assert_eq!(answer.status, StatusCode::OK, "{n}");
    }
    let (n, answer) = refused.expect("a limit");
    assert!((100..104).contains(&n), "{n}");
    let reply: Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(reply["error"]["message"].as_str().unwrap().contains("of this swarm"), "{reply}");
    let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(reply["error"]["details"]["retry_after"], seconds);
}

/// Serde reads an array by position, past checks by name.
#[tokio::test(flavor = "multi_thread")]
async fn arrays_are_refused_as_messages() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let good = Forged::new(swarm, "mallory", "never", alice.now()).signed(&key).value;
    let at = |field: &str| good[field].clone();
    let fields =
        ["message_id", "timestamp", "sender", "recipient", "swarm_id", "type", "content", "signature"];
    let list: Vec<Value> = std::iter::once(json!("9.0.0")).chain(fields.map(at)).collect();
    let mut sender = good.clone();
    sender["sender"] = json!(["mallory", "https://127.0.0.1:9/swarm"]);
    let mut references = good.clone();
    references["references"] = json!([["url", null, null, null, "https://a.example.com", null]]);
    for odd in [json!(list), sender, references, json!("text"), json!(null)] {
        let answer = world.post(&alice, "message", &odd).await;
        assert_eq!(code(&answer), (400, "INVALID_FORMAT"), "{odd}");
        assert_eq!(code(&world.post(&alice, "join", &odd).await), (400, "INVALID_FORMAT"), "{odd}");
    }
    // A missing field is named.
    let mut lacking = good.clone();
    lacking.as_object_mut().unwrap().remove("content");
    let answer = world.post(&alice, "message", &lacking).await;
    assert_eq!(answer.1["error"]["details"]["field"], "content", "{}", answer.1);
    let mut lacking = good.clone();
    lacking["sender"].as_object_mut().unwrap().remove("agent_id");
    let answer = world.post(&alice, "message", &lacking).await;
    assert_eq!(answer.1["error"]["details"]["field"], "sender.agent_id", "{}", answer.1);
    assert_eq!(alice.count("never").await, 0);
}

/// Attachments and references are checked for number and format.
#[tokio::test(flavor = "multi_thread")]
async fn attachments_and_references_are_checked() {
    let world = World::new();
    let (alice, swarm, key) = with_member(&world).await;
    let attached =
        |kind: &str, content: &str| json!({ "type": kind, "mime_type": "text/plain", "content": content });
    let about = json!({ "type": "url", "url": "https://a.example.com" });
    let table = [
        ("attachments", json!([attached("inline", "not base64!")]), 400),
        ("attachments", json!([attached("url", "file:///etc/passwd")]), 400),
        ("attachments", json!([{ "type": "inline", "mime_type": "text", "content": "aGk=" }]), 400),
        ("attachments", json!(vec![attached("inline", "aGk="); 51]), 400),
        ("references", json!(vec![about.clone(); 51]), 400),
        ("references", json!(vec![about; 50]), 200),
        ("attachments", json!([attached("inline", "aGk="), attached("url", "https://a.example.com/x")]), 200),
    ];
    for (field, value, expected) in table {
        let message =
            Forged::new(swarm, "mallory", "with parts", alice.now()).with(field, value).signed(&key);
        let answer = world.post(&alice, "message", &message.value).await;
        assert_eq!(answer.0.as_u16(), expected, "{field}: {}", answer.1);
    }
}
