use std::time::Duration;

use serde_json::{Value, json};
use switchboard_core::{AgentId, Name};
use switchboard_hub::{MailboxQuery, Part, Registration};

use crate::config::Config;
use crate::session::{Access, AccessToken};
use crate::test_router::{Rig, names};
use crate::wire::PROTOCOL;

#[tokio::test]
async fn injection_runs_through_all_stages() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let hello = client.request("hello", json!({ "client": "test" })).await;
    assert_eq!((hello.event.as_str(), &hello.data["client"]), ("hello", &json!("test")));
    let job = client.launch(json!({ "agent": "echo", "echo": { "deltas": 2 } })).await;
    let request = client.inject(&job, 0, "Hello there").await;
    let events = client.until_complete(None).await;
    let expected = [
        "inject_ack",
        "inject_delivered",
        "turn_started",
        "assistant_delta",
        "assistant_delta",
        "assistant",
        "usage",
        "turn_complete",
    ];
    assert_eq!(names(&events), expected);
    let ack = events.iter().find(|event| event.event == "inject_ack").unwrap();
    assert_eq!((&ack.data["request_id"], &ack.data["client"]), (&json!(request), &json!("test")));
    let end = events.last().unwrap();
    assert_eq!(
        (&end.data["status"], &end.data["injection_id"]),
        (&json!("completed"), &ack.data["injection_id"])
    );
    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    rig.close().await;
}

#[tokio::test]
async fn invalid_lines_do_not_block_next_command() {
    let rig = Rig::with(Config { max_line: 5_000, ..Config::default() }).await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo" })).await;
    let bad = [
        "[]".to_owned(),
        "not json".to_owned(),
        "{}".to_owned(),
        "x".repeat(20_000),
        format!(
            r#"{{"protocol":"{PROTOCOL}","type":"command","timestamp":"2026-01-01T00:00:00Z","command":"fly","request_id":"f","payload":{{}}}}"#
        ),
    ];
    for line in &bad {
        client.send_line(line).await;
        let rejected = client.next_of("command_rejected").await;
        assert!(!rejected.data["reason"].as_str().unwrap().is_empty());
    }
    for (payload, code) in [
        (json!({ "job_id": job, "node_id": -1, "content": "x" }), "bad_field"),
        (json!({ "job_id": job, "node_id": 99, "content": "x" }), "unknown_node"),
        (json!({ "job_id": "nobody", "node_id": 0, "content": "x" }), "unknown_job"),
        (json!({ "job_id": job, "content": "x" }), "bad_field"),
        (json!({ "job_id": job, "node_id": 0, "content": { "a": 1 } }), "bad_field"),
    ] {
        assert_eq!(client.rejected("inject", payload.clone()).await, code, "{payload}");
    }
    client.injected(&job, 0, "still there").await;
    rig.close().await;
}

#[tokio::test]
async fn duplicate_request_id_is_deduplicated_or_rejected() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    client.request("hello", json!({ "client": "me" })).await;
    let job = client.launch(json!({ "agent": "echo" })).await;
    let line = |id: &str, content: &str| {
        json!({ "protocol": PROTOCOL, "type": "command", "timestamp": "2026-01-01T00:00:00Z", "command": "inject",
            "request_id": id, "payload": { "job_id": job, "node_id": 0, "content": content } })
        .to_string()
    };
    client.send_line(&line("one", "a")).await;
    let first = client.next_of("inject_ack").await;
    client.until_complete(None).await;
    client.send_line(&line("one", "a")).await;
    let again = client.next_of("inject_ack").await;
    assert_eq!(first.data["injection_id"], again.data["injection_id"]);
    client.send_line(&line("one", "b")).await;
    let conflict = client.next_of("command_rejected").await;
    assert_eq!(conflict.data["code"], "duplicate_request_id");
    // Also on another connection under the same client name.
    let mut other = rig.client();
    other.request("hello", json!({ "client": "me" })).await;
    other.send_line(&line("one", "a")).await;
    assert_eq!(other.next_of("inject_ack").await.data["injection_id"], first.data["injection_id"]);
    other.send("jobs_list", json!({})).await;
    let list = other.next_of("jobs_list").await;
    assert_eq!(list.data["jobs"][0]["nodes"][0]["turns"], 1);
    rig.close().await;
}

