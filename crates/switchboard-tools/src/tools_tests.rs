use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::test_server::{TestTools, text};
use crate::test_workspace::{message, outgoing};
use crate::{ToolConfig, ToolServer};

fn names(profile: Profile) -> Vec<String> {
    list_tools(profile).into_iter().map(|tool| tool.name.into_owned()).collect()
}

#[test]
fn each_profile_is_prefix_of_the_next() {
    let (minimal, messaging, full) =
        (names(Profile::Minimal), names(Profile::Messaging), names(Profile::Full));
    assert_eq!(minimal.len(), 6);
    assert!(messaging.starts_with(&minimal) && full.starts_with(&messaging));
    let all: BTreeSet<&str> = full.iter().map(String::as_str).collect();
    let expected = BTreeSet::from([
        "ack_message",
        "assign_role",
        "assign_to_team",
        "check_inbox",
        "claim_task",
        "complete_workflow_phase",
        "create_team",
        "get_receipt",
        "get_team_roster",
        "get_workflow_state",
        "handoff_clipboard",
        "register_chat_agent",
        "register_terminal",
        "release_claim",
        "renew_claim",
        "reserve_files",
        "run_in_terminal",
        "search_messages",
        "send_message",
        "send_team_message",
        "set_agent_status",
        "start_workflow",
        "stop_workflow",
        "wait_for_message",
    ]);
    assert_eq!(all, expected);
}

#[test]
fn schemas_are_closed_and_descriptions_short() {
    for tool in list_tools(Profile::Full) {
        let schema = Value::Object((*tool.input_schema).clone());
        assert_eq!(schema["type"], "object", "{}", tool.name);
        assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
        // Clients truncate descriptions at 2 KB.
        assert!(tool.description.is_some_and(|text| (10..300).contains(&text.len())), "{}", tool.name);
        assert!(!schema.to_string().contains("\"null\""), "{}: {schema}", tool.name);
    }
}

/// Returns the arguments of a schema that have no description, at any depth.
fn undescribed(schema: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(|text| text.len() < 5) {
            found.push(path.clone());
        }
        found.extend(undescribed(property, &path));
        found.extend(undescribed(&property["items"], &path));
    }
    found
}

#[test]
fn every_argument_has_a_description() {
    for tool in list_tools(Profile::Full) {
        let schema = Value::Object((*tool.input_schema).clone());
        assert_eq!(undescribed(&schema, &tool.name), [""; 0]);
    }
}

#[tokio::test]
async fn tool_of_another_profile_is_unknown() {
    let tools = TestTools::with(ToolConfig { profile: Profile::Minimal, ..ToolConfig::default() }).await;
    let client = tools.client().await;
    let listed = client.peer().list_tools(None).await.expect("listed").tools;
    assert_eq!(listed.len(), 6);
    let refusal = client.refused("start_workflow", json!({"name": "chat"})).await;
    assert!(refusal.contains("disabled") && refusal.contains("tools.profile"), "{refusal}");
}

#[tokio::test]
async fn session_without_agent_cannot_read_or_send() {
    let tools = TestTools::new().await;
    tools.agent("codex").await.close().await;
    let nobody = tools.client().await;
    for (tool, arguments) in [
        ("check_inbox", json!({})),
        ("send_message", json!({"recipient": "codex", "action": "delegate_task", "payload": "x"})),
        ("wait_for_message", json!({"timeout": 0})),
        ("search_messages", json!({"query": "x"})),
        ("ack_message", json!({"ids": ["msg_1_a"]})),
        ("create_team", json!({"id": "t"})),
    ] {
        let refusal = nobody.refused(tool, arguments).await;
        assert!(refusal.contains("register_chat_agent"), "{tool}: {refusal}");
    }
    nobody.ok("get_team_roster", json!({})).await;
}

