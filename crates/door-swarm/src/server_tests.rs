use switchboard_sys::clock::Clock;

use super::*;
use crate::test_peer::World;

/// A hub with a manual clock and these limits for requests and joins.
async fn server(per_client: u32, joins: u32) -> (crate::test_peer::TestPeer, Server) {
    let clock = Clock::manual(Clock::system().now());
    let limit = |config: &mut crate::Config| {
        (config.limits.per_client, config.limits.joins) = (per_client, joins);
    };
    let peer = World::new().peer_at("alice", clock, limit).await;
    let (tasks, _) = mpsc::channel(1);
    let server = Server::new(peer.swarms.clone(), tasks, None);
    (peer, server)
}

async fn ask(server: &Server, method: &str, path: &str, kind: &str, body: &str) -> u16 {
    let request = http::Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    match server.route(request).await {
        Ok(response) => response.status().as_u16(),
        Err(problem) => problem.status.as_u16(),
    }
}

/// The client chooses path, method, type and body: none of them exempts a request from the limit.
#[tokio::test(flavor = "multi_thread")]
async fn request_counts_once_for_its_client() {
    let json = "application/json";
    let garbage = r#"{"type":"system","action":"join_request","invite_token":"a.b.c","sender":{}}"#;
    let large = "x".repeat(300 << 10);
    let table = [
        ("GET", "/swarm/health", json, "", 200),
        ("GET", "/swarm/info", json, "", 200),
        ("POST", "/swarm/info", json, "", 405),
        ("DELETE", "/swarm/message", json, "", 405),
        ("GET", "/swarm/join", json, "", 405),
        ("GET", "/", json, "", 404),
        ("POST", "/swarm/nothing", json, "{}", 404),
        ("POST", "/swarm/message", json, "{", 400),
        ("POST", "/swarm/message", json, "", 400),
        ("POST", "/swarm/message", json, "[]", 400),
        ("POST", "/swarm/message", "text/plain", "{}", 400),
        ("POST", "/swarm/message", json, large.as_str(), 413),
        ("POST", "/swarm/join", json, garbage, 400),
        ("POST", "/swarm/join", "text/plain", garbage, 400),
    ];
    for (method, path, kind, body, expected) in table {
        let (_peer, server) = server(3, 0).await;
        for _ in 0..3 {
            assert_eq!(ask(&server, method, path, kind, body).await, expected, "{method} {path}");
        }
        assert_eq!(ask(&server, method, path, kind, body).await, 429, "{method} {path}");
        assert_eq!(ask(&server, "GET", "/swarm/health", json, "").await, 429, "after {method} {path}");
    }
}

/// Join requests have their own limit, which invalid tokens use up as well.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_tokens_count_as_joins() {
    let (_peer, server) = server(0, 2).await;
    for (kind, expected) in [("application/json", 400), ("text/plain", 400), ("application/json", 429)] {
        assert_eq!(ask(&server, "POST", "/swarm/join", kind, "{").await, expected, "{kind}");
    }
    assert_eq!(ask(&server, "GET", "/swarm/join", "text/plain", "").await, 405, "no request to join");
    assert_eq!(ask(&server, "GET", "/swarm/health", "text/plain", "").await, 200);
}
