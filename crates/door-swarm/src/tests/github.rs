//! GitHub webhooks (§8) on their own socket become notifications; nothing else is accepted there.

use aws_lc_rs::hmac;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use switchboard_https::{Limits, Url};
use test_support::ports::free_port;

use crate::config::{GitHub, Secret};
use crate::invite::hex;
use crate::test_peer::{TestPeer, World, with_timeout};

const SECRET: &str = "a secret that GitHub has as well";

/// A swarm of two, one of which listens for webhooks on the returned port.
async fn listening(world: &World) -> (TestPeer, TestPeer, u16) {
    let port = free_port();
    let alice = world
        .peer_with("alice", |config| {
            let mut listen = config.listen.clone().unwrap();
            listen.address.set_port(port);
            let (secret, repos) = (Secret::new(SECRET), vec!["Acme/Parser".to_owned()]);
            config.github = Some(GitHub { listen, secret, swarm: None, repos });
        })
        .await;
    alice.create("Research").await;
    let bob = world.peer("bob").await;
    bob.join(&alice.invite().await).await;
    (alice, bob, port)
}

fn issue(repo: &str) -> Value {
    json!({
        "action": "opened", "repository": { "full_name": repo },
        "issue": { "number": 7, "title": "It breaks", "html_url": format!("https://github.com/{repo}/issues/7") },
    })
}

fn signature(body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body.as_bytes());
    format!("sha256={}", hex(tag.as_ref()))
}

/// Posts a webhook and returns the answer.
async fn post(
    world: &World,
    port: u16,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (StatusCode, Value) {
    let url = Url::parse(&format!("https://127.0.0.1:{port}{path}")).unwrap();
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let call =
        world.client.post_json(&url, headers, Bytes::copy_from_slice(body.as_bytes()), Limits::default());
    let answer = with_timeout(call).await.unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_webhook_notifies_swarm_once() {
    let world = World::new();
    let (_alice, bob, port) = listening(&world).await;
    let hook = "/hooks/github";
    let body = issue("acme/parser").to_string();
    let signed = signature(&body);
    let headers =
        [("x-hub-signature-256", &*signed), ("x-github-event", "issues"), ("x-github-delivery", "d-1")];
    let first = post(&world, port, hook, &headers, &body).await;
    assert_eq!((first.0, first.1["status"].as_str()), (StatusCode::OK, Some("queued")));
    // GitHub redelivers a webhook without an answer.
    let again = post(&world, port, hook, &headers, &body).await;
    assert_eq!(again.1["id"], first.1["id"]);
    let notice = bob.wait_for_text("New issue: #7 It breaks").await.message;
    assert_eq!(notice.kind.as_str(), "notification");
    let signed_part = &notice.metadata["swarm.signed"];
    assert_eq!(signed_part["references"][0]["repo"], "acme/parser");
    assert_eq!(signed_part["metadata"]["github_url"], "https://github.com/acme/parser/issues/7");
    assert_eq!(signed_part["metadata"]["action"], "issue_created");

    // Other repositories and events are ignored.
    let other = issue("acme/elsewhere").to_string();
    let other_signed = signature(&other);
    let headers = [("x-hub-signature-256", &*other_signed), ("x-github-event", "issues")];
    assert_eq!(post(&world, port, hook, &headers, &other).await.1["status"], "ignored");
    let headers = [("x-hub-signature-256", &*signed), ("x-github-event", "push")];
    assert_eq!(post(&world, port, hook, &headers, &body).await.1["status"], "ignored");
    assert_eq!(bob.count("New issue: #7 It breaks").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_webhook_is_refused() {
    let world = World::new();
    let (alice, _bob, port) = listening(&world).await;
    let before = alice.journal().await.len();
    let (hook, body) = ("/hooks/github", issue("acme/parser").to_string());
    let other = signature("something else");
    let broken = signature("not JSON");
    for (headers, sent, expected) in [
        (&[("x-github-event", "issues")][..], &*body, 401),
        (&[("x-hub-signature-256", &*other), ("x-github-event", "issues")], &body, 401),
        (&[("x-hub-signature-256", "sha256="), ("x-github-event", "issues")], &body, 401),
        (&[("x-hub-signature", "sha1=00"), ("x-github-event", "issues")], &body, 401),
        (&[("x-hub-signature-256", &*broken), ("x-github-event", "issues")], "not JSON", 400),
        (&[("x-hub-signature-256", &*other)], &"x".repeat(2 << 20), 413),
    ] {
        let answer = post(&world, port, hook, headers, sent).await;
        assert_eq!(answer.0.as_u16(), expected, "{headers:?}: {}", answer.1);
    }
    // The protocol is not served on this listener, nor webhooks on the other one.
    for path in ["/swarm/message", "/swarm/info", "/", "/hooks"] {
        assert_eq!(post(&world, port, path, &[], &body).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(post(&world, alice.port, hook, &[], &body).await.0, StatusCode::NOT_FOUND);
    assert_eq!(alice.journal().await.len(), before);
}
