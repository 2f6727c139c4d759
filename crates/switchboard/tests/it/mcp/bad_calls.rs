//! Invalid calls of a model: each error names the fix, and the session continues.

use std::fmt::Write;

use insta::assert_snapshot;
use serde_json::{Value, json};
use test_support::TestServer;
use test_support::mcp::Client;

use super::connect_each;
use crate::workspace;

/// Returns pairs of a tool and invalid arguments.
fn calls() -> Vec<(&'static str, Value)> {
    let long = "x".repeat(129);
    vec![
        ("send_mesage", json!({})),
        ("", json!({})),
        ("rm -rf /", json!({})),
        ("send_message", json!({})),
        ("send_message", json!({ "action": "delegate_task" })),
        ("send_message", json!({ "action": "shout", "payload": "text" })),
        ("send_message", json!({ "action": "delegate_task", "payload": 7, "recipient": "codex" })),
        (
            "send_message",
            json!({ "action": "delegate_task", "payload": "text", "recipient": "codex", "reciever": "codex" }),
        ),
        (
            "send_message",
            json!({ "action": "delegate_task", "payload": "text", "recipient": "codex", "__proto__": {} }),
        ),
        ("send_message", json!({ "action": "delegate_task", "payload": "text", "recipient": "codx" })),
        ("send_message", json!({ "action": "delegate_task", "payload": "text", "recipient": "../codex" })),
        ("send_message", json!({ "action": "delegate_task", "payload": "text", "recipient": long })),
        ("send_message", json!({ "action": "delegate_task", "payload": "text" })),
        (
            "send_message",
            json!({ "action": "delegate_task", "payload": "text", "recipient": "codex", "replyTo": "msg_1_no" }),
        ),
        ("check_inbox", json!({ "limit": -1 })),
        ("check_inbox", json!({ "limit": "ten" })),
        ("check_inbox", json!({ "cursor": "page two" })),
        ("check_inbox", json!({ "since": "yesterday" })),
        ("check_inbox", json!({ "constructor": 1 })),
        ("ack_message", json!({ "ids": [] })),
        ("ack_message", json!({ "ids": "msg_1_no" })),
        ("ack_message", json!({ "ids": ["msg_1_no"] })),
        ("wait_for_message", json!({ "timeout": -5 })),
        ("get_receipt", json!({ "id": "msg_1_no" })),
        ("get_team_roster", json!({ "verbose": true })),
        ("register_terminal", json!({ "name": "term", "pid": 0, "purpose": "coding" })),
        ("assign_role", json!({ "agent": "codex", "role": "emperor" })),
        ("start_workflow", json!({ "name": "chalenge" })),
        ("complete_workflow_phase", json!({ "workflow": "challenge", "phase": "first" })),
        ("run_in_terminal", json!({ "name": "codex", "input": " " })),
        ("handoff_clipboard", json!({ "file": "/etc/passwd" })),
    ]
}

fn answers(client: &mut Client) -> String {
    let mut text = String::new();
    for (tool, arguments) in calls() {
        let refusal = client.refused(tool, arguments.clone());
        let shown = arguments.to_string();
        let shown = if shown.len() > 100 { format!("{}…", &shown[..100]) } else { shown };
        writeln!(text, "{tool} {shown}\n    {}", refusal.replace('\n', "\n    ")).unwrap();
    }
    text
}

