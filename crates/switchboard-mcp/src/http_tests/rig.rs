//! Test fixture: an HTTP server, and clients that send exact bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ProgressNotificationParam, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    Caller, HttpConfig, Listener, McpError, PortChoice, RawCall, RawCallHandler, Token, offer_raw_calls,
    response_closed, serve_http,
};

/// Timeout that suffices on a busy machine; a passing test never waits that long.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Events and counters that the handlers record.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Number of live handlers.
    pub(super) handlers: AtomicUsize,
    /// Notified when a call of `wait` has started.
    pub(super) waiting: Notify,
    /// Notified when a call of `wait` was cancelled.
    pub(super) cancelled: Notify,
    /// Notified by the test to release calls of `later`.
    pub(super) released: Notify,
    /// Notified when a call of `prompt later` has finished.
    pub(super) finished: Notify,
    /// Notified when a handler has registered its raw call handler.
    pub(super) offered: Notify,
    /// Number of running calls of `flood`.
    pub(super) floods: AtomicUsize,
    /// Notified when a handler or a call of `flood` was dropped.
    pub(super) dropped: Notify,
}

/// Guard that counts a running call of `flood`.
struct Flood<'a>(&'a Record);

impl<'a> Flood<'a> {
    fn start(record: &'a Record) -> Self {
        record.floods.fetch_add(1, Ordering::SeqCst);
        Self(record)
    }
}

impl Drop for Flood<'_> {
    fn drop(&mut self) {
        self.0.floods.fetch_sub(1, Ordering::SeqCst);
        self.0.dropped.notify_waiters();
    }
}

/// Handler whose tools exercise the transport.
pub(super) struct Shown(Arc<Record>);

impl Shown {
    fn new(record: Arc<Record>) -> Self {
        record.handlers.fetch_add(1, Ordering::SeqCst);
        Self(record)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.handlers.fetch_sub(1, Ordering::SeqCst);
        self.0.dropped.notify_waiters();
    }
}

/// Raw call handler for the prompt tools of [`Shown`].
#[derive(Clone)]
struct Prompt(Arc<Record>);

impl RawCallHandler for Prompt {
    fn accepts(&self, tool: &str) -> bool {
        tool.starts_with("prompt") || tool == "wait"
    }

    fn is_prompt(&self, tool: &str) -> bool {
        tool.starts_with("prompt")
    }

    async fn call(&self, call: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        let text = match call.tool.as_str() {
            "prompt wait" => {
                self.0.waiting.notify_one();
                call.cancelled.cancelled().await;
                self.0.cancelled.notify_one();
                json!("cancelled")
            }
            "prompt later" => {
                self.0.waiting.notify_one();
                self.0.released.notified().await;
                self.0.finished.notify_one();
                json!("at last")
            }
            "prompt panic" => panic!("on purpose"),
            "prompt panic later" => {
                tokio::task::yield_now().await;
                panic!("on purpose");
            }
            _ => {
                let Caller { transport, session, agent } = call.caller;
                let transport = format!("{transport:?}");
                let caller = json!({"transport": transport, "session": session, "agent": agent});
                json!({"caller": caller, "arguments": call.arguments})
            }
        };
        Ok(to_raw_value(&text).unwrap())
    }
}

