//! Tests of the admission of requests, and of the responses to rejected ones.

use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::rig::{Rig, call, initialize, listed, modern_call, modern_headers};
use crate::HttpConfig;

const ROUTES: [&str; 6] =
    ["GET /health", "GET /sse", "POST /messages?sessionId=x", "POST /mcp", "GET /extra", "GET /nowhere"];

#[tokio::test]
async fn foreign_host_is_rejected_on_every_route() {
    let rig = Rig::start().await;
    for route in ROUTES {
        for host in ["evil.com", "0.0.0.0", "127.0.0.1:1", "localhost.evil.com", "127.0.0.1.nip.io"] {
            let request = format!("{route} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(rig.send(request).await.problem(), (403, json!("host_not_allowed")), "{route} {host}");
        }
        for hosts in ["", "Host: \r\n", "Host: a@localhost\r\n", "Host: localhost\r\nHost: localhost\r\n"] {
            let request = format!("{route} HTTP/1.1\r\n{hosts}\r\n");
            assert_eq!(rig.send(request).await.problem(), (400, json!("bad_host")), "{route} {hosts}");
        }
        let (_, path) = route.split_once(' ').unwrap();
        let request = format!("GET http://evil.com{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(rig.send(request).await.problem(), (403, json!("host_not_allowed")), "{route}");
    }
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        for port in [String::new(), format!(":{}", rig.port)] {
            let request = format!("GET /health HTTP/1.1\r\nHost: {host}{port}\r\n\r\n");
            assert_eq!(rig.send(request).await.status, 200, "{host}{port}");
        }
    }
}

#[tokio::test]
async fn foreign_origin_is_rejected_on_every_route() {
    let config =
        HttpConfig { allowed_origins: vec!["https://app.example".to_owned()], ..HttpConfig::default() };
    let rig = Rig::with(config).await;
    for route in ROUTES {
        for origin in
            ["https://evil.com", "null", "http://localhost:1", "http://127.0.0.1", "file://", "x", ""]
        {
            let reply = rig.ask(route, &[&format!("Origin: {origin}")], "{}").await;
            assert_eq!(reply.problem(), (403, json!("origin_not_allowed")), "{route} {origin}");
        }
    }
    for origin in [format!("http://localhost:{}", rig.port), "https://app.example".to_owned()] {
        let reply = rig.ask("GET /extra", &[&format!("Origin: {origin}")], "").await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "extra"), "{origin}");
    }
}

#[tokio::test]
async fn browser_requests_without_preflight_are_rejected() {
    let rig = Rig::start().await;
    let (port, token, body) = (rig.port, rig.token.reveal(), initialize("2025-11-25"));
    for kind in ["text/plain", "application/x-www-form-urlencoded", "text/plain; application/json", ""] {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = rig.send(request).await;
        assert_eq!(reply.problem(), (415, json!("not_json")), "{kind}");
        assert!(!reply.head.to_lowercase().contains("access-control"), "{}", reply.head);
    }
    for route in ["/mcp", "/sse", "/health", "/extra"] {
        let reply = rig.ask(&format!("OPTIONS {route}"), &["Access-Control-Request-Method: POST"], "").await;
        assert_eq!(reply.problem(), (403, json!("preflight_refused")));
        assert!(!reply.head.to_lowercase().contains("access-control"), "{}", reply.head);
    }
}

#[tokio::test]
async fn wrong_token_is_rejected_and_rate_limited() {
    let rig = Rig::start().await;
    let token = rig.token.reveal();
    let last = if token.ends_with('0') { "1" } else { "0" };
    let nearly = format!("Authorization: Bearer {}{last}", &token[..63]);
    let basic = format!("Authorization: Basic {token}");
    let ask = async |route: &str, header: &str| {
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        rig.send(format!("{route} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n")).await
    };
    for route in &ROUTES[1..] {
        let reply = ask(route, "").await;
        assert_eq!(reply.problem(), (401, json!("token_missing")), "{route}");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
    }
    for header in [nearly.as_str(), &basic, "Authorization: Bearer", "Authorization: Bearer  "] {
        assert_eq!(ask("GET /extra", header).await.problem(), (401, json!("token_wrong")), "{header}");
    }
    let mut refused = ask("GET /extra", &nearly).await;
    for _ in 0..30 {
        refused = ask("GET /extra", &nearly).await;
    }
    assert_eq!(refused.problem(), (429, json!("too_many_wrong_tokens")));
    refused.header("retry-after").unwrap().parse::<u32>().unwrap();
    assert_eq!(rig.ask("GET /extra", &[], "").await.status, 200, "the right token never waits");
}

