//! Token cost of the suites for a model (o200k).

use serde_json::{Value, json};
use test_support::{Sandbox, tools};

use super::{add, client, npm, pypi, raise_timeouts, sandbox};

/// Adds the four servers with which suites are measured.
fn four(sandbox: &Sandbox) -> Result<(), String> {
    let folder = sandbox.path().display().to_string();
    let servers = [
        ("everything", npm("everything", &[])?),
        ("memory", npm("memory", &[])?),
        ("filesystem", npm("filesystem", &[&folder])?),
        ("git", pypi("mcp-server-git", &["--repository", &folder])?),
    ];
    let git = test_support::process::command("git").args(["init", "-q"]).current_dir(sandbox.path()).status();
    assert!(git.unwrap().success());
    for (name, server) in servers {
        add(sandbox, name, &server);
    }
    Ok(())
}

fn count(text: &str) -> usize {
    tiktoken::get_encoding("o200k_base").unwrap().encode(text).len()
}

#[test]
fn suite_costs_a_tenth_of_the_tokens() {
    let sandbox = sandbox();
    raise_timeouts(&sandbox);
    if let Err(reason) = four(&sandbox) {
        return tools::skip("suite_costs_a_tenth_of_the_tokens", &reason);
    }
    sandbox.ok(["suite", "warm"]);
    let mut client = client(&sandbox);
    let tools = client.request("tools/list", json!({})).unwrap();
    let is_suite = |tool: &&Value| {
        let name = tool["name"].as_str().unwrap();
        name.ends_with("_suite") || name == "switchboard_tools"
    };
    let suites: Vec<&Value> = tools["tools"].as_array().unwrap().iter().filter(is_suite).collect();
    assert_eq!(suites.len(), 5);
    let listed = count(&serde_json::to_string(&suites).unwrap());
    let mut introspected = 0;
    for name in ["everything", "memory", "filesystem", "git"] {
        let params = json!({ "name": format!("{name}_suite"), "arguments": { "action": "introspect" } });
        let result = client.request("tools/call", params).unwrap();
        introspected += count(result["content"][0]["text"].as_str().unwrap());
    }
    println!("listed {listed}, introspected {introspected}");
    assert!(listed <= 260, "{listed} tokens for the list");
    assert!(introspected <= 1500, "{introspected} tokens for all that they can do");

    let savings = &sandbox.json(["suite", "savings"])[0];
    assert!(savings.to_string().contains("everything"), "{savings}");
    let text = sandbox.ok(["suite", "savings"]);
    let saved = text.split('(').find_map(|part| part.split_once(" % saved")).unwrap().0;
    assert!(saved.parse::<f64>().unwrap() >= 90.0, "{text}");
}
