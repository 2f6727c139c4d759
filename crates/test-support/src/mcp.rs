//! MCP client for tests, the same over all three transports.
//!
//! The client is simple on purpose: it sends what the test requests and buffers everything that it receives. A test
//! that waits for a response gets the response or fails. The behaviour of real SDKs is tested with those SDKs.

mod transport;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::transport::Transport;
use crate::poll::TIMEOUT;
use crate::process::Running;
use crate::test_server::TestServer;

/// Protocol revision that the client requests: the newest one with sessions.
pub const REVISION: &str = "2025-11-25";

/// One MCP session of the client.
pub struct Client {
    transport: Transport,
    /// Received messages that the test has not read yet.
    unread: Vec<Value>,
    last_id: i64,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// Text of the result, for the model.
    pub text: String,
    /// Structured data of the result, with the same content as `text`.
    pub data: Value,
    /// True if the tool call failed.
    pub failed: bool,
}

impl Client {
    /// Starts a session with a process that was started by [`Running::start_with_stdin`].
    pub fn stdio(server: Running) -> Self {
        Self::open(Transport::stdio(server), json!({}))
    }

    /// Starts a session like [`Self::stdio`], as a client with these capabilities.
    pub fn stdio_with_capabilities(server: Running, capabilities: Value) -> Self {
        Self::open(Transport::stdio(server), capabilities)
    }

    /// Starts a session over `/mcp`, for an agent if one is named.
    pub fn streamable(server: &TestServer, agent: Option<&str>) -> Self {
        Self::open(Transport::streamable(server, agent), json!({}))
    }

    /// Starts a session over `/sse`, for an agent if one is named.
    pub fn sse(server: &TestServer, agent: Option<&str>) -> Self {
        Self::open(Transport::sse(server, agent), json!({}))
    }

    fn open(transport: Transport, capabilities: Value) -> Self {
        let mut client = Self { transport, unread: Vec::new(), last_id: 0 };
        let about = json!({ "protocolVersion": REVISION, "capabilities": capabilities, "clientInfo": { "name": "test", "version": "1" } });
        client.request("initialize", about).unwrap();
        client.transport.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client.transport.listen();
        client
    }

    /// Returns the server process of a stdio session; panics for a session over HTTP.
    pub fn process(&mut self) -> &mut Running {
        self.transport.process()
    }

    /// Returns the id of a session over HTTP.
    pub fn session(&self) -> &str {
        self.transport.session()
    }

    /// Sends a message without changing it.
    pub fn send(&mut self, message: &Value) {
        self.transport.send(message);
    }

    /// Sends a request and returns its id.
    pub fn start_request(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.transport.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Sends a tool call with a request for progress notifications; returns the request id.
    ///
    /// The progress token is the request id.
    pub fn start_call(&mut self, tool: &str, arguments: Value) -> i64 {
        let meta = json!({ "progressToken": self.last_id + 1 });
        self.start_request("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
    }

    /// Waits for the response to a request; returns the result or the error.
    pub fn answer(&mut self, id: i64) -> Result<Value, Value> {
        let answer = self.wait(&format!("the answer to request {id}"), TIMEOUT, |message| {
            message["id"] == id && message.get("method").is_none()
        });
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(answer["error"].clone()),
        }
    }

    /// Waits for the result of a tool call.
    pub fn tool_result(&mut self, id: i64) -> ToolResult {
        let result = self.answer(id).unwrap_or_else(|error| panic!("the call failed: {error}"));
        ToolResult {
            text: result["content"][0]["text"].as_str().unwrap().to_owned(),
            data: result["structuredContent"].clone(),
            failed: result["isError"] == true,
        }
    }

    /// Sends a request and waits for its response.
    pub fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.start_request(method, params);
        self.answer(id)
    }

    /// Calls a tool and waits for its result.
    pub fn call(&mut self, tool: &str, arguments: Value) -> ToolResult {
        let id = self.start_request("tools/call", json!({ "name": tool, "arguments": arguments }));
        self.tool_result(id)
    }

    /// Calls a tool, which must succeed; returns the data of the result.
    pub fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).ok()
    }

    /// Calls a tool, which must refuse; returns the text of the result.
    pub fn refused(&mut self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).refused()
    }

    /// Registers the client as the agent with this name.
    #[must_use]
    pub fn registered(mut self, name: &str) -> Self {
        self.ok("register_chat_agent", json!({ "name": name, "interface": "test" }));
        self
    }

    /// Waits for a notification and returns its parameters.
    pub fn notification(&mut self, method: &str) -> Value {
        self.notification_within(method, TIMEOUT)
            .unwrap_or_else(|| panic!("no {method} came: {:?}", self.unread))
    }

    /// Waits for a notification until a time limit; returns its parameters, or `None` on timeout.
    pub fn notification_within(&mut self, method: &str, limit: Duration) -> Option<Value> {
        self.find(limit, |message| message["method"] == method).map(|message| message["params"].clone())
    }

    /// Waits for a request from the server and answers it; returns the request's parameters.
    pub fn answer_request(&mut self, method: &str, result: Value) -> Value {
        let is_it = |message: &Value| message["method"] == method && message.get("id").is_some();
        let question = self.wait(&format!("a question {method}"), TIMEOUT, is_it);
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        question["params"].clone()
    }

    /// Returns the names of the tools, in the order of the server's list.
    pub fn tool_names(&mut self) -> Vec<String> {
        let list = self.request("tools/list", json!({})).unwrap();
        let tools = list["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    fn wait(&mut self, what: &str, limit: Duration, is_it: impl Fn(&Value) -> bool) -> Value {
        self.find(limit, is_it).unwrap_or_else(|| {
            panic!("{what} did not come; {}\nkept: {:?}", self.transport.state(), self.unread)
        })
    }

    fn find(&mut self, limit: Duration, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
        if let Some(index) = self.unread.iter().position(&is_it) {
            return Some(self.unread.remove(index));
        }
        let deadline = Instant::now() + limit;
        loop {
            let message = self.transport.receive(deadline.saturating_duration_since(Instant::now()))?;
            if is_it(&message) {
                return Some(message);
            }
            self.unread.push(message);
        }
    }
}

impl ToolResult {
    /// Returns the data of a result; panics if the tool failed.
    pub fn ok(self) -> Value {
        assert!(!self.failed, "{}", self.text);
        self.data
    }

    /// Returns the text of a refusal; panics if the tool succeeded.
    pub fn refused(self) -> String {
        assert!(self.failed, "{}", self.text);
        self.text
    }
}
