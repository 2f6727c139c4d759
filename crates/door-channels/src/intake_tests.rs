use switchboard_core::DeliveryState;
use switchboard_hub::RemoteAgent;

use super::*;
use crate::channels::Post;
use crate::intake::scan::BATCH;
use crate::test_channels::{TestChannels, agent, file, name, post_from_lab, write_carelessly};

#[tokio::test]
async fn dropped_files_are_ingested_once_in_order() {
    let test = TestChannels::new(&["claude"]).await;
    for (id, at) in [
        ("msg-20260111-163316-b-0001", 16),
        ("msg-20260111-163315-z-0001", 15),
        ("msg-20260111-163317-a-0001", 17),
    ] {
        let mut message = file(id, "codex", "all", id);
        message["timestamp"] = format!("2026-01-11T16:33:{at}Z").into();
        test.drop_file(&message);
    }
    assert_eq!(test.channels.scan().await.unwrap().ingested, 3);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0);
    let another = test.open_another(|_| ()).await;
    assert_eq!(another.scan().await.unwrap().ingested, 0, "another process finds nothing new");
    let page = test.channels.hub().journal().entries(0, 10).await.unwrap();
    let bodies: Vec<_> = page.items.iter().map(|stored| stored.message.body.as_str()).collect();
    assert_eq!(
        bodies,
        ["msg-20260111-163315-z-0001", "msg-20260111-163316-b-0001", "msg-20260111-163317-a-0001"]
    );
    assert!(!page.items[0].message.origin.verified);
}

#[tokio::test]
async fn post_with_early_name_is_ingested() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "all", "now").await;
    test.channels.scan().await.unwrap();
    test.drop_file(&file("msg-20200101-000000-late-0001", "late", "all", "from the past"));
    assert_eq!(test.channels.scan().await.unwrap().ingested, 1);
    assert_eq!(test.stored("msg-20200101-000000-late-0001").await.message.body, "from the past");
}

#[tokio::test]
async fn message_reaches_mailbox_and_channel_readers() {
    let test = TestChannels::new(&["claude"]).await;
    test.drop_file(&file("msg-1", "codex", "claude", "for claude"));
    test.drop_file(&file("msg-2", "qc-1", "codex", "for codex"));
    test.drop_file(&file("msg-3", "qc-1", "newcomer", "for whom nobody knows"));
    test.channels.scan().await.unwrap();
    let route = async |native: &str| {
        let id = test.stored(native).await.message.id;
        let delivery = test.deliveries(id).await.remove(0);
        (delivery.agent.to_string(), delivery.route.to_string(), delivery.state)
    };
    assert_eq!(route("msg-1").await, ("claude".into(), "mailbox:claude".into(), DeliveryState::Queued));
    assert_eq!(route("msg-2").await, ("codex".into(), "channel:general".into(), DeliveryState::Delivered));
    assert_eq!(route("msg-3").await, ("newcomer".into(), "channel:general".into(), DeliveryState::Delivered));
    let directory = test.channels.hub().directory().await.unwrap();
    assert!(directory.agent(&agent("codex")).is_some() && directory.agent(&agent("newcomer")).is_none());
}

#[tokio::test]
async fn answers_join_the_thread() {
    let test = TestChannels::new(&[]).await;
    let question = test.post("human", "all", "why?").await;
    let mut reply = file("msg-20260111-163316-codex-0001", "codex", "all", "because");
    reply["metadata"]["in_reply_to"] = question.id.clone().into();
    test.drop_file(&reply);
    let mut further = file("msg-20260111-163317-qc-0001", "qc", "all", "indeed");
    further["metadata"]["in_reply_to"] = "msg-20260111-163316-codex-0001".into();
    test.drop_file(&further);
    test.channels.scan().await.unwrap();
    let question = test.stored(&question.id).await.message;
    let (reply, further) = (
        test.stored("msg-20260111-163316-codex-0001").await.message,
        test.stored("msg-20260111-163317-qc-0001").await.message,
    );
    assert_eq!((reply.in_reply_to, reply.thread), (Some(question.id), question.id));
    assert_eq!((further.in_reply_to, further.thread), (Some(reply.id), question.id));
    assert!(question.origin.verified);
}

