use switchboard_core::{Kind, Outcome};

use super::*;
use crate::test_hub::{TestHub, agent_id, bodies, journal, noon, seconds, with_timeout};
use crate::{Draft, Hub, MailboxQuery, Part};

async fn cursor_error(hub: &Hub, after: i64) -> Option<(i64, i64)> {
    match hub.journal().entries(after, 10).await {
        Err(HubError::CursorExpired { cursor, oldest }) => Some((cursor, oldest)),
        Ok(_) => None,
        Err(error) => panic!("{error:?}"),
    }
}

async fn search(hub: &Hub, words: &str) -> Vec<String> {
    let page = hub.journal().search(words, None, 1000).await.expect("searched");
    page.items.into_iter().map(|stored| stored.message.body).collect()
}

#[tokio::test]
async fn message_is_delivered_seen_and_acknowledged_once() {
    let hub = TestHub::with(&["a", "b"]).await;
    let b = agent_id("b");
    let sent = hub.send("a", "b", "hi").await;
    assert_eq!(
        hub.hub.mailboxes().mark_seen(b.clone(), vec![sent.id]).await.expect("marked"),
        [],
        "not delivered yet"
    );
    hub.deliver_all().await;
    assert_eq!(hub.hub.mailboxes().unread(b.clone(), 10).await.expect("counted"), 1);
    hub.clock.advance(seconds(1));
    let seen = hub.hub.mailboxes().mark_seen(b.clone(), vec![sent.id]).await.expect("marked");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].state, DeliveryState::Seen);
    assert_eq!(hub.hub.mailboxes().mark_seen(b.clone(), vec![sent.id]).await.expect("marked"), []);
    assert_eq!(hub.mailbox("b", Part::Unseen).await, Vec::<String>::new());
    assert_eq!(hub.mailbox("b", Part::Waiting).await, ["hi"]);
    hub.clock.advance(seconds(1));
    let done =
        hub.hub.mailboxes().acknowledge(b.clone(), sent.id, Some("fine".into())).await.expect("acknowledged");
    assert_eq!(done.map(|delivery| delivery.state), Some(DeliveryState::Acknowledged));
    let again =
        hub.hub.mailboxes().acknowledge(b.clone(), sent.id, Some("no".into())).await.expect("acknowledged");
    assert_eq!(again, None);
    let delivery = hub.deliveries(sent.id).await.remove(0);
    assert_eq!(delivery.note.as_deref(), Some("fine"));
    assert_eq!(delivery.milestones.seen, Some(noon() + seconds(1)));
    assert_eq!(delivery.milestones.acknowledged, Some(noon() + seconds(2)));
    assert_eq!(hub.hub.mailboxes().unread(b, 10).await.expect("counted"), 0);
}

#[tokio::test]
async fn only_the_recipient_can_acknowledge() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let sent = hub.send("a", "b", "hi").await;
    hub.deliver_all().await;
    let error = hub.hub.mailboxes().acknowledge(agent_id("c"), sent.id, None).await.expect_err("refused");
    assert!(
        matches!(&error, HubError::NotTheRecipient { id, agent } if *id == sent.id && *agent == agent_id("c"))
    );
    assert_eq!(hub.hub.mailboxes().mark_seen(agent_id("c"), vec![sent.id]).await.expect("marked"), []);
    assert_eq!(hub.state(sent.id).await, DeliveryState::Delivered);
    let unknown = hub.hub.mailboxes().acknowledge(agent_id("b"), hub.hub.next_id(), None).await;
    assert!(matches!(unknown, Err(HubError::UnknownMessage { .. })), "{unknown:?}");
}

#[tokio::test]
async fn acknowledgement_overtakes_report_of_door() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = hub.hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    let sent = hub.send("a", "b", "hi").await;
    let handoff = with_timeout(door.next(1)).await.remove(0);
    hub.hub.mailboxes().acknowledge(agent_id("b"), sent.id, None).await.expect("acknowledged");
    assert_eq!(handoff.report(Outcome::Delivered).await.expect("reported"), None);
    assert_eq!(hub.state(sent.id).await, DeliveryState::Acknowledged);
}

