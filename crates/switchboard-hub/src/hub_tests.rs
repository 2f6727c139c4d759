#![expect(clippy::disallowed_methods, reason = "the tests stand in for programs that write as they like")]

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::AtomicUsize;

use switchboard_core::{AgentRecord, Heartbeat, PresenceState, ResolveError, Route};
use switchboard_sys::files::FileError;
use tokio::task::JoinSet;

use super::*;
use crate::test_hub::{
    TestHub, agent_id, bodies, config, draft, journal, name, noon, open, seconds, with_timeout,
};
use crate::{Accepted, Draft, HubEvent, MailboxQuery, Part, Registration};

fn role(agent: &str, role: &str, team: Option<&str>) -> Registration {
    let (role, team) = (Some(role.to_owned()), team.map(name));
    Registration { role, team, ..Registration::mailbox(name(agent)) }
}

async fn search(hub: &Hub, words: &str) -> Vec<String> {
    let page = hub.journal().search(words, None, 1000).await.expect("searched");
    page.items.into_iter().map(|stored| stored.message.body).collect()
}

/// Blocks the writer until the sender is dropped, so that submissions pile up.
fn block_writer(hub: &Hub) -> std::sync::mpsc::SyncSender<()> {
    let (gate, opened) = std::sync::mpsc::sync_channel::<()>(0);
    let (begun, held) = std::sync::mpsc::channel();
    hub.inner.writer.post(move |_| {
        let _ = begun.send(());
        let _ = opened.recv();
        Ok(())
    });
    // From here on, all jobs queue for the next transaction.
    held.recv().expect("the writer has begun");
    gate
}

/// Submits all drafts at once, with the writer blocked until all of them are queued.
async fn submit_together(hub: &Hub, drafts: Vec<Draft>) -> Vec<Result<Accepted, HubError>> {
    let gate = block_writer(hub);
    let (count, queued) = (drafts.len(), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = drafts
        .into_iter()
        .map(|draft| {
            let (hub, queued) = (hub.clone(), queued.clone());
            // On one thread, the message is queued in the same step as it is counted.
            tokio::spawn(async move {
                queued.fetch_add(1, Ordering::Relaxed);
                hub.submit(draft).await
            })
        })
        .collect();
    while queued.load(Ordering::Relaxed) < count {
        tokio::task::yield_now().await;
    }
    drop(gate);
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(with_timeout(task).await.expect("it ends"));
    }
    answers
}

#[tokio::test]
async fn concurrent_submits_share_a_transaction() {
    let hub = TestHub::with(&["a", "b"]).await;
    let drafts = (0..64).map(|n| hub.draft("a", "b", &n.to_string())).collect();
    let mut notifications = hub.hub.inner.signal.subscribe();
    let before = *notifications.borrow();
    let answers = submit_together(&hub.hub, drafts).await;
    // The notification follows the answers, at most once per commit: of 32 messages, and of the job that
    // blocked the writer.
    let commits = *notifications.wait_for(|count| *count > before).await.expect("a ring") - before;
    assert!((1..=3).contains(&commits), "{commits} commits for 64 messages");
    let seqs: Vec<_> = answers.iter().map(|answer| answer.as_ref().expect("accepted").seq).collect();
    assert!(seqs.is_sorted_by(|one, next| one + 1 == *next), "in the order they came: {seqs:?}");
    assert_eq!(hub.open_another().await.journal().entries(0, 100).await.expect("read").items.len(), 64);
}

#[tokio::test]
async fn failed_job_does_not_roll_back_neighbours() {
    let hub = TestHub::with(&["a", "b"]).await;
    let drafts = (0..30).map(|n| hub.draft("a", if n % 3 == 0 { "nobody" } else { "b" }, &n.to_string()));
    let answers = submit_together(&hub.hub, drafts.collect()).await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.is_err(), n % 3 == 0, "{n}: {answer:?}");
    }
    let kept: Vec<_> = (0..30).filter(|n| n % 3 != 0).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&hub.hub).await, kept);

    // Also a job that wrote something before it failed.
    let failed = hub.hub.write(|tx| {
        tx.db.execute("DELETE FROM messages", [])?;
        Err::<(), _>(HubError::Closed)
    });
    let sent = hub.hub.submit(hub.draft("a", "b", "beside"));
    let (failed, sent) = with_timeout(async { tokio::join!(failed, sent) }).await;
    assert!(failed.is_err());
    sent.expect("accepted");
    assert_eq!(journal(&hub.hub).await.len(), 21);
}

