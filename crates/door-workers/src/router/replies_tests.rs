use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use switchboard_core::{MessageId, Name};
use switchboard_hub::{Hub, Registration};
use tokio::time::timeout;

use super::{PendingReplies, RECENT};
use crate::config::Config;
use crate::job::FinishedTurn;
use crate::test_message::door_message;
use crate::test_router::{Rig, TIMEOUT};
use crate::turn::Turn;
use crate::wire::event::{EventBody, Injection, InjectionRef, TurnStatus};
use crate::worker::Report;

fn injection(job: &str, id: MessageId, client: &str) -> Injection {
    let at = InjectionRef { job_id: job.to_owned(), node_id: 0, injection_id: id.to_string() };
    Injection { request_id: id.to_string(), client: client.to_owned(), at }
}

/// Logs the events of a turn from the acknowledgement of its injection to its end.
fn log_turn(rig: &Rig, injection: Injection, text: Option<&str>, status: TurnStatus, error: Option<&str>) {
    let mut turn = Turn::new(injection.clone());
    let reports = [Report::Accepted, Report::Started].into_iter();
    let mut events = vec![EventBody::InjectAck(injection)];
    for report in reports.chain(text.map(|text| Report::Answer(text.to_owned()))) {
        events.extend(turn.apply(report));
    }
    events.extend(turn.end(status, error.map(str::to_owned), 0));
    for event in &events {
        rig.router.log().append(event);
    }
    rig.router.log().flush();
}

async fn answers(hub: &Hub, question: MessageId) -> Vec<(String, String)> {
    let replies = hub.journal().replies(question, 10).await.unwrap().items;
    replies.into_iter().map(|reply| (reply.message.kind.to_string(), reply.message.body)).collect()
}

#[tokio::test]
async fn pending_replies_are_sent_once_after_kill() {
    let mut rig = Rig::new().await;
    rig.hub.agents().register(Registration::mailbox(Name::parse("claude").unwrap())).await.unwrap();
    let job = rig.client().launch(json!({ "agent": "echo" })).await;
    // From here on the router accepts no deliveries: only the log knows these turns.
    rig.stop_deliveries().await;
    let mut sent = Vec::new();
    for body in ["answered", "lost", "silent"] {
        let question = door_message(&rig.hub, "claude", &format!("job:{job}/0"), body);
        sent.push(rig.hub.submit(question).await.unwrap().id);
    }
    let mail = |number: usize| injection(&job, sent[number], "door:workspace");
    log_turn(&rig, mail(0), Some("done that"), TurnStatus::Completed, None);
    log_turn(&rig, mail(1), Some("half of it"), TurnStatus::Failed, Some("no model"));
    log_turn(&rig, mail(2), None, TurnStatus::Completed, None);
    for _ in 0..2 {
        let folder = rig.close().await;
        rig = Rig::open(folder, Config::default(), Duration::from_mins(1)).await;
        let answer = |kind: &str, body: &str| vec![(kind.to_owned(), body.to_owned())];
        assert_eq!(answers(&rig.hub, sent[0]).await, answer("submit_result", "done that"));
        let failed = "It failed: no model.\n\nSo far:\nhalf of it";
        assert_eq!(answers(&rig.hub, sent[1]).await, answer("status_update", failed));
        assert_eq!(answers(&rig.hub, sent[2]).await, []);
    }
    // The hub redelivers them, and the router reports them as finished.
    for id in sent {
        let receipt = timeout(TIMEOUT, rig.hub.deliveries().wait_until_settled(id)).await.unwrap().unwrap();
        assert!(receipt.deliveries.iter().all(|d| d.state.as_str() == "seen"), "{receipt:?}");
    }
    rig.close().await;
}

#[test]
fn old_and_client_turns_get_no_reply() {
    let ended = |client: &str| {
        let injection = injection("j", MessageId::from_bytes([7; 16]), client);
        FinishedTurn { injection, status: TurnStatus::Completed, error: None, answer: None }
    };
    let (mut answers, start) = (PendingReplies::default(), Timestamp::UNIX_EPOCH);
    answers.push(start, ended("door:workspace"));
    answers.push(start, ended("news:workspace"));
    answers.push(start, ended("a client"));
    assert_eq!(answers.0.len(), 1);
    answers.push(start + RECENT, ended("door:channels"));
    assert_eq!(answers.0.len(), 2);
    answers.push(start + RECENT + SignedDuration::from_secs(1), ended("door:channels"));
    assert_eq!(answers.0.len(), 2);
}