#[tokio::test]
async fn newer_message_supersedes_waiting_ones() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let status = |from, to, body| Draft { kind: Kind::status_update(), ..hub.draft(from, to, body) };
    let mut ids = Vec::new();
    for draft in [
        status("a", "b", "old"),
        status("a", "c", "other recipient"),
        status("c", "b", "other sender"),
        hub.draft("a", "b", "other kind"),
        status("a", "b", "new"),
        status("a", "b", "newer still"),
    ] {
        ids.push(hub.hub.submit(draft).await.expect("accepted").id);
    }
    hub.deliver_all().await;
    let ended = hub.hub.mailboxes().supersede(ids[4]).await.expect("superseded");
    assert_eq!(ended.iter().map(|delivery| delivery.message).collect::<Vec<_>>(), [ids[0]]);
    assert_eq!(ended[0].note, Some(format!("superseded by {}", ids[4])));
    assert_eq!(hub.mailbox("b", Part::Waiting).await, ["other sender", "other kind", "new", "newer still"]);
    assert_eq!(hub.hub.mailboxes().supersede(ids[4]).await.expect("superseded"), []);
}

#[tokio::test]
async fn mailbox_is_read_in_pages_by_cursor() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    for n in 0..25 {
        hub.send("a", if n % 2 == 0 { "b" } else { "c" }, &n.to_string()).await;
    }
    hub.deliver_all().await;
    let (mut after, mut got) = (0, Vec::new());
    loop {
        let query = MailboxQuery { agent: agent_id("b"), after, limit: 5, part: Part::Waiting };
        let page = hub.hub.mailboxes().page(query).await.expect("read");
        assert!(page.items.len() <= 5);
        after = page.items.last().expect("not empty").stored.seq;
        got.extend(page.items.into_iter().map(|mail| mail.stored.message.body));
        if !page.more {
            break;
        }
    }
    assert_eq!(got, (0..25).step_by(2).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(hub.hub.mailboxes().unread(agent_id("b"), 1000).await.expect("counted"), 13);
    assert_eq!(hub.hub.mailboxes().unread(agent_id("b"), 7).await.expect("counted"), 7);
    let waiting = hub.hub.mailboxes().expected_files(agent_id("b")).await.expect("read");
    assert_eq!(waiting.len(), 13);
    assert_eq!(waiting[0].native.id, waiting[0].id.to_string());
}

#[tokio::test]
async fn notes_are_separate_per_door_and_topic() {
    let hub = TestHub::with(&[]).await;
    let note = |topic, key: &str, value: Option<&str>| {
        hub.hub.notes(Door::Workspace).put(topic, key.to_owned(), value.map(str::to_owned))
    };
    note("cursor", "b", Some("1")).await.expect("noted");
    hub.clock.advance(seconds(1));
    note("cursor", "a", Some("2")).await.expect("noted");
    note("cursor", "b", Some("3")).await.expect("noted");
    note("other", "a", Some("4")).await.expect("noted");
    let notes = hub.open_another().await.notes(Door::Workspace).all("cursor").await.expect("read");
    assert_eq!(notes, [("a".to_owned(), "2".to_owned()), ("b".to_owned(), "3".to_owned())]);
    note("cursor", "a", None).await.expect("forgotten");
    assert_eq!(hub.hub.notes(Door::Workspace).all("cursor").await.expect("read").len(), 1);
    assert_eq!(hub.hub.notes(Door::Swarm).all("cursor").await.expect("read"), []);
}

#[tokio::test]
async fn retention_expires_earlier_cursors() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut sent = Vec::new();
    for n in 0..10 {
        sent.push(hub.send("a", "b", &format!("word{n}")).await);
    }
    hub.deliver_all().await;
    for done in [0, 1, 3] {
        hub.hub.mailboxes().acknowledge(agent_id("b"), sent[done].id, None).await.expect("acknowledged");
    }
    assert_eq!(search(&hub.hub, "word1").await, ["word1"]);
    assert_eq!(hub.hub.journal().prune(noon()).await.expect("pruned"), 0, "nothing is older than that");
    hub.clock.advance(seconds(60));
    assert_eq!(hub.hub.journal().prune(hub.hub.now()).await.expect("pruned"), 3);

    let kept: Vec<_> = [2, 4, 5, 6, 7, 8, 9].iter().map(|n| format!("word{n}")).collect();
    assert_eq!(bodies(&hub.hub).await, kept);
    assert_eq!(search(&hub.hub, "word1").await, Vec::<String>::new());
    assert_eq!(search(&hub.hub, "word2").await, ["word2"]);
    assert_eq!(hub.hub.journal().message(sent[1].id).await.expect("read"), None);
    assert_eq!(hub.hub.native_ids().find(None, &sent[1].id.to_string()).await.expect("read"), []);
    let oldest = sent[3].seq + 1;
    assert_eq!(cursor_error(&hub.hub, sent[0].seq).await, Some((sent[0].seq, oldest)));
    assert_eq!(cursor_error(&hub.hub, sent[2].seq).await, Some((sent[2].seq, oldest)));
    assert_eq!(cursor_error(&hub.hub, sent[3].seq).await, None);
    assert_eq!(cursor_error(&hub.hub, 0).await, None, "from the start is what there is");
    assert_eq!(cursor_error(&hub.hub, i64::MAX).await, None);
    assert_eq!(hub.hub.database().health().await.expect("looked").complaints, Vec::<String>::new());
}

