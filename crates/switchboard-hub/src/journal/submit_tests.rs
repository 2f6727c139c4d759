#![expect(clippy::disallowed_methods, reason = "the tests copy files as a backup or a power failure would")]

use serde_json::{Value, json};
use switchboard_core::{DeliveryState, Door, Kind, Name, NativeId, Origin, OverallState, ResolveError};

use super::*;
use crate::HUB_NAME;
use crate::test_hub::{TestHub, agent_id, bodies, config, draft, journal, name, open, seconds, with_timeout};
use crate::{Hub, Part};

/// Changes a stored body behind the hub's back, as a failing disk would.
fn damage_body(hub: &TestHub, id: MessageId) {
    let changed = hub.sql().execute("UPDATE messages SET body = body || '?' WHERE id = ?1", [id.as_bytes()]);
    assert_eq!(changed.expect("changed"), 1);
}

#[tokio::test]
async fn accepted_message_is_on_disk_for_others() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut sent = hub.draft("a", "b", "hello");
    sent.metadata = json!({"branch": "main", "lines": [1, 2]}).as_object().expect("a map").clone();
    sent.signed = Some(vec![0, 159, 146, 150]);
    sent.expires_at = Some(hub.hub.now() + seconds(3600));
    sent.verified = true;
    let accepted = hub.hub.submit(sent.clone()).await.expect("accepted");

    let expected = Stored {
        seq: accepted.seq,
        accepted_at: hub.hub.now(),
        message: Message {
            id: sent.id,
            from: sent.from,
            to: sent.to,
            kind: sent.kind,
            body: sent.body,
            in_reply_to: None,
            thread: sent.id,
            sent_at: sent.sent_at,
            expires_at: sent.expires_at,
            metadata: sent.metadata,
            origin: Origin { native: sent.native, verified: true, route: None },
            via: Vec::new(),
            signed: sent.signed,
        },
    };
    let other = hub.open_another().await;
    assert_eq!(other.journal().message(sent.id).await.expect("read"), Some(expected.clone()));

    // The files at the moment of the answer: what a power failure would leave.
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["hub.db", "hub.db-wal"] {
        std::fs::copy(hub.path().join(file), copy.path().join(file)).expect("copied");
    }
    let after_power_failure = open(copy.path(), &hub.clock).await;
    let (stored, receipt) =
        after_power_failure.journal().receipt(sent.id).await.expect("read").expect("there");
    assert_eq!(stored, expected);
    assert_eq!(receipt.deliveries, accepted.deliveries);
}

#[tokio::test]
async fn same_native_id_and_content_is_duplicate() {
    let hub = TestHub::with(&["a", "b"]).await;
    let first = hub.draft("a", "b", "once");
    let accepted = hub.hub.submit(first.clone()).await.expect("accepted");
    hub.clock.advance(seconds(5));
    // The door reads the same file again: another id and time, but the same native id and content.
    let again = Draft { id: hub.hub.next_id(), sent_at: hub.hub.now(), ..first };
    let other = hub.open_another().await;
    for hub in [&hub.hub, &other] {
        let answer = hub.submit(again.clone()).await.expect("accepted");
        assert_eq!(answer, Accepted { duplicate: true, ..accepted.clone() });
    }
    assert_eq!(bodies(&hub.hub).await, ["once"]);
}

#[tokio::test]
async fn same_native_id_with_other_content_conflicts() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let first = hub.draft("a", "b", "first");
    hub.hub.submit(first.clone()).await.expect("accepted");
    let id = |draft: Draft| Draft { id: hub.hub.next_id(), ..draft };
    let changes = [
        Draft { body: "second".into(), ..id(first.clone()) },
        Draft { from: agent_id("c"), ..id(first.clone()) },
        Draft { kind: Kind::status_update(), ..id(first.clone()) },
        Draft { in_reply_to: Some(first.id), ..id(first.clone()) },
        Draft { signed: Some(vec![1]), ..id(first.clone()) },
        Draft { metadata: json!({"x": 1}).as_object().expect("a map").clone(), ..id(first.clone()) },
    ];
    for other in changes {
        match hub.hub.submit(other).await {
            Err(HubError::Conflict { native_id, first: kept }) => {
                assert_eq!((native_id, kept), (first.native.id.clone(), first.id));
            }
            answer => panic!("expected a conflict, got {answer:?}"),
        }
    }
    assert_eq!(bodies(&hub.hub).await, ["first"]);
}