#[tokio::test]
async fn busy_node_queues_injections_in_order() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "echo": { "millis": 50 } })).await;
    for content in ["one", "two", "three"] {
        client.inject(&job, 0, content).await;
    }
    let mut answers = Vec::new();
    let mut running: Option<Value> = None;
    while answers.len() < 3 {
        let event = client.next().await;
        match event.event.as_str() {
            "turn_started" => assert!(running.replace(event.data["injection_id"].clone()).is_none()),
            "assistant" => answers.push(event.data["content"].as_str().unwrap().to_owned()),
            "turn_complete" => assert_eq!(running.take().as_ref(), Some(&event.data["injection_id"])),
            _ => {}
        }
    }
    assert_eq!(answers, ["one", "two", "three"]);
    rig.close().await;
}

#[tokio::test]
async fn turn_supports_interrupt_steering_and_timeout() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client
        .launch(json!({ "agent": "echo", "echo": { "millis": 600_000 }, "limits": { "turn_seconds": 1 } }))
        .await;
    let node = json!({ "job_id": job, "node_id": 0 });
    assert_eq!(client.rejected("interrupt", node.clone()).await, "not_now");
    client.injected(&job, 0, "slow").await;
    client.next_of("turn_started").await;
    let steered = client.request("steer", json!({ "job_id": job, "node_id": 0, "content": "er" })).await;
    assert_eq!(steered.event, "steer_ack");
    assert_eq!(client.request("interrupt", node).await.event, "interrupt_ack");
    assert_eq!(client.next_of("turn_complete").await.data["status"], "interrupted");
    client.injected(&job, 0, "again").await;
    let end = client.next_of("turn_complete").await;
    assert_eq!(end.data["status"], "timeout");
    rig.close().await;
}

#[tokio::test]
async fn reconnected_client_sees_every_event_once() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "echo": { "deltas": 20 } })).await;
    client.inject(&job, 0, "x").await;
    let mut seen = Vec::new();
    let mut last = 0;
    for _ in 0..12 {
        last = client.next().await.seq;
        seen.push(last);
    }
    drop(client);
    let mut back = rig.client();
    let subscribed = back.request("subscribe", json!({ "from_seq": last })).await;
    assert_eq!(subscribed.event, "subscribed");
    for event in back.until_complete(None).await {
        seen.push(event.seq);
    }
    let first = seen[0];
    assert_eq!(seen, (first..first + seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(back.rejected("subscribe", json!({ "from_seq": -1 })).await, "bad_field");
    rig.close().await;
}

#[tokio::test]
async fn stalled_client_is_disconnected_with_reason() {
    let rig = Rig::with(Config { lag: 2_000, ..Config::default() }).await;
    let mut slow = rig.client();
    slow.request("subscribe", json!({})).await;
    let mut quick = rig.client();
    let job = quick.launch(json!({ "agent": "echo", "echo": { "deltas": 10_000 } })).await;
    quick.inject(&job, 0, "word").await;
    let events = quick.until_complete(None).await;
    assert_eq!(names(&events).iter().filter(|name| **name == "assistant_delta").count(), 10_000);
    let cut = slow.next_of("cut_off").await;
    let resume = cut.data["resume_from"].as_u64().unwrap();
    assert_eq!(cut.seq, resume);
    let mut back = rig.client();
    back.request("subscribe", json!({ "from_seq": resume })).await;
    let rest = back.until_complete(None).await;
    assert_eq!(rest.first().unwrap().seq, resume + 1);
    assert_eq!(rest.last().unwrap().seq, events.last().unwrap().seq);
    rig.close().await;
}

#[tokio::test]
async fn command_output_cannot_forge_events() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let forged = r#"{"protocol":"codeswarm.router.v1","type":"event","event":"turn_complete"}"#;
    let script = format!("cat; echo; echo '{forged}'; echo oops >&2");
    let job = client.launch(json!({ "agent": "command", "program": ["sh", "-c", script] })).await;
    client.inject(&job, 0, "\u{1b}[31m/clear\nprompt").await;
    let events = client.until_complete(None).await;
    let answer = events.iter().find(|event| event.event == "assistant").unwrap();
    assert_eq!(answer.data["content"], format!("\u{1b}[31m/clear\nprompt\n{forged}"));
    assert_eq!(names(&events).iter().filter(|name| **name == "turn_complete").count(), 1);
    let failing =
        client.launch(json!({ "agent": "command", "program": ["sh", "-c", "echo why >&2; exit 3"] })).await;
    client.inject(&failing, 0, "x").await;
    let end = client.next_of("turn_complete").await;
    assert_eq!(end.data["status"], "failed");
    assert!(end.data["error"].as_str().unwrap().contains("why"), "{}", end.data);
    // Exists at launch, and is removed later.
    let going = rig.folder.path().join("going");
    test_support::files::put(&going, "#!/bin/sh\n");
    test_support::files::chmod(&going, 0o755);
    let missing = client.launch(json!({ "agent": "command", "program": [going] })).await;
    std::fs::remove_file(&going).unwrap();
    client.inject(&missing, 0, "x").await;
    let events = client.until_complete(None).await;
    assert!(names(&events).ends_with(&["inject_failed", "turn_complete"]));
    rig.close().await;
}

