use switchboard_core::{DeliveryState, MessageId};
use switchboard_hub::HubEvent;
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinHandle;

use super::*;
use crate::test_workspace::{TestWorkspace, inbox_file, message, move_carelessly, outgoing};

/// Longer than any step takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

struct Running {
    t: TestWorkspace,
    events: Receiver<HubEvent>,
    shutdown: CancellationToken,
    door: JoinHandle<Result<(), WorkspaceError>>,
}

async fn start(t: TestWorkspace) -> Running {
    let events = t.workspace.hub().subscribe().await.unwrap();
    let outbound = t.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    let shutdown = CancellationToken::new();
    let door = tokio::spawn(run(t.workspace.clone(), outbound, shutdown.clone()));
    Running { t, events, shutdown, door }
}

impl Running {
    /// Waits for the next accepted message.
    async fn accepted(&mut self) -> MessageId {
        self.wait(|event| match event {
            HubEvent::Accepted { id, .. } => Some(*id),
            _ => None,
        })
        .await
    }

    /// Waits for the next delivery that reaches this state.
    async fn reaches(&mut self, state: DeliveryState) -> MessageId {
        self.wait(|event| match event {
            HubEvent::Delivery(delivery) if delivery.state == state => Some(delivery.message),
            _ => None,
        })
        .await
    }

    async fn wait<T>(&mut self, wanted: impl Fn(&HubEvent) -> Option<T>) -> T {
        let events = &mut self.events;
        let search = async move {
            loop {
                if let Some(found) = wanted(&events.recv().await.unwrap()) {
                    return found;
                }
            }
        };
        tokio::time::timeout(DEADLINE, search).await.expect("the event comes")
    }

    async fn stop(self) -> TestWorkspace {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.door).await.unwrap().unwrap().unwrap();
        self.t
    }
}

#[tokio::test]
async fn existing_and_later_files_are_ingested() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    t.put("codex", &message("msg_1_a", "x", "codex", "before"));
    let mut running = start(t).await;
    let first = running.accepted().await;
    assert_eq!(running.t.workspace.resolve_id("msg_1_a").await.unwrap(), first);
    running.t.put("claude", &message("msg_1_b", "x", "claude", "after"));
    let second = running.accepted().await;
    assert_eq!(running.t.workspace.resolve_id("msg_1_b").await.unwrap(), second);
    // A mailbox that did not exist when the watcher started.
    let registration = switchboard_hub::Registration::mailbox("gemini".parse().unwrap());
    running.t.workspace.hub().agents().register(registration).await.unwrap();
    running.t.put("gemini", &message("msg_1_c", "x", "gemini", "in a new mailbox"));
    running.accepted().await;
    let t = running.stop().await;
    assert_eq!(t.journal().await, ["before", "after", "in a new mailbox"]);
}

#[tokio::test]
async fn slowly_written_file_is_ingested_when_complete() {
    let t = TestWorkspace::new(&["codex"]).await;
    let mut running = start(t).await;
    let whole = message("msg_1_slow", "x", "codex", "slow").to_string();
    running.t.write("inbox/codex/msg_1_slow.json", &whole[..30]);
    running.t.put("codex", &message("msg_1_quick", "x", "codex", "quick"));
    running.accepted().await;
    assert_eq!(running.t.journal().await, ["quick"]);
    running.t.write("inbox/codex/msg_1_slow.json", &whole);
    running.accepted().await;
    let t = running.stop().await;
    assert_eq!(t.journal().await, ["quick", "slow"]);
}

#[tokio::test]
async fn messages_are_delivered_and_lost_files_restored() {
    let t = TestWorkspace::new(&["codex"]).await;
    let mut running = start(t).await;
    let accepted = running.t.workspace.send(outgoing("claude", "codex", "hello")).await.unwrap();
    assert_eq!(running.reaches(DeliveryState::Delivered).await, accepted.id);
    let t = running.stop().await;
    assert_eq!(t.json(&inbox_file("codex", accepted.id))["payload"], "hello");
    // After a reboot every file is compared, even with an unchanged fingerprint.
    t.write(&inbox_file("codex", accepted.id), "");
    restart_machine(&t, &["codex"]).await;
    let mut running = start(t).await;
    running.t.put("codex", &message("msg_1_a", "x", "codex", "next"));
    running.accepted().await;
    let t = running.stop().await;
    assert_eq!(t.json(&inbox_file("codex", accepted.id))["payload"], "hello");
}