#[tokio::test]
async fn same_id_in_other_scope_is_distinct() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let mut one = hub.draft("a", "b", "to b");
    one.native.id = "msg-1".into();
    let mut two = hub.draft("a", "c", "to c");
    two.native.id = "msg-1".into();
    let one = hub.hub.submit(one).await.expect("accepted");
    let two = hub.hub.submit(two).await.expect("accepted");
    assert!(!two.duplicate);
    let found = hub.hub.native_ids().find(Some(Door::Workspace), "msg-1").await.expect("read");
    assert_eq!(found, [("c".to_owned(), two.id), ("b".to_owned(), one.id)]);
    assert_eq!(hub.hub.native_ids().find(None, "msg-1").await.expect("read").len(), 2);
    assert_eq!(hub.hub.native_ids().find(Some(Door::Swarm), "msg-1").await.expect("read"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_duplicates_have_one_first() {
    let hub = TestHub::with(&["a", "b"]).await;
    let hubs = [hub.hub.clone(), hub.open_another().await, hub.open_another().await];
    let message = hub.draft("a", "b", "once");
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..30 {
        let (hub, draft) = (hubs[n % 3].clone(), message.clone());
        tasks.spawn(async move { hub.submit(Draft { id: hub.next_id(), ..draft }).await.expect("accepted") });
    }
    let answers = with_timeout(tasks.join_all()).await;
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
    assert!(answers.iter().all(|answer| answer.id == answers[0].id && answer.seq == answers[0].seq));
    assert_eq!(bodies(&hub.hub).await, ["once"]);
}

#[tokio::test]
async fn unknown_recipient_is_refused_with_near_names() {
    let hub = TestHub::with(&["codex", "claude"]).await;
    let error = hub.hub.submit(hub.draft("claude", "codx", "hi")).await.expect_err("refused");
    let HubError::Unresolved(ResolveError::UnknownAgent { agent, near, known }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(agent, agent_id("codx"));
    assert_eq!(near, ["codex"]);
    assert_eq!(known, ["claude", "codex"]);
    assert_eq!(journal(&hub.hub).await, []);
    let team = hub.hub.submit(hub.draft("claude", "team:none", "hi")).await.expect_err("refused");
    assert!(matches!(team, HubError::Unresolved(ResolveError::UnknownTeam { .. })), "{team:?}");
}

#[tokio::test]
async fn unregistered_recipient_gets_mail_if_allowed() {
    let hub = TestHub::with(&["a"]).await;
    let draft = Draft { allow_unregistered: true, ..hub.draft("a", "Stranger", "hi") };
    let accepted = hub.hub.submit(draft).await.expect("accepted");
    assert_eq!(accepted.deliveries[0].agent, agent_id("Stranger"));
    assert_eq!(accepted.deliveries[0].route, Route::Mailbox { agent: name("Stranger") });
    // Not beyond this hub: an unknown peer is not created.
    let away = Draft { allow_unregistered: true, ..hub.draft("a", "x@away", "hi") };
    assert!(matches!(hub.hub.submit(away).await, Err(HubError::Unresolved(_))));
}

#[tokio::test]
async fn limits_hold_at_the_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = switchboard_sys::clock::Clock::manual(crate::test_hub::noon());
    let limits = crate::HubConfig { body_limit: 10, metadata_limit: 9, ..config(folder.path(), &clock) };
    let hub = Hub::open(limits).await.expect("opened");
    let send = |body: &str, metadata: Value| {
        let metadata = metadata.as_object().expect("a map").clone();
        hub.submit(Draft { metadata, ..draft(&hub, "a", "human", body) })
    };
    // Five characters, ten bytes.
    send("äöüßé", json!({})).await.expect("accepted");
    let error = send("äöüßéx", json!({})).await.expect_err("too large");
    assert!(matches!(error, HubError::BodyTooLarge { size: 11, limit: 10 }), "{error:?}");
    send("", json!({"k": "v"})).await.expect("accepted");
    let error = send("", json!({"k": "vv"})).await.expect_err("too large");
    assert!(matches!(error, HubError::MetadataTooLarge { size: 10, limit: 9 }), "{error:?}");
    assert_eq!(journal(&hub).await.len(), 2);
}

#[tokio::test]
async fn any_text_round_trips() {
    let hub = TestHub::with(&["a", "b"]).await;
    for body in ["", "\0", "a\0b", "\u{feff}x\r\n", "'; DROP TABLE messages; --", "🦀\u{202e}", "\u{10ffff}"]
    {
        let sent = hub.send("a", "b", body).await;
        assert_eq!(hub.stored(sent.id).await.message.body, body);
    }
}

#[tokio::test]
async fn reply_joins_thread_and_lists_chain() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let first = hub.send("a", "b", "task").await;
    let second = hub.reply("b", "a", first.id).await;
    let third = hub.reply("a", "c", second.id).await;
    let third = hub.stored(third.id).await.message;
    assert_eq!(third.thread, first.id);
    assert_eq!(third.in_reply_to, Some(second.id));
    assert_eq!(third.via, [Hop::Agent(agent_id("a")), Hop::Agent(agent_id("b"))]);
    let thread = hub.hub.journal().thread(first.id, 100).await.expect("read");
    let ids: Vec<_> = thread.items.iter().map(|stored| stored.message.id).collect();
    assert_eq!(ids, [first.id, second.id, third.id]);
    let replies = hub.hub.journal().replies(first.id, 100).await.expect("read");
    assert_eq!(replies.items.iter().map(|s| s.message.id).collect::<Vec<_>>(), [second.id]);
}

#[tokio::test]
async fn verified_message_of_person_resets_chain() {
    let hub = TestHub::with(&["a", "b"]).await;
    let first = hub.send("a", "human", "question").await;
    let draft = |verified| Draft {
        in_reply_to: Some(first.id),
        verified,
        ..hub.draft("human", "a", if verified { "true" } else { "forged" })
    };
    let spoke = hub.hub.submit(draft(true)).await.expect("accepted");
    let answer = hub.reply("a", "b", spoke.id).await;
    assert_eq!(hub.stored(answer.id).await.message.via, []);
    let forged = hub.hub.submit(draft(false)).await.expect("accepted");
    let answer = hub.reply("a", "b", forged.id).await;
    let via = hub.stored(answer.id).await.message.via;
    assert_eq!(via, [Hop::Agent(agent_id("a")), Hop::Agent(AgentId::human())]);
}

#[tokio::test]
async fn odd_parents_still_form_readable_threads() {
    let hub = TestHub::with(&["a", "b"]).await;
    let nowhere = hub.hub.next_id();
    let orphan = hub.reply("a", "b", nowhere).await;
    assert_eq!(hub.stored(orphan.id).await.message.thread, orphan.id);

    let mut own = hub.draft("a", "b", "me");
    own.in_reply_to = Some(own.id);
    let own = hub.hub.submit(own).await.expect("accepted");
    assert_eq!(hub.hub.journal().thread(own.id, 100).await.expect("read").items.len(), 1);

    let (mut one, mut two) = (hub.draft("a", "b", "one"), hub.draft("b", "a", "two"));
    one.in_reply_to = Some(two.id);
    two.in_reply_to = Some(one.id);
    hub.hub.submit(one.clone()).await.expect("accepted");
    hub.hub.submit(two.clone()).await.expect("accepted");
    let third = hub.reply("a", "b", two.id).await;
    let thread = with_timeout(hub.hub.journal().thread(one.id, 100)).await.expect("read");
    let ids: Vec<_> = thread.items.iter().map(|stored| stored.message.id).collect();
    assert_eq!(ids, [one.id, two.id, third.id]);
}

#[tokio::test]
async fn reply_to_damaged_message_joins_its_thread() {
    let hub = TestHub::with(&["a", "b"]).await;
    let first = hub.send("a", "b", "task").await;
    let second = hub.reply("b", "a", first.id).await;
    damage_body(&hub, second.id);
    let third = hub.reply("a", "b", second.id).await;
    assert_eq!(hub.stored(third.id).await.message.thread, first.id);
    let thread = hub.hub.journal().thread(first.id, 100).await.expect("read");
    assert_eq!((thread.items.len(), thread.damaged), (2, 1));
}

#[tokio::test]
async fn ninth_reply_is_stopped_with_one_notice() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut last = hub.send("a", "b", "start").await;
    let root = last.id;
    let pair = [("b", "a"), ("a", "b")];
    for hop in 0..8 {
        let (from, to) = pair[hop % 2];
        last = hub.reply(from, to, last.id).await;
        assert_eq!((last.stopped.clone(), last.deliveries[0].state), (None, DeliveryState::Queued), "{hop}");
    }
    let ninth = hub.reply("b", "a", last.id).await;
    assert_eq!(ninth.stopped, Some(TripReason::Hops { hops: 9, limit: 8 }));
    assert_eq!(ninth.deliveries[0].state, DeliveryState::Refused);
    let (stored, receipt) = hub.hub.journal().receipt(ninth.id).await.expect("read").expect("journaled");
    assert_eq!(stored.message.body, "re");
    assert_eq!(receipt.overall_state(), OverallState::Failed);
    assert!(receipt.deliveries[0].note.as_deref().is_some_and(|note| note.contains("limit is 8")));
    hub.reply("a", "b", ninth.id).await;
    hub.reply("b", "a", ninth.id).await;

    let notices: Vec<_> = journal(&hub.hub)
        .await
        .into_iter()
        .map(|stored| stored.message)
        .filter(|message| message.from == agent_id(HUB_NAME))
        .collect();
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!((&notice.to, notice.thread), (&AgentId::human().into(), root));
    assert_eq!(notice.in_reply_to, Some(ninth.id));
    assert_eq!(hub.state(notice.id).await, DeliveryState::Queued);

    // The person resumes it, at a pace that is not a storm.
    hub.clock.advance(seconds(60));
    let on = Draft { in_reply_to: Some(ninth.id), verified: true, ..hub.draft("human", "a", "go on") };
    let on = hub.hub.submit(on).await.expect("accepted");
    assert_eq!(hub.reply("a", "b", on.id).await.stopped, None);
}

