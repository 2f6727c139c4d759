//! Tools of suites next to our own: who owns their calls, and which rules apply to them as well.

use serde_json::{Value, json};
use test_support::http::Request;
use test_support::mcp::Client;
use test_support::{Sandbox, TestServer, files};

use super::stdio;
use crate::BINARY;

/// An MCP server that answers `here` at once, and `ask` once its own request was answered.
const CHILD: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"id":"e1"'*) echo '{"jsonrpc":"2.0","id":'"$asked"',"result":{"content":[{"type":"text","text":"thank you"}]}}' ;;
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"here","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}}' ;;
    *'"ask"'*) asked=$id; echo '{"jsonrpc":"2.0","id":"e1","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"who":{"type":"string"}}}}}' ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"yes"}]}}' ;;
  esac
done
"#;

fn with_child() -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, &["claude"]);
    let file = sandbox.home().join("child.sh");
    files::put(&file, CHILD);
    sandbox.ok(["suite", "add", "child", "--", "sh", file.to_str().unwrap()]);
    sandbox
}

fn here() -> Value {
    json!({ "action": "call", "subtool": "here", "args": {} })
}

/// Calls the suite in protocol revision 2026-07-28; returns the result.
fn stateless(served: &TestServer, agent: &str, more: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let mut params = json!({ "name": "child_suite", "arguments": { "action": "call", "subtool": "ask", "args": {} }, "_meta": meta });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let response = served
        .authorize(Request::post("/mcp", &body), Some(agent))
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", "child_suite")
        .send(served.port)
        .unwrap();
    let text = if response.is_stream() {
        response.events().find(|event| event.data.contains("jsonrpc")).unwrap().data
    } else {
        response.text().unwrap()
    };
    serde_json::from_str(&text).unwrap()
}

#[test]
fn paused_call_resumes_only_for_its_agent() {
    let sandbox = with_child();
    let served = TestServer::start(&sandbox);
    let paused = stateless(&served, "alice", json!({}));
    let state = &paused["result"]["requestState"];
    assert!(state.is_string(), "{paused}");
    let answer = json!({ "input": { "action": "accept", "content": { "who": "me" } } });
    let again = json!({ "requestState": state, "inputResponses": answer });
    let refused = stateless(&served, "bob", again.clone());
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("another agent"), "{refused}");
    let done = stateless(&served, "alice", again);
    assert_eq!(done["result"]["content"][0]["text"], "thank you", "{done}");
}

#[test]
fn suite_results_carry_unread_mail() {
    let sandbox = with_child();
    let served = TestServer::start(&sandbox);
    for (name, client) in [("stdio", stdio(&sandbox, None)), ("http", Client::streamable(&served, None))] {
        let mut client = client.registered(name);
        let call = |client: &mut Client| {
            let params = json!({ "name": "child_suite", "arguments": here() });
            client.request("tools/call", params).unwrap()["content"].clone()
        };
        assert_eq!(call(&mut client), json!([{ "type": "text", "text": "yes" }]), "{name}");
        sandbox.send("claude", name, "look here");
        let notice = json!({ "type": "text", "text": "You have 1 unread message: call check_inbox." });
        assert_eq!(call(&mut client), json!([{ "type": "text", "text": "yes" }, notice]), "{name}");
    }
}

#[test]
fn flat_tools_are_forwarded_unchanged() {
    let sandbox = with_child();
    let config = json!({ "suites": { "child": { "expose": "flat" } } });
    files::put(sandbox.path().join("switchboard.config.json"), config.to_string());
    let mut client = stdio(&sandbox, None).registered("bob");
    sandbox.send("claude", "bob", "look here");
    let tool = client.tool_names().into_iter().find(|name| name.ends_with("here")).unwrap();
    let result = client.request("tools/call", json!({ "name": tool, "arguments": {} })).unwrap();
    assert_eq!(result["content"], json!([{ "type": "text", "text": "yes" }]));
}

#[test]
fn workflows_see_the_tools_of_suites() {
    let sandbox = with_child();
    let served = TestServer::start(&sandbox);
    let phase = |more: Value| {
        let mut phase = json!({ "id": "only", "instruction": "Do it." });
        phase.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([phase])
    };
    for (name, more, phases) in [
        ("without", json!({ "prohibitedTools": ["child_suite"] }), phase(json!({}))),
        ("with", json!({}), phase(json!({ "requiredTools": ["child_suite"] }))),
    ] {
        let mut workflow = json!({ "name": name, "persona": "You do it.", "phases": phases });
        workflow.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        files::put(sandbox.file(&format!("workflows/{name}.json")), workflow.to_string());
    }
    for (name, client) in [("stdio", stdio(&sandbox, None)), ("http", Client::streamable(&served, None))] {
        let mut client = client.registered(name);
        client.ok("start_workflow", json!({ "name": "without", "targetAgent": name }));
        let refusal = client.refused("child_suite", here());
        assert!(refusal.contains("child_suite") && refusal.contains("without"), "{name}: {refusal}");
        client.ok("stop_workflow", json!({ "targetAgent": name }));
        client.ok("start_workflow", json!({ "name": "with", "targetAgent": name }));
        let complete = json!({ "workflow": "with", "phase": 1, "targetAgent": name });
        let refusal = client.refused("complete_workflow_phase", complete.clone());
        assert!(refusal.contains("child_suite"), "{name}: {refusal}");
        assert_eq!(client.call("child_suite", here()).text, "yes", "{name}");
        client.ok("complete_workflow_phase", complete);
    }
}
