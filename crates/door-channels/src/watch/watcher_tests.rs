use switchboard_core::Outcome;
use switchboard_hub::{MailboxQuery, Part, RemoteAgent};

use super::*;
use crate::channels::Post;
use crate::config::Config;
use crate::run::run_channels;
use crate::test_channels::{
    TestChannels, agent, file, name, post_from_lab, stored, with_timeout, write_carelessly,
};
use crate::translate::{set_id, to_own_draft, with_folder};

/// Builds a watcher of `codex` in `general` that runs a shell script; each run adds a line to `runs`.
fn watcher(test: &TestChannels, script: &str) -> WatcherConfig {
    let runs = test.folder.path().join("runs");
    let script = format!("echo run >> {}; {script}", runs.display());
    WatcherConfig::new(name("codex"), name("general"), ["sh", "-c", &script].map(str::to_owned).to_vec())
}

fn runs(test: &TestChannels) -> usize {
    std::fs::read_to_string(test.folder.path().join("runs")).map_or(0, |runs| runs.lines().count())
}

/// The running door with these watchers, until the end of the test.
struct AtWork {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), ChannelError>>,
    channels: Channels,
}

async fn start(test: &TestChannels, watchers: Vec<WatcherConfig>) -> AtWork {
    start_with(test, move |config: &mut Config| config.watchers = watchers).await
}

async fn start_with(test: &TestChannels, configure: impl FnOnce(&mut Config)) -> AtWork {
    let channels = test.open_another(configure).await;
    let (stop, outbound) =
        (CancellationToken::new(), channels.hub().deliveries().open_door(Door::Channels).await.unwrap());
    let task = tokio::spawn(run_channels(channels.clone(), outbound, stop.clone()));
    AtWork { stop, task, channels }
}

impl AtWork {
    async fn end(self) {
        self.stop.cancel();
        with_timeout(self.task).await.unwrap().unwrap();
    }
}

/// Waits for the answer to a message in the channel.
async fn answer_to(test: &TestChannels, id: &str) -> ChannelMessage {
    let mut seen = crate::reading::Transcript::default();
    let mut follower = test.channels.follow(&name("general"), &seen).await.unwrap();
    with_timeout(async {
        loop {
            seen.messages.extend(follower.next().await.unwrap().messages);
            if let Some(answer) = seen.messages.iter().find(|message| message.in_reply_to() == Some(id)) {
                return answer.clone();
            }
        }
    })
    .await
}

/// Waits until the agent has handled a message; returns the note.
async fn done_with(work: &AtWork, id: &str) -> String {
    let mut changes = work.channels.hub().changes();
    with_timeout(async {
        loop {
            if let Some(stored) = stored(&work.channels, id).await {
                let (_, receipt) =
                    work.channels.hub().journal().receipt(stored.message.id).await.unwrap().unwrap();
                let codex = receipt.deliveries.iter().find(|delivery| delivery.agent == agent("codex"));
                if let Some(done) = codex.filter(|delivery| delivery.state.is_final()) {
                    return done.note.clone().unwrap_or_default();
                }
            }
            changes.next().await;
        }
    })
    .await
}

#[tokio::test]
async fn only_messages_for_the_agent_are_answered() {
    let test = TestChannels::new(&["claude"]).await;
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    let mut questions = Vec::new();
    for (to, text, is_answered) in [
        ("codex", "to you", true),
        ("all", "@codex please", true),
        ("all", "to everyone", false),
        ("all", "@codex-2 please", false),
        ("all", "codex, please", true),
        ("all", "codexette says", false),
        ("all", "ask codex, please", false),
        ("qc-1", "to another", false),
    ] {
        test.channels.join(&agent("codex"), &name("general")).await.unwrap();
        questions.push((test.post("qc-9", to, text).await.id, is_answered, to));
    }
    for (id, is_answered, to) in &questions {
        if *to != "qc-1" {
            assert_eq!(done_with(&work, id).await, if *is_answered { "answered" } else { "read" }, "{id}");
        }
    }
    let reply = answer_to(&test, &questions[0].0).await;
    assert_eq!((reply.from.as_str(), reply.to.as_str(), reply.content.text.as_str()), ("codex", "all", "42"));
    assert_eq!(reply.metadata.as_ref().unwrap()["mode"], "watcher");
    assert_eq!(runs(&test), 3);
    work.end().await;
    let log = std::fs::read_to_string(test.path("logs/codex-watcher.log")).unwrap();
    assert!(log.contains("answering") && log.contains("stopped"), "{log}");
}

