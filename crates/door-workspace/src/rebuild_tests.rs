use serde_json::json;
use switchboard_core::MessageId;
use switchboard_hub::{Part, Registration};

use super::*;
use crate::test_workspace::{
    TestWorkspace, agent, archive_file, inbox_file, message, name, outgoing, with, write_carelessly,
};
use crate::{OutgoingMessage, ScanSummary};

/// Returns everything a rebuild restores: ids, bodies, conversations and states, in order.
async fn picture(
    t: &TestWorkspace,
) -> Vec<(MessageId, String, String, Option<MessageId>, Vec<(String, &'static str)>)> {
    let page = t.workspace.hub().journal().entries(0, 1000).await.unwrap();
    let mut picture = Vec::new();
    for stored in page.items {
        let message = stored.message;
        let mut states: Vec<(String, &'static str)> = (t.receipt(message.id).await.deliveries.iter())
            .map(|delivery| (delivery.agent.to_string(), delivery.state.as_str()))
            .collect();
        states.sort();
        picture.push((message.id, message.body, message.to.to_string(), Some(message.thread), states));
    }
    picture
}

#[tokio::test]
async fn rebuild_restores_ids_order_threads_and_states() {
    let t = TestWorkspace::new(&["claude"]).await;
    for member in ["codex", "gemini"] {
        let registration = Registration { team: Some(name("crew")), ..Registration::mailbox(name(member)) };
        t.workspace.register(registration).await.unwrap();
    }
    let delivered = t.send(outgoing("claude", "codex", "delivered")).await;
    let seen = t.send(outgoing("claude", "codex", "seen")).await;
    let acknowledged = t.send(outgoing("claude", "codex", "acknowledged")).await;
    t.workspace.mark_seen(&agent("codex"), vec![seen, acknowledged]).await.unwrap();
    t.workspace.acknowledge(&agent("codex"), acknowledged, None).await.unwrap();
    let answer = OutgoingMessage { in_reply_to: Some(seen), ..outgoing("codex", "claude", "answer") };
    t.send(answer).await;
    let group = t.send(outgoing("claude", "team:crew", "to the crew")).await;
    t.workspace.acknowledge(&agent("gemini"), group, None).await.unwrap();
    t.send(outgoing("claude", "all", "to all")).await;
    let replaced = OutgoingMessage { replace_earlier: true, ..outgoing("claude", "gemini", "replaced") };
    t.send(replaced.clone()).await;
    t.send(OutgoingMessage { body: "replacing".into(), ..replaced }).await;
    t.put("codex", &message("msg_1735689600000_abc", "stranger", "codex", "dropped"));
    t.workspace.scan().await.unwrap();
    let before = picture(&t).await;
    let order = t.waiting("codex").await;
    assert_eq!(order, ["delivered", "seen", "to the crew", "to all", "dropped"]);
    let files = (t.names("inbox/codex"), t.names("archive/gemini"), t.names("outbox/claude"));

    let t = t.lose_database().await;
    let mut after = picture(&t).await;
    // The dropped file has a date older than all others.
    assert_eq!(after.remove(0), before[before.len() - 1]);
    assert_eq!(after, before[..before.len() - 1]);
    assert_eq!(t.states(delivered).await, ["delivered"]);
    assert_eq!(t.workspace.scan().await.unwrap(), ScanSummary::default(), "nothing is taken in twice");
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), ScanSummary::default());
    assert_eq!((t.names("inbox/codex"), t.names("archive/gemini"), t.names("outbox/claude")), files);
    let directory = t.workspace.hub().directory().await.unwrap();
    let names: Vec<String> = directory.agents().map(|agent| agent.id.to_string()).collect();
    assert_eq!(names, ["claude", "codex", "gemini"]);
    assert_eq!(directory.members(&name("crew")).count(), 2);
    assert_eq!(t.rejected_files().await, []);
}

#[tokio::test]
async fn messages_are_delivered_after_a_rebuild() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let first = t.send(outgoing("claude", "codex", "first")).await;
    let t = t.lose_database().await;
    t.workspace.acknowledge(&agent("codex"), first, None).await.unwrap();
    assert!(t.path(&archive_file("codex", first)).exists());
    t.clock.advance(jiff::SignedDuration::from_millis(1));
    let answer = OutgoingMessage { in_reply_to: Some(first), ..outgoing("codex", "claude", "answer") };
    let answer = t.send(answer).await;
    assert_eq!(t.workspace.hub().journal().thread(first, 10).await.unwrap().items.len(), 2);
    let t = t.lose_database().await.lose_database().await;
    assert_eq!(t.journal().await, ["first", "answer"]);
    assert_eq!((t.states(first).await, t.states(answer).await), (vec!["acknowledged"], vec!["delivered"]));
    assert_eq!(t.workspace.hub().journal().thread(first, 10).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn rebuild_keeps_expired_mail_expired() {
    let t = TestWorkspace::new(&["codex"]).await;
    let expires_at = Some(t.clock.now() + jiff::SignedDuration::from_mins(1));
    let id = t.send(OutgoingMessage { expires_at, ..outgoing("claude", "codex", "soon over") }).await;
    t.clock.advance(jiff::SignedDuration::from_mins(2));
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.states(id).await, ["expired"]);
    let t = t.lose_database().await;
    assert_eq!(t.states(id).await, ["expired"]);
}

