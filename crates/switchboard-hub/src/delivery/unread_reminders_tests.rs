use std::time::Duration;

use switchboard_core::{Door, JobId, NodeId, Outcome};

use super::*;
use crate::test_hub::{TestHub, agent_id, config, name, with_timeout};
use crate::{Hub, HubConfig, MailboxQuery, Outbound, Part, Registration};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// A hub that reminds senders after a minute, with the same clock and folder.
async fn reminding(test: &TestHub) -> (Hub, Outbound) {
    let config =
        HubConfig { unread_reminder_after: Some(Duration::from_mins(1)), ..config(test.path(), &test.clock) };
    let hub = Hub::open(config).await.expect("opened");
    let door = hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    (hub, door)
}

/// Makes all waiting deliveries.
async fn deliver(door: &mut Outbound) {
    for handoff in with_timeout(door.next(256)).await {
        handoff.report(Outcome::Delivered).await.expect("reported");
    }
}

/// Returns the notices to an agent.
async fn notices(hub: &Hub, agent: &str) -> Vec<String> {
    let query = MailboxQuery { agent: agent_id(agent), after: 0, limit: 100, part: Part::Waiting };
    let page = hub.mailboxes().page(query).await.expect("read");
    let reminders = page.items.into_iter().filter(|mail| mail.stored.message.from.name.as_str() == HUB_NAME);
    reminders.map(|mail| mail.stored.message.body).collect()
}

async fn start() -> (TestHub, Hub, Outbound) {
    let test = TestHub::with(&["claude", "codex"]).await;
    let (hub, door) = reminding(&test).await;
    (test, hub, door)
}

#[tokio::test]
async fn sender_gets_one_unread_reminder() {
    let (test, hub, mut door) = start().await;
    hub.agents().announce(agent_id("codex"), "idle", None);
    let id = test.send("claude", "codex", "hello").await.id;
    deliver(&mut door).await;
    hub.send_unread_reminders().await;
    test.clock.advance(MINUTE);
    for _ in 0..3 {
        hub.send_unread_reminders().await;
    }
    deliver(&mut door).await;
    let received = notices(&hub, "claude").await;
    assert_eq!(
        received,
        [
            "Not seen yet after 60 s: your message to codex. codex idle since 2026-03-01 12:00:00 UTC. It is kept, \
          and shown as soon as the agent can be reached."
        ]
    );
    // The reminder itself causes no reminder.
    test.clock.advance(MINUTE * 3);
    hub.send_unread_reminders().await;
    assert_eq!(notices(&hub, "claude").await, received);
    let thread = hub.journal().thread(id, 10).await.expect("read");
    assert_eq!(thread.items.len(), 2, "it stands in the conversation");
}

#[tokio::test]
async fn recent_message_counts_as_presence() {
    let (test, hub, mut door) = start().await;
    test.send("codex", "human", "done").await;
    test.clock.advance(SignedDuration::from_secs(3));
    test.send("claude", "codex", "hello").await;
    test.send("codex", "claude", "hello yourself").await;
    test.clock.advance(MINUTE);
    hub.send_unread_reminders().await;
    while notices(&hub, "claude").await.is_empty() || notices(&hub, "codex").await.is_empty() {
        deliver(&mut door).await;
    }
    let received = [notices(&hub, "claude").await, notices(&hub, "codex").await].concat();
    assert!(received[0].contains(" codex idle since 2026-03-01 12:00:03 UTC."), "{received:?}");
    assert!(received[1].contains(" claude idle since 2026-03-01 12:00:03 UTC."), "{received:?}");
}

#[tokio::test]
async fn seen_and_personal_mail_gets_no_reminder() {
    let (test, hub, mut door) = start().await;
    let id = test.send("claude", "codex", "hello").await.id;
    deliver(&mut door).await;
    test.send("claude", "human", "hello").await;
    deliver(&mut door).await;
    hub.mailboxes().mark_seen(agent_id("codex"), vec![id]).await.expect("noted");
    test.clock.advance(MINUTE * 2);
    hub.send_unread_reminders().await;
    assert_eq!(hub.journal().newest(10).await.expect("read").items.len(), 2);
}

#[tokio::test]
async fn many_unread_messages_share_one_reminder() {
    let (test, hub, mut door) = start().await;
    for _ in 0..20 {
        test.send("claude", "codex", "hello").await;
    }
    test.send("human", "codex", "hello").await;
    test.clock.advance(MINUTE);
    hub.send_unread_reminders().await;
    while notices(&hub, "claude").await.is_empty() || notices(&hub, "human").await.is_empty() {
        deliver(&mut door).await;
    }
    let received = notices(&hub, "claude").await;
    assert!(
        received[0].starts_with("Not seen yet after 60 s: 20 messages to codex, this the oldest."),
        "{received:?}"
    );
    assert_eq!((received.len(), notices(&hub, "human").await.len()), (1, 1));
}

#[tokio::test]
async fn reminder_is_sent_once_across_processes() {
    let (test, hub, door) = start().await;
    test.send("claude", "codex", "hello").await;
    drop(door);
    hub.shut_down().await;
    test.clock.advance(MINUTE * 10);
    let (one, mut door) = reminding(&test).await;
    let (other, mut second) = reminding(&test).await;
    deliver(&mut door).await;
    tokio::join!(one.send_unread_reminders(), other.send_unread_reminders());
    while notices(&one, "claude").await.is_empty() {
        // The process that sends the reminder delivers it by its own door.
        tokio::select! {
            () = deliver(&mut door) => {}
            () = deliver(&mut second) => {}
        }
    }
    other.shut_down().await;
    assert_eq!(notices(&one, "claude").await.len(), 1);
}

#[tokio::test]
async fn worker_gets_no_reminder() {
    let (test, hub, _door) = start().await;
    let node = NodeId { job: JobId::parse("j").expect("an id"), node: 0 };
    let routes = vec![Route::Worker(node)];
    let parrot = Registration { name: name("parrot"), role: None, team: None, routes };
    hub.agents().register(parrot).await.expect("registered");
    test.send("parrot", "codex", "an answer").await;
    test.send("claude", "codex", "hello").await;
    test.clock.advance(MINUTE * 2);
    hub.send_unread_reminders().await;
    let newest = hub.journal().newest(10).await.expect("read").items;
    let recipients: Vec<String> = newest.iter().map(|stored| stored.message.to.to_string()).collect();
    assert_eq!(recipients, ["codex", "codex", "claude"]);
}

#[tokio::test]
async fn other_owners_and_old_messages_get_none() {
    let test = TestHub::with(&["claude", "codex"]).await;
    test.send("claude", "codex", "before").await;
    test.clock.advance(MINUTE * 10);
    let (hub, _door) = reminding(&test).await;
    test.send("alice@research", "codex", "hello").await;
    test.clock.advance(MINUTE * 10);
    hub.send_unread_reminders().await;
    assert_eq!(hub.journal().newest(10).await.expect("read").items.len(), 2);
}