#[tokio::test]
async fn absent_asker_is_answered_by_name() {
    let test = TestChannels::new(&["claude"]).await;
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    let question = test.post("human", "codex", "what is it?").await;
    assert_eq!(answer_to(&test, &question.id).await.to, "human");
    assert_eq!(done_with(&work, &question.id).await, "answered");
    work.end().await;
}

#[tokio::test]
async fn backlog_is_answered_within_limits() {
    let test = TestChannels::new(&[]).await;
    test.channels.join(&agent("codex"), &name("general")).await.unwrap();
    let old = test.post("human", "codex", "long ago").await;
    test.clock.advance(SignedDuration::from_hours(25));
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(test.post("human", "codex", &format!("{number}")).await.id);
    }
    let work = start(&test, vec![WatcherConfig { backlog: 2, ..watcher(&test, "echo 42") }]).await;
    assert_eq!(done_with(&work, &old.id).await, "not answered: too old");
    for (number, id) in ids.iter().enumerate() {
        let note = done_with(&work, id).await;
        assert_eq!(note == "answered", number >= 2, "{number}: {note}");
    }
    assert_eq!(runs(&test), 2);
    work.end().await;
}

#[tokio::test]
async fn messages_before_first_start_are_answered_once() {
    let test = TestChannels::new(&["qc-1"]).await;
    let old = test.post("human", "all", "@codex long ago").await;
    test.clock.advance(SignedDuration::from_hours(25));
    // codex is not known as a reader yet.
    let questions = [
        test.post("human", "codex", "to you").await,
        test.post("human", "all", "@codex please").await,
        test.post("human", "qc-1", "ask @codex").await,
    ];
    test.post("human", "all", "to everyone").await;
    test.clock.advance(SignedDuration::from_hours(1));
    for start_number in 1..=2 {
        let work = start(&test, vec![watcher(&test, "echo 42")]).await;
        for one in &questions {
            assert_eq!(answer_to(&test, &one.id).await.content.text, "42", "{}", one.content.text);
        }
        let next = test.post("human", "codex", "and now?").await;
        assert_eq!(done_with(&work, &next.id).await, "answered");
        assert_eq!(runs(&test), questions.len() + start_number);
        work.end().await;
    }
    let all = test.channels.read(&name("general"), None).await.unwrap().messages;
    assert!(!all.iter().any(|message| message.in_reply_to() == Some(&old.id)));
}

#[tokio::test]
async fn first_backlog_survives_a_restart() {
    let test = TestChannels::new(&[]).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(test.post("human", "all", &format!("@codex {number}")).await.id);
    }
    for _ in 0..2 {
        let work = start(&test, vec![WatcherConfig { backlog: 2, ..watcher(&test, "echo 42") }]).await;
        for id in &ids[2..] {
            answer_to(&test, id).await;
        }
        let next = test.post("human", "codex", "and now?").await;
        assert_eq!(done_with(&work, &next.id).await, "answered");
        work.end().await;
    }
    let all = test.channels.read(&name("general"), None).await.unwrap().messages;
    let is_answered = |id: &String| all.iter().any(|message| message.in_reply_to() == Some(id));
    assert_eq!(ids.iter().map(is_answered).collect::<Vec<_>>(), [false, false, true, true]);
}

/// Delivers to mailboxes for as long as the test runs.
async fn deliver_mail(test: &TestChannels) {
    let mut outbound = test.channels.hub().deliveries().open_door(Door::Workspace).await.unwrap();
    tokio::spawn(async move {
        loop {
            for handoff in outbound.next(1).await {
                handoff.report(Outcome::Delivered).await.unwrap();
            }
        }
    });
}