#[tokio::test]
async fn post_is_one_message_over_many_scans() {
    let test = TestChannels::new(&["claude"]).await;
    let posted = test.channels.post(Post::new(agent("codex"), name("general"), "hi")).await.unwrap();
    let (another, elsewhere) = (test.open_another(|_| ()).await, test.elsewhere(|_| ()).await);
    assert_eq!(test.channels.scan().await.unwrap().ingested + another.scan().await.unwrap().ingested, 0);
    assert_eq!(elsewhere.scan().await.unwrap().ingested, 1, "for another hub it is new");
    assert_eq!(elsewhere.scan().await.unwrap().ingested, 0);
    assert_eq!(test.stored(&posted.message.id).await.message.id, posted.accepted.id);
    assert_eq!(posted.message.metadata.unwrap()["switchboard"]["seq"], posted.accepted.seq);
}

#[tokio::test]
async fn rejected_file_is_reported_once_until_repaired() {
    let test = TestChannels::new(&[]).await;
    let path = test.path("channels/general/msg-20260111-163315-codex-0001.json");
    write_carelessly(&path, "{\"id\": \"msg-");
    let summary = test.channels.scan().await.unwrap();
    assert_eq!((summary.ingested, summary.settling), (0, 1), "it may still be being written");
    test.clock.advance(jiff::SignedDuration::from_secs(10));
    assert_eq!(test.channels.scan().await.unwrap(), ScanSummary::default());
    let rejected = test.channels.rejected_files().await.unwrap();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].0, "channels/general/msg-20260111-163315-codex-0001.json");
    write_carelessly(&path, file("msg-20260111-163315-codex-0001", "codex", "all", "whole").to_string());
    assert_eq!(test.channels.scan().await.unwrap().ingested, 1);
}

#[tokio::test]
async fn bad_file_does_not_block_others() {
    let test = TestChannels::new(&[]).await;
    test.drop_file(&file("msg-1", "../etc", "all", "bad sender"));
    test.drop_file(&file("msg-2", "codex", "all", "good"));
    write_carelessly(&test.path("channels/general/notes.txt"), "not a message");
    write_carelessly(&test.path("channels/README"), "not a channel");
    std::os::unix::fs::symlink("/etc/passwd", test.path("channels/general/msg-3.json")).unwrap();
    test.clock.advance(jiff::SignedDuration::from_secs(10));
    assert_eq!(test.channels.scan().await.unwrap().ingested, 1);
    assert_eq!(test.channels.rejected_files().await.unwrap().len(), 2);
}

#[tokio::test]
async fn post_to_many_readers_is_one_message() {
    let test = TestChannels::new(&[]).await;
    for reader in 0..50 {
        test.channels.join(&agent(&format!("reader-{reader}")), &name("general")).await.unwrap();
    }
    let posted = test.post("codex", "all", "news").await;
    assert_eq!(test.texts().await, ["news"]);
    assert_eq!(test.deliveries(test.stored(&posted.id).await.message.id).await.len(), 50);
    assert_eq!(test.channels.hub().database().health().await.unwrap().messages, 1);
}

#[tokio::test]
async fn deprecated_ids_are_ingested_as_current_ones() {
    let test = TestChannels::new(&[]).await;
    test.drop_file(&file("msg-1", "claude-1", "codex-1", "old names"));
    test.channels.scan().await.unwrap();
    let message = test.stored("msg-1").await.message;
    assert_eq!((message.from.to_string(), message.to.to_string()), ("claude".into(), "codex".into()));
}

#[tokio::test]
async fn history_is_journaled_but_not_delivered() {
    let test = TestChannels::new(&["claude"]).await;
    let mut old = file("msg-20200101-000000-codex-0001", "codex", "claude", "long ago");
    old["timestamp"] = "2020-01-01T00:00:00.000Z".into();
    test.drop_file(&old);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 1);
    let stored = test.stored("msg-20200101-000000-codex-0001").await;
    assert_eq!(test.deliveries(stored.message.id).await, []);
}