#[tokio::test]
async fn agent_belongs_to_one_session() {
    let tools = TestTools::new().await;
    let codex = tools.agent("Codex").await;
    let refusal = codex.refused("register_chat_agent", json!({"name": "claude"})).await;
    assert!(refusal.contains("speaks for 'Codex'"), "{refusal}");
    codex.ok("register_chat_agent", json!({"name": "codex", "role": "reviewer"})).await;
    let refusal = codex.refused("check_inbox", json!({"agent": "claude"})).await;
    assert!(refusal.contains("not for 'claude'"), "{refusal}");
    let refusal = codex
        .refused(
            "send_message",
            json!({"recipient": "all", "action": "execute", "payload": "x", "sender": "claude"}),
        )
        .await;
    assert!(refusal.contains("not for 'claude'"), "{refusal}");
    let thief = tools.client().await;
    let refusal = thief.refused("register_chat_agent", json!({"name": "CODEX"})).await;
    assert!(refusal.contains("in use by another session"), "{refusal}");
    let refusal = thief.refused("set_agent_status", json!({"name": "codex", "status": "active"})).await;
    assert!(refusal.contains("in use"), "{refusal}");
    // As another process would see it.
    let other = ToolServer::new(tools.workspace.open_another().await, ToolConfig::default());
    assert!(other.has_owner("codex"));
    codex.close().await;
    tools
        .until(|| async {
            thief.call("register_chat_agent", json!({"name": "codex"})).await.is_error == Some(false)
        })
        .await;
}

#[tokio::test]
async fn session_cannot_register_as_human() {
    let tools = TestTools::new().await;
    let refusal = tools.client().await.refused("register_chat_agent", json!({"name": "human"})).await;
    assert!(refusal.contains("the person"), "{refusal}");
}

#[tokio::test]
async fn configured_agent_is_registered_at_first_call() {
    let agent = Some("gemini".parse().expect("a name"));
    let tools = TestTools::with(ToolConfig { agent, ..ToolConfig::default() }).await;
    let client = tools.client().await;
    client.ok("check_inbox", json!({})).await;
    let roster = client.ok("get_team_roster", json!({})).await;
    assert_eq!(roster["agents"]["gemini"]["interface"], "test-client");
}

#[tokio::test]
#[expect(deprecated, reason = "sessions up to 2025-11-25 subscribe this way")]
async fn configured_subscriber_is_registered() {
    let agent = Some("gemini".parse().expect("a name"));
    let tools = TestTools::with(ToolConfig { agent, ..ToolConfig::default() }).await;
    let client = tools.client().await;
    let uri = "switchboard://inbox/gemini";
    client.peer().subscribe(rmcp::model::SubscribeRequestParams::new(uri)).await.expect("subscribed");
    let now = tools.workspace.workspace.snapshot().await.expect("a snapshot");
    assert!(now.recipient("gemini").is_ok());
}