#[tokio::test]
async fn reader_moving_its_mail_acknowledges_it() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "task")).await;
    let mut running = start(t).await;
    let archived = inbox_file("codex", id).replace("inbox/", "archive/");
    move_carelessly(&running.t.path(&inbox_file("codex", id)), &running.t.path(&archived));
    assert_eq!(running.reaches(DeliveryState::Acknowledged).await, id);
    running.stop().await;
}

#[tokio::test]
async fn symlink_in_mailbox_does_not_prevent_start() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let id = t.send(outgoing("claude", "codex", "linked")).await;
    std::fs::remove_file(t.path(&inbox_file("codex", id))).unwrap();
    std::os::unix::fs::symlink("/", t.path(&inbox_file("codex", id))).unwrap();
    std::fs::remove_dir(t.path("inbox/claude")).unwrap();
    std::os::unix::fs::symlink("/", t.path("inbox/claude")).unwrap();
    let mut running = start(t).await;
    running.t.put("codex", &message("msg_1_a", "x", "codex", "new"));
    running.accepted().await;
    running.stop().await;
}

#[tokio::test]
async fn door_fails_when_its_workspace_moves() {
    let t = TestWorkspace::new(&["codex"]).await;
    let running = start(t).await;
    let elsewhere = running.t.workspace_folder().join("moved");
    move_carelessly(&running.t.root(), &elsewhere);
    // Any event in the mailbox triggers a scan.
    crate::test_workspace::write_carelessly(&elsewhere.join("inbox/codex/msg_1_a.json"), "{}");
    let ended = tokio::time::timeout(DEADLINE, running.door).await.unwrap().unwrap();
    assert!(matches!(ended, Err(WorkspaceError::Moved { .. })), "{ended:?}");
}

#[tokio::test]
async fn door_ends_when_the_hub_shuts_down() {
    let t = TestWorkspace::new(&["codex"]).await;
    let running = start(t).await;
    running.t.workspace.close().await;
    tokio::time::timeout(DEADLINE, running.door).await.unwrap().unwrap().unwrap();
}

/// Records these mailboxes as compared in an earlier boot.
async fn restart_machine(t: &TestWorkspace, mailboxes: &[&str]) {
    let all = mailboxes.iter().map(|mailbox| (BOOT_OF_MAILBOX, *mailbox)).chain([(BOOT, "id")]);
    for (topic, key) in all {
        let earlier = Some("another boot".to_owned());
        t.workspace.hub().notes(Door::Workspace).put(topic, key.to_owned(), earlier).await.unwrap();
    }
}

#[tokio::test]
async fn interrupted_comparison_resumes_with_remaining_mailboxes() {
    let t = TestWorkspace::new(&["claude", "codex"]).await;
    let (first, second) =
        (t.send(outgoing("codex", "claude", "1")).await, t.send(outgoing("claude", "codex", "2")).await);
    let paths = [inbox_file("claude", first), inbox_file("codex", second)];
    verify_after_reboot(&t.workspace).await.unwrap();
    // The comparison of this boot has finished the first one.
    restart_machine(&t, &["codex"]).await;
    let contents = paths.each_ref().map(|path| t.bytes(path));
    for path in &paths {
        t.write(path, "");
    }
    verify_after_reboot(&t.workspace).await.unwrap();
    assert_eq!([t.bytes(&paths[0]), t.bytes(&paths[1])], [Vec::new(), contents[1].clone()]);
}

/// A change that no fingerprint shows: a file of ours that lost its content in a power failure.
#[tokio::test]
async fn mailboxes_are_compared_once_per_boot() {
    let t = TestWorkspace::new(&["codex"]).await;
    let sent = t.send(outgoing("claude", "codex", "hello")).await;
    let path = inbox_file("codex", sent);
    let content = t.bytes(&path);
    verify_after_reboot(&t.workspace).await.unwrap();
    t.write(&path, "");
    verify_after_reboot(&t.workspace).await.unwrap();
    assert_eq!(t.bytes(&path), b"", "the same boot is not compared again");
    restart_machine(&t, &["codex"]).await;
    verify_after_reboot(&t.workspace).await.unwrap();
    assert_eq!(t.bytes(&path), content);
    let hub = t.workspace.hub();
    assert_eq!(
        hub.notes(Door::Workspace).all(BOOT).await.unwrap(),
        [("id".to_owned(), platform::boot_id().unwrap())]
    );
}
