use std::collections::BTreeMap;

use serde_json::json;
use switchboard_core::Name;
use switchboard_hub::Registration;
use tokio::time::timeout;

use crate::client::command_line;
use crate::config::Config;
use crate::router::{RequestContext, Requester};
use crate::test_message::door_message;
use crate::test_router::{Rig, TIMEOUT, names};
use crate::wire::command::{Inject, NodeNumber};

#[tokio::test]
async fn injection_ends_if_job_ended_first() {
    let mut rig = Rig::new().await;
    let job = rig.client().launch(json!({ "agent": "echo" })).await;
    // From here on, the router accepts no deliveries.
    rig.stop_deliveries().await;
    let requester = Requester { client: "me".into(), agent: "human".parse().unwrap(), owner: None };
    let context = RequestContext { requester: &requester, request_id: "r" };
    let (node_id, content) = (Some(NodeNumber(0)), "x".to_owned());
    let inject = Inject { job_id: job.clone(), node_id, nodes: None, content };
    let drafts = rig.router.build_drafts(context, inject).await.unwrap();
    rig.router.submit(drafts).await.remove(0).unwrap();
    let seq = rig.router.log().newest();
    assert!(rig.router.terminate(&rig.router.job(&job).unwrap(), "t").await);
    rig.resume_deliveries().await;
    let mut client = rig.client();
    client.request("subscribe", json!({ "from_seq": seq })).await;
    let events = client.until_complete(None).await;
    assert!(names(&events).ends_with(&["inject_ack", "inject_failed", "turn_complete"]), "{events:?}");
    let end = events.last().unwrap();
    assert_eq!((&end.data["status"], &end.data["job_id"]), (&json!("interrupted"), &json!(job)));
    assert!(rig.router.is_idle());
    rig.close().await;
}

#[tokio::test]
async fn sixty_injections_before_terminate_are_answered() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo" })).await;
    let inject = |number: u32| {
        let payload = json!({ "job_id": job, "node_id": 0, "content": "x" });
        command_line("inject", &format!("i{number}"), &payload)
    };
    let mut lines: String = (0..60).map(inject).collect();
    lines.push_str(&command_line("terminate", "t", &json!({ "job_id": job })));
    client.client.write(lines.as_bytes()).await.unwrap();
    let (mut acks, mut ends) = (0, 0);
    while ends < 60 {
        match client.next().await.event.as_str() {
            "inject_ack" => acks += 1,
            "turn_complete" => ends += 1,
            "command_rejected" => panic!("they came before the end"),
            _ => {}
        }
    }
    assert_eq!(acks, 60);
    rig.close().await;
}

#[tokio::test]
async fn full_queue_rejects_every_excess_injection() {
    let rig = Rig::with(Config { queue: 5, ..Config::default() }).await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "echo": { "millis": 600_000 } })).await;
    let ids = client.inject_all(&job, &["x"; 40]).await;
    let mut answers: BTreeMap<String, String> = BTreeMap::new();
    while answers.len() < ids.len() {
        let event = client.next().await;
        if let ("inject_ack" | "command_rejected", Some(id)) =
            (event.event.as_str(), event.data["request_id"].as_str())
        {
            let code = event.data["code"].as_str().unwrap_or("accepted").to_owned();
            assert!(answers.insert(id.to_owned(), code).is_none(), "answered twice: {}", event.line);
        }
    }
    let accepted = answers.values().filter(|answer| *answer == "accepted").count();
    assert!((5..=6).contains(&accepted), "{answers:?}");
    assert!(answers.values().all(|answer| answer == "accepted" || answer == "queue_full"), "{answers:?}");
    rig.close().await;
}

#[tokio::test]
async fn message_is_refused_over_budget() {
    let rig = Rig::new().await;
    rig.hub.agents().register(Registration::mailbox(Name::parse("claude").unwrap())).await.unwrap();
    let mut client = rig.client();
    let launch = json!({ "agent": "echo", "name": "parrot", "limits": { "total_tokens": 3 } });
    let job = client.launch(launch).await;
    client.injected(&job, 0, "one two three four").await;
    client.next_of("budget_exceeded").await;
    let sent = rig.hub.submit(door_message(&rig.hub, "claude", "parrot", "more work")).await.unwrap().id;
    let receipt = timeout(TIMEOUT, rig.hub.deliveries().wait_until_settled(sent)).await.unwrap().unwrap();
    let delivery = &receipt.deliveries[0];
    assert_eq!(delivery.state.as_str(), "refused");
    assert!(format!("{delivery:?}").contains("has used its 3 tokens"), "{delivery:?}");
    rig.close().await;
}

#[tokio::test]
async fn retry_is_acknowledged_after_job_end() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    client.request("hello", json!({ "client": "me" })).await;
    let job = client.launch(json!({ "agent": "echo", "limits": { "total_tokens": 3 } })).await;
    let line = |id: &str, content: &str| {
        let payload = json!({ "job_id": job, "node_id": 0, "content": content });
        command_line("inject", id, &payload).trim().to_owned()
    };
    client.send_line(&line("one", "one two three four")).await;
    let first = client.next_of("inject_ack").await.data["injection_id"].clone();
    client.next_of("budget_exceeded").await;
    for is_over in [false, true] {
        if is_over {
            client.request("terminate", json!({ "job_id": job })).await;
        }
        client.send_line(&line("one", "one two three four")).await;
        assert_eq!(client.next_of("inject_ack").await.data["injection_id"], first);
        client.send_line(&line("one", "something else")).await;
        let conflict = client.next_of("command_rejected").await;
        assert_eq!(conflict.data["code"], "duplicate_request_id");
        client.send_line(&line(&format!("new-{is_over}"), "x")).await;
        let refused = client.next_of("command_rejected").await;
        assert_eq!(refused.data["code"], if is_over { "job_over" } else { "over_budget" });
    }
    rig.close().await;
}

#[tokio::test]
async fn duplicate_node_is_injected_once() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "nodes": 2 })).await;
    let inject = |nodes: serde_json::Value| json!({ "job_id": job, "nodes": nodes, "content": "x" });
    assert_eq!(client.rejected("inject", inject(json!([]))).await, "bad_field");
    client.send("inject", inject(json!([1, 0, 1, 0]))).await;
    let mut ended = Vec::new();
    while ended.len() < 2 {
        ended.push(client.next_of("turn_complete").await.data["node_id"].as_u64().unwrap());
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1]);
    let status = client.request("job_status", json!({ "job_id": job })).await;
    assert_eq!(
        (&status.data["nodes"][0]["turns"], &status.data["nodes"][0]["queued"]),
        (&json!(1), &json!(0))
    );
    rig.close().await;
}