#[tokio::test]
async fn expired_messages_are_not_ingested_again() {
    let test = TestChannels::new(&[]).await;
    test.drop_file(&file("msg-1", "codex", "all", "dropped"));
    test.channels.scan().await.unwrap();
    test.post("codex", "all", "posted").await;
    test.post("codex", "all", "the last stays").await;
    let later = test.channels.hub().now() + jiff::SignedDuration::from_secs(1);
    assert_eq!(test.channels.hub().journal().prune(later).await.unwrap(), 2);
    assert_eq!(test.open_another(|_| ()).await.scan().await.unwrap().ingested, 0);
}

#[tokio::test]
async fn burst_keeps_each_senders_order() {
    const EACH: usize = 1000;
    let test = TestChannels::new(&[]).await;
    let now = test.channels.hub().now();
    // Random names within one second, as the protocol's scripts choose them.
    let mut numbers: Vec<usize> = (0..0x1_0000).collect();
    fastrand::shuffle(&mut numbers);
    for line in 0..i64::try_from(EACH).unwrap() {
        for sender in ["amy", "bob", "zoe"] {
            let id = format!("msg-20260111-163315-{sender}-{:04x}", numbers.pop().unwrap());
            let mut message = file(&id, sender, "all", &format!("{line}"));
            message["timestamp"] = crate::wire::iso(now + jiff::SignedDuration::from_millis(line)).into();
            test.drop_file(&message);
        }
    }
    test.channels.channel_states().lock().insert("general".to_owned(), ChannelState::default());
    let mut looks = 0;
    loop {
        let next_batch = test.channels.next_batch(&name("general"), None, now).unwrap().unwrap();
        assert!(next_batch.files.len() <= BATCH, "{} files are in memory at once", next_batch.files.len());
        looks += 1;
        let more = next_batch.more;
        assert_eq!(test.channels.ingest(&name("general"), next_batch.files).await.unwrap().settling, 0);
        if !more {
            break;
        }
    }
    assert_eq!(looks, (3 * EACH).div_ceil(BATCH));
    let page = test.channels.hub().journal().entries(0, 4 * EACH).await.unwrap();
    assert_eq!(page.items.len(), 3 * EACH);
    for sender in ["amy", "bob", "zoe"] {
        let lines: Vec<usize> = page
            .items
            .iter()
            .filter(|stored| stored.message.from == agent(sender))
            .map(|stored| stored.message.body.parse().unwrap())
            .collect();
        assert_eq!(lines, (0..EACH).collect::<Vec<_>>(), "the order of {sender}");
    }
}

/// The writer's side of a burst: each sender waits for its own post to be synced.
#[tokio::test]
async fn concurrent_posts_return_when_durable() {
    const POSTERS: usize = 16;
    const EACH: usize = 50;
    let test = std::sync::Arc::new(TestChannels::new(&[]).await);
    let mut posters = tokio::task::JoinSet::new();
    for writer in 0..POSTERS {
        let test = test.clone();
        posters.spawn(async move {
            for number in 0..EACH {
                let id = test.post(&format!("qc-{writer}"), "all", &number.to_string()).await.id;
                assert_eq!(test.stored(&id).await.message.body, number.to_string());
                assert!(test.path(&format!("channels/general/{id}.json")).is_file());
            }
        });
    }
    while let Some(posted) = posters.join_next().await {
        posted.unwrap();
    }
    let page = test.channels.hub().journal().entries(0, 2 * POSTERS * EACH).await.unwrap();
    for writer in 0..POSTERS {
        let from = agent(&format!("qc-{writer}"));
        let own = page.items.iter().filter(|stored| stored.message.from == from);
        let numbers: Vec<usize> = own.map(|stored| stored.message.body.parse().unwrap()).collect();
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "the order of {from}");
    }
}