#[tokio::test]
async fn removed_recipient_is_retired_and_other_unknown() {
    let hub = TestHub::with(&["a", "b"]).await;
    hub.hub.agents().deregister(name("b")).await.expect("removed");
    let retired = hub.hub.submit(hub.draft("a", "B", "hello")).await.expect_err("refused");
    assert_eq!(
        retired.to_string(),
        "'B' was removed at 2026-03-01T12:00:00Z, and no agent has this name now"
    );
    let unknown = hub.hub.submit(hub.draft("a", "c", "hello")).await;
    assert!(matches!(unknown, Err(HubError::Unresolved(ResolveError::UnknownAgent { .. }))), "{unknown:?}");
    hub.hub.agents().register(crate::Registration::mailbox(name("b"))).await.expect("registered");
    hub.send("a", "b", "welcome back").await;
}

#[tokio::test]
async fn hub_name_is_reserved_for_hub() {
    let hub = TestHub::with(&["a"]).await;
    let draft = || Draft { verified: true, ..hub.draft("Switchboard", "a", "obey") };
    let refused = hub.hub.submit(draft()).await;
    assert!(matches!(refused, Err(HubError::ReservedName { reserved_for: "the hub", .. })), "{refused:?}");
    assert_eq!(journal(&hub.hub).await, []);
    // A file may claim anything; it is not verified.
    hub.hub.submit(hub.draft("switchboard", "a", "a file")).await.expect("accepted");
    hub.hub.submit_as_hub(draft()).await.expect("accepted");
    let believed: Vec<_> = journal(&hub.hub).await.iter().map(|stored| is_notice(&stored.message)).collect();
    assert_eq!(believed, [false, true]);
}

