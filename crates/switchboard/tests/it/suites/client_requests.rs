//! Requests of servers to the client at the other end.

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::process::command;
use test_support::{Running, Sandbox, tools};

use super::{add, call, fixture, npm, raise_timeouts, sandbox};

/// Starts `switchboard mcp` for a client that answers requests.
fn able(sandbox: &Sandbox) -> Client {
    Client::stdio_with_capabilities(Running::start_with_stdin(&mut sandbox.session(["mcp"])), capabilities())
}

fn capabilities() -> Value {
    json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {}, "url": {} } })
}

fn roots(name: &str) -> Value {
    json!({ "roots": [{ "uri": format!("file:///{name}") }] })
}

#[test]
fn concurrent_calls_query_their_client() {
    let sandbox = sandbox();
    add(&sandbox, "asker", &fixture("asker.py"));
    let mut client = able(&sandbox);
    // The first call follows the client's handshake directly, and the others arrive while it is in flight.
    let begun: Vec<i64> =
        (0..3).map(|_| client.start_call("asker_suite", call("roots/list", json!({})))).collect();
    for number in 0..3 {
        let params = client.answer_request("roots/list", roots(&number.to_string()));
        assert_eq!(params["_meta"]["switchboard/server"], "asker");
    }
    let mut answers: Vec<Value> = begun
        .into_iter()
        .map(|id| client.answer(id).unwrap()["told"]["result"]["roots"][0]["uri"].clone())
        .collect();
    answers.sort_by_key(ToString::to_string);
    assert_eq!(answers, ["file:///0", "file:///1", "file:///2"]);

    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    client.answer_request("roots/list", roots("later"));
}

/// Calls a tool that sends a request first, and answers the request.
fn call_with_request(
    client: &mut Client,
    name: &str,
    arguments: &Value,
    asks: &str,
    answer: &Value,
) -> Value {
    let id = client.start_request("tools/call", json!({ "name": name, "arguments": arguments }));
    client.answer_request(asks, answer.clone());
    client.answer(id).unwrap()
}

#[test]
fn everything_tools_reach_their_client() {
    let server = match npm("everything", &[]) {
        Ok(server) => server,
        Err(reason) => return tools::skip("suites_p15_everything", &reason),
    };
    let sandbox = sandbox();
    raise_timeouts(&sandbox);
    add(&sandbox, "everything", &server);
    let direct = Running::start_with_stdin(command(&server[0]).args(&server[1..]));
    let mut direct = Client::stdio_with_capabilities(direct, capabilities());
    let mut through = able(&sandbox);
    // The server requests the roots once, unprompted, and returns what it then knows.
    direct.answer_request("roots/list", roots("x"));
    let known = json!({ "name": "everything_suite", "arguments": call("get-roots-list", json!({})) });
    let id = through.start_request("tools/call", known);
    through.answer_request("roots/list", roots("x"));
    let (ours, theirs) = (
        through.answer(id).unwrap(),
        direct.request("tools/call", json!({ "name": "get-roots-list", "arguments": {} })).unwrap(),
    );
    assert!(ours.to_string().contains("file:///x") || ours == theirs, "{ours}");

    let sampled =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "sampled" } });
    let accepted = json!({ "action": "accept", "content": { "name": "n", "check": true } });
    for (tool, arguments, asks, answer) in [
        (
            "trigger-sampling-request",
            json!({ "prompt": "p", "maxTokens": 7 }),
            "sampling/createMessage",
            sampled,
        ),
        ("trigger-elicitation-request", json!({}), "elicitation/create", accepted),
        (
            "trigger-url-elicitation",
            json!({ "url": "https://example.com/" }),
            "elicitation/create",
            json!({ "action": "accept" }),
        ),
    ] {
        let theirs = call_with_request(&mut direct, tool, &arguments, asks, &answer);
        let ours = call_with_request(&mut through, "everything_suite", &call(tool, arguments), asks, &answer);
        let kinds = |result: &Value| {
            let blocks = result["content"].as_array().unwrap();
            blocks.iter().map(|block| block["type"].clone()).collect::<Vec<_>>()
        };
        assert_eq!((kinds(&ours), &ours["isError"]), (kinds(&theirs), &theirs["isError"]), "{tool}: {ours}");
    }
}
