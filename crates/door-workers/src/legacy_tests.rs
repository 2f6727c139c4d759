use serde_json::{Value, json};

use super::LegacyMode;
use crate::intake::parse;
use crate::session::{Access, AccessToken};
use crate::test_router::{Rig, TestClient};
use crate::wire::PROTOCOL;
use crate::wire::command::{Command, Request};
use crate::wire::event::CommandRejected;

fn parse_command(command: &str, payload: Option<Value>) -> Result<Request, CommandRejected> {
    let mut line = json!({ "protocol": PROTOCOL, "command": command, "request_id": "r" });
    if let Some(payload) = payload {
        line["payload"] = payload;
    }
    parse(line.to_string().as_bytes(), LegacyMode::default()).unwrap()
}

#[test]
fn aliased_fields_must_agree() {
    let both = |theirs: &str| json!({ "job_id": "j", "swarm_id": theirs, "nodes": 0, "content": "x" });
    let Command::Inject(inject) = parse_command("inject", Some(both("j"))).unwrap().command else { panic!() };
    assert_eq!(inject.job_id, "j");
    assert_eq!(
        parse_command("inject", Some(both("k"))).unwrap_err().field.as_deref(),
        Some("payload.swarm_id")
    );
    assert!(matches!(parse_command("swarm_list", None).unwrap().command, Command::JobsList(_)));
}

#[test]
fn rejection_uses_dialect_of_command() {
    for (command, payload, field) in [
        ("swarm_status", None, "payload.swarm_id"),
        ("swarm_terminate", Some(json!({ "swarm_id": 5 })), "payload.swarm_id"),
        ("inject", Some(json!({ "swarm_id": null, "nodes": 0, "content": "x" })), "payload.swarm_id"),
        ("swarm_launch", Some(json!({ "system_prompt": 1 })), "payload.system_prompt"),
        ("swarm_launch", Some(json!({ "provider": "slurm" })), "payload.provider"),
        (
            "swarm_launch",
            Some(json!({ "provider_params": { "worker_mode": "x" } })),
            "payload.provider_params.worker_mode",
        ),
        ("approve_execution", Some(json!({ "approved": true })), "payload.call_id"),
        ("approve_execution", Some(json!({ "call_id": "c" })), "payload.approved"),
        ("approve_execution", Some(json!({ "call_id": "c", "approved": "yes" })), "payload.approved"),
    ] {
        let rejected = parse_command(command, payload).unwrap_err();
        assert_eq!(rejected.field.as_deref(), Some(field), "{command}");
        assert!(rejected.reason.starts_with(&format!("{field}: ")), "{}", rejected.reason);
    }
}

#[tokio::test]
async fn unknown_job_uses_dialect_of_command() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    for (command, field) in [("swarm_status", "payload.swarm_id"), ("job_status", "payload.job_id")] {
        let name = field.strip_prefix("payload.").unwrap();
        client.send(command, json!({ name: "nobody" })).await;
        let rejected = client.next_of("command_rejected").await;
        assert_eq!((&rejected.data["field"], &rejected.data["code"]), (&json!(field), &json!("unknown_job")));
    }
    rig.close().await;
}

#[tokio::test]
async fn legacy_inject_gets_legacy_answers() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo" })).await;
    client.send("inject", json!({ "swarm_id": job, "nodes": 0, "content": "x" })).await;
    let events = client.until_complete(None).await;
    let about = events.iter().filter(|event| event.data.get("injection_id").is_some());
    let about: Vec<_> = about.filter(|event| event.event != "node_status").collect();
    assert!(about.len() > 4);
    for event in about {
        assert_eq!((&event.data["swarm_id"], &event.data["job_id"]), (&json!(job), &json!(job)));
    }
    // A client of the current dialect gets the same events without `swarm_id`.
    let mut native = rig.client();
    native.request("subscribe", json!({ "from_seq": 0 })).await;
    assert!(native.until_complete(None).await.iter().all(|event| event.data.get("swarm_id").is_none()));
    // Another client gets the events of its own jobs in the current dialect.
    let mut other = rig.client();
    let job = other.launch(json!({ "agent": "echo" })).await;
    other.inject(&job, 0, "in ours").await;
    assert_eq!(other.until_complete(None).await.last().unwrap().data.get("swarm_id"), None);
    rig.close().await;
}