#[tokio::test]
async fn forged_notice_does_not_suppress_notice() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut last = hub.send("a", "b", "start").await;
    hub.reply(HUB_NAME, "b", last.id).await;
    for (from, to) in [("b", "a"), ("a", "b")].into_iter().cycle().take(9) {
        last = hub.reply(from, to, last.id).await;
    }
    assert!(last.stopped.is_some());
    let to_human = |stored: &Stored| stored.message.to == AgentId::human().into();
    assert_eq!(journal(&hub.hub).await.iter().filter(|stored| to_human(stored)).count(), 1);
}

#[tokio::test]
async fn pair_is_stopped_at_eleventh_reply_per_minute() {
    let hub = TestHub::with(&["a", "b"]).await;
    let start = hub.send("a", "b", "start").await;
    for _ in 0..10 {
        assert_eq!(hub.reply("b", "a", start.id).await.stopped, None);
    }
    let stopped = hub.reply("a", "b", start.id).await.stopped;
    assert!(matches!(stopped, Some(TripReason::Pair { count: 11, limit: 10, .. })), "{stopped:?}");
    // New tasks are not replies, and are never stopped.
    assert_eq!(hub.send("a", "b", "task").await.stopped, None);
    hub.clock.advance(seconds(61));
    assert_eq!(hub.reply("b", "a", start.id).await.stopped, None);
}