#[tokio::test]
async fn query_token_is_accepted_only_for_sse() {
    let rig = Rig::start().await;
    let token = rig.token.reveal();
    let bare = |line: &str| format!("{line} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for path in ["/mcp", "/extra", "/nowhere"] {
        let reply = rig.send(bare(&format!("GET {path}?token={token}"))).await;
        assert_eq!(reply.problem(), (401, json!("token_missing")), "{path}");
    }
    let wrong = rig.send(bare("GET /sse?token=wrong")).await;
    assert_eq!(wrong.problem(), (401, json!("token_wrong")));

    let mut stream = rig.connect(bare(&format!("GET /sse?token={token}"))).await;
    let heard = stream.read_until("\n\n").await;
    let endpoint = heard.split_once("data: ").unwrap().1.lines().next().unwrap().to_owned();
    assert!(endpoint.ends_with(&format!("&token={token}")), "{endpoint}");
    let body = initialize("2024-11-05");
    let post = format!(
        "POST {endpoint} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(rig.send(post).await.status, 202);
    stream.read_until("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\"").await;

    let (_stream, endpoint) = rig.sse("", &[]).await;
    assert!(!endpoint.contains("token"), "{endpoint}");
    let without = rig.send(format!(
        "POST {endpoint} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n"
    ));
    assert_eq!(without.await.problem(), (401, json!("token_missing")));
}

/// Log writer that stores everything for the test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn token_is_never_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("trace,polling=off,mio=off")
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    let rig = Rig::start().await;
    let token = rig.token.reveal();
    let session = rig.session(&[]).await;
    assert_eq!(rig.call(&session, "whoami", &[]).await.status, 200);
    let headers = modern_headers("whoami");
    assert_eq!(
        rig.ask("POST /mcp", &listed(&headers), &modern_call("2026-07-28", "whoami")).await.status,
        200
    );
    let bare = format!("GET /sse?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stream = rig.connect(bare).await;
    stream.read_until("\n\n").await;
    rig.send(format!("GET /mcp?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;

    let text = String::from_utf8_lossy(&log.0.lock()).into_owned();
    assert!(text.contains("refused a request"), "{text}");
    assert!(!text.contains(token), "{text}");
}

/// Checks that a panicking request is answered, over streamable HTTP and SSE, as a raw call and through `rmcp`.
#[tokio::test]
async fn panicking_request_is_answered_over_http() {
    let rig = Rig::start().await;
    let session = rig.prompt_session(&[]).await;
    assert_eq!(rig.call(&session, "whoami", &[]).await.status, 200);
    let is_internal_error = |answer: &Value| answer["error"]["code"] == -32603 && answer["id"] == 1;
    // The calls reuse one id, which shows that after a panic the call is no longer in flight.
    for tool in ["panic", "prompt panic", "prompt panic later", "panic"] {
        let reply = rig.call(&session, tool, &[]).await;
        let answer = if reply.body.starts_with('{') { reply.json() } else { reply.event() };
        assert!(reply.status == 200 && is_internal_error(&answer), "{tool}: {reply:?}");
    }
    assert_eq!(rig.call(&session, "whoami", &[]).await.status, 200);

    let (headers, body) = (modern_headers("panic"), modern_call("2026-07-28", "panic"));
    let reply = rig.ask("POST /mcp", &listed(&headers), &body).await;
    assert!(reply.body.contains("-32603"), "{reply:?}");

    let (mut stream, endpoint) = rig.sse("", &[]).await;
    for body in [initialize("2024-11-05"), call(1, "panic"), call(2, "whoami")] {
        assert_eq!(rig.ask(&format!("POST {endpoint}"), &[], &body).await.status, 202);
    }
    let heard = stream.read_until("\"id\":2,").await;
    assert!(heard.contains("-32603"), "{heard}");
    assert_eq!(rig.health().await["status"], "ok");
}

#[tokio::test]
async fn invalid_messages_get_json_rpc_errors() {
    let rig = Rig::start().await;
    let (_stream, endpoint) = rig.sse("", &[]).await;
    for path in ["/mcp", &endpoint] {
        for (body, code, id) in [
            ("{", -32700, Value::Null),
            ("", -32700, Value::Null),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, Value::Null),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, json!(1.5)),
            (r#"{"id":7,"method":"ping"}"#, -32600, json!(7)),
        ] {
            let reply = rig.ask(&format!("POST {path}"), &[], body).await;
            assert_eq!((reply.problem(), &reply.json()["id"]), ((400, json!(code)), &id), "{path} {body}");
        }
    }
}

#[tokio::test]
async fn unknown_or_differing_versions_are_rejected() {
    let rig = Rig::start().await;
    let with = |version: &str| {
        [
            format!("MCP-Protocol-Version: {version}"),
            "Mcp-Method: tools/call".to_owned(),
            "Mcp-Name: x".to_owned(),
        ]
    };
    let differ = rig.ask("POST /mcp", &listed(&with("2025-11-25")), &modern_call("2026-07-28", "x")).await;
    assert_eq!(differ.problem(), (400, json!(-32020)));
    let missing = rig.ask("POST /mcp", &[], &modern_call("2026-07-28", "x")).await;
    assert_eq!(missing.problem(), (400, json!(-32020)));
    for body in [modern_call("2099-01-01", "x"), call(1, "x")] {
        let unknown = rig.ask("POST /mcp", &listed(&with("2099-01-01")), &body).await;
        assert_eq!(unknown.problem(), (400, json!(-32022)), "{body}");
        let data = unknown.json()["error"]["data"].clone();
        assert_eq!(data["requested"], "2099-01-01");
        assert!(data["supported"].as_array().unwrap().contains(&json!("2026-07-28")), "{data}");
    }
}

#[tokio::test]
async fn both_eras_share_one_endpoint() {
    let rig = Rig::start().await;
    let early = rig.ask("POST /mcp", &[], &call(1, "whoami")).await;
    assert_eq!((early.problem(), &early.json()["id"]), ((400, json!(-32600)), &json!(1)));

    let session = rig.session(&[]).await;
    let headers = modern_headers("whoami");
    let stateless = rig.ask("POST /mcp", &listed(&headers), &modern_call("2026-07-28", "whoami")).await;
    assert_eq!(stateless.text(), r#"{"agent":null,"session":false,"transport":"Stateless"}"#);
    let in_session = rig.call(&session, "whoami", &[]).await;
    assert_eq!(in_session.text(), r#"{"agent":null,"session":true,"transport":"StreamableHttp"}"#);

    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discover = json!({"jsonrpc": "2.0", "id": 3, "method": "server/discover", "params": {"_meta": meta}});
    let headers = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: server/discover"];
    let found = rig.ask("POST /mcp", &headers, &discover.to_string()).await.event();
    assert!(found["result"]["supportedVersions"].as_array().unwrap().len() >= 5, "{found}");
}

#[tokio::test]
async fn unknown_version_negotiates_newest_with_initialize() {
    let rig = Rig::start().await;
    for (requested, negotiated) in
        [("1999-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25"), ("2024-11-05", "2024-11-05")]
    {
        let reply = rig.ask("POST /mcp", &[], &initialize(requested)).await;
        assert_eq!(reply.event()["result"]["protocolVersion"], negotiated, "{requested}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_rejected() {
    let rig = Rig::start().await;
    assert_eq!(rig.ask("GET /nowhere", &[], "").await.problem(), (404, json!("path_unknown")));
    assert_eq!(rig.ask("DELETE /sse", &[], "").await.problem(), (405, json!("method_not_allowed")));
    assert_eq!(rig.ask("GET /messages", &[], "").await.problem(), (405, json!("method_not_allowed")));
    assert_eq!(rig.ask("PUT /mcp", &["Content-Type: application/json"], "").await.problem().0, 405);
    assert_eq!(rig.ask("GET /mcp", &["Accept: text/plain"], "").await.problem().0, 406);
    assert_eq!(rig.ask("POST /messages", &[], "{}").await.problem(), (400, json!("session_missing")));
    let twice = rig.ask("GET /sse?agent=a&agent=b", &[], "").await;
    assert_eq!(twice.problem(), (400, json!("bad_query")));
}

#[tokio::test]
async fn health_needs_no_token() {
    let rig = Rig::start().await;
    let (_stream, _) = rig.sse("", &[]).await;
    rig.session(&[]).await;
    let mut health = rig.health().await;
    assert!(health["uptime"].take().is_u64());
    let expected = json!({
        "workspace": "w", "status": "ok", "name": "switchboard", "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(), "uptime": null, "transport": "sse", "sessions": 2,
    });
    assert_eq!(health, expected);
}
