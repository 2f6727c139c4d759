//! An MCP client for tests, the same over all three transports.
//!
//! It is a plain one on purpose: it sends what it is told to, keeps everything that comes, and a test that
//! asks for an answer gets it or fails. How the SDKs of others behave is tested with those SDKs.

mod link;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::link::Link;
use crate::poll::PATIENCE;
use crate::process::Running;
use crate::served::Served;

/// The revision that the client asks for: the newest with sessions.
pub const REVISION: &str = "2025-11-25";

/// One session.
pub struct Client {
    link: Link,
    /// What came and was not asked for yet.
    kept: Vec<Value>,
    last_id: i64,
}

/// What a tool said.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// To the model.
    pub text: String,
    /// The same as data.
    pub data: Value,
    /// Whether it did not do what was asked.
    pub failed: bool,
}

impl Client {
    /// A session with a process that was started by [`Running::start_listening`].
    pub fn stdio(server: Running) -> Self {
        Self::open(Link::stdio(server), json!({}))
    }

    /// The same, of a client that can do something itself.
    pub fn stdio_able(server: Running, capabilities: Value) -> Self {
        Self::open(Link::stdio(server), capabilities)
    }

    /// A session over `/mcp`, for an agent where one is named.
    pub fn streamable(server: &Served, agent: Option<&str>) -> Self {
        Self::open(Link::streamable(server, agent), json!({}))
    }

    /// A session over `/sse`, for an agent where one is named.
    pub fn sse(server: &Served, agent: Option<&str>) -> Self {
        Self::open(Link::sse(server, agent), json!({}))
    }

    fn open(link: Link, capabilities: Value) -> Self {
        let mut client = Self { link, kept: Vec::new(), last_id: 0 };
        let about = json!({ "protocolVersion": REVISION, "capabilities": capabilities, "clientInfo": { "name": "test", "version": "1" } });
        client.ask("initialize", about).unwrap();
        client.link.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client.link.listen();
        client
    }

    /// The process at the other end of the pipes; panics where there is none.
    pub fn process(&mut self) -> &mut Running {
        self.link.process()
    }

    /// The id of a session over HTTP.
    pub fn session(&self) -> &str {
        self.link.session()
    }

    /// Sends a message as it is.
    pub fn send(&mut self, message: &Value) {
        self.link.send(message);
    }

    /// Sends a request and returns its id.
    pub fn begin(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.link.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Begins to call a tool, and asks to be told how it goes. The progress token is the request's id.
    pub fn begin_call(&mut self, tool: &str, arguments: Value) -> i64 {
        let meta = json!({ "progressToken": self.last_id + 1 });
        self.begin("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
    }

    /// Waits for the answer to a request: its result, or its error.
    pub fn answer(&mut self, id: i64) -> Result<Value, Value> {
        let answer = self.wait(&format!("the answer to request {id}"), PATIENCE, |message| {
            message["id"] == id && message.get("method").is_none()
        });
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(answer["error"].clone()),
        }
    }

    /// Waits for what a tool says.
    pub fn said(&mut self, id: i64) -> Said {
        let result = self.answer(id).unwrap_or_else(|error| panic!("the call failed: {error}"));
        Said {
            text: result["content"][0]["text"].as_str().unwrap().to_owned(),
            data: result["structuredContent"].clone(),
            failed: result["isError"] == true,
        }
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Said {
        let id = self.begin("tools/call", json!({ "name": tool, "arguments": arguments }));
        self.said(id)
    }

    /// Calls a tool that must do what it is asked; its data.
    pub fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).ok()
    }

    /// Calls a tool that must refuse; its text.
    pub fn refused(&mut self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).refused()
    }

    /// Says who is at this end.
    #[must_use]
    pub fn registered(mut self, name: &str) -> Self {
        self.ok("register_chat_agent", json!({ "name": name, "interface": "test" }));
        self
    }

    /// Waits for a notification; its parameters.
    pub fn told(&mut self, method: &str) -> Value {
        self.told_within(method, PATIENCE).unwrap_or_else(|| panic!("no {method} came: {:?}", self.kept))
    }

    /// A notification's parameters, if it comes in time.
    pub fn told_within(&mut self, method: &str, limit: Duration) -> Option<Value> {
        self.find(limit, |message| message["method"] == method).map(|message| message["params"].clone())
    }

    /// Waits for a question of the server and answers it; its parameters.
    pub fn asked(&mut self, method: &str, result: Value) -> Value {
        let is_it = |message: &Value| message["method"] == method && message.get("id").is_some();
        let question = self.wait(&format!("a question {method}"), PATIENCE, is_it);
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        question["params"].clone()
    }

    /// The names of the tools, in the order of the list.
    pub fn tool_names(&mut self) -> Vec<String> {
        let list = self.ask("tools/list", json!({})).unwrap();
        let tools = list["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    fn wait(&mut self, what: &str, limit: Duration, is_it: impl Fn(&Value) -> bool) -> Value {
        self.find(limit, is_it)
            .unwrap_or_else(|| panic!("{what} did not come; {}\nkept: {:?}", self.link.state(), self.kept))
    }

    fn find(&mut self, limit: Duration, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
        if let Some(place) = self.kept.iter().position(&is_it) {
            return Some(self.kept.remove(place));
        }
        let deadline = Instant::now() + limit;
        loop {
            let message = self.link.receive(deadline.saturating_duration_since(Instant::now()))?;
            if is_it(&message) {
                return Some(message);
            }
            self.kept.push(message);
        }
    }
}

impl Said {
    /// The data of a tool that must have done what it was asked.
    pub fn ok(self) -> Value {
        assert!(!self.failed, "{}", self.text);
        self.data
    }

    /// The text of a tool that must have refused.
    pub fn refused(self) -> String {
        assert!(self.failed, "{}", self.text);
        self.text
    }
}