#[tokio::test]
async fn message_is_sent_read_answered_and_acknowledged() {
    let tools = TestTools::new().await;
    let (lead, coder) = (tools.agent("lead").await, tools.agent("coder").await);
    let task = json!({"recipient": "coder", "action": "delegate_task", "payload": "fix it", "metadata": {"ticket": 7}});
    let sent = lead.ok("send_message", task).await;
    assert_eq!(sent["deliveries"][0]["agent"], "coder");
    tools.arrived(&sent).await;
    // Every result reports unread mail.
    let result = coder.call("get_team_roster", json!({})).await;
    assert!(text(&result).ends_with("You have 1 unread message: call check_inbox."), "{}", text(&result));
    assert_eq!(result.structured_content.expect("data")["unread"], 1);
    let inbox = coder.ok("check_inbox", json!({})).await;
    let message = &inbox["messages"][0];
    assert_eq!((&message["payload"], &message["sender"]), (&json!("fix it"), &json!("lead")));
    assert_eq!(inbox.get("unread"), None, "what was shown is not unread");
    // Reading consumes nothing.
    assert_eq!(coder.ok("check_inbox", json!({})).await["messages"][0]["state"], "seen");
    let receipt = lead.ok("get_receipt", json!({"id": sent["id"]})).await;
    assert_eq!(receipt["deliveries"][0]["state"], "seen");
    let answer =
        json!({"recipient": "lead", "action": "submit_result", "payload": "done", "replyTo": sent["id"]});
    tools.arrived(&coder.ok("send_message", answer).await).await;
    let ack = json!({"ids": [sent["id"], "msg_1_unknown"], "status": "completed", "summary": "fixed"});
    let acked = coder.ok("ack_message", ack).await;
    assert_eq!((&acked["acknowledged"], acked["results"].as_array().map(Vec::len)), (&json!(1), Some(2)));
    assert_eq!(coder.ok("check_inbox", json!({})).await["messages"], json!([]));
    assert_eq!(coder.ok("check_inbox", json!({"box": "archive"})).await["messages"][0]["id"], sent["id"]);
    let receipt = lead.ok("get_receipt", json!({"id": sent["id"]})).await;
    assert_eq!(receipt["deliveries"][0]["state"], "acknowledged");
    assert_eq!(receipt["deliveries"][0]["note"], "completed: fixed");
    let answers = lead.ok("check_inbox", json!({"verbose": true})).await;
    assert_eq!(answers["messages"][0]["replyTo"], sent["id"]);
}