/// An agent with a mailbox gets its messages there until it watches.
#[tokio::test]
async fn unread_mailbox_copy_is_answered_once() {
    let test = TestChannels::new(&["codex"]).await;
    deliver_mail(&test).await;
    let seen = test.post("human", "codex", "into your mailbox, and read").await;
    let seen = test.stored(&seen.id).await.message.id;
    test.channels.hub().deliveries().wait_until_settled(seen).await.unwrap();
    let hold = test
        .channels
        .hub()
        .mailboxes()
        .lease_display(agent("codex"), vec![seen], DisplayMode::Pull)
        .await
        .unwrap();
    hold.finish(vec![seen], Vec::new()).await.unwrap();
    let mut unread = Vec::new();
    for number in 0..3 {
        unread.push(test.post("human", "codex", &format!("into your mailbox {number}")).await);
    }
    let elsewhere =
        Post { to: "codex".into(), ..Post::new(agent("human"), name("other"), "in another channel") };
    test.channels.post(elsewhere).await.unwrap();
    for _ in 0..2 {
        let work = start(&test, vec![WatcherConfig { backlog: 2, ..watcher(&test, "echo 42") }]).await;
        for one in &unread[1..] {
            answer_to(&test, &one.id).await;
            assert_eq!(done_with(&work, &one.id).await, "answered");
        }
        work.end().await;
    }
    assert_eq!(runs(&test), 2);
    // The excess of the backlog, and messages from elsewhere, wait in the mailbox.
    let query = MailboxQuery { agent: agent("codex"), after: 0, limit: 10, part: Part::Unseen };
    let left = test.channels.hub().mailboxes().page(query).await.unwrap().items;
    let left: Vec<_> = left.iter().map(|mail| mail.stored.message.body.as_str()).collect();
    assert_eq!(left, ["into your mailbox 0", "in another channel"]);
}

#[tokio::test]
async fn message_being_shown_is_not_answered() {
    let test = TestChannels::new(&["codex"]).await;
    deliver_mail(&test).await;
    let mail = test.post("human", "codex", "into your mailbox").await;
    let id = test.stored(&mail.id).await.message.id;
    test.channels.hub().deliveries().wait_until_settled(id).await.unwrap();
    let _hold = test
        .channels
        .hub()
        .mailboxes()
        .lease_display(agent("codex"), vec![id], DisplayMode::Pull)
        .await
        .unwrap();
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    let next = test.post("human", "all", "@codex now you listen").await;
    answer_to(&test, &next.id).await;
    assert_eq!(runs(&test), 1);
    work.end().await;
}

#[tokio::test]
async fn two_watchers_answer_each_message_once() {
    let test = TestChannels::new(&[]).await;
    let (one, other) = (
        start(&test, vec![watcher(&test, "echo 42")]).await,
        start(&test, vec![watcher(&test, "echo 42")]).await,
    );
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(test.post("human", "codex", &format!("{number}")).await.id);
    }
    for id in &ids {
        done_with(&one, id).await;
    }
    one.end().await;
    other.end().await;
    assert_eq!(test.texts().await.iter().filter(|text| *text == "42").count(), ids.len());
    assert_eq!(runs(&test), ids.len());
}

#[tokio::test]
async fn stored_answer_of_dead_watcher_is_posted() {
    for posted_before in [false, true] {
        let test = TestChannels::new(&[]).await;
        test.channels.join(&agent("codex"), &name("general")).await.unwrap();
        let question = test.post("human", "codex", "what is it?").await;
        // The state after a watcher was killed between its answer and the post, or after the post.
        let mut reply = Post {
            to: "human".into(),
            in_reply_to: Some(question.id.clone()),
            ..Post::new(agent("codex"), name("general"), "found before")
        }
        .into_message();
        set_id(&mut reply, test.channels.hub().next_id(), None);
        reply.id = "msg-20260111-163316-codex-0007".into();
        reply.timestamp = "2026-01-11T16:33:16.000Z".into();
        let leases = test.channels.tree().lease_folder(&name("codex")).unwrap();
        let acquisition = AnswerLease::acquire(
            &leases,
            &format!("general.{}", question.id),
            test.channels.hub().now(),
            GRACE,
            "dead",
        )
        .unwrap();
        let Acquisition::Acquired(mut lease) = acquisition else { panic!("{acquisition:?}") };
        lease.store_answer(reply.clone()).unwrap();
        if posted_before {
            write_carelessly(
                &test.path("channels/general/msg-20260111-163316-codex-0007.json"),
                reply.to_bytes(),
            );
        }
        test.clock.advance(GRACE);
        let work = start(&test, vec![watcher(&test, "echo another answer")]).await;
        assert_eq!(done_with(&work, &question.id).await, "answered");
        work.end().await;
        assert_eq!(test.texts().await, ["found before", "what is it?"], "posted before: {posted_before}");
        assert_eq!(runs(&test), 0);
    }
}

