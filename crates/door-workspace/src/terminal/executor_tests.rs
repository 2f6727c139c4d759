use serde_json::{Value, json};
use switchboard_core::Kind;
use switchboard_hub::Registration;

use super::*;
use crate::config::Config;
use crate::terminal::TerminalConfig;
use crate::test_workspace::{TestWorkspace, agent, archive_file, inbox_file, message, name, outgoing, with};
use crate::workspace::OutgoingMessage;

fn execute(from: &str, to: &str, text: &str) -> OutgoingMessage {
    OutgoingMessage { kind: Kind::parse(EXECUTE).unwrap(), ..outgoing(from, to, text) }
}

fn result_file(test: &TestWorkspace, sender: &str, id: MessageId, status: &str) -> Value {
    test.json(&format!("outbox/{sender}/{}.{status}.receipt.json", crate::ids::to_native(id)))
}

#[tokio::test]
async fn messages_are_typed_in_order_and_archived() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let mut ids = Vec::new();
    for text in ["one", "two"] {
        ids.push(test.send(execute("claude", "codex", text)).await);
    }
    test.send(outgoing("claude", "codex", "just mail")).await;
    for (id, text) in ids.iter().zip(["one", "two"]) {
        let next = executor.next().await.unwrap();
        assert_eq!((next.message.id, next.text.as_str()), (*id, text));
        assert!(executor.start(&next).await.unwrap());
        assert!(!executor.start(&next).await.unwrap(), "never twice");
        executor.finish(&next, ExecuteResult::Executed).await.unwrap();
    }
    assert_eq!(executor.poll().await.unwrap(), None);
    for id in ids {
        assert_eq!(result_file(&test, "claude", id, "executed")["error"], Value::Null);
        assert_eq!(test.states(id).await, ["acknowledged"]);
        assert_eq!(test.receipt(id).await.deliveries[0].note.as_deref(), Some("executed"));
        assert!(test.path(&archive_file("codex", id)).exists());
    }
    assert_eq!(test.waiting("codex").await, ["just mail"]);
    assert!(test.workspace.hub().notes(Door::Workspace).all(TYPING).await.unwrap().is_empty());
}

#[tokio::test]
async fn refused_message_stays_and_is_reported_once() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let old = test.send(execute("claude", "codex", "old")).await;
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let stranger = test.send(execute("stranger", "codex", "from a stranger")).await;
    let good = test.send(execute("claude", "codex", "good")).await;
    assert_eq!(executor.next().await.unwrap().message.id, good);
    let receipt = result_file(&test, "claude", old, "refused");
    assert!(receipt["error"].as_str().unwrap().starts_with("it was accepted before"), "{receipt}");
    assert_eq!(receipt["status"], "refused");
    let receipt = result_file(&test, "stranger", stranger, "refused");
    assert!(receipt["error"].as_str().unwrap().contains("is not registered"), "{receipt}");
    assert!(test.path(&inbox_file("codex", old)).exists());
    assert_eq!(test.waiting("codex").await, ["old", "from a stranger", "good"]);
    // The next executor types none of them, and the reported result stays.
    let before = test.bytes(&format!("outbox/claude/{}.refused.receipt.json", crate::ids::to_native(old)));
    drop(executor);
    test.clock.advance(jiff::SignedDuration::from_secs(5));
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    assert_eq!(executor.poll().await.unwrap(), None);
    assert_eq!(
        test.bytes(&format!("outbox/claude/{}.refused.receipt.json", crate::ids::to_native(old))),
        before
    );
    assert!(result_file(&test, "claude", good, "refused")["error"].as_str().is_some());
}

#[tokio::test]
async fn dropped_file_is_typed_only_with_permission() {
    let terminals = TerminalConfig { execute_from_files: true, ..TerminalConfig::default() };
    for (config, is_typed) in [(Config::default(), false), (Config { terminals, ..Config::default() }, true)]
    {
        let test = TestWorkspace::with(config, &["codex", "claude"]).await;
        let file = |id: &str, at: Timestamp| {
            with(
                message(id, "claude", "codex", id),
                json!({ "action": "execute", "createdAt": crate::translate::iso(at) }),
            )
        };
        let later = test.clock.now() + jiff::SignedDuration::from_secs(60);
        // It came with the repository and has a recent date.
        test.put("codex", &file("msg_1_prepared", later));
        let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
        test.put("codex", &file("msg_2_old", Timestamp::UNIX_EPOCH));
        test.put("codex", &file("msg_3_new", later));
        test.workspace.scan_all(0).await.unwrap();
        let next = executor.poll().await.unwrap().map(|next| next.text);
        assert_eq!(next.as_deref(), is_typed.then_some("msg_3_new"));
        assert!(test.names("outbox/claude").contains(&"msg_1_prepared.refused.receipt.json".to_owned()));
        assert!(test.names("outbox/claude").contains(&"msg_2_old.refused.receipt.json".to_owned()));
    }
}

#[tokio::test]
async fn interrupted_typing_is_reported_as_uncertain() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let id = test.send(execute("claude", "codex", "rm -r build")).await;
    let next = executor.next().await.unwrap();
    assert!(executor.start(&next).await.unwrap());
    // The process dies here: nothing is finished, and its lease ends with it.
    drop(executor);
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    assert_eq!(executor.poll().await.unwrap(), None);
    let receipt = result_file(&test, "claude", id, "failed");
    assert!(receipt["error"].as_str().unwrap().contains("may not have been typed"), "{receipt}");
    assert_eq!(test.states(id).await, ["acknowledged"]);
    assert!(test.path(&archive_file("codex", id)).exists());
    assert!(test.workspace.hub().notes(Door::Workspace).all(TYPING).await.unwrap().is_empty());
}

