use std::time::Duration;

use switchboard_core::{Door, JobId, NodeId, Outcome};

use super::*;
use crate::test_hub::{TestHub, agent_id, config, name, soon};
use crate::{Hub, HubConfig, MailboxQuery, Outbound, Part, Registration};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// A hub that tells senders after a minute, by the same clock and on the same folder.
async fn telling(test: &TestHub) -> (Hub, Outbound) {
    let config =
        HubConfig { unread_reminder_after: Some(Duration::from_mins(1)), ..config(test.path(), &test.clock) };
    let hub = Hub::open(config).await.expect("opened");
    let door = hub.open_door(Door::Workspace).await.expect("opened");
    (hub, door)
}

/// Delivers what waits.
async fn deliver(door: &mut Outbound) {
    for handoff in soon(door.next(256)).await {
        handoff.report(Outcome::Delivered).await.expect("reported");
    }
}

/// What the hub has told an agent.
async fn notices(hub: &Hub, agent: &str) -> Vec<String> {
    let query = MailboxQuery { agent: agent_id(agent), after: 0, limit: 100, part: Part::Waiting };
    let page = hub.mailbox(query).await.expect("read");
    let told = page.items.into_iter().filter(|mail| mail.stored.message.from.name.as_str() == HUB_NAME);
    told.map(|mail| mail.stored.message.body).collect()
}

async fn start() -> (TestHub, Hub, Outbound) {
    let test = TestHub::with(&["claude", "codex"]).await;
    let (hub, door) = telling(&test).await;
    (test, hub, door)
}

#[tokio::test]
async fn a_sender_is_told_once_that_nobody_has_looked() {
    let (test, hub, mut door) = start().await;
    hub.announce(agent_id("codex"), "idle", None);
    let id = test.send("claude", "codex", "hello").await.id;
    deliver(&mut door).await;
    hub.tell_unseen().await;
    test.clock.advance(MINUTE);
    for _ in 0..3 {
        hub.tell_unseen().await;
    }
    deliver(&mut door).await;
    let told = notices(&hub, "claude").await;
    assert_eq!(
        told,
        [
            "Not seen yet after 60 s: your message to codex. codex idle since 2026-03-01 12:00:00 UTC. It is kept, \
          and shown as soon as the agent can be reached."
        ]
    );
    // The notice itself is nothing to be told about.
    test.clock.advance(MINUTE * 3);
    hub.tell_unseen().await;
    assert_eq!(notices(&hub, "claude").await, told);
    let thread = hub.thread(id, 10).await.expect("read");
    assert_eq!(thread.items.len(), 2, "it stands in the conversation");
}

#[tokio::test]
async fn an_agent_that_wrote_a_moment_ago_was_heard() {
    let (test, hub, mut door) = start().await;
    test.send("codex", "human", "done").await;
    test.clock.advance(SignedDuration::from_secs(3));
    test.send("claude", "codex", "hello").await;
    test.send("codex", "claude", "hello yourself").await;
    test.clock.advance(MINUTE);
    hub.tell_unseen().await;
    while notices(&hub, "claude").await.is_empty() || notices(&hub, "codex").await.is_empty() {
        deliver(&mut door).await;
    }
    let told = [notices(&hub, "claude").await, notices(&hub, "codex").await].concat();
    assert!(told[0].contains(" codex idle since 2026-03-01 12:00:03 UTC."), "{told:?}");
    assert!(told[1].contains(" claude idle since 2026-03-01 12:00:03 UTC."), "{told:?}");
}

#[tokio::test]
async fn what_was_seen_or_is_for_the_person_is_nothing_to_tell_of() {
    let (test, hub, mut door) = start().await;
    let id = test.send("claude", "codex", "hello").await.id;
    deliver(&mut door).await;
    test.send("claude", "human", "hello").await;
    deliver(&mut door).await;
    hub.mark_seen(agent_id("codex"), vec![id]).await.expect("noted");
    test.clock.advance(MINUTE * 2);
    hub.tell_unseen().await;
    assert_eq!(hub.newest(10).await.expect("read").items.len(), 2);
}

#[tokio::test]
async fn many_messages_to_one_agent_are_one_notice() {
    let (test, hub, mut door) = start().await;
    for _ in 0..20 {
        test.send("claude", "codex", "hello").await;
    }
    test.send("human", "codex", "hello").await;
    test.clock.advance(MINUTE);
    hub.tell_unseen().await;
    while notices(&hub, "claude").await.is_empty() || notices(&hub, "human").await.is_empty() {
        deliver(&mut door).await;
    }
    let told = notices(&hub, "claude").await;
    assert!(
        told[0].starts_with("Not seen yet after 60 s: 20 messages to codex, this the oldest."),
        "{told:?}"
    );
    assert_eq!((told.len(), notices(&hub, "human").await.len()), (1, 1));
}

#[tokio::test]
async fn it_survives_a_restart_and_of_two_processes_one_tells() {
    let (test, hub, door) = start().await;
    test.send("claude", "codex", "hello").await;
    drop(door);
    hub.shut_down().await;
    test.clock.advance(MINUTE * 10);
    let (one, mut door) = telling(&test).await;
    let (other, mut second) = telling(&test).await;
    deliver(&mut door).await;
    tokio::join!(one.tell_unseen(), other.tell_unseen());
    while notices(&one, "claude").await.is_empty() {
        // Whichever of them tells hands it over by its own door.
        tokio::select! {
            () = deliver(&mut door) => {}
            () = deliver(&mut second) => {}
        }
    }
    other.shut_down().await;
    assert_eq!(notices(&one, "claude").await.len(), 1);
}

#[tokio::test]
async fn a_worker_is_not_made_to_read_that_nobody_has_looked_at_its_answer() {
    let (test, hub, _door) = start().await;
    let node = NodeId { job: JobId::parse("j").expect("an id"), node: 0 };
    let routes = vec![Route::Worker(node)];
    let parrot = Registration { name: name("parrot"), role: None, team: None, routes };
    hub.register(parrot).await.expect("registered");
    test.send("parrot", "codex", "an answer").await;
    test.send("claude", "codex", "hello").await;
    test.clock.advance(MINUTE * 2);
    hub.tell_unseen().await;
    let newest = hub.newest(10).await.expect("read").items;
    let told: Vec<String> = newest.iter().map(|stored| stored.message.to.to_string()).collect();
    assert_eq!(told, ["codex", "codex", "claude"]);
}

#[tokio::test]
async fn other_owners_are_not_told_and_what_is_old_at_the_first_start_is_old() {
    let test = TestHub::with(&["claude", "codex"]).await;
    test.send("claude", "codex", "before").await;
    test.clock.advance(MINUTE * 10);
    let (hub, _door) = telling(&test).await;
    test.send("alice@research", "codex", "hello").await;
    test.clock.advance(MINUTE * 10);
    hub.tell_unseen().await;
    assert_eq!(hub.newest(10).await.expect("read").items.len(), 2);
}
