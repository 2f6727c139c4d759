//! Children over HTTP in both eras, SSE and WebSocket, with real servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use switchboard_sys::process::{Child as Process, Spawn};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::ChildStdout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::test_child::{TestHost, call, params, quick, spec, until, with_timeout};
use super::*;
use crate::spec::Launch;

/// A server in Python, which is killed on drop.
struct Server {
    _process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Server {
    async fn start(args: &[&str]) -> Self {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/children/http_server.py");
        let spawn = Spawn::new("python3").args(["-B".into(), script.into_os_string()]).args(args);
        let spawn = spawn.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = spawn.spawn().expect("the server starts");
        let mut lines = BufReader::new(process.stdout_reader().expect("stdout is piped")).lines();
        let port = with_timeout(lines.next_line()).await.expect("stdout is readable").expect("a port");
        Self { _process: process, lines, url: format!("http://127.0.0.1:{port}/mcp") }
    }

    fn http(&self) -> Child {
        self.http_with(&[])
    }

    fn http_with(&self, headers: &[(&str, &str)]) -> Child {
        let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        remote(Launch::Http { url: self.url.clone(), headers })
    }
}

fn remote(launch: Launch) -> Child {
    let options = ChildOptions { recovery: quick(), ..ChildOptions::default() };
    Child::with_options(Arc::new(spec(launch)), options)
}

fn http(url: &str) -> Child {
    remote(Launch::Http { url: url.to_owned(), headers: BTreeMap::new() })
}

async fn anyone(child: &Child, tool: &str) -> Result<Value, ChildError> {
    call(child, tool, json!({}), &Caller::default()).await
}

async fn wait_for_change(events: &mut broadcast::Receiver<ChildEvent>) {
    loop {
        if let ChildEvent::ListChanged(ListKind::Tools) =
            with_timeout(events.recv()).await.expect("nothing is missed")
        {
            return;
        }
    }
}

#[tokio::test]
async fn session_opens_notifies_and_ends() {
    let mut server = Server::start(&["legacy"]).await;
    let child = server.http();
    let mut events = child.events();
    let answer = anyone(&child, "any").await.expect("an answer");
    assert!(answer["session"].as_str().expect("a session").starts_with("session-"));
    assert_eq!(child.initialized().expect("it is open").protocol_version, "2025-11-25");
    anyone(&child, "change").await.expect("an answer");
    wait_for_change(&mut events).await;
    let seen = anyone(&child, "seen").await.expect("an answer");
    let seen = seen["seen"].as_array().expect("a list").clone();
    let of = |method: &str| {
        let headers = seen.iter().find(|one| one["method"] == method).map(|one| one["headers"].clone());
        headers.unwrap_or_default()
    };
    assert_eq!(of("server/discover")["MCP-Protocol-Version"], "2026-07-28");
    assert_eq!(of("initialize"), json!({}));
    assert_eq!(
        of("tools/call"),
        json!({"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": answer["session"]})
    );
    with_timeout(child.stop()).await;
    assert_eq!(
        with_timeout(server.lines.next_line()).await.expect("it is readable").as_deref(),
        Some("deleted")
    );
}

#[tokio::test]
async fn expired_session_is_reopened_once() {
    let server = Server::start(&["legacy"]).await;
    let child = server.http();
    let first = anyone(&child, "forget").await.expect("an answer");
    let second = anyone(&child, "any").await.expect("an answer");
    assert_ne!(first["session"], second["session"]);
    assert_eq!(child.status().counts.starts, 2);
    assert_eq!(child.status().counts.crashes, 0);
}

#[tokio::test]
async fn broken_stream_is_resumed() {
    let server = Server::start(&["events"]).await;
    let child = server.http();
    let mut events = child.events();
    let host = TestHost::new("host", json!({}));
    let answer = call(&child, "any", json!({"kept": 1}), &host.caller()).await.expect("an answer");
    assert_eq!(answer["params"]["arguments"], json!({"kept": 1}));
    let Ok(ChildEvent::Notification { params, .. }) = with_timeout(events.recv()).await else {
        panic!("it said something first")
    };
    assert_eq!(params.get(), r#"{"data": "soon"}"#);
}

#[tokio::test]
async fn request_on_call_stream_reaches_its_caller() {
    let server = Server::start(&["events"]).await;
    let child = server.http();
    let other = TestHost::new("other", json!({"roots": {}}));
    with_timeout(child.open(&other.caller())).await.expect("it opens");
    let host = TestHost::new("host", json!({"roots": {}}));
    let answer = call(&child, "roots", json!({}), &host.caller()).await.expect("an answer");
    assert_eq!(answer["told"]["result"]["by"], "host");
    assert!(other.asked.lock().is_empty());
}

#[tokio::test]
async fn sessionless_server_gets_headers_and_subscription() {
    let server = Server::start(&["modern"]).await;
    let child = server.http();
    let mut events = child.events();
    let opened = with_timeout(child.open(&Caller::default())).await.expect("it opens");
    assert_eq!(
        (opened.protocol_version.as_str(), &opened.server_info),
        ("2026-07-28", &json!({"name": "modern"}))
    );
    let answer = anyone(&child, "näme").await.expect("an answer");
    assert_eq!(answer["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    anyone(&child, "change").await.expect("an answer");
    wait_for_change(&mut events).await;
    // A cancelled call is abandoned.
    let caller = Caller::default();
    let (hung, ()) = tokio::join!(call(&child, "hang", json!({}), &caller), async {
        until(|| child.status().counts.calls == 4).await;
        caller.cancelled.cancel();
    });
    assert!(matches!(hung, Err(ChildError::Cancelled)), "{hung:?}");
    let seen = with_timeout(async {
        loop {
            let seen = anyone(&child, "seen").await.expect("an answer");
            let seen = seen["seen"].as_array().expect("a list").clone();
            if seen.contains(&json!("closed")) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let headers = json!({
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "=?base64?bsOkbWU=?=",
    });
    assert!(seen.contains(&json!({"method": "tools/call", "headers": headers})), "{seen:?}");
    assert!(seen.iter().all(|one| one["method"] != "notifications/cancelled"), "{seen:?}");
}

#[tokio::test]
async fn annotated_arguments_are_mirrored_in_headers() {
    let server = Server::start(&["modern"]).await;
    let child = server.http();
    // The server rejects the first call for a missing header, which its tool list announces.
    for region in ["eu", "us"] {
        let answer = call(&child, "regional", json!({"region": region}), &Caller::default()).await;
        assert_eq!(answer.expect("an answer")["params"]["arguments"]["region"], region);
    }
    // The handshake, a rejected call, the list, the retried call, and the second call.
    assert_eq!(child.status().counts.calls, 5);
}

#[tokio::test]
async fn sse_transport_works() {
    let server = Server::start(&["sse"]).await;
    let child = remote(Launch::Sse { url: server.url.clone(), headers: BTreeMap::new() });
    let answer = call(&child, "any", json!({"kept": 1}), &Caller::default()).await.expect("an answer");
    assert_eq!(answer["params"]["arguments"], json!({"kept": 1}));
    let mut events = child.events();
    drop(server);
    let stopped = with_timeout(events.recv()).await;
    assert!(matches!(stopped, Ok(ChildEvent::Stopped { .. })), "{stopped:?}");
}

#[tokio::test]
async fn sse_endpoint_may_follow_other_events() {
    let server = Server::start(&["sse", "late"]).await;
    let child = remote(Launch::Sse { url: server.url.clone(), headers: BTreeMap::new() });
    anyone(&child, "any").await.expect("an answer");
}

#[tokio::test]
async fn error_status_is_a_rejection() {
    let server = Server::start(&["legacy"]).await;
    let child = server.http();
    let error = anyone(&child, "status 429").await.expect_err("it is refused").to_string();
    assert_eq!(
        error,
        "`fixture` refused the request: it answered with the status 429 Too Many Requests: not now"
    );
    let error = anyone(&child, "status 500").await.expect_err("it is refused").to_string();
    assert!(error.contains("500 Internal Server Error: not now; whether the call took effect"), "{error}");
    // The server is still running.
    anyone(&child, "any").await.expect("an answer");
    assert_eq!(child.status().counts.starts, 1);
}

#[tokio::test]
async fn sse_only_server_is_detected() {
    let server = Server::start(&["sse"]).await;
    let child = server.http();
    anyone(&child, "any").await.expect("an answer");
    assert_eq!(child.status().counts.starts, 1);
}

#[tokio::test]
async fn cross_origin_endpoint_is_refused() {
    let server = Server::start(&["sse", "elsewhere"]).await;
    let child = remote(Launch::Sse { url: server.url.clone(), headers: BTreeMap::new() });
    let error = anyone(&child, "any").await.expect_err("it is refused").to_string();
    assert!(error.contains("names http://127.0.0.1:1"), "{error}");
}

#[tokio::test]
async fn redirects_are_reported_not_followed() {
    let server = Server::start(&["redirect"]).await;
    let error = anyone(&server.http(), "any").await.expect_err("it is refused").to_string();
    assert!(error.contains("redirects to http://169.254.169.254/latest/meta-data"), "{error}");
}

#[tokio::test]
async fn server_gets_only_declared_headers() {
    let server = Server::start(&["guarded"]).await;
    let error = anyone(&server.http(), "any").await.expect_err("it is refused").to_string();
    assert!(error.contains("401 Unauthorized: who are you?; set its `headers` in its file"), "{error}");
    let child = server.http_with(&[("Authorization", "Bearer theirs")]);
    anyone(&child, "any").await.expect("an answer");
    let child = server.http_with(&[("Mcp-Session-Id", "mine")]);
    let error = anyone(&child, "any").await.expect_err("it is refused").to_string();
    assert!(error.contains("the header `Mcp-Session-Id` is set by the protocol"), "{error}");
}

#[tokio::test]
async fn ssrf_addresses_are_refused_before_sending() {
    for url in [
        "http://169.254.169.254/mcp",
        "http://[fe80::1]/mcp",
        "http://[::ffff:169.254.169.254]/",
        "http://2852039166/",
    ] {
        let error = anyone(&http(url), "any").await.expect_err(url).to_string();
        assert!(error.contains("link-local or metadata address"), "{url}: {error}");
    }
    for url in ["file:///etc/passwd", "javascript:alert(1)", "nonsense"] {
        let error = anyone(&http(url), "any").await.expect_err(url).to_string();
        assert!(error.contains("correct `url` in fixture/.mcp.json"), "{url}: {error}");
    }
}

#[tokio::test]
async fn unreachable_server_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    drop(listener);
    let error = anyone(&http(&url), "any").await.expect_err("nobody is there");
    assert!(matches!(error, ChildError::CannotStart { .. }), "{error}");
    assert!(error.to_string().contains("it cannot be reached"), "{error}");
}

/// Answers on a WebSocket until it is closed; returns the subprotocol header of its handshake.
async fn serve_socket(listener: TcpListener) -> Option<String> {
    let (stream, _) = listener.accept().await.expect("somebody connects");
    let mut protocol = None;
    #[expect(clippy::result_large_err, reason = "the library wants it so")]
    let accept = |request: &Request, mut response: Response| {
        let header = request.headers().get("sec-websocket-protocol").cloned();
        if let Some(header) = header {
            protocol = header.to_str().ok().map(str::to_owned);
            response.headers_mut().insert("sec-websocket-protocol", header);
        }
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, accept).await.expect("a WebSocket");
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let message: Value = serde_json::from_str(&text).expect("it is JSON");
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
            Some("tools/call") => json!({"params": message["params"]}),
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        socket.send(Message::text(answer.to_string())).await.expect("it is sent");
    }
    protocol
}

#[tokio::test]
async fn websocket_transport_works() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("ws://{}/mcp", listener.local_addr().expect("an address"));
    let server = tokio::spawn(serve_socket(listener));
    let child = remote(Launch::Ws { url, headers: BTreeMap::new() });
    let request = params(json!({"name": "any", "arguments": {"z": 1, "a": 2}}));
    let answer = with_timeout(child.request("tools/call", Some(request), &Caller::default()))
        .await
        .expect("an answer");
    assert!(answer.get().starts_with(r#"{"params":"#), "{answer}");
    assert_eq!(child.initialized().expect("it is open").protocol_version, "2025-06-18");
    with_timeout(child.stop()).await;
    assert_eq!(with_timeout(server).await.expect("it ended").as_deref(), Some("mcp"));
}