#[tokio::test]
async fn result_recorded_before_crash_stays() {
    for result in [ExecuteResult::Executed, ExecuteResult::Failed { reason: "it hung: twice".into() }] {
        let test = TestWorkspace::new(&["codex", "claude"]).await;
        let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
        let id = test.send(execute("claude", "codex", "make")).await;
        let next = executor.next().await.unwrap();
        assert!(executor.start(&next).await.unwrap());
        // The process dies after the journal write and before any file is written.
        test.workspace.hub().mailboxes().acknowledge(agent("codex"), id, Some(result.note())).await.unwrap();
        drop(executor);
        drop(test.workspace.acquire_terminal(&name("codex")).await.unwrap());
        let receipt = ExecuteResult::read(test.workspace.tree(), &next.message).unwrap();
        assert_eq!(receipt, Some(result));
        assert!(test.path(&archive_file("codex", id)).exists());
    }
}

#[tokio::test]
async fn requeued_message_is_retried_with_its_reason() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let id = test.send(execute("claude", "codex", "make")).await;
    let next = executor.next().await.unwrap();
    assert!(executor.start(&next).await.unwrap());
    executor.requeue(&next, "the program shows a question").await.unwrap();
    let queued = ExecuteResult::Queued { reason: "the program shows a question".into() };
    assert_eq!(test.workspace.execute_result(&next.message).await.unwrap(), Some(queued.clone()));
    assert_eq!(queued.note(), "not typed yet: the program shows a question");
    assert_eq!(test.states(id).await, ["delivered"]);
    assert!(test.workspace.hub().notes(Door::Workspace).all(TYPING).await.unwrap().is_empty());
    let again = executor.next().await.unwrap();
    assert_eq!(again, next);
    assert!(executor.start(&again).await.unwrap());
    executor.finish(&again, ExecuteResult::Executed).await.unwrap();
    assert_eq!(test.workspace.execute_result(&next.message).await.unwrap(), Some(ExecuteResult::Executed));
    assert!(test.workspace.hub().notes(Door::Workspace).all(NOT_TYPED).await.unwrap().is_empty());
}

#[tokio::test]
async fn second_executor_is_refused_with_the_holder() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let other = test.open_another().await;
    let error = other.acquire_terminal(&name("CODEX")).await.err().unwrap().to_string();
    assert!(error.contains(&format!("process {} on", std::process::id())), "{error}");
    assert!(error.contains("'codex'"), "{error}");
    other.acquire_terminal(&name("claude")).await.unwrap();
    drop(executor);
    other.acquire_terminal(&name("codex")).await.unwrap();
    other.close().await;
}

#[tokio::test]
async fn acknowledged_or_expired_message_is_not_typed() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let read = test.send(execute("claude", "codex", "read by the agent itself")).await;
    let next = executor.next().await.unwrap();
    test.workspace.acknowledge(&agent("codex"), read, None).await.unwrap();
    assert!(!executor.start(&next).await.unwrap());
    let expires_at = Some(test.clock.now() + jiff::SignedDuration::from_secs(10));
    test.send(OutgoingMessage { expires_at, ..execute("claude", "codex", "soon too late") }).await;
    let next = executor.next().await.unwrap();
    test.clock.advance(jiff::SignedDuration::from_secs(11));
    assert!(!executor.start(&next).await.unwrap());
    assert_eq!(executor.poll().await.unwrap(), None);
}

#[tokio::test]
async fn renamed_agent_keeps_its_execution_history() {
    let test = TestWorkspace::new(&["codex", "claude"]).await;
    let mut executor = test.workspace.acquire_terminal(&name("codex")).await.unwrap();
    let id = test.send(execute("claude", "codex", "x")).await;
    let next = executor.next().await.unwrap();
    assert!(executor.start(&next).await.unwrap());
    drop(executor);
    test.workspace.rename(name("codex"), name("gpt")).await.unwrap();
    test.workspace.register(Registration::mailbox(name("other"))).await.unwrap();
    drop(test.workspace.acquire_terminal(&name("other")).await.unwrap());
    assert_eq!(test.states(id).await, ["delivered"]);
    drop(test.workspace.acquire_terminal(&name("gpt")).await.unwrap());
    assert_eq!(test.states(id).await, ["acknowledged"]);
}

#[tokio::test]
async fn dropped_execute_without_terminal_is_refused() {
    for (execute_from_files, reason) in
        [(false, "its sender is not authenticated"), (true, "no terminal of 'codex' ran")]
    {
        let terminals = TerminalConfig { execute_from_files, ..TerminalConfig::default() };
        let test = TestWorkspace::with(Config { terminals, ..Config::default() }, &["codex", "claude"]).await;
        test.put(
            "codex",
            &with(message("msg_1_ls", "claude", "codex", "ls"), json!({ "action": "execute" })),
        );
        test.workspace.scan_all(0).await.unwrap();
        let receipt = test.json("outbox/claude/msg_1_ls.refused.receipt.json");
        assert!(receipt["error"].as_str().unwrap().contains(reason), "{receipt}");
        let stored =
            test.workspace.hub().journal().message(test.id_of("msg_1_ls").await).await.unwrap().unwrap();
        let result = test.workspace.execute_result(&stored.message).await.unwrap();
        assert!(matches!(result, Some(ExecuteResult::Refused { .. })), "{result:?}");
        assert_eq!(test.waiting("codex").await, ["ls"], "it stays in the mailbox");
    }
}
