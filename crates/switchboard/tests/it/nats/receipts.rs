//! Receipts across hubs: the recipient has seen a message, and has finished it.

use serde_json::{Value, json};
use switchboard_core::{AgentId, DeliveryState, MessageId};
use switchboard_hub::Hub;
use test_support::nats::Release;

use super::hub::{LONG, Linked, in_stream, wait_for_all, write};
use super::{runtime, server};

#[test]
fn seen_receipts_over_the_oldest_server() {
    shown_and_done("seen_receipts_over_the_oldest_server", Release::Oldest);
}

#[test]
fn seen_receipts_over_the_newest_server() {
    shown_and_done("seen_receipts_over_the_newest_server", Release::Newest);
}

fn shown_and_done(test: &str, release: Release) {
    let Some(server) = server(test, release, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1", "qc-2"], json!({}));
    lab.wait_for("qc-2@office");
    let sent = lab.send("codex", &["qc-1", "please look"]);
    let all = lab.send("codex", &["all", "to everyone"]);
    let (sent, all) = (sent["native_id"].as_str().unwrap(), all["native_id"].as_str().unwrap());
    let mail = office.wait_for_mail("qc-1", "please look");
    office.wait_for_mail("qc-2", "to everyone");
    lab.wait_for_state(sent, "qc-1@office", "delivered");

    // The recipient reads in its own process, and acknowledges.
    office.sandbox.ok(["--from", "qc-1", "inbox"]);
    lab.wait_for_state(sent, "qc-1@office", "seen");
    lab.wait_for_state(all, "qc-1@office", "seen");
    office.sandbox.ok(["--from", "qc-1", "ack", mail["id"].as_str().unwrap(), "--note", "merged"]);
    lab.wait_for_state(sent, "qc-1@office", "acknowledged");
    let receipt = lab.sandbox.json(["receipt", sent]).remove(0);
    assert_eq!(receipt["deliveries"][0]["note"], "completed: merged", "{receipt}");
    // An agent that has not read is not reported as a reader.
    let receipt = lab.sandbox.json(["receipt", all]).remove(0);
    let deliveries = receipt["deliveries"].as_array().unwrap();
    let other = deliveries.iter().find(|delivery| delivery["agent"] == "qc-2@office");
    assert_eq!(other.map(|delivery| &delivery["state"]), Some(&Value::from("delivered")), "{receipt}");
}

/// Waits until the receipts of these messages have a state.
async fn wait_for_states(hub: &Hub, ids: &[MessageId], state: DeliveryState) {
    let mut changes = hub.changes();
    for id in ids {
        let reached = async {
            while hub
                .journal()
                .receipt(*id)
                .await
                .unwrap()
                .unwrap()
                .1
                .deliveries
                .iter()
                .any(|d| d.state != state)
            {
                changes.next().await;
            }
        };
        assert!(tokio::time::timeout(LONG, reached).await.is_ok(), "{id} should be {state}");
    }
}

#[test]
fn killed_hub_batches_receipts_after_outage() {
    let test = "killed_hub_batches_receipts_after_outage";
    let Some(mut server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let mut office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    runtime().block_on(async {
        let (here, there) = (lab.hub().await, office.hub().await);
        let ids = write(&here, "codex", "qc-1", 0..200).await;
        wait_for_all(&there, 200).await;
        wait_for_states(&there, &ids, DeliveryState::Delivered).await;
        wait_for_states(&here, &ids, DeliveryState::Delivered).await;
        let subject = "switchboard.office.hub.lab.receipt";
        assert_eq!(in_stream(&server.url(), subject).await, 200);

        server.kill();
        let reader: AgentId = "qc-1".parse().unwrap();
        assert_eq!(there.mailboxes().mark_seen(reader.clone(), ids.clone()).await.unwrap().len(), 200);
        there.mailboxes().acknowledge(reader, ids[0], None).await.unwrap();
        office.kill_and_restart();
        server.restart();
        wait_for_states(&here, &ids[..1], DeliveryState::Acknowledged).await;
        wait_for_states(&here, &ids[1..], DeliveryState::Seen).await;
        let words = in_stream(&server.url(), subject).await - 200;
        assert!((1..=3).contains(&words), "{words} messages for what fits into one");
    });
}