#[tokio::test]
async fn repaired_or_removed_file_is_not_rejected() {
    let test = TestChannels::new(&[]).await;
    let path = |id: &str| test.path(&format!("channels/general/{id}.json"));
    write_carelessly(&path("msg-1"), "{");
    write_carelessly(&path("msg-2"), "{");
    test.clock.advance(jiff::SignedDuration::from_secs(10));
    test.channels.scan().await.unwrap();
    assert_eq!(test.channels.rejected_files().await.unwrap().len(), 2);
    write_carelessly(&path("msg-1"), file("msg-1", "codex", "all", "whole").to_string());
    std::fs::remove_file(path("msg-2")).unwrap();
    test.channels.scan().await.unwrap();
    assert_eq!(test.channels.rejected_files().await.unwrap(), []);
}

#[tokio::test]
async fn file_of_another_hub_is_not_relayed() {
    let test = TestChannels::new(&[]).await;
    let posted = test.channels.post(Post::new(agent("codex"), name("general"), "hi @bob")).await.unwrap();
    let elsewhere = test.elsewhere(|config| config.linked = true).await;
    assert_eq!(elsewhere.scan().await.unwrap().ingested, 1);
    let hub = elsewhere.hub();
    let stored = hub.journal().message(posted.accepted.id).await.unwrap().expect("it goes by the same id");
    assert_eq!((stored.message.from.to_string(), stored.message.body.as_str()), ("codex".into(), "hi @bob"));
    assert_eq!(hub.relay().outgoing(0, 100).await.unwrap().messages, []);
    // A file of a script is not relayed by another hub, so this hub relays it.
    test.drop_file(&file("msg-20260111-163316-qc-0001", "qc", "all", "by hand"));
    assert_eq!(elsewhere.scan().await.unwrap().ingested, 1);
    assert_eq!(hub.relay().outgoing(0, 100).await.unwrap().messages.len(), 1);
    // A hub without a link relays nothing, and uses the same id.
    let alone = test.open_another(|_| ()).await;
    assert_eq!(alone.scan().await.unwrap().ingested, 1, "only what came by hand is new there");
}

#[tokio::test]
async fn file_for_third_hub_is_not_delivered() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "far-1", "for far away").await;
    let elsewhere = test.elsewhere(|config| config.linked = true).await;
    let far = RemoteAgent { name: name("far-1"), role: None, team: None, channels: vec![] };
    elsewhere.hub().relay().put_remote_agents(name("attic"), vec![far]).await.unwrap();
    assert_eq!(elsewhere.scan().await.unwrap().ingested, 1);
    assert_eq!(elsewhere.hub().relay().outgoing(0, 100).await.unwrap().messages, []);
    assert_eq!(elsewhere.rejected_files().await.unwrap(), []);
}

#[tokio::test]
async fn case_variants_are_one_channel() {
    let test = TestChannels::new(&[]).await;
    for channel in ["General", "general", "GENERAL"] {
        test.channels.post(Post::new(agent("codex"), name(channel), channel)).await.unwrap();
    }
    assert_eq!(test.channels.list().await.unwrap().len(), 1);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0);
    assert_eq!(test.texts().await, ["General", "general", "GENERAL"]);
    assert_eq!(test.channels.find_tampering().await.unwrap(), []);
    assert_eq!(test.channels.find_case_conflicts().await.unwrap(), Vec::<Vec<Name>>::new());
    // Another program creates a second folder: both are read, and no file counts as deleted.
    let second = file("msg-20260111-163316-qc-0001", "qc", "all", "in the second");
    write_carelessly(&test.path("channels/general/msg-20260111-163316-qc-0001.json"), second.to_string());
    for taken in [1, 0] {
        assert_eq!(test.channels.scan().await.unwrap().ingested, taken);
    }
    assert_eq!(test.channels.find_tampering().await.unwrap(), []);
    assert_eq!(test.channels.find_case_conflicts().await.unwrap(), [vec![name("General"), name("general")]]);
}

