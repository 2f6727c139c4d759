//! MCP from outside: the built binary, real pipes and sockets, and the clients that others have written.

mod bad_calls;
mod beside;
mod conformance;
mod crowd;
mod gemini;
mod gone;
mod identity;
mod listing;
mod paging;
mod peers;
mod retry;
mod serving;
mod stdio;
mod teamwork;
mod token_proxy;
mod waiting;
mod work;

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, TestServer};

/// A session with a process of its own, for an agent where one is named.
pub(crate) fn stdio(sandbox: &Sandbox, agent: Option<&str>) -> Client {
    let mut command = sandbox.session(["mcp"]);
    if let Some(agent) = agent {
        command.env("SWITCHBOARD_AGENT_NAME", agent);
    }
    Client::stdio(Running::start_with_stdin(&mut command))
}

/// A session over each transport, with its name. None has said who it is.
fn each(sandbox: &Sandbox, served: &TestServer) -> [(&'static str, Client); 3] {
    [
        ("stdio", stdio(sandbox, None)),
        ("streamable", Client::streamable(served, None)),
        ("sse", Client::sse(served, None)),
    ]
}

/// A task for somebody, as `send_message` takes it.
fn task(recipient: &str, payload: &str) -> Value {
    json!({ "recipient": recipient, "action": "delegate_task", "payload": payload })
}

/// The payloads of the messages that a tool showed.
fn payloads(data: &Value) -> Vec<&str> {
    data["messages"].as_array().unwrap().iter().map(|message| message["payload"].as_str().unwrap()).collect()
}