#[test]
fn bad_calls_get_actionable_errors() {
    let sandbox = workspace();
    let mut client = super::stdio(&sandbox, None).registered("claude");
    let text = answers(&mut client);
    assert_snapshot!(sandbox.redact(&text), @r#"
    send_mesage {}
        There is no tool 'send_mesage'. Did you mean 'send_message'?
     {}
        There is no tool ''. The tools are send_message, check_inbox, ack_message, wait_for_message, register_chat_agent, get_team_roster, send_team_message, get_receipt, search_messages, set_agent_status, register_terminal, create_team, assign_to_team, assign_role, claim_task, renew_claim, release_claim, reserve_files, start_workflow, get_workflow_state, complete_workflow_phase, stop_workflow, run_in_terminal, handoff_clipboard.
    rm -rf / {}
        There is no tool 'rm -rf /'. The tools are send_message, check_inbox, ack_message, wait_for_message, register_chat_agent, get_team_roster, send_team_message, get_receipt, search_messages, set_agent_status, register_terminal, create_team, assign_to_team, assign_role, claim_task, renew_claim, release_claim, reserve_files, start_workflow, get_workflow_state, complete_workflow_phase, stop_workflow, run_in_terminal, handoff_clipboard.
    send_message {}
        The argument 'action' is missing. action is one of delegate_task, request_review, submit_result, status_update, execute.
    send_message {"action":"delegate_task"}
        The argument 'payload' is missing. payload: The text.
    send_message {"action":"shout","payload":"text"}
        action: expected one of delegate_task, request_review, submit_result, status_update, execute, got the text "shout". Give e.g. "delegate_task". action: execute is typed into the recipient's terminal; the others are mail.
    send_message {"action":"delegate_task","payload":7,"recipient":"codex"}
        payload: expected a text, got the number 7. Give e.g. "7". payload: The text.
    send_message {"action":"delegate_task","payload":"text","reciever":"codex","recipient":"codex"}
        There is no argument 'reciever'. Did you mean 'recipient'?
    send_message {"__proto__":{},"action":"delegate_task","payload":"text","recipient":"codex"}
        There is no argument '__proto__'. The arguments are action, allowUnregistered, claim, expiresInMinutes, idempotencyKey, metadata, payload, recipient, replace, replyTo, sender.
    send_message {"action":"delegate_task","payload":"text","recipient":"codx"}
        no agent is named 'codx'. Did you mean codex?
    send_message {"action":"delegate_task","payload":"text","recipient":"../codex"}
        '../codex' is not an address: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'
    send_message {"action":"delegate_task","payload":"text","recipient":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is not an address: a name has at most 128 bytes; this one has 129
    send_message {"action":"delegate_task","payload":"text"}
        recipient: none was given, and no active workflow routes 'delegate_task'. Tip: name a recipient, or start a workflow that has one: handoff (execute, delegate_task), handoff-lead (execute), challenge (execute)
    send_message {"action":"delegate_task","payload":"text","recipient":"codex","replyTo":"msg_1_no"}
        no message has the id 'msg_1_no'. check_inbox and search_messages give the ids of messages.
    check_inbox {"limit":-1}
        limit: expected a number from 0, got the number -1. Give e.g. 20. limit: How many messages [20].
    check_inbox {"limit":"ten"}
        limit: expected a whole number, got the text "ten". Give e.g. 20. limit: How many messages [20].
    check_inbox {"cursor":"page two"}
        'page two' is not a cursor. Use the cursor of the last result as it is.
    check_inbox {"since":"yesterday"}
        no message has the id 'yesterday'. since is a time such as [time], or the id of a message.
    check_inbox {"constructor":1}
        There is no argument 'constructor'. The arguments are agent, box, cursor, filter, id, limit, offset, since, verbose.
    ack_message {"ids":[]}
        The argument 'ids' is empty. Give the ids that check_inbox showed.
    ack_message {"ids":"msg_1_no"}
        ids: expected a list of texts, got the text "msg_1_no". Give e.g. ["msg_1_no"]. ids: Ids of the messages.
    ack_message {"ids":["msg_1_no"]}
        msg_1_no: no message has the id 'msg_1_no'. check_inbox and search_messages give the ids of messages.
    wait_for_message {"timeout":-5}
        -5 is not a number of seconds. timeout is from 0 to 1800.
    get_receipt {"id":"msg_1_no"}
        You neither sent nor received a message msg_1_no. Use the id that send_message returned.
    get_team_roster {"verbose":true}
        There is no argument 'verbose'. This tool takes none.
    register_terminal {"name":"term","pid":[pid],"purpose":"coding"}
        the field 'pid' is 0; give the id of the process in the terminal
    assign_role {"agent":"codex","role":"emperor"}
        role 'emperor' is unknown; use one of: lead, coder 1, coder 2, reviewer, tester, researcher, execution, coder, planner, task runner, analyst, none
    start_workflow {"name":"chalenge"}
        workflow 'chalenge' is unknown; did you mean 'challenge' or 'chat'? available: accuracy, handoff, handoff-lead, handoff-chat, handoff-relay, enhance, challenge, chat
    complete_workflow_phase {"phase":"first","workflow":"challenge"}
        phase: expected a whole number, got the text "first". Give e.g. 20. phase: From 1.
    run_in_terminal {"input":" ","name":"codex"}
        The argument 'input' is empty. Say what to type.
    handoff_clipboard {"file":"/etc/passwd"}
        '/etc/passwd' cannot be handed over: outside the workspace. Give the path of a text file from the workspace's folder.
    "#);
}

#[test]
fn bad_calls_never_end_a_session() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    for (name, client) in connect_each(&sandbox, &served) {
        let mut client = client.registered(name);
        answers(&mut client);
        // Parameters that are no object are no call, and get the protocol's error.
        for params in [
            json!({ "name": "check_inbox", "arguments": [1, 2] }),
            json!({ "name": "check_inbox", "arguments": "all" }),
            json!({ "arguments": {} }),
            json!({ "name": 7 }),
        ] {
            let error = client.request("tools/call", params.clone()).unwrap_err();
            assert_eq!(error["code"], -32602, "{name}: {params}: {error}");
        }
        let error = client.request("tools/cal", json!({})).unwrap_err();
        assert_eq!(error["code"], -32601, "{name}: {error}");
        let error = client.request("resources/read", json!({ "uri": "switchboard://nothing" })).unwrap_err();
        assert!(error["message"].as_str().unwrap().contains("resources/list"), "{name}: {error}");
        assert_eq!(client.ok("check_inbox", json!({}))["messages"], json!([]), "{name}");
    }
}

/// Returns a valid value for an argument, by its schema.
fn good(schema: &Value) -> Value {
    match (schema["enum"].get(0), schema["type"].as_str().unwrap()) {
        (Some(first), _) => first.clone(),
        (None, "string") => json!("x"),
        (None, "integer" | "number") => json!(1),
        (None, "boolean") => json!(true),
        (None, "array") => json!([]),
        (None, _) => json!({}),
    }
}

/// Returns values of every wrong type for an argument, at any depth.
fn wrong(schema: &Value) -> Vec<Value> {
    let kind = schema["type"].as_str().unwrap();
    let mut values: Vec<Value> = match kind {
        "string" => vec![json!(7), json!(true), json!(["x"]), json!({ "x": 1 })],
        "integer" => vec![json!("ten"), json!(1.5), json!(true), json!([1]), json!({}), json!(1e300)],
        "number" => vec![json!("ten"), json!(true), json!([1]), json!({})],
        "boolean" => vec![json!("yes"), json!(1), json!([true]), json!({})],
        "array" => vec![json!("x"), json!(7), json!(true), json!({})],
        _ => vec![json!("x"), json!(7), json!(true), json!([1])],
    };
    if kind == "array" {
        values.extend(wrong(&schema["items"]).into_iter().map(|item| json!([item])));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let mut whole = required(schema);
        for value in wrong(property) {
            whole[name] = value;
            values.push(whole.clone());
        }
    }
    values
}

/// Returns the required arguments, and no others.
fn required(schema: &Value) -> Value {
    let names = schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
    names
        .map(|name| (name.to_owned(), good(&schema["properties"][name])))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn wrong_types_are_named_in_json_terms() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    for (name, client) in connect_each(&sandbox, &served) {
        let mut client = client.registered(name);
        let tools = client.request("tools/list", json!({})).unwrap()["tools"].clone();
        let mut count = 0;
        for tool in tools.as_array().unwrap() {
            let (title, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
            for (argument, property) in schema["properties"].as_object().unwrap() {
                for value in wrong(property) {
                    let mut arguments = required(schema);
                    arguments[argument] = value;
                    let refusal = client.refused(title, arguments.clone());
                    assert!(
                        refusal.starts_with(argument) && refusal.contains(": expected "),
                        "{title} {arguments}: {refusal}"
                    );
                    assert!(refusal.contains(" Give e.g. ") || refusal.contains("Did you mean"), "{refusal}");
                    for word in ["usize", "u32", "i64", "f64", "sequence", "map", "variant", "invalid type"] {
                        assert!(!refusal.contains(word), "{title} {arguments}: {refusal}");
                    }
                    count += 1;
                }
            }
        }
        assert!(count > 300, "{count}");
    }
}