/// Two linked hubs share the folder: each sees the other's posts as files, and gets them over the link.
#[tokio::test]
async fn linked_post_is_equal_by_file_or_link() {
    // Recipient of the post, agents of that name at `lab`, and agents reached at `office`.
    for (to, is_at_lab, expected, reached) in [
        ("bob", false, "bob", Some("bob")),
        ("bob@office", false, "bob", Some("bob")),
        ("bob", true, "bob@lab", None),
        ("human", true, "human@lab", None),
        ("all", true, "#general", Some("bob")),
    ] {
        for is_file_first in [true, false] {
            let test = TestChannels::new(&[]).await;
            let (lab, office) = test.lab_and_office().await;
            office.join(&agent("bob"), &name("general")).await.unwrap();
            let resident = |name| RemoteAgent { name, role: None, team: None, channels: vec![] };
            lab.hub().relay().put_remote_agents(name("office"), vec![resident(name("bob"))]).await.unwrap();
            let residents = if is_at_lab { vec![resident(name("bob"))] } else { vec![] };
            office.hub().relay().put_remote_agents(name("lab"), residents).await.unwrap();
            let post = Post { to: to.into(), ..Post::new(agent("codex"), name("general"), "look") };
            let posted = lab.post(post).await.unwrap();
            let mut message = lab.hub().journal().message(posted.accepted.id).await.unwrap().unwrap().message;
            message.to = expected.parse().unwrap();
            if is_file_first {
                assert_eq!(office.scan().await.unwrap().ingested, 1);
            }
            let taken = office.hub().submit_relayed(vec![post_from_lab(message)]).await.remove(0).unwrap();
            assert_eq!(taken.duplicate, is_file_first);
            assert_eq!(office.scan().await.unwrap().ingested, 0);

            let case = format!("to {to}, known at lab: {is_at_lab}, the file first: {is_file_first}");
            let message = office.hub().journal().message(taken.id).await.unwrap().unwrap().message;
            assert_eq!(
                (message.from.to_string(), message.to.to_string(), message.origin_hub()),
                ("codex@lab".to_owned(), expected.to_owned(), Some(name("lab"))),
                "{case}"
            );
            let had: Vec<_> =
                test.deliveries(taken.id).await.iter().map(|one| one.agent.to_string()).collect();
            assert_eq!(had, reached.into_iter().collect::<Vec<_>>(), "{case}");
            let named =
                office.hub().native_ids().of_message(Door::Channels, "general", taken.id).await.unwrap();
            assert_eq!(named.as_ref(), Some(&posted.message.id), "{case}");
            let directory = office.hub().directory().await.unwrap();
            assert!(directory.agent(&agent("codex")).is_none(), "whoever posts at lab is of lab; {case}");
            assert_eq!(office.find_tampering().await.unwrap(), [], "{case}");
        }
    }
}

#[tokio::test]
async fn linked_post_to_unknown_agent_is_accepted() {
    let test = TestChannels::new(&[]).await;
    let (lab, office) = test.lab_and_office().await;
    let id = |channels: &Channels| channels.hub().next_id().to_string();
    for (number, from, to, expected) in [
        (1, "codex", "team:backend", "codex@lab"),
        (2, "codex", "far-1@attic", "codex@lab"),
        (3, "alice@research", "all", "alice@research"),
        (4, "codex@office", "all", "codex"),
    ] {
        let mut written = file(&format!("msg-{number}"), from, to, "look");
        written["metadata"]["switchboard"] = serde_json::json!({ "id": id(&lab), "hub": "lab" });
        test.drop_file(&written);
        assert_eq!(office.scan().await.unwrap().ingested, 1, "{to}");
        let stored = crate::test_channels::stored(&office, &format!("msg-{number}")).await.unwrap();
        assert_eq!(stored.message.from.to_string(), expected);
        assert!(!stored.message.origin.verified);
        assert_eq!(test.deliveries(stored.message.id).await, []);
    }
    assert_eq!(office.rejected_files().await.unwrap(), []);
    // Its own files after a loss of its database: they are of its own agents.
    let mut own = file("msg-5", "qc-1", "all", "look");
    own["metadata"]["switchboard"] = serde_json::json!({ "id": id(&office), "hub": "office" });
    test.drop_file(&own);
    office.scan().await.unwrap();
    assert!(office.hub().directory().await.unwrap().agent(&agent("qc-1")).is_some());
}

