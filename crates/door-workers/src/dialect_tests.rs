use serde_json::{Value, json};

use crate::intake::parse;
use crate::test_router::Rig;
use crate::wire::PROTOCOL;
use crate::wire::command::{Command, Request};
use crate::wire::event::CommandRejected;

fn read(command: &str, payload: Option<Value>) -> Result<Request, CommandRejected> {
    let mut line = json!({ "protocol": PROTOCOL, "command": command, "request_id": "r" });
    if let Some(payload) = payload {
        line["payload"] = payload;
    }
    parse(line.to_string().as_bytes()).unwrap()
}

#[test]
fn what_is_said_in_both_routers_words_is_one_thing_as_long_as_it_is_the_same() {
    let both = |theirs: &str| json!({ "job_id": "j", "swarm_id": theirs, "nodes": 0, "content": "x" });
    let Command::Inject(inject) = read("inject", Some(both("j"))).unwrap().command else { panic!() };
    assert_eq!(inject.job_id, "j");
    assert_eq!(read("inject", Some(both("k"))).unwrap_err().field.as_deref(), Some("payload.swarm_id"));
    assert!(matches!(read("swarm_list", None).unwrap().command, Command::JobsList(_)));
}

#[test]
fn what_is_wrong_is_named_in_the_words_it_was_said_in() {
    for (command, payload, field) in [
        ("swarm_status", None, "payload.swarm_id"),
        ("swarm_terminate", Some(json!({ "swarm_id": 5 })), "payload.swarm_id"),
        ("inject", Some(json!({ "swarm_id": null, "nodes": 0, "content": "x" })), "payload.swarm_id"),
        ("swarm_launch", Some(json!({ "system_prompt": 1 })), "payload.system_prompt"),
        ("approve_execution", Some(json!({ "approved": true })), "payload.call_id"),
        ("approve_execution", Some(json!({ "call_id": "c" })), "payload.approved"),
        ("approve_execution", Some(json!({ "call_id": "c", "approved": "yes" })), "payload.approved"),
    ] {
        let rejected = read(command, payload).unwrap_err();
        assert_eq!(rejected.field.as_deref(), Some(field), "{command}");
        assert!(rejected.reason.starts_with(&format!("{field}: ")), "{}", rejected.reason);
    }
}

#[tokio::test]
async fn a_job_that_is_not_there_is_called_as_the_client_calls_it() {
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
async fn whoever_injects_in_the_older_routers_words_is_answered_in_them() {
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
    client.inject(&job, 0, "in ours").await;
    assert_eq!(client.until_complete(None).await.last().unwrap().data.get("swarm_id"), None);
    rig.close().await;
}