#[tokio::test]
async fn failure_is_reported_or_retried() {
    let reported = TestChannels::new(&[]).await;
    let incidents = WatcherConfig { incidents: true, ..watcher(&reported, "echo it broke >&2; exit 1") };
    let work = start(&reported, vec![incidents]).await;
    let question = reported.post("human", "codex", "what is it?").await;
    let reply = answer_to(&reported, &question.id).await;
    assert_eq!(reply.kind, "incident");
    assert_eq!(reply.content.text, "codex cannot answer: the program ended with exit status: 1: it broke");
    assert!(done_with(&work, &question.id).await.starts_with("no answer: "));
    let seen = reported.channels.presence_entries().await.unwrap().remove(0);
    assert_eq!(seen.substate.as_deref(), Some("IDLE"));
    assert!(seen.error.unwrap().contains("it broke"));
    work.end().await;

    let silent = TestChannels::new(&[]).await;
    let work = start(&silent, vec![watcher(&silent, "exit 1")]).await;
    let question = silent.post("human", "codex", "what is it?").await;
    let note = done_with(&work, &question.id).await;
    assert_eq!(note, "no answer: the program ended with exit status: 1");
    work.end().await;
    assert_eq!(silent.texts().await, ["what is it?"]);

    let again = TestChannels::new(&[]).await;
    let script = format!("test $(wc -l < {}) -gt 1 && echo 42", again.folder.path().join("runs").display());
    let work = start(&again, vec![WatcherConfig { retries: 1, ..watcher(&again, &script) }]).await;
    let question = again.post("human", "codex", "what is it?").await;
    assert_eq!(answer_to(&again, &question.id).await.content.text, "42");
    assert_eq!(runs(&again), 2);
    work.end().await;
}

#[tokio::test]
async fn mutual_mentions_are_stopped() {
    let test = TestChannels::new(&[]).await;
    let of = |agent: &str, script: &str| WatcherConfig { agent: name(agent), ..watcher(&test, script) };
    let work = start(&test, vec![of("codex", "echo @claude you"), of("claude", "echo @codex you")]).await;
    test.post("human", "codex", "begin").await;
    let mut changes = work.channels.hub().changes();
    // The hub notifies the person once, when it stops the loop.
    with_timeout(async {
        loop {
            let page = work.channels.hub().journal().newest(50).await.unwrap();
            if page.items.iter().any(|stored| stored.message.body.starts_with("Stopped a message")) {
                break;
            }
            changes.next().await;
        }
    })
    .await;
    let before = runs(&test);
    work.end().await;
    assert!((3..=12).contains(&before), "{before} answers before it was stopped");
    assert_eq!(runs(&test), before);
}

#[tokio::test]
async fn invalid_answer_is_reported_to_sender() {
    for (script, reason) in [
        ("head -c 2000000 /dev/zero | tr '\\0' x", "the answer has 2000000 bytes and the limit is 1048576"),
        ("printf 'a\\377b'", "the output is not UTF-8 text (first bad byte at 1)"),
    ] {
        let test = TestChannels::new(&[]).await;
        let watchers = vec![WatcherConfig { incidents: true, ..watcher(&test, script) }];
        let work = start(&test, watchers).await;
        let question = test.post("human", "codex", "what is it?").await;
        let reply = answer_to(&test, &question.id).await;
        assert_eq!(reply.kind, "incident");
        assert_eq!(reply.content.text, format!("codex cannot answer: {reason}"));
        assert_eq!(done_with(&work, &question.id).await, format!("no answer: {reason}"));
        work.end().await;
        assert_eq!(runs(&test), 1);
    }
}

#[tokio::test]
async fn unreachable_asker_is_answered_in_channel() {
    let test = TestChannels::new(&[]).await;
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    test.drop_file(&file("msg-20260111-163316-x-0001", "x@nowhere", "codex", "what is it?"));
    let reply = answer_to(&test, "msg-20260111-163316-x-0001").await;
    assert_eq!((reply.kind.as_str(), reply.to.as_str(), reply.content.text.as_str()), ("chat", "all", "42"));
    assert_eq!(done_with(&work, "msg-20260111-163316-x-0001").await, "answered");
    work.end().await;
    assert_eq!(runs(&test), 1);
}

#[tokio::test]
async fn answer_file_has_its_journal_sequence() {
    let test = TestChannels::new(&[]).await;
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    let question = test.post("human", "codex", "what is it?").await;
    let reply = answer_to(&test, &question.id).await;
    done_with(&work, &question.id).await;
    let seq = stored(&work.channels, &reply.id).await.unwrap().seq;
    assert_eq!(reply.metadata.unwrap()["switchboard"]["seq"], seq);
    work.end().await;
}