#[tokio::test]
async fn lost_transaction_fails_all_its_jobs() {
    let hub = TestHub::with(&["a", "b"]).await;
    let gate = block_writer(&hub.hub);
    // SQLite rolls a transaction back on its own when the disk is full.
    let full = || {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        HubError::from(rusqlite::Error::SqliteFailure(code, None))
    };
    let before = hub.hub.submit(hub.draft("a", "b", "before"));
    let rollback = hub.hub.write(move |tx| {
        tx.db.execute_batch("ROLLBACK")?;
        Err::<(), _>(full())
    });
    let after = hub.hub.submit(hub.draft("a", "b", "after"));
    let open_gate = async move {
        tokio::task::yield_now().await;
        drop(gate);
    };
    let (before, rollback, after, ()) =
        with_timeout(Box::pin(async { tokio::join!(before, rollback, after, open_gate) })).await;
    assert!(matches!(before, Err(HubError::NoSpace { .. })), "{before:?}");
    assert!(matches!(rollback, Err(HubError::NoSpace { .. })), "{rollback:?}");
    assert!(matches!(after, Err(HubError::NoSpace { .. })), "{after:?}");
    assert_eq!(bodies(&hub.hub).await, Vec::<String>::new());
    hub.send("a", "b", "later").await;
    assert_eq!(bodies(&hub.hub).await, ["later"], "it goes on without a restart");
}