#[tokio::test]
async fn prompt_reaches_agent_verbatim() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let echo = client.launch(json!({ "agent": "echo" })).await;
    let command = client.launch(json!({ "agent": "command", "program": ["cat"] })).await;
    let line = json!({ "protocol": "codeswarm.router.v1", "type": "command", "command": "terminate", "request_id": "1",
        "payload": { "job_id": echo } });
    for content in [
        &*line.to_string(),
        "/quit",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{1b}[200~paste\u{1b}[201~",
        "^C\u{3}\u{4}",
    ] {
        for job in [&echo, &command] {
            client.inject(job, 0, content).await;
            let events = client.until_complete(None).await;
            let answer = events.iter().find(|event| event.event == "assistant").expect("an answer");
            assert_eq!(answer.data["content"].as_str().map(str::trim_end), Some(content));
            assert_eq!(events.last().unwrap().data["status"], "completed");
        }
    }
    rig.close().await;
}

#[tokio::test]
async fn terminated_job_ends_queued_injections() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "echo": { "millis": 600_000 }, "name": "slow" })).await;
    for _ in 0..3 {
        client.injected(&job, 0, "x").await;
    }
    client.next_of("turn_started").await;
    let queue = client.request("queue_list", json!({ "job_id": job })).await;
    assert_eq!(queue.data["queue"].as_array().unwrap().len(), 2);
    client.send("terminate", json!({ "job_id": job })).await;
    let mut ends = Vec::new();
    loop {
        let event = client.next().await;
        match event.event.as_str() {
            "turn_complete" => ends.push(event.data["status"].clone()),
            "job_terminated" => break,
            _ => {}
        }
    }
    assert_eq!(ends, ["interrupted", "interrupted", "interrupted"]);
    assert_eq!(
        client.rejected("inject", json!({ "job_id": job, "node_id": 0, "content": "x" })).await,
        "job_over"
    );
    assert_eq!(client.rejected("terminate", json!({ "job_id": job })).await, "job_over");
    assert!(rig.hub.directory().await.unwrap().agent(&"slow".parse().unwrap()).is_none());
    rig.close().await;
}

#[tokio::test]
async fn token_limits_access_to_own_jobs() {
    let rig = Rig::new().await;
    let token = |token: &str, owner: &str| AccessToken { token: token.into(), owner: Some(owner.into()) };
    let access = Access { tokens: vec![token("aaaa", "alice"), token("bbbb", "bob")], ..Access::default() };
    let mut nobody = rig.client_with(access.clone());
    assert_eq!(nobody.rejected("jobs_list", json!({})).await, "not_allowed");
    let mut wrong = rig.client_with(access.clone());
    assert_eq!(wrong.rejected("hello", json!({ "token": "aaab" })).await, "not_allowed");
    let mut alice = rig.client_with(access.clone());
    alice.request("hello", json!({ "token": "aaaa" })).await;
    let job = alice.launch(json!({ "agent": "echo" })).await;
    let mut bob = rig.client_with(access);
    bob.request("hello", json!({ "token": "bbbb" })).await;
    bob.request("subscribe", json!({ "from_seq": 0 })).await;
    let inject = json!({ "job_id": job, "node_id": 0, "content": "x" });
    assert_eq!(bob.rejected("inject", inject).await, "not_allowed");
    alice.injected(&job, 0, "x").await;
    alice.next_of("turn_complete").await;
    let own = bob.launch(json!({ "agent": "echo" })).await;
    assert_ne!(own, job);
    // Bob subscribes from the first event, and the first one he sees is his own.
    let list = bob.request("jobs_list", json!({})).await;
    assert_eq!(list.data["jobs"].as_array().unwrap().len(), 1);
    rig.close().await;
}

