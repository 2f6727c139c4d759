//! The server or a hub is killed during traffic, or a client writes malformed messages: none is lost, none is
//! duplicated.

use std::time::Duration;

use async_nats::jetstream;
use serde_json::json;
use switchboard_core::Door;
use test_support::nats::Release;
use test_support::poll;

use super::hub::{
    Linked, assert_in_order, in_stream, wait_for_all, wait_for_growth, wait_for_receipts, write, write_burst,
};
use super::{runtime, server};

#[test]
fn server_killed_and_restarted_mid_traffic() {
    let test = "server_killed_and_restarted_mid_traffic";
    let Some(mut server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    runtime().block_on(async {
        let (here, there) = (lab.hub().await, office.hub().await);
        let mut ids = write(&here, "codex", "qc-1", 0..200).await;
        server.kill();
        ids.extend(write(&here, "codex", "qc-1", 200..400).await);

        // Local mail is delivered, and a sender to another hub sees that its message waits.
        let sent = lab.send("codex", &["qc-1", "while it is down"]);
        assert_eq!(sent["deliveries"][0]["state"], "queued");
        lab.send("codex", &["human", "of ours"]);
        lab.wait_for_mail("human", "of ours");
        let doctor = lab.sandbox.run(["doctor"]);
        assert_eq!(doctor.code, Some(0), "{doctor:?}");
        assert!(doctor.stdout.contains("cannot be reached"), "{}", doctor.stdout);
        assert!(doctor.stdout.contains("deliveries wait for the nats door"), "{}", doctor.stdout);

        server.restart();
        ids.extend(write(&here, "codex", "qc-1", 400..600).await);
        wait_for_all(&there, 600).await;
        assert_in_order(&there, 0..600).await;
        wait_for_receipts(&here, &ids).await;
        assert_eq!(in_stream(&server.url(), "switchboard.lab.hub.office.message").await, 601);
        lab.wait_for_state(sent["native_id"].as_str().unwrap(), "qc-1@office", "delivered");
    });
}

/// Some messages of a burst are lost in the broken connection, and those queued after them must not overtake.
#[test]
fn crash_killed_server_keeps_order_of_burst() {
    const BURST: usize = 600;
    let test = "crash_killed_server_keeps_order_of_burst";
    let Some(mut server) = server(test, Release::Newest, "") else { return };
    let mut lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    runtime().block_on(async {
        let (here, there) = (lab.hub().await, office.hub().await);
        let mut written = 0;
        for _ in 0..4 {
            lab.serve.take().unwrap().kill();
            write_burst(&here, "codex", "qc-1", written..written + BURST).await;
            lab.serve = Some(lab.sandbox.serve());
            wait_for_growth(&server.url(), written).await;
            server.kill();
            server.restart();
            written += BURST;
            wait_for_all(&there, written).await;
            assert_in_order(&there, 0..written).await;
        }
    });
}

/// The server deduplicates for a tenth of a second only: the hub itself must remember what it has published.
#[test]
fn hub_killed_mid_publish_republishes_nothing() {
    let test = "hub_killed_mid_publish_republishes_nothing";
    let Some(server) = server(test, Release::Newest, "") else { return };
    runtime().block_on(async {
        let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let short = jetstream::stream::Config {
            name: "switchboard_messages".into(),
            subjects: vec!["switchboard.>".into()],
            duplicate_window: Duration::from_millis(100),
            ..jetstream::stream::Config::default()
        };
        context.create_stream(short).await.unwrap();
        let mut lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
        let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
        lab.wait_for("qc-1@office");
        let (here, there) = (lab.hub().await, office.hub().await);
        let mut written = 0;
        for round in 1..=4 {
            lab.serve.take().unwrap().kill();
            write(&here, "codex", "all", written..written + 1500).await;
            written += 1500;
            lab.serve = Some(lab.sandbox.serve());
            // During the publish: some messages are in the stream, and not all of this round.
            let begun = written - 1500 + 100 * round;
            let subject = "switchboard.lab.group.>";
            while in_stream(&server.url(), subject).await < begun {
                tokio::task::yield_now().await;
            }
        }
        lab.kill_and_restart();
        let counts = wait_for_all(&there, written).await;
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
        let stored = in_stream(&server.url(), "switchboard.lab.group.>").await;
        assert_eq!(stored, written, "each is in the stream once");
    });
}

#[test]
fn hub_killed_mid_ingest_ingests_once() {
    let test = "hub_killed_mid_ingest_ingests_once";
    let Some(server) = server(test, Release::Oldest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let mut office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    runtime().block_on(async {
        let (here, there) = (lab.hub().await, office.hub().await);
        let ids = write(&here, "codex", "qc-1", 0..1000).await;
        for part in [100, 400] {
            wait_for_all(&there, part).await;
            office.kill_and_restart();
        }
        let counts = wait_for_all(&there, 1000).await;
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
        wait_for_receipts(&here, &ids).await;
    });
}

#[test]
fn malformed_stream_message_is_skipped_with_warning() {
    let test = "malformed_stream_message_is_skipped_with_warning";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    let envelope = |from: &str, hub: &str| {
        let id = "01900000-0000-7000-8000-000000000001";
        json!({"v": 1, "type": "message", "hub": hub, "id": id, "from": from, "to": "all", "kind": "chat",
            "body": "forged", "thread": id, "sent_at": "2026-01-01T00:00:00Z", "door": "workspace", "verified": true})
        .to_string()
    };
    let nonsense = [
        ("switchboard.lab.hub.office.message", "\u{0}not json".to_owned()),
        ("switchboard.lab.hub.office.receipt", json!({"v": 1, "type": "receipt"}).to_string()),
        ("switchboard.lab.group.all", json!({"v": 99, "type": "message"}).to_string()),
        // In the name of another hub, of one of its agents, and of the reader's person.
        ("switchboard.lab.group.all", envelope("codex@attic", "attic")),
        ("switchboard.attic.group.all", envelope("qc-1@office", "attic")),
        ("switchboard.attic.group.all", envelope("human", "attic")),
        ("switchboard.attic", String::new()),
    ];
    runtime().block_on(async {
        let client = async_nats::connect(server.url()).await.unwrap();
        let context = jetstream::new(client.clone());
        for (subject, payload) in nonsense {
            context.publish(subject, payload.into()).await.unwrap().await.unwrap();
        }
        let roster = context.get_key_value("switchboard_agents").await.unwrap();
        for (key, value) in [("attic", "x"), ("attic", r#"{"v":1,"hub":"lab","agents":[]}"#)] {
            roster.put(key, value.into()).await.unwrap();
        }
    });
    lab.send("codex", &["qc-1", "a good one"]);
    office.wait_for_mail("qc-1", "a good one");
    lab.send("codex", &["all", "and another"]);
    office.wait_for_mail("qc-1", "and another");
    let warnings = office.errors();
    assert!(warnings.matches("skipped a message from another hub").count() >= 6, "{warnings}");
    assert!(warnings.contains("skipped invalid presence of another hub"), "{warnings}");
    assert!(!office.sandbox.json(["tail"]).iter().any(|message| message["body"] == "forged"));
}

#[test]
fn unreachable_server_affects_no_local_delivery() {
    let url = "nats://hub:hunter2@127.0.0.1:1";
    let mut lab = Linked::start("lab", url, &["codex", "claude"], json!({}));
    lab.send("codex", &["claude", "of ours"]);
    lab.wait_for_mail("claude", "of ours");
    poll::until("the failure to be reported", || {
        lab.errors().contains("not linked with other hubs").then_some(())
    });
    let doctor = lab.sandbox.run(["doctor"]);
    assert_eq!(doctor.code, Some(0));
    assert!(doctor.stdout.contains("NATS at nats://127.0.0.1:1 cannot be reached"), "{}", doctor.stdout);
    let status = std::fs::read_to_string(lab.sandbox.file("hub.nats.json")).unwrap();
    for shown in [doctor.stdout, doctor.stderr, lab.errors(), status] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(lab.serve.as_mut().unwrap().terminate().code(), Some(0));
    runtime().block_on(async {
        let hub = lab.hub().await;
        assert!(!hub.notes(Door::Nats).all("link").await.unwrap().is_empty(), "it knows from where to go on");
    });
}