#[tokio::test]
async fn shutdown_writes_queued_jobs_and_refuses_later() {
    let hub = TestHub::with(&["a", "b"]).await;
    let (sent, ()) = tokio::join!(hub.hub.submit(hub.draft("a", "b", "before")), hub.hub.shut_down());
    sent.expect("accepted");
    let late = hub.hub.submit(hub.draft("a", "b", "late")).await;
    assert!(matches!(late, Err(HubError::Closed)), "{late:?}");
    assert_eq!(bodies(&hub.open_another().await).await, ["before"]);
    with_timeout(hub.hub.shut_down()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_hubs_preserve_order_of_each_sender() {
    let hub = TestHub::with(&["b"]).await;
    let hubs =
        [hub.hub.clone(), hub.open_another().await, hub.open_another().await, hub.open_another().await];
    let mut tasks = JoinSet::new();
    for (h, hub) in hubs.into_iter().enumerate() {
        for sender in 0..4 {
            let hub = hub.clone();
            tasks.spawn(async move {
                for n in 0..50 {
                    let draft = draft(&hub, &format!("sender-{h}-{sender}"), "b", &n.to_string());
                    let accepted = hub.submit(draft).await.expect("accepted");
                    assert!(!accepted.duplicate);
                }
            });
        }
    }
    with_timeout(tasks.join_all()).await;
    let all = journal(&hub.hub).await;
    assert_eq!(all.len(), 800);
    assert_eq!(all.iter().map(|stored| stored.message.id).collect::<HashSet<_>>().len(), 800);
    for sender in all.iter().map(|stored| stored.message.from.clone()).collect::<HashSet<_>>() {
        let of_sender = all.iter().filter(|stored| stored.message.from == sender);
        let order: Vec<_> = of_sender.map(|stored| stored.message.body.clone()).collect();
        assert_eq!(order, (0..50).map(|n| n.to_string()).collect::<Vec<_>>(), "{sender}");
    }
}

#[tokio::test]
async fn directory_change_reaches_next_submit_elsewhere() {
    let hub = TestHub::with(&["a"]).await;
    let other = hub.open_another().await;
    let unknown = other.submit(draft(&other, "a", "late", "hi")).await;
    assert!(matches!(unknown, Err(HubError::Unresolved(_))), "{unknown:?}");
    hub.hub.agents().register(Registration::mailbox(name("late"))).await.expect("registered");
    other.submit(draft(&other, "a", "late", "hi")).await.expect("accepted");
    assert!(other.directory().await.expect("read").agent(&agent_id("late")).is_some());
    other.agents().deregister(name("late")).await.expect("removed");
    let gone = hub.hub.submit(hub.draft("a", "late", "hi")).await;
    assert!(matches!(gone, Err(HubError::Unresolved(ResolveError::Retired { .. }))), "{gone:?}");
}

#[tokio::test]
async fn idle_hub_sends_no_notification() {
    let hub = TestHub::with(&["a", "b"]).await;
    let quiet = || async { hub.hub.write(|_| Ok(())).await.expect("nothing written") };
    // The notification of a write follows its answer, but precedes the next one's.
    quiet().await;
    let mut notifications = hub.hub.inner.signal.subscribe();
    quiet().await;
    hub.hub.deliveries().expire_due().await.expect("nothing expired");
    quiet().await;
    assert!(!notifications.has_changed().expect("open"), "nothing was written");
    hub.send("a", "b", "hi").await;
    with_timeout(notifications.changed()).await.expect("open");
}

#[tokio::test]
async fn subscribers_get_every_message_in_order() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    hub.send("a", "b", "before").await;
    let mut events = other.subscribe().await.expect("subscribed");
    let mut sent = Vec::new();
    for n in 0..6 {
        let hub = if n % 2 == 0 { &hub.hub } else { &other };
        sent.push(hub.submit(draft(hub, "a", "b", "hi")).await.expect("accepted"));
    }
    let mut heard = Vec::new();
    while heard.len() < 6 {
        if let HubEvent::Accepted { seq, id } = with_timeout(events.recv()).await.expect("an event") {
            heard.push((seq, id));
        }
    }
    assert_eq!(heard, sent.iter().map(|accepted| (accepted.seq, accepted.id)).collect::<Vec<_>>());
}

#[tokio::test]
async fn registration_adds_routes_and_ignores_case() {
    let hub = TestHub::with(&[]).await;
    let first = hub.hub.agents().register(role("Codex", "lead", Some("crew"))).await.expect("registered");
    hub.clock.advance(seconds(5));
    let session = Route::Session { session: "s".into() };
    let again = Registration { name: name("CODEX"), role: None, team: None, routes: vec![session.clone()] };
    let again = hub.hub.agents().register(again).await.expect("registered");
    let routes = vec![Route::Mailbox { agent: name("Codex") }, session.clone()];
    assert_eq!(again, AgentRecord { routes, ..first.clone() });
    assert_eq!(again.id.to_string(), "Codex", "the first spelling stays");
    assert_eq!(again.registered_at, noon());
    let directory = hub.open_another().await.directory().await.expect("read");
    assert_eq!(directory.agents().collect::<Vec<_>>(), [&again]);
    assert!(directory.team(&name("Crew")).is_some(), "the team was made");
    hub.hub.agents().remove_route(name("codex"), session).await.expect("removed");
    assert_eq!(hub.hub.directory().await.expect("read").agent(&first.id), Some(&first));
}

#[tokio::test]
async fn reserved_names_cannot_be_registered() {
    let hub = TestHub::with(&["a"]).await;
    for reserved in ["human", "Human", "switchboard", "SwitchBoard"] {
        let error =
            hub.hub.agents().register(Registration::mailbox(name(reserved))).await.expect_err("refused");
        assert!(matches!(error, HubError::ReservedName { .. }), "{error:?}");
        let error = hub.hub.agents().rename(name("a"), name(reserved)).await.expect_err("refused");
        assert!(matches!(error, HubError::ReservedName { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn renamed_agent_keeps_mail_and_old_name() {
    let hub = TestHub::with(&["a", "old"]).await;
    let waiting = hub.send("a", "old", "waiting").await;
    hub.deliver_all().await;
    let (folder, clock) = hub.close().await;
    let hub = open(folder.path(), &clock).await;
    let queued = hub.submit(draft(&hub, "a", "old", "queued")).await.expect("accepted");
    let record = hub.agents().rename(name("old"), name("new")).await.expect("renamed");
    assert_eq!(record.routes, [Route::Mailbox { agent: name("new") }]);

    let sent = hub.submit(draft(&hub, "a", "OLD", "later")).await.expect("accepted");
    assert_eq!(sent.deliveries[0].agent, agent_id("new"));
    for id in [queued.id, waiting.id] {
        let (_, receipt) = hub.journal().receipt(id).await.expect("read").expect("there");
        assert_eq!(receipt.deliveries[0].agent, agent_id("new"));
        assert_eq!(receipt.deliveries[0].route, Route::Mailbox { agent: name("new") });
    }
    // Its session may not know its new name yet.
    for known_as in ["new", "old"] {
        let agent = agent_id(known_as);
        let query = MailboxQuery { agent: agent.clone(), after: 0, limit: 10, part: Part::Waiting };
        let page = hub.mailboxes().page(query).await.expect("read");
        assert_eq!(page.items.len(), 1, "{known_as}");
        assert_eq!(hub.mailboxes().unread(agent.clone(), 10).await.expect("counted"), 1, "{known_as}");
        assert_eq!(hub.mailboxes().expected_files(agent.clone()).await.expect("read").len(), 1, "{known_as}");
    }
    assert_eq!(hub.mailboxes().mark_seen(agent_id("old"), vec![waiting.id]).await.expect("marked").len(), 1);
    assert!(
        hub.mailboxes().acknowledge(agent_id("old"), waiting.id, None).await.expect("acknowledged").is_some()
    );

    let taken = hub.agents().rename(name("a"), name("new")).await.expect_err("taken");
    assert!(matches!(taken, HubError::NameTaken { .. }), "{taken:?}");
    let taken = hub.agents().rename(name("a"), name("old")).await.expect_err("taken");
    assert!(matches!(taken, HubError::NameTaken { .. }), "an old name is taken too: {taken:?}");
    // Twice over, and back again.
    hub.agents().rename(name("old"), name("newer")).await.expect("renamed");
    assert_eq!(hub.directory().await.expect("read").canonical(&agent_id("old")), agent_id("newer"));
    let back = hub.agents().rename(name("newer"), name("Old")).await.expect("renamed");
    assert_eq!(back.id.to_string(), "Old");
    let directory = hub.directory().await.expect("read");
    assert_eq!(directory.canonical(&agent_id("new")).to_string(), "Old");
    assert_eq!(directory.aliases().count(), 2);
    let unknown = hub.agents().rename(name("nobody"), name("x")).await.expect_err("unknown");
    assert!(matches!(unknown, HubError::Unresolved(ResolveError::UnknownAgent { .. })), "{unknown:?}");
}

#[tokio::test]
async fn composite_team_has_one_member() {
    let hub = TestHub::with(&["a", "b"]).await;
    let team = hub.hub.agents().create_team(name("solo"), Some("Solo act".into()), true).await.expect("made");
    assert_eq!((team.title.as_str(), team.composite), ("Solo act", true));
    hub.hub.agents().assign(name("a"), Some(name("SOLO"))).await.expect("assigned");
    hub.hub.agents().assign(name("a"), Some(name("solo"))).await.expect("assigned again");
    let full = hub.hub.agents().assign(name("b"), Some(name("solo"))).await.expect_err("full");
    assert!(matches!(&full, HubError::CompositeTeam { member, .. } if *member == name("a")), "{full:?}");
    let full = hub.hub.agents().register(role("c", "x", Some("solo"))).await.expect_err("full");
    assert!(matches!(full, HubError::CompositeTeam { .. }), "{full:?}");
    assert!(hub.hub.directory().await.expect("read").agent(&agent_id("c")).is_none());
    // The one member counts as itself after a rename, and under its old name.
    hub.hub.agents().rename(name("a"), name("z")).await.expect("renamed");
    hub.hub.agents().register(role("a", "x", Some("solo"))).await.expect("still the same member");
    hub.hub.agents().assign(name("z"), None).await.expect("left");
    hub.hub.agents().assign(name("b"), Some(name("solo"))).await.expect("there is room now");
    let sent = hub.send("z", "team:solo", "hi").await;
    assert_eq!(sent.deliveries.len(), 1);

    let unknown = hub.hub.agents().assign(name("b"), Some(name("sole"))).await.expect_err("unknown");
    let HubError::Unresolved(ResolveError::UnknownTeam { near, .. }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(near, ["solo"]);
    let again = hub.hub.agents().create_team(name("SOLO"), None, true).await.expect("known");
    assert_eq!((again.id.as_str(), again.title.as_str()), ("solo", "Solo act"));
}

#[tokio::test]
async fn removed_agent_is_retired_with_its_mail() {
    let hub = TestHub::with(&["a", "old"]).await;
    hub.hub.agents().rename(name("old"), name("b")).await.expect("renamed");
    hub.send("a", "b", "kept").await;
    hub.deliver_all().await;
    assert!(hub.hub.agents().deregister(name("OLD")).await.expect("removed"));
    assert!(!hub.hub.agents().deregister(name("b")).await.expect("unknown"));
    let retired = hub.hub.submit(hub.draft("a", "b", "hi")).await.expect_err("retired");
    assert!(matches!(retired, HubError::Unresolved(ResolveError::Retired { .. })), "{retired:?}");
    let unknown = hub.hub.submit(hub.draft("a", "old", "hi")).await.expect_err("unknown");
    assert!(matches!(unknown, HubError::Unresolved(ResolveError::UnknownAgent { .. })), "{unknown:?}");
    assert_eq!(hub.mailbox("b", Part::Waiting).await, ["kept"]);
    hub.hub.agents().register(Registration::mailbox(name("old"))).await.expect("the old name is free again");
}

#[tokio::test]
async fn presence_follows_the_heartbeats_and_the_clock() {
    let hub = TestHub::with(&["a"]).await;
    let a = agent_id("a");
    assert_eq!(hub.hub.agents().presence(&a).state, PresenceState::Offline);
    hub.hub.agents().announce(a.clone(), "working", Some("on it"));
    let awake = hub.hub.agents().presence(&agent_id("A"));
    assert_eq!((awake.state, awake.status.as_deref()), (PresenceState::Awake, Some("working")));
    let older = Heartbeat { agent: a.clone(), at: noon() - seconds(1), status: "idle".into(), message: None };
    hub.hub.agents().record_heartbeat(older);
    assert_eq!(hub.hub.agents().presence(&a), awake);
    hub.clock.advance(seconds(300));
    assert_eq!(hub.hub.agents().presence(&a).state, PresenceState::Stale);
    hub.clock.advance(seconds(900));
    assert_eq!(hub.hub.agents().presence(&a).state, PresenceState::Offline);
    assert!(
        hub.hub.journal().entries(0, 10).await.unwrap().items.is_empty(),
        "presence never touches the journal"
    );
}

#[tokio::test]
async fn search_finds_messages_that_hold_all_words_newest_first() {
    let hub = TestHub::with(&["a", "b"]).await;
    for body in ["The quick brown fox", "quick silver", "a brown study", "Ünïcode näme", "don't panic"] {
        hub.send("a", "b", body).await;
    }
    assert_eq!(search(&hub.hub, "quick").await, ["quick silver", "The quick brown fox"]);
    assert_eq!(search(&hub.hub, "BROWN quick").await, ["The quick brown fox"]);
    assert_eq!(search(&hub.hub, "ünïcode").await, ["Ünïcode näme"]);
    assert_eq!(search(&hub.hub, "don't").await, ["don't panic"]);
    assert_eq!(search(&hub.hub, "nothing").await, Vec::<String>::new());
    assert_eq!(search(&hub.hub, "  ").await, Vec::<String>::new());
    let first = hub.hub.journal().search("quick", None, 1).await.expect("searched");
    assert!(first.more);
    let next = hub.hub.journal().search("quick", Some(first.items[0].seq), 1).await.expect("searched");
    assert_eq!((next.items[0].message.body.as_str(), next.more), ("The quick brown fox", false));
}

#[tokio::test]
async fn query_operators_are_searched_as_text() {
    let hub = TestHub::with(&["a", "b"]).await;
    hub.send("a", "b", "either OR neither NOT near NEAR body: col* (x) and \"quoted\"").await;
    hub.send("a", "b", "plain").await;
    for inert in [
        "OR",
        "neither NOT",
        "NEAR(x",
        "body:",
        "quo*",
        "\"",
        "\"\"",
        "(",
        "*",
        "^",
        "-x",
        "a\0b",
        "\0",
        "{",
        "'",
    ] {
        let page = with_timeout(hub.hub.journal().search(inert, None, 10)).await;
        let page = page.unwrap_or_else(|error| panic!("{inert:?}: {error:?}"));
        assert!(page.items.iter().all(|stored| stored.message.body != "plain"), "{inert:?}");
    }
    assert_eq!(search(&hub.hub, "plain OR either").await, Vec::<String>::new(), "OR must be in it as well");
    assert_eq!(search(&hub.hub, "\"quoted\"").await.len(), 1);
    assert_eq!(search(&hub.hub, "pla*").await, Vec::<String>::new(), "no prefixes");
}

#[tokio::test]
async fn search_catches_up_with_many_messages_of_several_hubs() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    let mut tasks = JoinSet::new();
    for n in 0..1203 {
        let hub = if n % 2 == 0 { hub.hub.clone() } else { other.clone() };
        tasks.spawn(async move {
            hub.submit(draft(&hub, "a", "b", &format!("needle {n}"))).await.expect("accepted");
        });
    }
    with_timeout(tasks.join_all()).await;
    let (one, two) = tokio::join!(
        hub.hub.journal().search("needle", None, 2000),
        other.journal().search("needle", None, 2000)
    );
    assert_eq!(one.expect("searched").items.len(), 1203);
    assert_eq!(two.expect("searched").items.len(), 1203);
    assert_eq!(search(&other, "1202").await, ["needle 1202"]);
}

#[tokio::test]
async fn journal_is_read_in_pages_by_cursor() {
    let hub = TestHub::with(&["a", "b"]).await;
    for n in 0..25 {
        hub.send("a", "b", &n.to_string()).await;
    }
    let first = hub.hub.journal().entries(0, 10).await.expect("read");
    assert_eq!((first.items.len(), first.more), (10, true));
    let last = hub.hub.journal().entries(first.items[9].seq, 100).await.expect("read");
    assert_eq!((last.items.len(), last.more), (15, false));
    assert_eq!(last.items[0].message.body, "10");
    let exact = hub.hub.journal().entries(0, 25).await.expect("read");
    assert_eq!((exact.items.len(), exact.more), (25, false));
    let newest = hub.hub.journal().newest(3).await.expect("read");
    let newest: Vec<_> = newest.items.iter().map(|stored| stored.message.body.as_str()).collect();
    assert_eq!(newest, ["22", "23", "24"]);
    let none = hub.hub.journal().entries(i64::MAX, 10).await.expect("read");
    assert_eq!((none.items.len(), none.more), (0, false));
}

/// Entry that an attacker or a mistake puts in place of one of our files.
#[derive(Debug, Clone, Copy)]
enum Trap {
    Symlink,
    DanglingSymlink,
    HardLink,
    Fifo,
}

#[tokio::test]
async fn symbolic_link_or_pipe_as_file_is_refused() {
    for file in ["hub.lock", "hub.bell"] {
        for trap in [Trap::Symlink, Trap::DanglingSymlink, Trap::HardLink, Trap::Fifo] {
            let folder = tempfile::tempdir().expect("a folder");
            let elsewhere = tempfile::tempdir().expect("a folder");
            let (place, victim) = (folder.path().join(file), elsewhere.path().join("victim"));
            fs::write(&victim, "precious").expect("written");
            match trap {
                Trap::Symlink => std::os::unix::fs::symlink(&victim, &place).expect("linked"),
                Trap::DanglingSymlink => {
                    fs::remove_file(&victim).expect("removed");
                    std::os::unix::fs::symlink(&victim, &place).expect("linked");
                }
                Trap::HardLink => fs::hard_link(&victim, &place).expect("linked"),
                Trap::Fifo => {
                    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0)
                        .expect("made");
                }
            }
            let clock = switchboard_sys::clock::Clock::manual(noon());
            let Err(error) = with_timeout(Hub::open(config(folder.path(), &clock))).await else {
                panic!("{file} as {trap:?} was opened")
            };
            assert!(
                matches!(error, HubError::File(FileError::NotAFile { .. })),
                "{file} {trap:?}: {error:?}"
            );
            match trap {
                Trap::DanglingSymlink => assert!(!victim.exists()),
                _ => assert_eq!(fs::read(&victim).expect("read"), b"precious", "{file} {trap:?}"),
            }
        }
    }
}

#[tokio::test]
async fn symbolic_link_or_pipe_as_database_is_refused() {
    for file in ["hub.db", "hub.db-wal"] {
        let hub = TestHub::with(&["a", "b"]).await;
        hub.send("a", "b", "kept").await;
        let (folder, clock) = hub.close().await;
        let elsewhere = tempfile::tempdir().expect("a folder");
        let (place, victim) = (folder.path().join(file), elsewhere.path().join("victim"));
        let _ = fs::rename(&place, elsewhere.path().join("original"));
        fs::write(&victim, "").expect("written");
        std::os::unix::fs::symlink(&victim, &place).expect("linked");
        let opened = with_timeout(Hub::open(config(folder.path(), &clock))).await;
        if let Ok(hub) = opened {
            let _ = hub.submit(draft(&hub, "a", "human", "secret")).await;
            hub.shut_down().await;
        }
        assert_eq!(fs::read(&victim).expect("read"), b"", "{file}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let place = folder.path().join("hub.db");
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let clock = switchboard_sys::clock::Clock::manual(noon());
    assert!(with_timeout(Hub::open(config(folder.path(), &clock))).await.is_err());
}

#[tokio::test]
async fn database_is_readable_by_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let hub = TestHub::with(&["a", "b"]).await;
    hub.send("a", "b", "hi").await;
    for file in ["hub.db", "hub.db-wal", "hub.db-shm", "hub.bell", "hub.lock"] {
        let mode = fs::metadata(hub.path().join(file)).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} {mode:o}");
    }
}

#[tokio::test]
async fn service_has_one_reported_holder() {
    let test = TestHub::with(&[]).await;
    let hub = &test.hub;
    assert_eq!(hub.services().holder("terminal.codex").expect("asked"), None);
    let service = hub.services().lease("terminal.codex").expect("claimed");
    let holder = hub.services().holder("terminal.codex").expect("asked").expect("held");
    assert!(holder.starts_with(&format!("process {} on ", std::process::id())), "{holder}");
    assert!(matches!(hub.services().lease("terminal.codex"), Err(HubError::ServiceTaken { .. })));
    assert!(hub.services().lease("terminal.claude").is_ok());
    drop(service);
    assert_eq!(hub.services().holder("terminal.codex").expect("asked"), None);
    assert!(hub.services().lease("terminal.codex").is_ok());
}

#[tokio::test]
async fn shared_service_cannot_be_leased_exclusively() {
    let test = TestHub::with(&[]).await;
    let hub = &test.hub;
    let one = hub.services().share("session.codex").expect("asked").expect("shared");
    let other = hub.services().share("session.codex").expect("asked").expect("shared");
    drop(one);
    assert!(matches!(hub.services().lease("session.codex"), Err(HubError::ServiceTaken { .. })));
    drop(other);
    let _alone = hub.services().lease("session.codex").expect("claimed");
    assert!(hub.services().share("session.codex").expect("asked").is_none());
}

#[test]
fn directory_and_count_are_read_inline() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let test = TestHub::with(&["codex"]).await;
        let other = test.open_another().await;
        test.hub.directory().await.expect("read, by a connection that stays");
        other.agents().register(Registration::mailbox(name("claude"))).await.expect("registered");
        let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
        let busy = tokio::task::spawn_blocking(move || held.recv().is_ok());
        let directory = with_timeout(test.hub.directory()).await.expect("read");
        assert!(directory.agent(&agent_id("claude")).is_some(), "also what another process just wrote");
        assert_eq!(
            with_timeout(test.hub.mailboxes().count(agent_id("claude"), Part::Unseen, 100))
                .await
                .expect("counted"),
            0
        );
        drop(release);
        assert!(!busy.await.expect("ended"));
    });
}