#[tokio::test]
async fn rebuild_keeps_stopped_reply_refused() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let start = t.send(outgoing("claude", "codex", "start")).await;
    for number in 0..11 {
        let reply = json!({ "replyTo": ids::to_native(start) });
        t.put("claude", &with(message(&format!("msg_1_{number:02}"), "codex", "claude", "again"), reply));
    }
    t.workspace.scan().await.unwrap();
    let id = t.id_of("msg_1_10").await;
    assert_eq!(t.states(id).await, ["refused"]);
    let t = t.lose_database().await;
    assert_eq!(t.states(id).await, ["refused"]);
    assert_eq!(t.waiting("claude").await.len(), 10);
}

#[tokio::test]
async fn rebuild_keeps_the_order_of_ingestion() {
    let t = TestWorkspace::new(&["codex"]).await;
    for (number, file) in ["msg_1_c", "msg_1_b", "msg_1_a"].into_iter().enumerate() {
        t.put("codex", &message(file, "claude", "codex", &number.to_string()));
        let age = jiff::SignedDuration::from_millis(30 - 10 * i64::try_from(number).unwrap());
        t.set_age(&format!("inbox/codex/{file}.json"), age);
    }
    t.workspace.scan().await.unwrap();
    assert_eq!(t.waiting("codex").await, ["0", "1", "2"]);
    let id = t.id_of("msg_1_b").await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    let t = t.lose_database().await;
    assert_eq!(t.journal().await, ["0", "1", "2"]);
    assert_eq!(t.states(id).await, ["acknowledged"]);
}

#[tokio::test]
async fn rebuild_keeps_rejected_files_rejected() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    t.put("codex", &message("msg_1_misrouted", "x", "claude", "not for codex"));
    t.put("nobody", &message("msg_1_nobody", "x", "nobody", "for nobody yet"));
    t.write("inbox/codex/msg_1_broken.json", "{");
    t.set_age("inbox/codex/msg_1_broken.json", jiff::SignedDuration::from_mins(1));
    t.workspace.scan().await.unwrap();
    let problems = t.rejected_files().await;
    assert_eq!(problems.len(), 3);
    let t = t.lose_database().await;
    assert_eq!(t.journal().await, [""; 0]);
    t.workspace.scan().await.unwrap();
    assert_eq!(t.rejected_files().await, problems);
}

#[tokio::test]
async fn rebuild_counts_interrupted_archiving_once() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "task")).await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    std::fs::hard_link(t.path(&archive_file("codex", id)), t.path(&inbox_file("codex", id))).unwrap();
    let t = t.lose_database().await;
    assert_eq!((t.journal().await.len(), t.states(id).await), (1, vec!["acknowledged"]));
    assert_eq!((t.waiting("codex").await.len(), t.part("codex", Part::Done).await.len()), (0, 1));
    t.workspace.scan().await.unwrap();
    assert_eq!((t.names("inbox/codex").len(), t.names("archive/codex").len()), (0, 1));
}

#[tokio::test]
async fn rebuild_restores_renamed_and_unregistered_mailboxes() {
    let t = TestWorkspace::new(&["old"]).await;
    let moved = t.send(outgoing("claude", "old", "moved along")).await;
    t.workspace.rename(name("old"), name("new")).await.unwrap();
    let stranger =
        OutgoingMessage { allow_unregistered: true, ..outgoing("claude", "stranger", "by files only") };
    let stranger = t.send(stranger).await;
    let t = t.lose_database().await;
    assert_eq!(
        (t.waiting("new").await, t.waiting("stranger").await),
        (vec!["moved along".to_owned()], vec!["by files only".to_owned()],)
    );
    assert_eq!((t.states(moved).await, t.states(stranger).await), (vec!["delivered"], vec!["delivered"]));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), ScanSummary::default());
}

#[tokio::test]
async fn truncated_database_is_rebuilt() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "kept")).await;
    let t = t.reopen_after(|root| write_carelessly(&root.join("hub.db"), "this is no database")).await;
    assert_eq!(t.waiting("codex").await, ["kept"]);
    assert_eq!(t.states(id).await, ["delivered"]);
    assert!(t.workspace.hub().database().moved_aside().is_some_and(|path| path.exists()));
}

#[tokio::test]
async fn new_workspace_rebuilds_nothing() {
    let t = TestWorkspace::new(&[]).await;
    assert!(!t.workspace.hub().database().needs_rebuild().await.unwrap());
    assert_eq!(t.journal().await, [""; 0]);
}
