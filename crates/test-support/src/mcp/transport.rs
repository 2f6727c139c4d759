//! The three MCP transports.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::REVISION;
use crate::http::{Request, Response};
use crate::poll;
use crate::process::Running;
use crate::test_server::TestServer;

/// Maximum number of unread messages; when it is reached, the server must wait.
const UNREAD: usize = 4096;

/// One of the three MCP transports.
pub(super) enum Transport {
    /// Stdio: lines on the pipes of a process.
    Stdio(Running),
    /// HTTP: `/mcp`, or `/sse` with `/messages`.
    Http(Http),
}

/// A session over HTTP.
///
/// All messages of the session arrive here, whichever connection they used.
pub(super) struct Http {
    port: u16,
    /// Adds the token and the agent to a request.
    authorized: Box<dyn Fn(Request) -> Request + Send>,
    kind: Kind,
    session: String,
    received: Receiver<Value>,
    sender: SyncSender<Value>,
    /// Connection of the event stream that stays open during the session.
    stream: Option<TcpStream>,
}

enum Kind {
    Streamable,
    Sse,
}

impl Transport {
    pub(super) fn stdio(process: Running) -> Self {
        Self::Stdio(process)
    }

    pub(super) fn streamable(server: &TestServer, agent: Option<&str>) -> Self {
        Self::Http(Http::new(server, agent, Kind::Streamable))
    }

    pub(super) fn sse(server: &TestServer, agent: Option<&str>) -> Self {
        let mut http = Http::new(server, agent, Kind::Sse);
        let response = (http.authorized)(Request::new("GET", "/sse")).send(http.port).unwrap();
        assert_eq!(response.status, 200);
        http.stream = Some(response.connection().unwrap());
        let mut events = response.events();
        let first = events.next().unwrap();
        assert_eq!(first.name, "endpoint");
        first.data.split_once("sessionId=").unwrap().1.clone_into(&mut http.session);
        let sender = http.sender.clone();
        thread::spawn(move || {
            for event in events {
                if sender.send(serde_json::from_str(&event.data).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self::Http(http)
    }

    pub(super) fn process(&mut self) -> &mut Running {
        match self {
            Self::Stdio(process) => process,
            Self::Http(_) => panic!("a session over HTTP has no process of its own"),
        }
    }

    pub(super) fn session(&self) -> &str {
        match self {
            Self::Stdio(_) => panic!("a session over pipes has no id"),
            Self::Http(http) => &http.session,
        }
    }

    pub(super) fn send(&mut self, message: &Value) {
        match self {
            Self::Stdio(process) => process.write_line(&message.to_string()).unwrap(),
            Self::Http(http) => http.send(message),
        }
    }

    /// Opens the stream for messages that the server sends on its own, if the transport needs a separate stream.
    pub(super) fn listen(&mut self) {
        if let Self::Http(http) = self
            && http.stream.is_none()
        {
            let request = Request::new("GET", "/mcp").header("Accept", "text/event-stream");
            let response = http.in_session(request).send(http.port).unwrap();
            assert_eq!(response.status, 200);
            http.stream = Some(response.connection().unwrap());
            let sender = http.sender.clone();
            thread::spawn(move || forward_messages(response, &sender));
        }
    }

    pub(super) fn receive(&mut self, limit: Duration) -> Option<Value> {
        match self {
            Self::Stdio(process) => {
                let line = process.line_within(limit)?;
                Some(
                    serde_json::from_str(&line)
                        .unwrap_or_else(|error| panic!("not of the protocol ({error}): {line}")),
                )
            }
            Self::Http(http) => http.received.recv_timeout(limit).ok(),
        }
    }

    /// Describes the state of the server side, for the panic message of a failing test.
    pub(super) fn state(&self) -> String {
        match self {
            Self::Stdio(process) => format!("stderr: {}", process.errors()),
            Self::Http(http) => format!("session {}", http.session),
        }
    }
}

impl Http {
    fn new(server: &TestServer, agent: Option<&str>, kind: Kind) -> Self {
        let (sender, received) = sync_channel(UNREAD);
        let (token, agent) = (server.token.clone(), agent.map(str::to_owned));
        let authorized = move |request: Request| request.authorized(&token, agent.as_deref());
        let (port, session) = (server.port, String::new());
        Self { port, authorized: Box::new(authorized), kind, session, received, sender, stream: None }
    }

    fn in_session(&self, request: Request) -> Request {
        let request = (self.authorized)(request);
        if self.session.is_empty() {
            return request;
        }
        request.header("Mcp-Session-Id", &self.session).header("MCP-Protocol-Version", REVISION)
    }

    fn send(&mut self, message: &Value) {
        if let Kind::Sse = self.kind {
            let path = format!("/messages?sessionId={}", self.session);
            let response = (self.authorized)(Request::post(&path, message)).send(self.port).unwrap();
            let status = response.status;
            assert_eq!(status, 202, "{:?}", response.text());
            return;
        }
        let request = self.in_session(Request::post("/mcp", message));
        let (port, sender) = (self.port, self.sender.clone());
        if message["method"] == "initialize" {
            let response = request.send(port).unwrap();
            response.header("mcp-session-id").unwrap_or_default().clone_into(&mut self.session);
            forward_messages(response, &sender);
        } else if message.get("id").is_none() {
            assert_eq!(request.send(port).unwrap().status, 202);
        } else {
            // Each request uses a separate connection, because its response may take long.
            thread::spawn(move || match request.send(port) {
                Ok(response) => forward_messages(response, &sender),
                Err(error) => drop(sender.send(json!({ "not sent": error.to_string() }))),
            });
        }
    }
}

/// Forwards every message of a response.
///
/// Anything else is forwarded as well, for the panic message of a failing test.
fn forward_messages(response: Response, sender: &SyncSender<Value>) {
    if response.is_stream() {
        for event in response.events().filter(|event| !event.data.is_empty()) {
            if sender.send(serde_json::from_str(&event.data).unwrap()).is_err() {
                return;
            }
        }
        return;
    }
    let status = response.status;
    let message: io::Result<Value> =
        response.text().and_then(|text| serde_json::from_str(&text).map_err(io::Error::from));
    let message = match message {
        Ok(message) if message.get("jsonrpc").is_some() => message,
        other => json!({ "status": status, "body": other.unwrap_or_default() }),
    };
    let _ = sender.send(message);
}

impl Drop for Transport {
    /// Ends the server process as a client does, so that the session's agent name is free when this returns.
    fn drop(&mut self) {
        if let Self::Stdio(process) = self {
            process.close_stdin();
            // After this time limit, a process that still runs is killed on drop.
            poll::within(Duration::from_secs(5), || (!process.is_running()).then_some(()));
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Kind::Streamable = self.kind {
            // The request fails if the server is gone, in which case the session has ended anyway.
            let _ = self.in_session(Request::new("DELETE", "/mcp")).send(self.port);
        }
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