/// Connects a client of the legacy dialect, which has no token.
fn legacy(rig: &Rig) -> TestClient {
    rig.client_with(Access { legacy: true, ..Access::default() })
}

/// An exchange of a client: the command, the event that ends its wait, the events it skips until then, and the fields
/// it reads.
#[derive(serde::Deserialize)]
struct Exchange {
    verb: String,
    frame: String,
    passes: Vec<String>,
    answer: String,
    reads: Vec<String>,
}

fn exchanges() -> Vec<Exchange> {
    let text = include_str!("../../../fixtures/router/older.ndjson");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn field<'v>(data: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(data, |value, key| match key.parse::<usize>() {
        Ok(index) => value.get(index),
        Err(_) => value.get(key),
    })
}

#[tokio::test]
async fn legacy_clients_get_expected_answers() {
    let rig = Rig::new().await;
    let mut swarm = String::new();
    for Exchange { verb, frame, passes, answer, reads } in exchanges() {
        // The command line opens a connection for each command.
        let mut client = legacy(&rig);
        let frame = frame.replace("SWARM", &swarm);
        let request_id = serde_json::from_str::<Value>(&frame).unwrap()["request_id"].clone();
        client.send_line(&frame).await;
        let answered = loop {
            let event = client.next().await;
            if event.data["request_id"] == request_id && !passes.contains(&event.event) {
                break event;
            }
        };
        assert_eq!(answered.event, answer, "{verb}: {}", answered.line);
        for path in reads {
            assert!(field(&answered.data, &path.replace("SWARM", &swarm)).is_some(), "{verb}: {path}");
        }
        if answer == "swarm_launched" {
            swarm = answered.data["swarm_id"].as_str().unwrap().to_owned();
        }
        if verb.contains("nosuch") {
            assert_eq!(answered.data["reason"], "unknown swarm_id");
        }
        // No other event that the client would mistake for its answer.
        client
            .send_line(&format!(r#"{{"protocol":"{PROTOCOL}","command":"swarm_list","request_id":"last"}}"#))
            .await;
        loop {
            let event = client.next().await;
            if event.data["request_id"] == "last" {
                break;
            }
            let is_follow_up = event.event.starts_with("inject_") && event.data["swarm_id"] == swarm;
            assert!(event.data["request_id"] != request_id || is_follow_up, "{verb}: {}", event.line);
        }
    }
    rig.close().await;
}

#[tokio::test]
async fn system_prompt_is_the_first_prompt_unless_blank() {
    let rig = Rig::new().await;
    let mut client = legacy(&rig);
    for prompt in ["", " \n", "begin"] {
        let params = json!({ "worker_mode": "mock" });
        let payload = json!({ "nodes": 2, "system_prompt": prompt, "provider_params": params });
        let launched = client.request("swarm_launch", payload).await;
        let swarm = launched.data["swarm_id"].clone();
        let inject = json!({ "swarm_id": swarm, "content": "then" });
        client.send("inject", inject).await;
        let mut answers = [Vec::new(), Vec::new()];
        while answers.iter().any(|node| node.last().is_none_or(|last| last != "then")) {
            let event = client.next_of("assistant").await;
            let node = usize::try_from(event.data["node_id"].as_u64().unwrap()).unwrap();
            answers[node].push(event.data["content"].as_str().unwrap().to_owned());
        }
        let expected = if prompt == "begin" { vec!["begin", "then"] } else { vec!["then"] };
        assert_eq!(answers, [expected.clone(), expected], "{prompt:?}");
    }
    rig.close().await;
}

#[tokio::test]
async fn legacy_clients_see_jobs_of_others() {
    let rig = Rig::new().await;
    let mut watching = legacy(&rig);
    assert_eq!(watching.request("swarm_list", json!({})).await.event, "swarm_list");
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo" })).await;
    assert_eq!(watching.next_of("swarm_launched").await.data["swarm_id"], json!(job));
    client.inject(&job, 0, "x").await;
    for event in ["turn_started", "assistant_delta", "assistant", "usage", "turn_complete"] {
        let heard = watching.next_of(event).await;
        assert_eq!((&heard.data["swarm_id"], &heard.data["node_id"]), (&json!(job), &json!(0)), "{event}");
    }
    client.request("terminate", json!({ "job_id": job })).await;
    assert_eq!(watching.next_of("swarm_terminated").await.data["swarm_id"], json!(job));
    rig.close().await;
}

/// The web backend polls every few seconds, without a timestamp.
#[tokio::test]
async fn legacy_client_may_start_with_project_list() {
    let rig = Rig::new().await;
    let ask = |command: &str, id: &str| {
        format!(r#"{{"protocol":"{PROTOCOL}","command":"{command}","request_id":"{id}","payload":{{}}}}"#)
    };
    let mut client = legacy(&rig);
    client.send_line(&ask("project_list", "1")).await;
    let listed = client.next().await;
    assert_eq!(
        (listed.event.as_str(), &listed.data),
        ("project_list", &json!({ "request_id": "1", "projects": {} }))
    );
    for command in ["enqueue_inject", "project_resume", "never_heard_of"] {
        client.send_line(&ask(command, command)).await;
        let rejected = client.next_of("command_rejected").await;
        let expected = (&json!(command), &json!("unknown_command"), &json!("unknown command"));
        let rejection = (&rejected.data["request_id"], &rejected.data["code"], &rejected.data["reason"]);
        assert_eq!(rejection, expected);
    }
    // A command that exists in both dialects.
    client.send_line(&ask("queue_list", "2")).await;
    assert_eq!(client.next_of("queue_list").await.data["request_id"], "2");
    rig.close().await;
}

#[tokio::test]
async fn invalid_first_field_keeps_legacy_client() {
    let rig = Rig::new().await;
    for first in ["project_resume", "swarm_launch"] {
        let mut client = legacy(&rig);
        let payload = json!({ "provider": "slurm" });
        let line = json!({ "protocol": PROTOCOL, "command": first, "request_id": "1", "payload": payload });
        client.send_line(&line.to_string()).await;
        assert_eq!(client.next().await.event, "command_rejected", "{first}");
        assert_eq!(client.request("swarm_list", json!({})).await.event, "swarm_list", "{first}");
    }
    rig.close().await;
}

#[tokio::test]
async fn terminated_swarm_is_not_listed() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo" })).await;
    let running = client.launch(json!({ "agent": "echo" })).await;
    client.request("terminate", json!({ "job_id": job })).await;
    let mut older = legacy(&rig);
    let listed = older.request("swarm_list", json!({})).await;
    let swarms: Vec<&String> = listed.data["swarms"].as_object().unwrap().keys().collect();
    assert_eq!(swarms, [&running]);
    assert_eq!(older.request("swarm_status", json!({ "swarm_id": job })).await.data["status"], "terminated");
    assert_eq!(client.request("jobs_list", json!({})).await.data["jobs"].as_array().unwrap().len(), 2);
    rig.close().await;
}

/// A browser sends a web page's text only after header lines of its own, and a client without a token must start with
/// a command of the legacy dialect.
#[tokio::test]
async fn unknown_first_line_disconnects_legacy_client() {
    let rig = Rig::new().await;
    let launch = |command: &str| {
        json!({
            "protocol": PROTOCOL, "type": "command", "timestamp": "2026-01-01T00:00:00Z", "command": command,
            "request_id": "r", "payload": { "agent": "echo", "nodes": 1 },
        })
    };
    let (older, newer) = (launch("swarm_launch"), launch("launch"));
    let hello = json!({
        "protocol": PROTOCOL, "type": "command", "timestamp": "2026-01-01T00:00:00Z", "command": "hello",
        "request_id": "h", "payload": {},
    });
    for first in [
        "POST / HTTP/1.1\r".to_owned(),
        "PRI * HTTP/2.0\r".to_owned(),
        "\u{16}\u{3}\u{1}".to_owned(),
        "[]".to_owned(),
        older.to_string().replace(PROTOCOL, "codeswarm.router.v2"),
        newer.to_string(),
        hello.to_string(),
    ] {
        let mut client = legacy(&rig);
        client.send_line(&format!("{first}\n{older}")).await;
        assert_eq!(client.next().await.event, "command_rejected", "{first}");
        assert!(client.client.next().await.is_err(), "{first}: it was not hung up on");
    }
    assert_eq!(rig.router.jobs().len(), 0);
    rig.close().await;
}

#[tokio::test]
async fn tokenless_client_is_limited_to_legacy_dialect() {
    let rig = Rig::new().await;
    let tokens = vec![AccessToken { token: "secret".into(), owner: None }];
    let mut client = rig.client_with(Access { tokens, legacy: true, ..Access::default() });
    // Fields of the current dialect are dropped, so that the client cannot choose the program to run.
    let payload = json!({
        "nodes": 1, "system_prompt": "", "program": ["sh"], "cwd": "/nowhere", "env": 5, "agent": "command",
        "provider_params": { "worker_mode": "mock" },
    });
    let line =
        json!({ "protocol": PROTOCOL, "command": "swarm_launch", "request_id": "1", "payload": payload });
    client.send_line(&line.to_string()).await;
    assert_eq!(client.next_of("swarm_launched").await.data["agent_runtime"], "echo");
    for name in ["sandbox_mode", "approval_policy"] {
        let payload = json!({ "provider_params": { name: "never" } });
        assert_eq!(client.rejected("swarm_launch", payload).await, "not_allowed", "{name}");
    }
    let launch = json!({ "agent": "command", "program": ["sh"] });
    assert_eq!(client.rejected("launch", launch).await, "not_allowed");
    assert_eq!(client.rejected("hello", json!({ "agent": "human" })).await, "not_allowed");
    // The process of this client is unknown.
    let approve = json!({ "call_id": "x", "approved": true });
    assert_eq!(client.rejected("approve_execution", approve).await, "not_allowed");
    assert_eq!(client.request("hello", json!({ "token": "secret" })).await.event, "hello");
    let launch = json!({ "agent": "echo", "job_id": "known" });
    assert_eq!(client.request("launch", launch).await.data["job_id"], "known");
    rig.close().await;
}

#[test]
fn legacy_decisions_are_translated() {
    for (decision, approved, expected) in [
        (Some(json!("acceptForSession")), None, "accept_for_session"),
        (Some(json!("abort")), Some(false), "cancel"),
        (Some(json!("denied")), Some(true), "decline"),
        (
            Some(json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": [] } })),
            Some(true),
            "accept",
        ),
        (Some(json!("unheard of")), Some(false), "decline"),
        (None, Some(true), "accept"),
    ] {
        let mut payload = json!({ "job_id": "j", "call_id": "c", "node_id": 0 });
        if let Some(decision) = &decision {
            payload["decision"] = decision.clone();
        }
        if let Some(approved) = approved {
            payload["approved"] = json!(approved);
        }
        let Command::Approve(approve) = parse_command("approve_execution", Some(payload)).unwrap().command
        else {
            panic!()
        };
        assert_eq!(approve.decision.as_str(), expected, "{decision:?} {approved:?}");
    }
}

#[test]
fn agents_md_content_becomes_instructions() {
    let bundle = |skills: Value| {
        json!({
            "nodes": 1, "system_prompt": "", "agents_md_content": "be brief",
            "agents_bundle": { "mode": "file", "agents_md_content": "be brief", "skills_files": skills },
        })
    };
    let Command::Launch(launch) = parse_command("swarm_launch", Some(bundle(json!([])))).unwrap().command
    else {
        panic!()
    };
    assert_eq!((launch.instructions.as_deref(), launch.prompt), (Some("be brief"), None));
    let skills = json!([{ "path": "a/SKILL.md", "content": "x" }]);
    let rejected = parse_command("swarm_launch", Some(bundle(skills))).unwrap_err();
    assert_eq!(rejected.field.as_deref(), Some("payload.agents_bundle.skills_files"));
}
