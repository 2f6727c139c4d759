//! Teams, personas, workflows and terminals through the tools, each once from end to end.

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Sandbox, TestServer, files, poll};

use super::stdio;
use crate::terminal::person::Person;
use crate::{BINARY, workspace};

#[test]
fn members_get_message_and_persona() {
    let sandbox = Sandbox::with_agents(BINARY, &[]);
    let persona = "You review. Be kind, be exact.";
    files::put(sandbox.path().join(".agent/personas/roles/reviewer.md"), persona);
    let served = TestServer::start(&sandbox);
    let mut lead = stdio(&sandbox, None).registered("lead");
    lead.ok("create_team", json!({ "id": "crew", "name": "The crew" }));
    let mut members: Vec<Client> =
        ["rita", "carl"].iter().map(|name| lead_assigns(&mut lead, name, &served)).collect();
    lead.ok("assign_role", json!({ "agent": "rita", "role": "Reviewer" }));
    lead.ok("assign_role", json!({ "agent": "carl", "role": "coder_1" }));
    let roster = lead.ok("get_team_roster", json!({}));
    assert_eq!(
        roster["teams"]["crew"],
        json!({ "name": "The crew", "isComposite": false, "capabilities": [], "memberCount": 2, "members": ["carl", "rita"] })
    );
    assert_eq!(
        (&roster["agents"]["rita"]["role"], &roster["agents"]["carl"]["role"]),
        (&json!("reviewer"), &json!("coder 1"))
    );

    let arguments = json!({ "team": "crew", "action": "request_review", "payload": "look at main.rs" });
    let sent = lead.ok("send_team_message", arguments.clone());
    assert_eq!((&sent["totalMembers"], &sent["sentTo"]), (&json!(2), &json!(2)));
    for (member, has_persona) in members.iter_mut().zip([true, false]) {
        let mail = member.ok("wait_for_message", json!({ "timeout": 60 }));
        let message = &mail["messages"][0];
        assert_eq!((&message["payload"], &message["team"]), (&json!("look at main.rs"), &json!("crew")));
        let found = message.get("persona").map(|persona| persona.as_str().unwrap().trim());
        assert_eq!(found, has_persona.then_some(persona));
        member.ok("ack_message", json!({ "ids": [message["id"]] }));
    }
    let mut filtered = arguments;
    filtered["role_filter"] = "coder 1".into();
    assert_eq!(lead.ok("send_team_message", filtered.clone())["members"][0]["member"], "carl");
    filtered["role_filter"] = "tester".into();
    let refusal = lead.refused("send_team_message", filtered);
    assert!(refusal.contains("tester"), "{refusal}");

    lead.ok("create_team", json!({ "id": "solo", "composite": true }));
    lead.ok("assign_to_team", json!({ "agent": "carl", "team": "solo" }));
    let refusal = lead.refused("assign_to_team", json!({ "agent": "rita", "team": "solo" }));
    assert!(refusal.contains("composite"), "{refusal}");
}

fn lead_assigns(lead: &mut Client, name: &str, served: &TestServer) -> Client {
    let member = Client::sse(served, None).registered(name);
    lead.ok("assign_to_team", json!({ "agent": name, "team": "team:crew" }));
    member
}

#[test]
fn workflow_from_start_to_end() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let mut lead = Client::streamable(&served, None).registered("lead");
    let rules = |client: &mut Client| {
        let read = client.request("resources/read", json!({ "uri": "switchboard://active-rules" })).unwrap();
        read["contents"][0]["text"].as_str().unwrap().to_owned()
    };
    assert!(rules(&mut lead).contains("No active workflow"), "{}", rules(&mut lead));
    lead.request("resources/subscribe", json!({ "uri": "switchboard://active-rules" })).unwrap();
    let started = lead.ok("start_workflow", json!({ "name": "Enhance", "initialContext": "the parser" }));
    assert_eq!(started["workflow"], "enhance");
    assert_eq!(lead.notification("notifications/resources/updated")["uri"], "switchboard://active-rules");
    assert!(rules(&mut lead).contains("ENHANCE WORKFLOW ACTIVE"), "{}", rules(&mut lead));
    let refusal = lead.refused("run_in_terminal", json!({ "name": "codex", "input": "ls" }));
    assert!(refusal.contains("enhance"), "prohibited by the workflow: {refusal}");
    let refusal = lead.refused("start_workflow", json!({ "name": "chat" }));
    assert!(refusal.contains("force"), "{refusal}");

    let phases = started["phases"].as_array().unwrap().len();
    let phase = |number: usize, path: &str| json!({ "workflow": "enhance", "phase": number, "artifacts": [{ "path": path }] });
    let refusal = lead.refused("complete_workflow_phase", phase(1, "notes/1.md"));
    assert!(refusal.contains("notes/1.md"), "{refusal}");
    let refusal = lead.refused("complete_workflow_phase", phase(2, "notes/1.md"));
    assert!(!refusal.is_empty());
    for number in 1..=phases {
        let path = format!("notes/{number}.md");
        files::put(sandbox.path().join(&path), "what was found");
        let done = lead.ok("complete_workflow_phase", phase(number, &path));
        assert_eq!((&done["phase"], &done["total"]), (&json!(number), &json!(phases)));
    }
    assert!(rules(&mut lead).contains("No active workflow"), "the last phase ends it");
    // Another process sees what one process has done.
    let mut other = stdio(&sandbox, None).registered("other");
    let state = other.ok("get_workflow_state", json!({}));
    assert_eq!(state["session"]["status"], "IDLE", "{state}");
    other.ok("start_workflow", json!({ "name": "chat" }));
    let stopped = lead.ok("stop_workflow", json!({ "reason": "enough" }));
    assert_eq!((&stopped["workflow"], &stopped["outcome"]), (&json!("chat"), &json!("enough")));
}

#[test]
fn line_is_typed_into_a_terminal() {
    let sandbox = workspace();
    let mut person = Person::sit_down(&sandbox, &["run", "--name", "term", "--", "cat"]);
    let is_there = || {
        let state = files::read_json_object(&sandbox.file("state.json"))?;
        state["terminals"]["term"]["pid"].as_u64()
    };
    poll::until("the terminal to be registered", is_there);
    let mut lead = stdio(&sandbox, None).registered("lead");
    let roster = lead.ok("get_team_roster", json!({}));
    assert_eq!(roster["agents"]["term"]["type"], "terminal", "{roster}");
    let ran = lead.ok("run_in_terminal", json!({ "name": "term", "input": "hello from the tools" }));
    assert_eq!(ran["status"], "executed", "{ran}");
    // Once by the echo of the terminal, once by the program that read it.
    poll::until("the line to be read", || {
        (person.shown().matches("hello from the tools").count() == 2).then_some(())
    });
    let journaled: Vec<Value> = sandbox.json(["tail"]);
    let last = journaled.last().unwrap();
    assert_eq!((&last["kind"], &last["body"]), (&json!("execute"), &json!("hello from the tools")));
    person.types("\x04");
    assert_eq!(person.end().code(), Some(0));
    let answer = lead.call("run_in_terminal", json!({ "name": "codex", "input": "ls" }));
    assert!(answer.failed || answer.data["status"] == "queued", "nobody types for codex: {}", answer.text);
}