impl ServerHandler for Shown {
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        offer_raw_calls(&context.extensions, Prompt(self.0.clone()));
        self.0.offered.notify_one();
    }

    fn get_info(&self) -> ServerConfig {
        serde_json::from_value(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "shown", "version": "1" },
        }))
        .unwrap()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = match request.name.as_ref() {
            "whoami" => {
                let caller = Caller::of(&context);
                let transport = format!("{:?}", caller.transport);
                json!({"transport": transport, "session": caller.session.is_some(), "agent": caller.agent})
                    .to_string()
            }
            "wait" => {
                self.0.waiting.notify_one();
                context.ct.cancelled().await;
                self.0.cancelled.notify_one();
                "cancelled".to_owned()
            }
            "unheard" => {
                self.0.waiting.notify_one();
                response_closed(&context).cancelled().await;
                self.0.cancelled.notify_one();
                "nobody heard it".to_owned()
            }
            "later" => {
                self.0.released.notified().await;
                "at last".to_owned()
            }
            "fails later" => {
                self.0.released.notified().await;
                return Err(ErrorData::invalid_params("failed at last", None));
            }
            "panic" => panic!("on purpose"),
            // The response is larger than all buffers together.
            "flood" => {
                let _flood = Flood::start(&self.0);
                let token = context.meta.get_progress_token().unwrap();
                for step in 0..1_000_u32 {
                    let progress = ProgressNotificationParam::new(token.clone(), f64::from(step))
                        .with_message("x".repeat(64 * 1024));
                    if context.peer.notify_progress(progress).await.is_err() {
                        break;
                    }
                }
                "flooded".to_owned()
            }
            other => other.to_owned(),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Test server on its own port.
pub(super) struct Rig {
    pub(super) port: u16,
    pub(super) token: Token,
    pub(super) record: Arc<Record>,
    pub(super) shutdown: CancellationToken,
    pub(super) served: JoinHandle<Result<(), McpError>>,
}

impl Rig {
    pub(super) async fn start() -> Self {
        Self::with(HttpConfig::default()).await
    }

    pub(super) async fn with(config: HttpConfig) -> Self {
        let listener = Listener::bind(PortChoice::Exactly(0)).await.unwrap();
        let (port, token) = (listener.port(), Token::generate().unwrap());
        let (record, shutdown) = (Arc::new(Record::default()), CancellationToken::new());
        let extra = Router::new().route("/extra", axum::routing::get(|| async { "extra" }));
        let factory = {
            let record = record.clone();
            move || Shown::new(record.clone())
        };
        let health = || json!({"workspace": "w", "status": "not ours to say"});
        let served = tokio::spawn(serve_http(
            listener,
            config,
            token.clone(),
            health,
            extra,
            factory,
            shutdown.clone(),
        ));
        Self { port, token, record, shutdown, served }
    }

    /// Formats a valid request with additional headers.
    pub(super) fn request(&self, line: &str, headers: &[&str], body: &str) -> String {
        let (port, token, length) = (self.port, self.token.reveal(), body.len());
        let mut head =
            format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n");
        if line.starts_with("POST") {
            head = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n");
            head += "Accept: application/json, text/event-stream\r\n";
        }
        for header in headers {
            head = head + header + "\r\n";
        }
        let body = if line.starts_with("POST") { body } else { "" };
        format!("{head}\r\n{body}")
    }

    /// Sends bytes and reads the response.
    pub(super) async fn send(&self, bytes: impl AsRef<[u8]>) -> Reply {
        let mut stream = self.connect(bytes).await;
        stream.reply().await
    }

    pub(super) async fn ask(&self, line: &str, headers: &[&str], body: &str) -> Reply {
        self.send(self.request(line, headers, body)).await
    }

    /// Sends bytes and returns the connection.
    pub(super) async fn connect(&self, bytes: impl AsRef<[u8]>) -> Conversation {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(bytes.as_ref()).await.unwrap();
        Conversation { stream, heard: Vec::new() }
    }

    /// Opens a session over `/mcp`; returns its id.
    pub(super) async fn session(&self, headers: &[&str]) -> String {
        let reply = self.ask("POST /mcp", headers, &initialize("2025-11-25")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.header("mcp-session-id").unwrap()
    }

    /// Calls a tool in a session over `/mcp`.
    pub(super) async fn call(&self, session: &str, tool: &str, headers: &[&str]) -> Reply {
        let session = format!("Mcp-Session-Id: {session}");
        let headers: Vec<_> = headers.iter().copied().chain([session.as_str()]).collect();
        self.ask("POST /mcp", &headers, &call(1, tool)).await
    }

    /// Opens a session over `/sse`; returns the endpoint for messages.
    pub(super) async fn sse(&self, query: &str, headers: &[&str]) -> (Conversation, String) {
        let mut stream = self.connect(self.request(&format!("GET /sse{query}"), headers, "")).await;
        let heard = stream.read_until("\n\n").await;
        let (_, data) = heard.split_once("event: endpoint\ndata: ").unwrap_or_else(|| panic!("{heard}"));
        (stream, data.lines().next().unwrap().to_owned())
    }

    /// Waits until at most `count` handlers are alive.
    pub(super) async fn wait_for_handlers(&self, count: usize) {
        self.wait_for_count(&self.record.handlers, count).await;
    }

    /// Waits until no call of `flood` runs. A call whose client does not read ends when its connection is closed.
    pub(super) async fn wait_for_floods(&self) {
        self.wait_for_count(&self.record.floods, 0).await;
    }

    async fn wait_for_count(&self, counted: &AtomicUsize, count: usize) {
        let wait = async {
            loop {
                // Register before the check, so that no drop is missed.
                let dropped = self.record.dropped.notified();
                if counted.load(Ordering::SeqCst) <= count {
                    return;
                }
                dropped.await;
            }
        };
        timeout(PATIENCE, wait).await.expect("what was begun ends");
    }

    pub(super) async fn health(&self) -> Value {
        let request = format!("GET /health HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", self.port);
        self.send(request).await.json()
    }
}

/// A connection and the bytes that it received.
pub(super) struct Conversation {
    pub(super) stream: TcpStream,
    heard: Vec<u8>,
}

impl Conversation {
    /// Reads until the received text contains `what`; returns all received text.
    pub(super) async fn read_until(&mut self, what: &str) -> String {
        let wait = async {
            loop {
                let heard = String::from_utf8_lossy(&self.heard).into_owned();
                if heard.contains(what) {
                    return heard;
                }
                assert_ne!(self.read_some().await, 0, "closed after: {heard}");
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("nobody said {what:?}"))
    }

    /// Reads to the end of the connection; returns the number of bytes.
    pub(super) async fn read_to_end(&mut self) -> usize {
        timeout(PATIENCE, async { while self.read_some().await > 0 {} }).await.expect("an end");
        self.heard.len()
    }

    async fn read_some(&mut self) -> usize {
        let mut piece = vec![0; 64 * 1024];
        // A reset connection counts as ended, too.
        let length = self.stream.read(&mut piece).await.unwrap_or(0);
        self.heard.extend_from_slice(&piece[..length]);
        length
    }

    /// Reads one response, delimited by its content length or its last chunk.
    async fn reply(&mut self) -> Reply {
        let head = self.read_until("\r\n\r\n").await;
        let (head, _) = head.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let reply = Reply { status, head: head.to_owned(), body: String::new() };
        match reply.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
            Some(length) => {
                while self.heard.len() < head.len() + 4 + length {
                    assert_ne!(self.read_some().await, 0, "{head}");
                }
            }
            None if head.contains("transfer-encoding: chunked") => drop(self.read_until("0\r\n\r\n").await),
            None => {}
        }
        let body = String::from_utf8_lossy(&self.heard[head.len() + 4..]).into_owned();
        Reply { body, ..reply }
    }
}

/// A parsed HTTP response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status, and our error code or the JSON-RPC error.
    pub(super) fn problem(&self) -> (u16, Value) {
        let json = self.json();
        assert!(json["error"]["message"].is_string(), "{json}");
        assert!(json["jsonrpc"] == "2.0" || json["error"]["hint"].is_string(), "{json}");
        (self.status, json["error"]["code"].clone())
    }

    /// Returns the last message of an event stream.
    pub(super) fn event(&self) -> Value {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str(data.unwrap_or_else(|| panic!("{self:?}"))).unwrap()
    }

    /// Returns the text of a tool result.
    pub(super) fn text(&self) -> String {
        let event = self.event();
        event["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned()
    }
}

pub(super) fn initialize(version: &str) -> String {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

pub(super) fn call(id: u32, tool: &str) -> String {
    let params = json!({"name": tool, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// Formats a stateless call as of 2026-07-28, without its headers.
pub(super) fn modern_call(version: &str, tool: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": tool, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

/// Returns the headers that a stateless call as of 2026-07-28 requires.
pub(super) fn modern_headers(tool: &str) -> [String; 3] {
    [
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        "Mcp-Method: tools/call".to_owned(),
        format!("Mcp-Name: {tool}"),
    ]
}

/// Borrows a list of headers.
pub(super) fn listed(headers: &[String]) -> Vec<&str> {
    headers.iter().map(String::as_str).collect()
}
