//! Which tools are listed, in which order, and their token cost.

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Sandbox, TestServer, files};

use super::{connect_each, stdio};
use crate::workspace;

const PROFILES: [&str; 3] = ["minimal", "messaging", "full"];

/// Token budget of the smallest profile's tools in every conversation.
const MINIMAL_TOKENS: usize = 1200;

fn choose(sandbox: &Sandbox, profile: &str) {
    let config = json!({ "tools": { "profile": profile } });
    files::put(sandbox.path().join("switchboard.config.json"), config.to_string());
}

fn list(client: &mut Client) -> Value {
    client.request("tools/list", json!({})).unwrap()["tools"].clone()
}

/// Returns the tokens (o200k) of what a model sees of the tools: names, descriptions and schemas.
fn tokens(tools: &Value) -> usize {
    let definitions: Vec<Value> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| json!({ "name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"] }))
        .collect();
    tiktoken::get_encoding("o200k_base").unwrap().encode(&json!(definitions).to_string()).len()
}

#[test]
fn tool_list_is_stable_across_restarts() {
    let sandbox = workspace();
    let mut first = Value::Null;
    for round in 0..2 {
        let served = TestServer::start(&sandbox);
        for (name, mut client) in connect_each(&sandbox, &served) {
            let before = list(&mut client);
            if first.is_null() {
                first = before.clone();
            }
            // The same bytes: clients cache the list by its hash.
            assert_eq!(before.to_string(), first.to_string(), "{name}, start {round}");
            let mut client = client.registered(name);
            client.ok("create_team", json!({ "id": format!("{name}{round}") }));
            client.ok("set_agent_status", json!({ "status": "working" }));
            assert_eq!(list(&mut client), first, "{name} after other calls");
        }
    }
}

#[test]
fn tool_list_meets_profile_token_budget() {
    let sandbox = workspace();
    let mut before: Vec<Value> = Vec::new();
    for profile in PROFILES {
        choose(&sandbox, profile);
        let mut client = stdio(&sandbox, None).registered("claude");
        let tools = list(&mut client);
        let cost = tokens(&tools);
        let count = tools.as_array().unwrap().len();
        println!("profile {profile}: {count} tools, {} bytes, {cost} tokens", tools.to_string().len());
        if profile == "minimal" {
            assert!(cost <= MINIMAL_TOKENS, "{cost} tokens");
        }
        // Each profile starts with the previous one.
        assert_eq!(tools.as_array().unwrap()[..before.len()], before);
        assert!(count > before.len());
        before.clone_from(tools.as_array().unwrap());
    }
}

#[test]
fn tool_list_omits_tools_outside_profile() {
    let sandbox = workspace();
    choose(&sandbox, "minimal");
    let served = TestServer::start(&sandbox);
    for (name, client) in connect_each(&sandbox, &served) {
        let mut client = client.registered(name);
        assert_eq!(
            client.tool_names(),
            [
                "send_message",
                "check_inbox",
                "ack_message",
                "wait_for_message",
                "register_chat_agent",
                "get_team_roster"
            ]
        );
        let refusal = client.refused("start_workflow", json!({ "name": "challenge" }));
        assert!(refusal.contains("disabled") && refusal.contains("tools.profile"), "{refusal}");
    }
}

#[test]
fn unknown_profile_is_an_error() {
    let sandbox = workspace();
    choose(&sandbox, "everything");
    for args in [&["mcp"][..], &["serve", "--port", "0"]] {
        let ran = sandbox.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        let problem = "'tools.profile' is 'everything', but must be one of none, minimal, messaging, full";
        assert!(ran.stderr.contains(problem), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: correct the file"), "{}", ran.stderr);
    }
    assert!(!sandbox.file("server_info.json").exists());
}