#[tokio::test]
async fn journal_number_is_never_reused() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut highest = 0;
    for round in 0..3 {
        for n in 0..3 {
            let sent = hub.send("a", "b", &format!("{round} {n}")).await;
            assert!(sent.seq > highest);
            highest = sent.seq;
            hub.hub.mailboxes().acknowledge(agent_id("b"), sent.id, None).await.expect("acknowledged");
        }
        hub.clock.advance(seconds(60));
        hub.hub.journal().prune(hub.hub.now()).await.expect("pruned");
    }
    assert_eq!(journal(&hub.hub).await.len(), 1, "the last one keeps the place");
}

#[tokio::test]
async fn pruning_unindexed_messages_leaves_no_trace() {
    let hub = TestHub::with(&["a", "b"]).await;
    for body in ["apple one", "apple two", "apple three"] {
        let sent = hub.send("a", "b", body).await;
        hub.hub.mailboxes().acknowledge(agent_id("b"), sent.id, None).await.expect("acknowledged");
    }
    hub.clock.advance(seconds(60));
    assert_eq!(hub.hub.journal().prune(hub.hub.now()).await.expect("pruned"), 2);
    assert_eq!(search(&hub.hub, "apple").await, ["apple three"]);
    hub.send("a", "b", "apple four").await;
    assert_eq!(search(&hub.hub, "apple").await, ["apple four", "apple three"]);
}

#[tokio::test]
async fn health_counts_messages_and_pending_deliveries() {
    let hub = TestHub::with(&["a", "b"]).await;
    for _ in 0..3 {
        hub.send("a", "b", "hi").await;
    }
    let pending = vec![(Door::Workspace, 3)];
    let expected = Health { complaints: vec![], damaged: vec![], messages: 3, pending, waiting_for_disk: 0 };
    assert_eq!(hub.hub.database().health().await.expect("looked"), expected);
}

#[tokio::test]
async fn health_counts_deliveries_that_wait_for_disk() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = hub.hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    for reason in [format!("{WAITS_FOR_DISK}no space"), "something else".to_owned()] {
        hub.send("a", "b", "hi").await;
        let handoff = door.next(1).await.pop().expect("handed over");
        handoff.report(Outcome::Unreachable { reason }).await.expect("reported");
    }
    assert_eq!(hub.hub.database().health().await.expect("looked").waiting_for_disk, 1);
}