#[tokio::test]
async fn truncated_messages_of_a_listing_stay_unseen() {
    let tools = TestTools::new().await;
    let (lead, coder) = (tools.agent("lead").await, tools.agent("coder").await);
    let mut last = Value::Null;
    for n in 0..5 {
        let action = if n % 2 == 0 { "delegate_task" } else { "status_update" };
        let payload = if n == 4 { "é".repeat(60_000) } else { format!("number {n}") };
        last = lead
            .ok("send_message", json!({"recipient": "coder", "action": action, "payload": payload}))
            .await;
        tools.arrived(&last).await;
    }
    let page = coder.ok("check_inbox", json!({"limit": 3})).await;
    assert_eq!(page["messages"].as_array().map(Vec::len), Some(3));
    let rest = coder.ok("check_inbox", json!({"limit": 3, "cursor": page["cursor"]})).await;
    assert_eq!(rest["messages"].as_array().map(Vec::len), Some(2));
    assert_eq!((&rest["cursor"], &rest["messages"][1]["payloadChars"]), (&Value::Null, &json!(60_000)));
    assert_eq!(
        coder.ok("check_inbox", json!({"filter": "status_update"})).await["messages"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    let since = coder.ok("check_inbox", json!({"since": page["messages"][2]["id"]})).await;
    assert_eq!(since["messages"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        coder.ok("check_inbox", json!({"since": "2100-01-01T00:00:00Z"})).await["messages"],
        json!([])
    );
    assert!(coder.refused("check_inbox", json!({"cursor": "soon"})).await.contains("not a cursor"));
    // Four were shown completely, the long one was not.
    assert_eq!(rest["unread"], 1);
    // Truncated at 48,000 bytes, at a character boundary.
    for (offset, shown, unread) in
        [(0, 24_000, json!(1)), (24_000, 24_000, json!(1)), (48_000, 12_000, Value::Null)]
    {
        let part = coder.ok("check_inbox", json!({"id": last["id"], "offset": offset})).await;
        let payload = part["messages"][0]["payload"].as_str().expect("a payload");
        assert_eq!((payload.chars().count(), &part["unread"]), (shown, &unread));
    }
}

#[tokio::test]
async fn mail_of_others_is_not_accessible() {
    let tools = TestTools::new().await;
    let (lead, coder, spy) =
        (tools.agent("lead").await, tools.agent("coder").await, tools.agent("spy").await);
    let sent = lead
        .ok(
            "send_message",
            json!({"recipient": "coder", "action": "delegate_task", "payload": "secret plan"}),
        )
        .await;
    tools.arrived(&sent).await;
    let id = sent["id"].clone();
    assert!(spy.refused("get_receipt", json!({"id": id})).await.contains("neither sent nor received"));
    assert!(spy.refused("check_inbox", json!({"id": id})).await.contains("no message"));
    assert!(spy.refused("ack_message", json!({"ids": [id]})).await.contains("no message"));
    assert_eq!(spy.ok("search_messages", json!({"query": "secret"})).await["messages"], json!([]));
    for agent in [&lead, &coder] {
        assert_eq!(agent.ok("search_messages", json!({"query": "secret"})).await["messages"][0]["id"], id);
    }
    let inbox =
        |agent: &str| rmcp::model::ReadResourceRequestParams::new(format!("switchboard://inbox/{agent}"));
    assert!(spy.peer().read_resource(inbox("coder")).await.is_err());
    assert!(coder.peer().read_resource(inbox("coder")).await.is_ok());
}

#[tokio::test]
async fn same_idempotency_key_sends_once() {
    let tools = TestTools::new().await;
    let lead = tools.agent("lead").await;
    let task = |payload: &str| json!({"recipient": "lead", "action": "delegate_task", "payload": payload, "idempotencyKey": "k", "expiresInMinutes": 5});
    let first = lead.ok("send_message", task("one")).await;
    tools.arrived(&first).await;
    let again = lead.ok("send_message", task("one")).await;
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    assert!(lead.refused("send_message", task("two")).await.contains("idempotencyKey"));
    assert_eq!(lead.ok("check_inbox", json!({})).await["messages"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn wait_returns_on_mail_or_timeout() {
    let tools = TestTools::new().await;
    let (lead, coder) = (tools.agent("lead").await, tools.agent("coder").await);
    let none = coder.ok("wait_for_message", json!({"timeout": 0.01})).await;
    assert_eq!((&none["messages"], &none["timedOut"]), (&json!([]), &json!(true)));
    let task = json!({"recipient": "coder", "action": "delegate_task", "payload": "now"});
    let (woken, _) =
        tokio::join!(coder.ok("wait_for_message", json!({"timeout": 30})), lead.ok("send_message", task));
    assert_eq!(woken["messages"][0]["payload"], "now");
    // It was shown, so it does not wake again.
    assert_eq!(coder.ok("wait_for_message", json!({"timeout": 0.01})).await["timedOut"], true);
    assert!(coder.refused("wait_for_message", json!({"timeout": -1})).await.contains("seconds"));
}

#[tokio::test]
#[expect(deprecated, reason = "sessions up to 2025-11-25 subscribe this way")]
async fn subscriber_is_notified_of_mail() {
    let tools = TestTools::new().await;
    let (lead, mut coder) = (tools.agent("lead").await, tools.agent("coder 1").await);
    let uri = "switchboard://inbox/coder%201";
    let listed = coder.peer().list_resources(None).await.expect("listed").resources;
    assert!(listed.iter().any(|resource| resource.uri == uri), "{listed:?}");
    coder.peer().subscribe(rmcp::model::SubscribeRequestParams::new(uri)).await.expect("subscribed");
    lead.ok("send_message", json!({"recipient": "coder 1", "action": "delegate_task", "payload": "x"})).await;
    assert_eq!(coder.updates.recv().await.as_deref(), Some(uri));
    assert!(lead.peer().subscribe(rmcp::model::SubscribeRequestParams::new(uri)).await.is_err());
}

#[tokio::test]
async fn team_message_reports_each_member() {
    let tools = TestTools::new().await;
    let (lead, _one, _two) = (tools.agent("lead").await, tools.agent("one").await, tools.agent("two").await);
    lead.ok("create_team", json!({"id": "backend", "name": "Backend"})).await;
    for (agent, role) in [("one", "coder 1"), ("two", "reviewer")] {
        lead.ok("assign_to_team", json!({"agent": agent, "team": "backend"})).await;
        lead.ok("assign_role", json!({"agent": agent, "role": role})).await;
    }
    let message = |filter: Value| json!({"team": "backend", "action": "status_update", "payload": "hi", "role_filter": filter});
    let sent = lead.ok("send_team_message", message(Value::Null)).await;
    assert_eq!((&sent["sentTo"], &sent["totalMembers"]), (&json!(2), &json!(2)));
    let sent = lead.ok("send_team_message", message(json!("Reviewer"))).await;
    assert_eq!(sent["members"][0]["member"], "two");
    lead.refused("send_team_message", message(json!("tester"))).await;
    let refusal = lead
        .refused("send_team_message", json!({"team": "backent", "action": "execute", "payload": "x"}))
        .await;
    assert!(refusal.contains("backend"), "{refusal}");
    let roster = lead.ok("get_team_roster", json!({})).await;
    assert_eq!(roster["teams"]["backend"]["members"], json!(["one", "two"]));
    let refusal = lead.refused("assign_role", json!({"agent": "one", "role": "reviwer"})).await;
    assert!(refusal.contains("reviewer"), "{refusal}");
}

#[tokio::test]
async fn workflow_restricts_and_records_tools() {
    let tools = TestTools::new().await;
    let lead = tools.agent("lead").await;
    lead.ok("start_workflow", json!({"name": "chat", "targetAgent": "session"})).await;
    assert!(lead.refused("run_in_terminal", json!({"name": "lead", "input": "ls"})).await.contains("chat"));
    let refusal = lead.refused("start_workflow", json!({"name": "handoff"})).await;
    assert!(refusal.contains("WORKFLOW LOCK"), "{refusal}");
    lead.ok("stop_workflow", json!({"reason": "enough"})).await;
    lead.ok("start_workflow", json!({"name": "handoff"})).await;
    let state = lead.ok("get_workflow_state", json!({})).await;
    assert_eq!(state["session"]["activeWorkflow"], "handoff");
    let refusal = lead.refused("send_message", json!({"action": "request_review", "payload": "x"})).await;
    assert!(refusal.contains("delegate_task"), "{refusal}");
    let phase = json!({"workflow": "handoff", "phase": 1, "artifacts": [{"path": "../outside"}]});
    assert!(lead.refused("complete_workflow_phase", phase).await.contains("PHASE 1 INCOMPLETE"));
}

#[tokio::test]
async fn only_workspace_files_are_copied_to_clipboard() {
    let tools = TestTools::new().await;
    let lead = tools.agent("lead").await;
    for file in ["/etc/passwd", "../../etc/passwd", "nowhere.md", ""] {
        let refusal = lead.refused("handoff_clipboard", json!({"file": file})).await;
        assert!(refusal.contains("cannot be handed over"), "{refusal}");
    }
}

#[tokio::test]
async fn check_inbox_shows_earlier_changes_of_others() {
    let tools = TestTools::new().await;
    let (t, codex) = (&tools.workspace, tools.agent("codex").await);
    let other = t.open_another().await;
    let inbox = async || {
        // A folder that has just changed may change again without a new timestamp.
        t.clock.advance(jiff::SignedDuration::from_mins(1));
        let mail = codex.ok("check_inbox", json!({})).await;
        let bodies = mail["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["payload"].as_str().unwrap().to_owned());
        (bodies.collect::<Vec<_>>(), mail["unread"].clone())
    };
    let mut expected = Vec::new();
    assert_eq!(inbox().await, (expected.clone(), Value::Null));
    for number in 0..3 {
        let body = format!("message {number}");
        let sent = other.send(outgoing("claude", "codex", &body)).await.unwrap();
        t.workspace.hub().deliveries().wait_until_settled(sent.id).await.unwrap();
        expected.push(body);
        for _ in 0..2 {
            assert_eq!(inbox().await, (expected.clone(), Value::Null), "nothing of it is unread afterwards");
        }
        let (id, body) = (format!("msg_1_{number}"), format!("file {number}"));
        t.put("codex", &message(&id, "claude", "codex", &body));
        expected.push(body);
        assert_eq!(inbox().await.0, expected);
    }
    other.close().await;
}