#[tokio::test]
async fn plain_questions_have_no_rate_limit() {
    let test = TestChannels::new(&[]).await;
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    let mut ids = Vec::new();
    for number in 0..12 {
        ids.push(test.post("qc-1", "codex", &format!("{number}")).await.id);
    }
    for id in &ids {
        assert_eq!(done_with(&work, id).await, "answered");
    }
    work.end().await;
    assert_eq!(runs(&test), ids.len());
}

#[tokio::test]
async fn rate_limited_reply_waits_for_person() {
    let test = TestChannels::new(&[]).await;
    let work = start(&test, vec![watcher(&test, "echo 42")]).await;
    let limit = test.channels.hub().config().loops.pair_per_minute;
    let reply = async |number: u32| {
        // Each answers another agent's message: no chain grows, and no two agents write to each other.
        let first = test.post("qc-1", "all", &format!("{number}")).await;
        let reply =
            Post { in_reply_to: Some(first.id), ..Post::new(agent("qc-2"), name("general"), "@codex well?") };
        test.channels.post(reply).await.unwrap().message.id
    };
    let mut last = String::new();
    for number in 0..=limit {
        last = reply(number).await;
    }
    let log = async || {
        loop {
            let log = std::fs::read_to_string(test.path("logs/codex-watcher.log")).unwrap_or_default();
            if log.contains("waits: qc-2 was answered 10 times within a minute") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    with_timeout(log()).await;
    assert_eq!(runs(&test), usize::try_from(limit).unwrap());
    test.post("human", "all", "go on").await;
    assert_eq!(done_with(&work, &last).await, "answered");
    work.end().await;
}

#[tokio::test]
async fn open_breaker_is_shown_and_reported() {
    let test = TestChannels::new(&[]).await;
    let broken = watcher(&test, "echo it broke >&2; exit 1");
    let work = start(&test, vec![WatcherConfig { incidents: true, ..broken }]).await;
    let mut questions = Vec::new();
    for number in 0..3 {
        questions.push(test.post("human", "codex", &format!("{number}")).await.id);
    }
    let reply = answer_to(&test, &questions[2]).await;
    assert!(reply.content.text.contains("is not started before"), "{}", reply.content.text);
    assert!(done_with(&work, &questions[2]).await.contains("is not started before"));
    let seen = test.channels.presence_entries().await.unwrap().remove(0);
    let error = seen.error.unwrap();
    assert!(error.contains("is not started before") && error.contains("it broke"), "{error}");
    work.end().await;
}

/// In the folder an agent has its plain name, and `codex` of `lab` and of `office` are one.
#[tokio::test]
async fn watcher_answers_for_name_in_shared_folder() {
    for is_file_first in [true, false] {
        let test = TestChannels::new(&[]).await;
        let (lab, office) = test.lab_and_office().await;
        lab.join(&agent("codex"), &name("general")).await.unwrap();
        let codex =
            RemoteAgent { name: name("codex"), role: None, team: None, channels: vec![name("general")] };
        office.hub().relay().put_remote_agents(name("lab"), vec![codex]).await.unwrap();
        let watchers = vec![watcher(&test, "echo 42")];
        let work = start_with(&test, |config| (config.linked, config.watchers) = (true, watchers)).await;

        let post = Post { to: "codex".into(), ..Post::new(agent("qc-9"), name("general"), "what is it?") };
        let mut question = post.into_message();
        question.timestamp = crate::wire::iso(lab.hub().now());
        let draft = to_own_draft(question, &name("general"), lab.hub().next_id(), None).unwrap();
        let accepted = lab.hub().submit(with_folder(draft, lab.folder())).await.unwrap();
        let Stored { message, seq, .. } = lab.hub().journal().message(accepted.id).await.unwrap().unwrap();
        let brought = post_from_lab(Message { to: "codex@lab".parse().unwrap(), ..message.clone() });
        let native = async || {
            lab.write_file(&message, seq, &name("general")).await.unwrap();
            lab.hub().native_ids().of_message(Door::Channels, "general", message.id).await.unwrap().unwrap()
        };
        let question = if is_file_first {
            let (question, mut changes) = (native().await, office.hub().changes());
            with_timeout(async {
                while stored(&office, &question).await.is_none() {
                    changes.next().await;
                }
            })
            .await;
            office.hub().submit_relayed(vec![brought]).await.remove(0).unwrap();
            question
        } else {
            office.hub().submit_relayed(vec![brought]).await.remove(0).unwrap();
            native().await
        };
        let answer = answer_to(&test, &question).await;
        // The asker reads the channel, although `office` does not know that yet.
        let shown = (answer.from.as_str(), answer.to.as_str(), answer.content.text.as_str());
        assert_eq!(shown, ("codex", "all", "42"));
        work.end().await;
        // The answer is from the agent of `office`, also for a hub that sees the file before it is informed.
        lab.scan().await.unwrap();
        let answer = stored(&lab, &answer.id).await.unwrap().message;
        assert_eq!((answer.from, answer.in_reply_to), (agent("codex@office"), Some(message.id)));
        assert_eq!(runs(&test), 1, "the file first: {is_file_first}");
    }
}

#[tokio::test]
async fn sender_is_informed_before_breaker_opens() {
    let test = TestChannels::new(&[]).await;
    let broken = watcher(&test, "echo it broke >&2; exit 1");
    let watchers = vec![WatcherConfig { retries: 9, incidents: true, ..broken }];
    let work = start(&test, watchers).await;
    let question = test.post("human", "codex", "what is it?").await;
    let reply = answer_to(&test, &question.id).await;
    assert_eq!(reply.kind, "incident");
    assert!(reply.content.text.contains("it broke") && reply.content.text.contains("is not started before"));
    assert!(done_with(&work, &question.id).await.starts_with("no answer: "));
    assert_eq!((runs(&test), test.texts().await.len()), (3, 2));
    work.end().await;
}

#[tokio::test]
async fn watcher_answers_after_its_folder_was_unmounted() {
    let test = TestChannels::new(&[]).await;
    let file = |name: &str| test.folder.path().join(name).display().to_string();
    let script =
        format!("while ! test -e {}; do sleep 0.01; done; echo 42; touch {}", file("go"), file("done"));
    let watchers = vec![watcher(&test, &script)];
    let work = start_with(&test, move |config| {
        config.watchers = watchers;
        config.shared = true;
    })
    .await;
    let question =
        work.channels.post(Post::new(agent("human"), name("general"), "@codex why?")).await.unwrap();
    let is_there = async |name: &str| {
        while !test.folder.path().join(name).exists() {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(is_there("runs")).await;
    test.unmount();
    write_carelessly(&test.folder.path().join("go"), "");
    with_timeout(is_there("done")).await;
    assert!(work.channels.read(&name("general"), None).await.unwrap_err().is_unmounted());
    test.mount();
    assert_eq!(answer_to(&test, &question.message.id).await.content.text, "42");
    let next = test.post("human", "codex", "and now?").await;
    assert_eq!(answer_to(&test, &next.id).await.content.text, "42");
    assert_eq!(runs(&test), 2, "once for each");
    work.end().await;
}

#[tokio::test]
async fn watcher_without_its_program_is_not_started() {
    let test = TestChannels::new(&[]).await;
    let missing = WatcherConfig { command: vec!["nosuchprogram".into()], ..watcher(&test, "") };
    assert!(missing.program_error().is_some());
    let other = WatcherConfig { agent: name("qc-1"), ..watcher(&test, "echo 42") };
    let work = start(&test, vec![missing, other]).await;
    let question = test.post("human", "qc-1", "what is it?").await;
    answer_to(&test, &question.id).await;
    let seen: Vec<_> =
        test.channels.presence_entries().await.unwrap().into_iter().map(|one| one.agent).collect();
    assert_eq!(seen, [name("qc-1")]);
    work.end().await;
}

#[test]
fn invalid_watcher_config_is_refused() {
    let of = |agent: &str| WatcherConfig::new(name(agent), name("general"), vec!["true".into()]);
    assert_eq!(of("claude-1").agent, name("claude"));
    let refused = |watcher: WatcherConfig| watcher.validate().unwrap_err().to_string();
    assert_eq!(refused(of("human")), "'agent' is 'human', but no program may answer for that agent");
    assert_eq!(
        refused(of("Switchboard")),
        "'agent' is 'Switchboard', but no program may answer for that agent"
    );
    let hasty = WatcherConfig { timeout: Duration::ZERO, ..of("codex") };
    assert_eq!(refused(hasty), "'timeout' is 0, but a program needs at least 1 second");
    let odd = WatcherConfig { env: vec!["=x".into()], ..of("codex") };
    assert_eq!(refused(odd), "'env' has '=x', which is not a valid variable name");
    let typo = WatcherConfig { role: Some("/nowhere/role.md".into()), ..of("codex") };
    assert_eq!(typo.missing_files().collect::<Vec<_>>(), [Path::new("/nowhere/role.md")]);
    assert!(of("codex").validate().is_ok());
}