#[tokio::test]
async fn alias_does_not_lift_limits() {
    let hub = TestHub::with(&["a", "old"]).await;
    hub.hub.agents().rename(name("old"), name("new")).await.expect("renamed");
    let start = hub.send("a", "new", "start").await;
    for (n, alias) in ["old", "new"].into_iter().cycle().take(10).enumerate() {
        let (from, to) = if n < 5 { ("a", alias) } else { (alias, "a") };
        assert_eq!(hub.reply(from, to, start.id).await.stopped, None);
    }
    for (from, to) in [("a", "old"), ("old", "a"), ("new", "a")] {
        let stopped = hub.reply(from, to, start.id).await.stopped;
        assert!(matches!(stopped, Some(TripReason::Pair { .. })), "{from} to {to}: {stopped:?}");
    }
}

#[tokio::test]
async fn future_replies_do_not_stop_pair() {
    let hub = TestHub::with(&["a", "b"]).await;
    let start = hub.send("a", "b", "start").await;
    hub.clock.advance(seconds(10 * 365 * 86_400));
    for _ in 0..10 {
        hub.reply("b", "a", start.id).await;
    }
    hub.clock.advance(seconds(-10 * 365 * 86_400));
    assert_eq!(hub.reply("b", "a", start.id).await.stopped, None);
}

#[tokio::test]
async fn journal_order_survives_clock_jumps() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut ids = Vec::new();
    for (n, jump) in [0, -3600, 10 * 365 * 86_400, -5 * 365 * 86_400, 1].into_iter().enumerate() {
        hub.clock.advance(seconds(jump));
        ids.push(hub.send("a", "b", &n.to_string()).await.id);
    }
    assert_eq!(bodies(&hub.hub).await, ["0", "1", "2", "3", "4"]);
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
}

#[tokio::test]
async fn group_message_is_delivered_to_other_members() {
    let hub = TestHub::with(&["a", "b", "c", "d"]).await;
    hub.hub.agents().create_team(name("crew"), None, false).await.expect("made");
    for member in ["a", "b", "c"] {
        hub.hub.agents().assign(name(member), Some(name("crew"))).await.expect("assigned");
    }
    let sent = hub.send("a", "team:crew", "all hands").await;
    let agents: Vec<_> = sent.deliveries.iter().map(|delivery| delivery.agent.to_string()).collect();
    assert_eq!(agents, ["b", "c"]);
    assert_eq!(bodies(&hub.hub).await, ["all hands"]);
    hub.deliver_all().await;
    hub.hub.mailboxes().acknowledge(agent_id("b"), sent.id, None).await.expect("acknowledged");
    let (_, receipt) = hub.hub.journal().receipt(sent.id).await.expect("read").expect("there");
    assert_eq!((receipt.overall_state(), receipt.reached_count()), (OverallState::Delivered, 2));
    assert_eq!(hub.mailbox("c", Part::Unseen).await, ["all hands"]);
    assert_eq!(hub.mailbox("b", Part::Waiting).await, Vec::<String>::new());
    let all = hub.send("a", "all", "everyone").await;
    let agents: Vec<_> = all.deliveries.iter().map(|delivery| delivery.agent.to_string()).collect();
    assert_eq!(agents, ["b", "c", "d", "human"]);
}

#[tokio::test]
async fn message_never_returns_by_its_route() {
    let hub = TestHub::with(&["a"]).await;
    let session = Route::Session { session: "s1".into() };
    let only = crate::Registration { name: name("b"), role: None, team: None, routes: vec![session.clone()] };
    hub.hub.agents().register(only).await.expect("registered");
    let echo = Draft { route: Some(session), ..hub.draft("a", "b", "echo") };
    let error = hub.hub.submit(echo).await.expect_err("refused");
    assert!(matches!(error, HubError::Unresolved(ResolveError::NoRoute { .. })), "{error:?}");
    // A file that another program put into the mailbox is in its place already.
    let dropped = Draft { route: Some(Route::Mailbox { agent: name("a") }), ..hub.draft("b", "a", "file") };
    let accepted = hub.hub.submit(dropped).await.expect("accepted");
    assert_eq!(accepted.deliveries[0].state, DeliveryState::Delivered);
    assert_eq!(hub.mailbox("a", Part::Unseen).await, ["file"]);
}