#[tokio::test]
async fn damaged_row_does_not_stop_listings() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut sent = Vec::new();
    for n in 0..9 {
        sent.push(hub.send("a", "b", &format!("common {n}")).await);
    }
    hub.deliver_all().await;
    hub.hub.journal().search("common", None, 1).await.expect("indexed");
    let mut events = hub.hub.subscribe().await.expect("subscribed");
    let sql = hub.sql();
    let columns = [
        ("body", "body || 'x'"),
        ("sender", "x'ff'"),
        ("via", "'[broken'"),
        ("native_id", "x'ff'"),
        ("id", "x'00'"),
        ("digest", "x'00'"),
        ("route", "'broken'"),
    ];
    for (n, (column, value)) in columns.iter().enumerate() {
        let text = format!("UPDATE messages SET {column} = {value} WHERE seq = {}", sent[n].seq);
        assert_eq!(sql.execute(&text, []).expect("changed"), 1, "{column}");
    }
    let delivery =
        format!("UPDATE deliveries SET agent = 'b', note = x'ff' WHERE id = {}", sent[7].seq * SPREAD);
    sql.execute(&delivery, []).expect("changed");

    let health = hub.hub.database().health().await.expect("looked");
    let damaged: Vec<_> = health.damaged.iter().map(|row| row.seq).collect();
    assert_eq!(damaged, sent[..7].iter().map(|accepted| accepted.seq).collect::<Vec<_>>());
    assert_eq!(health.damaged[0].id, Some(sent[0].id));
    assert_eq!(health.damaged[0].agents, ["b"]);
    assert_eq!(health.damaged[0].native.as_ref().map(|native| native.scope.as_str()), Some("b"));
    assert_eq!((health.damaged[3].native.clone(), health.damaged[4].id), (None, None));

    let journal = hub.hub.journal().entries(0, 100).await.expect("read");
    assert_eq!((journal.items.len(), journal.damaged), (2, 7));
    let query = MailboxQuery { agent: agent_id("b"), after: 0, limit: 100, part: Part::Waiting };
    let mailbox = hub.hub.mailboxes().page(query).await.expect("read");
    assert_eq!((mailbox.items.len(), mailbox.damaged), (1, 8));
    let found = hub.hub.journal().search("common", None, 100).await.expect("searched");
    assert_eq!((found.items.len(), found.damaged), (2, 7));
    let waiting = hub.hub.mailboxes().expected_files(agent_id("b")).await.expect("read");
    assert!(waiting.iter().any(|waiting| waiting.id == sent[8].id));
    let message = hub.hub.journal().message(sent[0].id).await;
    assert!(matches!(message, Err(HubError::DamagedMessage { .. })), "{message:?}");

    // Events continue past a row with an unreadable id.
    let sent = hub.send("a", "b", "after").await;
    loop {
        if let crate::HubEvent::Accepted { id, .. } = with_timeout(events.recv()).await.expect("an event")
            && id == sent.id
        {
            break;
        }
    }
}

#[tokio::test]
async fn events_continue_past_unreadable_id() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    let first = hub.send("a", "b", "damaged").await;
    hub.sql().execute("UPDATE messages SET id = x'00' WHERE seq = ?1", [first.seq]).expect("changed");
    let second = hub.send("a", "b", "after").await;
    let ids = with_timeout(other.read(|db| ids_after(db, 0))).await.expect("read");
    assert_eq!(ids, [(second.seq, second.id)]);
}

#[tokio::test]
async fn damaged_message_is_restored_from_matching_content() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut original = hub.draft("a", "b", "precious");
    original.signed = Some(b"signed bytes".to_vec());
    original.native.id = "n-1".into();
    let parent = hub.send("b", "a", "parent").await;
    original.in_reply_to = Some(parent.id);
    hub.hub.submit(original.clone()).await.expect("accepted");
    let whole = hub.stored(original.id).await;
    let sql = hub.sql();
    for damage in [
        "body = 'x'",
        "body = x'ff'",
        "sender = 'c'",
        "kind = ''",
        "metadata = '{'",
        "in_reply_to = NULL",
        "signed = NULL",
        "signed = x'00'",
        "door = '?'",
        "scope = x'ff'",
        "native_id = x'ff'",
        "route = '{'",
        "sent_at = 'x'",
        "sent_at = sent_at + 1",
        "expires_at = 'x'",
        "expires_at = 1",
        "verified = 'x'",
        "verified = NOT verified",
        "native_id = 'n-2'",
    ] {
        let changed =
            sql.execute(&format!("UPDATE messages SET {damage} WHERE id = ?1"), [original.id.as_bytes()]);
        assert_eq!(changed.expect("changed"), 1);
        assert!(hub.hub.journal().message(original.id).await.is_err(), "{damage}");
        let other = Draft { body: "forged".into(), ..original.clone() };
        assert!(!hub.hub.journal().restore_damaged(other).await.expect("looked"), "{damage}");
        assert!(hub.hub.journal().message(original.id).await.is_err(), "{damage}");
        assert!(hub.hub.journal().restore_damaged(original.clone()).await.expect("restored"), "{damage}");
        assert_eq!(hub.stored(original.id).await, whole, "{damage}");
    }
    // Fields that the draft does not contain are lost, but the message is readable again.
    for damage in
        ["via = '{'", "thread = x'00'", "accepted_at = 'x'", "accepted_at = 1", "thread = randomblob(16)"]
    {
        sql.execute(&format!("UPDATE messages SET {damage} WHERE id = ?1"), [original.id.as_bytes()])
            .expect("changed");
        assert!(hub.hub.journal().message(original.id).await.is_err(), "{damage}");
        assert!(hub.hub.journal().restore_damaged(original.clone()).await.expect("restored"), "{damage}");
        assert_eq!(hub.stored(original.id).await.message.body, "precious", "{damage}");
    }
    let intact = hub.hub.journal().restore_damaged(original.clone()).await.expect("looked");
    assert!(!intact, "there is nothing to put back");
    let unknown = hub.draft("a", "b", "never sent");
    assert!(!hub.hub.journal().restore_damaged(unknown).await.expect("looked"));
}