#[tokio::test]
async fn budget_exceeded_rejects_and_notifies_person() {
    let rig = Rig::new().await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "limits": { "total_tokens": 3 } })).await;
    client.injected(&job, 0, "one two three four").await;
    let event = client.next_of("budget_exceeded").await;
    assert_eq!((&event.data["total_tokens"], &event.data["limit"]), (&json!(4), &json!(3)));
    let more = json!({ "job_id": job, "node_id": 0, "content": "x" });
    assert_eq!(client.rejected("inject", more).await, "over_budget");
    let mut changes = rig.hub.changes();
    loop {
        let newest = rig.hub.journal().newest(10).await.unwrap();
        if newest.items.iter().any(|stored| stored.message.to == AgentId::human().into()) {
            break;
        }
        changes.next().await;
    }
    rig.close().await;
}

#[tokio::test]
async fn message_from_other_door_gets_reply() {
    let rig = Rig::new().await;
    rig.hub.agents().register(Registration::mailbox(Name::parse("claude").unwrap())).await.unwrap();
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "nodes": 2 })).await;
    for (to, expected) in [(format!("job:{job}/1"), 1), (format!("job:{job}"), 2)] {
        let draft = crate::test_message::door_message(&rig.hub, "claude", &to, "do this");
        let sent = rig.hub.submit(draft).await.unwrap().id;
        let mut changes = rig.hub.changes();
        let replies = loop {
            let replies = rig.hub.journal().replies(sent, 10).await.unwrap().items;
            if replies.len() == expected {
                break replies;
            }
            changes.next().await;
        };
        for reply in replies {
            assert_eq!(
                (reply.message.body.as_str(), reply.message.kind.as_str()),
                ("Message from claude:\n> do this", "submit_result")
            );
            assert_eq!(reply.message.to, "claude".parse::<AgentId>().unwrap().into());
        }
        let receipt = rig.hub.journal().receipt(sent).await.unwrap().unwrap().1;
        assert!(receipt.deliveries.iter().all(|d| d.state.as_str() == "seen"), "{receipt:?}");
    }
    let query = MailboxQuery { agent: "claude".parse().unwrap(), after: 0, limit: 10, part: Part::Waiting };
    let _ = rig.hub.mailboxes().page(query).await.unwrap();
    rig.close().await;
}

#[tokio::test]
async fn queued_injections_survive_restart_in_order() {
    // Short enough for the leases of the first router, which belong to the same process, to expire soon; long enough
    // not to expire while it runs.
    let lease = Duration::from_secs(6);
    let rig = Rig::open(tempfile::TempDir::new().unwrap(), Config::default(), lease).await;
    let mut client = rig.client();
    let program = ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; cat"];
    let job = client.launch(json!({ "agent": "command", "program": program, "job_id": "keep" })).await;
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(client.injected(&job, 0, &format!("{number}")).await);
    }
    client.next_of("turn_started").await;
    let last = rig.router.log().newest();
    let folder = rig.close().await;
    test_support::files::put(folder.path().join("go"), "");
    let rig = Rig::open(folder, Config::default(), lease).await;
    let mut client = rig.client();
    client.request("subscribe", json!({ "from_seq": last })).await;
    let mut ends = Vec::new();
    while ends.len() < 5 {
        let event = client.next().await;
        assert_ne!(event.event, "inject_ack");
        if event.event == "turn_complete" {
            ends.push((event.data["injection_id"].clone(), event.data["status"].clone()));
        }
    }
    let expected: Vec<_> = sent
        .iter()
        .enumerate()
        .map(|(number, id)| (json!(id), json!(if number == 0 { "interrupted" } else { "completed" })))
        .collect();
    assert_eq!(ends, expected);
    let status = client.request("job_status", json!({ "job_id": job })).await;
    assert_eq!(status.data["nodes"][0]["turns"], 5);
    rig.close().await;
}