#[tokio::test]
async fn restored_message_keeps_its_state() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = hub.hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    for state in [DeliveryState::Delivered, DeliveryState::Seen, DeliveryState::Acknowledged] {
        let draft =
            Draft { restored: Some(vec![(agent_id("b"), state)]), ..hub.draft("a", "b", state.as_str()) };
        let accepted = hub.hub.submit(draft).await.expect("accepted");
        assert_eq!(hub.state(accepted.id).await, state);
    }
    assert_eq!(hub.mailbox("b", Part::Waiting).await, ["delivered", "seen"]);
    assert_eq!(hub.mailbox("b", Part::Done).await, ["acknowledged"]);
    // Only later messages are handed to the door.
    hub.send("a", "b", "new").await;
    let handed = with_timeout(door.next(10)).await;
    assert_eq!(handed.iter().map(|h| h.message.body.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[tokio::test]
async fn names_are_compared_without_case() {
    let hub = TestHub::with(&["Codex", "a"]).await;
    let sent = hub.send("A", "cODEX", "hi").await;
    assert_eq!(sent.deliveries[0].agent.to_string(), "Codex");
    assert_eq!(sent.deliveries[0].route, Route::Mailbox { agent: Name::parse("Codex").expect("a name") });
    hub.deliver_all().await;
    assert_eq!(hub.mailbox("codex", Part::Unseen).await, ["hi"]);
    assert!(
        hub.hub
            .mailboxes()
            .acknowledge(agent_id("CODEX"), sent.id, None)
            .await
            .expect("acknowledged")
            .is_some()
    );
}

#[tokio::test]
async fn idempotency_key_deduplicates_retries() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let keyed = |from: &str, body: &str| Draft { key: Some("try-1".into()), ..hub.draft(from, "b", body) };
    let first = hub.hub.submit(keyed("a", "hi")).await.expect("accepted");
    let again = hub.hub.submit(keyed("a", "hi")).await.expect("accepted");
    assert_eq!((again.id, again.seq, again.duplicate), (first.id, first.seq, true));
    let other = hub.hub.submit(keyed("a", "ho")).await;
    assert!(matches!(other, Err(HubError::Conflict { first: id, .. }) if id == first.id), "{other:?}");
    let of_another = hub.hub.submit(keyed("c", "ho")).await.expect("a key is its sender's own");
    assert!(!of_another.duplicate);
    assert_eq!(hub.hub.database().health().await.expect("healthy").messages, 2);
}

#[tokio::test]
async fn message_has_native_id_per_protocol() {
    let hub = TestHub::with(&["a", "b"]).await;
    let sent = hub.send("a", "b", "hi").await;
    let other = hub.send("a", "b", "ho").await;
    let native = NativeId { door: Door::Channels, scope: "general".into(), id: "msg-1".into() };
    assert!(hub.hub.native_ids().bind(sent.id, native.clone()).await.expect("named"));
    assert!(!hub.hub.native_ids().bind(other.id, native).await.expect("asked"), "the first keeps it");
    let called = hub.hub.native_ids().find(Some(Door::Channels), "msg-1").await.expect("asked");
    assert_eq!(called, [("general".to_owned(), sent.id)]);
    let natives = hub.hub.native_ids().in_scope(Door::Channels, "General").await.expect("listed");
    assert_eq!(natives.into_iter().collect::<Vec<_>>(), ["msg-1"]);
    let without = hub.draft("a", "b", "third");
    let native = NativeId { door: Door::Channels, scope: String::new(), id: without.id.to_string() };
    let third = hub.hub.submit(Draft { native, native_is_id: true, ..without }).await.expect("accepted");
    let unnamed = async || {
        hub.hub
            .native_ids()
            .messages_without(Door::Channels, hub.hub.now() + seconds(1))
            .await
            .expect("listed")
    };
    assert_eq!(unnamed().await, [third.id]);
    let native = NativeId { door: Door::Channels, scope: "general".into(), id: "msg-3".into() };
    hub.hub.native_ids().bind(third.id, native).await.expect("named");
    assert_eq!(unnamed().await, []);
    let named = |id| hub.hub.native_ids().of_message(Door::Channels, "general", id);
    assert_eq!(named(sent.id).await.expect("asked").as_deref(), Some("msg-1"));
    assert_eq!(named(other.id).await.expect("asked"), None);
}