#[tokio::test]
async fn restored_message_is_delivered() {
    let hub = TestHub::with(&["a", "b"]).await;
    let original = hub.draft("a", "b", "precious");
    hub.hub.submit(original.clone()).await.expect("accepted");
    hub.sql().execute("UPDATE messages SET body = 'x'", []).expect("changed");
    let mut door = hub.hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    assert!(hub.hub.journal().restore_damaged(original.clone()).await.expect("restored"));
    let handoff = with_timeout(door.next(1)).await.remove(0);
    assert_eq!(handoff.message.body, "precious");
    handoff.report(Outcome::Delivered).await.expect("reported");
    let delivery = hub.deliveries(original.id).await.remove(0);
    assert_eq!((delivery.state, delivery.note), (DeliveryState::Delivered, None));
    assert_eq!(delivery.milestones.ended, None);
}

#[tokio::test]
async fn new_database_needs_rebuild_until_rebuilt() {
    let hub = TestHub::with(&[]).await;
    assert!(hub.hub.database().needs_rebuild().await.expect("read"));
    hub.hub.database().mark_rebuilt().await.expect("noted");
    assert!(!hub.open_another().await.database().needs_rebuild().await.expect("read"));
}

#[tokio::test]
async fn expired_or_unverified_message_supersedes_no_better() {
    let hub = TestHub::with(&["a", "b"]).await;
    let draft = |body, verified| Draft { verified, ..hub.draft("a", "b", body) };
    hub.hub.submit(draft("vouched for", true)).await.expect("accepted");
    hub.hub.submit(draft("dropped", false)).await.expect("accepted");
    let expired = Draft { expires_at: Some(noon() - seconds(1)), ..draft("expired", true) };
    let expired = hub.hub.submit(expired).await.expect("accepted").id;
    let dropped = hub.hub.submit(draft("dropped again", false)).await.expect("accepted").id;
    hub.deliver_all().await;
    assert_eq!(hub.hub.mailboxes().supersede(expired).await.expect("superseded"), []);
    assert_eq!(hub.hub.mailboxes().supersede(dropped).await.expect("superseded").len(), 1);
    assert_eq!(hub.mailbox("b", Part::Waiting).await, ["vouched for", "dropped again"]);
    let newer = hub.hub.submit(draft("newer", true)).await.expect("accepted").id;
    assert_eq!(hub.hub.mailboxes().supersede(newer).await.expect("superseded").len(), 2);
}

#[tokio::test]
async fn database_shrinks_after_retention_and_its_chain_holds() {
    let hub = TestHub::with(&["a", "b"]).await;
    let text = "x".repeat(8 << 10);
    let mut drafts = Vec::new();
    for _ in 0..1500 {
        drafts.push(hub.draft("a", "b", &text));
    }
    for accepted in hub.hub.submit_all(drafts).await {
        accepted.expect("accepted");
    }
    hub.deliver_all().await;
    for mail in hub.hub.mailboxes().expected_files(agent_id("b")).await.expect("read") {
        hub.hub.mailboxes().acknowledge(agent_id("b"), mail.id, None).await.expect("acknowledged");
    }
    let pages =
        || -> i64 { hub.sql().pragma_query_value(None, "page_count", |row| row.get(0)).expect("read") };
    let before = pages();
    assert!(!hub.hub.database().shrink().await.expect("shrunk"), "nothing is free yet");
    assert_eq!(hub.hub.journal().prune(soon_after(&hub)).await.expect("pruned"), 1499);
    let mut steps = 1;
    while hub.hub.database().shrink().await.expect("shrunk") {
        steps += 1;
    }
    assert!(pages() < before / 2, "{} of {before} pages", pages());
    assert!(steps > 1, "a bounded part at a time");
    let audit = hub.hub.journal().audit(None).await.expect("looked");
    assert_eq!((audit.entries, audit.bad), (1, 0));
    assert_eq!(hub.hub.database().health().await.expect("looked").complaints, Vec::<String>::new());
}

fn soon_after(hub: &TestHub) -> Timestamp {
    hub.hub.now() + seconds(1)
}