#[tokio::test]
async fn named_file_is_read_without_listing() {
    let test = TestChannels::new(&[]).await;
    let drop_at = |number: u32| {
        let id = format!("msg-20260111-16331{number}-codex-0001");
        test.drop_file(&file(&id, "codex", "all", &format!("{number}")));
        test.path(&format!("channels/general/{id}.json")).canonicalize().unwrap()
    };
    drop_at(1);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 1);
    let channels = test.path("channels").canonicalize().unwrap();
    let (named, _unnamed) = (drop_at(2), drop_at(3));
    let archived = channels.join("general/archive/2026-01/msg-20260111-163314-codex-0001.json");
    let paths = [named.clone(), archived, channels.join("general/notes.txt"), named];
    assert_eq!(test.channels.scan_named(&channels, &paths).await.unwrap().ingested, 1);
    assert_eq!(test.channels.scan_named(&channels, &[]).await.unwrap().ingested, 0);
    let bodies = async || {
        let page = test.channels.hub().journal().entries(0, 10).await.unwrap();
        page.items.into_iter().map(|stored| stored.message.body).collect::<Vec<_>>()
    };
    assert_eq!(bodies().await, ["1", "2"], "the folder was not listed");
    assert_eq!(test.channels.scan().await.unwrap().ingested, 1);
    assert_eq!(bodies().await, ["1", "2", "3"]);
}

#[tokio::test]
async fn half_written_named_file_is_read_again() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "all", "there").await;
    test.channels.scan().await.unwrap();
    let channels = test.path("channels").canonicalize().unwrap();
    let path = channels.join("general/msg-20260111-163315-codex-0001.json");
    write_carelessly(&path, "{\"id\": \"msg-");
    let summary = test.channels.scan_named(&channels, std::slice::from_ref(&path)).await.unwrap();
    assert_eq!((summary.ingested, summary.settling), (0, 1));
    write_carelessly(&path, file("msg-20260111-163315-codex-0001", "codex", "all", "whole").to_string());
    assert_eq!(test.channels.scan_named(&channels, &[]).await.unwrap().ingested, 1);
    assert_eq!(test.channels.scan_named(&channels, &[path]).await.unwrap(), ScanSummary::default());
}

#[tokio::test]
async fn named_burst_keeps_each_senders_order() {
    let test = TestChannels::new(&[]).await;
    test.post("first", "all", "there").await;
    test.channels.scan().await.unwrap();
    let channels = test.path("channels").canonicalize().unwrap();
    let second = test.channels.hub().now().as_second();
    let mut paths = Vec::new();
    for number in 0..1000_u32 {
        // Random names: only the time in the file determines the order.
        let sender = ["ann", "bob"][(number % 2) as usize];
        let id = format!("msg-20260111-163315-{sender}-{:04x}", (number * 7919) % 65_536);
        let mut message = file(&id, sender, "all", &format!("{number}"));
        let at = jiff::Timestamp::from_millisecond(second * 1000 + i64::from(number)).unwrap();
        message["timestamp"] = crate::wire::iso(at).into();
        test.drop_file(&message);
        paths.push(channels.join(format!("general/{id}.json")));
    }
    let summary = test.channels.scan_named(&channels, &paths).await.unwrap();
    assert_eq!(summary.ingested, 1000);
    let page = test.channels.hub().journal().entries(1, 2000).await.unwrap();
    let bodies: Vec<_> = page.items.iter().map(|stored| stored.message.body.clone()).collect();
    assert_eq!(bodies, (0..1000).map(|number| number.to_string()).collect::<Vec<_>>());
}
