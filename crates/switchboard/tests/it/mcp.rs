//! MCP from outside: the built binary, real pipes and sockets, and clients of other authors.

mod bad_calls;
mod conformance;
mod crowd;
mod disconnect;
mod gemini;
mod identity;
mod paging;
mod retry;
mod sdk_clients;
mod serving;
mod stdio;
mod suite_tools;
mod teamwork;
mod token_proxy;
mod tool_list;
mod waiting;
mod work;

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, TestServer};

/// Starts a session with its own process, for the given agent if there is one.
pub(crate) fn stdio(sandbox: &Sandbox, agent: Option<&str>) -> Client {
    let mut command = sandbox.session(["mcp"]);
    if let Some(agent) = agent {
        command.env("SWITCHBOARD_AGENT_NAME", agent);
    }
    Client::stdio(Running::start_with_stdin(&mut command))
}

/// Opens a session over each transport, with the transport's name. None has registered an agent.
fn connect_each(sandbox: &Sandbox, served: &TestServer) -> [(&'static str, Client); 3] {
    [
        ("stdio", stdio(sandbox, None)),
        ("streamable", Client::streamable(served, None)),
        ("sse", Client::sse(served, None)),
    ]
}

/// Returns the arguments of `send_message` for a task.
fn task(recipient: &str, payload: &str) -> Value {
    json!({ "recipient": recipient, "action": "delegate_task", "payload": payload })
}

/// Returns the payloads of the messages in a tool's result.
fn payloads(data: &Value) -> Vec<&str> {
    data["messages"].as_array().unwrap().iter().map(|message| message["payload"].as_str().unwrap()).collect()
}
