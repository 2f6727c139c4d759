use serde_json::Map;
use switchboard_core::{DeliveryState, Kind, NativeId};
use switchboard_hub::{Accepted, Draft, Registration};

use super::*;
use crate::test_channels::{TestChannels, agent, as_from_lab, name, with_timeout};

/// Builds a message from another door.
fn draft_to(test: &TestChannels, from: &str, to: &str, body: &str, in_reply_to: Option<MessageId>) -> Draft {
    let hub = test.channels.hub();
    let id = hub.next_id();
    Draft {
        id,
        from: agent(from),
        to: to.parse().unwrap(),
        kind: Kind::delegate_task(),
        body: body.into(),
        in_reply_to,
        sent_at: hub.now(),
        expires_at: None,
        metadata: Map::new(),
        native: NativeId { door: Door::Workspace, scope: String::new(), id: id.to_string() },
        key: None,
        native_is_id: true,
        verified: true,
        route: None,
        signed: None,
        allow_unregistered: false,
        restored: None,
    }
}

/// Submits a message and waits until its file is written.
async fn send(test: &TestChannels, draft: Draft) -> Accepted {
    let outbound = test.outbound().await;
    let accepted = test.channels.hub().submit(draft).await.unwrap();
    let settled = test.channels.hub().deliveries().wait_until_settled(accepted.id);
    with_timeout(async {
        tokio::select! { () = run_deliveries(&test.channels, outbound) => {}, settled = settled => drop(settled.unwrap()) }
    })
    .await;
    accepted
}

#[tokio::test]
async fn channel_message_is_one_file_for_all() {
    let test = TestChannels::new(&["claude"]).await;
    for reader in ["codex", "qc-1"] {
        test.channels.join(&agent(reader), &name("general")).await.unwrap();
    }
    let sent = send(&test, draft_to(&test, "claude", "#general", "news", None)).await;
    let reading = test.channels.read(&name("general"), None).await.unwrap();
    let [file] = &reading.messages[..] else { panic!("{reading:?}") };
    assert_eq!(
        (file.from.as_str(), file.to.as_str(), file.kind.as_str()),
        ("claude", "all", "delegate_task")
    );
    assert_eq!(file.metadata.as_ref().unwrap()["switchboard"]["id"], sent.id.to_string());
    let states: Vec<_> = test.deliveries(sent.id).await.iter().map(|delivery| delivery.state).collect();
    assert_eq!(states, [DeliveryState::Delivered; 2]);
    assert_eq!(test.channels.find_tampering().await.unwrap(), [], "what was delivered is what was accepted");
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0, "its own file is nothing new");
    assert_eq!(test.open_another(|_| ()).await.scan().await.unwrap().ingested, 0);
}

#[tokio::test]
async fn file_reply_finds_delivered_message_and_sender() {
    let test = TestChannels::new(&["claude"]).await;
    test.channels.join(&agent("codex"), &name("general")).await.unwrap();
    let sent = send(&test, draft_to(&test, "claude", "codex", "please look", None)).await;
    let file = test.channels.read(&name("general"), None).await.unwrap().messages.remove(0);
    let mut reply = crate::test_channels::file("msg-20260111-163316-codex-0001", "codex", "claude", "done");
    reply["metadata"]["in_reply_to"] = file.id.into();
    test.drop_file(&reply);
    test.channels.scan().await.unwrap();
    let reply = test.stored("msg-20260111-163316-codex-0001").await.message;
    assert_eq!((reply.in_reply_to, reply.thread), (Some(sent.id), sent.id));
    assert_eq!(test.deliveries(reply.id).await[0].route.to_string(), "mailbox:claude");
    // The reverse: an answer from another door names the file it answers.
    send(&test, draft_to(&test, "claude", "codex", "thanks", Some(reply.id))).await;
    let last = test.channels.read(&name("general"), None).await.unwrap();
    let thanks = last.messages.iter().find(|message| message.content.text == "thanks").unwrap();
    assert_eq!(thanks.in_reply_to(), Some("msg-20260111-163316-codex-0001"));
}

#[tokio::test]
async fn repeated_delivery_finds_its_own_file() {
    let test = TestChannels::new(&["claude"]).await;
    let draft = draft_to(&test, "claude", "human", "once", None);
    let accepted = test.channels.hub().submit(draft).await.unwrap();
    let stored = test.channels.hub().journal().message(accepted.id).await.unwrap().unwrap();
    let first_choice = name_of(&to_file(&stored.message, stored.seq, &name("general"), None, 0));
    let dir = test.channels.tree().create_channel(&name("general")).unwrap();
    dir.create_new(&first_choice, b"{\"of\":\"somebody else\"}", Durability::Unsynced).unwrap();
    let file = |tries| to_file(&stored.message, stored.seq, &name("general"), None, tries);
    let native = create_file(&dir, &stored.message, file, 1 << 20).unwrap();
    assert_eq!(create_file(&dir, &stored.message, file, 1 << 20).unwrap(), native);
    assert_eq!(dir.names().unwrap().len(), 2);
    assert_eq!(dir.read(&first_choice, 99).unwrap().unwrap().bytes, b"{\"of\":\"somebody else\"}");
}

#[tokio::test]
async fn post_of_dead_process_is_completed_once() {
    let test = TestChannels::new(&[]).await;
    let mut message = crate::channels::Post::new(agent("codex"), name("general"), "half").into_message();
    message.timestamp = crate::wire::iso(test.channels.hub().now());
    let id = test.channels.hub().next_id();
    let draft = crate::translate::to_own_draft(message, &name("general"), id, None).unwrap();
    test.channels.hub().submit(draft).await.unwrap();
    assert_eq!(test.channels.repair().await.unwrap(), 0, "it may still be at it");
    test.clock.advance(SignedDuration::from_mins(2));
    assert_eq!(test.channels.repair().await.unwrap(), 1);
    assert_eq!(test.channels.repair().await.unwrap(), 0);
    assert_eq!(test.texts().await, ["half"]);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0);
}

/// Creates a hub where `codex` posts and a linked one that shares the folder, where `bob` reads.
async fn linked_twice(test: &TestChannels) -> (Channels, Channels) {
    let (here, there) = test.lab_and_office().await;
    there.join(&agent("bob"), &name("general")).await.unwrap();
    (here, there)
}

#[tokio::test]
async fn relayed_message_finds_its_file_in_shared_folder() {
    let test = TestChannels::new(&[]).await;
    let (here, there) = linked_twice(&test).await;
    let posted = here.post(crate::channels::Post::new(agent("codex"), name("general"), "hi")).await.unwrap();
    let stored = here.hub().journal().message(posted.accepted.id).await.unwrap().unwrap();
    let taken = there.hub().submit_relayed(vec![as_from_lab(stored.message)]).await.remove(0).unwrap();
    let relayed = there.hub().journal().message(taken.id).await.unwrap().unwrap();
    there.write_file(&relayed.message, relayed.seq, &name("general")).await.unwrap();
    assert_eq!(test.texts().await, ["hi"]);
    let named = there.hub().native_ids().of_message(Door::Channels, "general", taken.id).await.unwrap();
    assert_eq!(named, Some(posted.message.id));
    for channels in [&here, &there] {
        assert_eq!(channels.scan().await.unwrap().ingested, 0);
        assert_eq!(channels.find_tampering().await.unwrap(), []);
    }
}

#[tokio::test]
async fn relayed_message_waits_for_its_file() {
    let test = TestChannels::new(&[]).await;
    let (here, there) = linked_twice(&test).await;
    let mut message = crate::channels::Post::new(agent("codex"), name("general"), "hi").into_message();
    message.timestamp = crate::wire::iso(here.hub().now());
    let id = here.hub().next_id();
    let draft = crate::translate::to_own_draft(message, &name("general"), id, None).unwrap();
    here.hub().submit(crate::translate::with_folder(draft, here.folder())).await.unwrap();
    let stored = here.hub().journal().message(id).await.unwrap().unwrap();
    there.hub().submit_relayed(vec![as_from_lab(stored.message.clone())]).await.remove(0).unwrap();
    let relayed = there.hub().journal().message(id).await.unwrap().unwrap();
    let early = there.write_file(&relayed.message, relayed.seq, &name("general")).await;
    assert!(matches!(early, Err(ChannelError::FilePending { .. })), "{early:?}");
    // Its hub has died, or this folder is a copy of the one that it wrote into.
    test.clock.advance(POSTING);
    there.write_file(&relayed.message, relayed.seq, &name("general")).await.unwrap();
    assert_eq!(test.texts().await, ["hi"]);
    // The sending hub recognises it as its own, also when it repairs interrupted posts.
    assert_eq!(here.scan().await.unwrap().ingested, 0);
    test.clock.advance(POSTING);
    here.repair().await.unwrap();
    assert_eq!(test.texts().await, ["hi"]);
}

#[tokio::test]
async fn message_of_two_hubs_is_one_file() {
    let test = TestChannels::new(&[]).await;
    let (here, there) = linked_twice(&test).await;
    here.hub().agents().register(Registration::mailbox(name("claude"))).await.unwrap();
    let accepted = here.hub().submit(draft_to(&test, "claude", "#general", "news", None)).await;
    assert!(accepted.is_err(), "nobody reads it here");
    here.join(&agent("codex"), &name("general")).await.unwrap();
    let id = here.hub().submit(draft_to(&test, "claude", "#general", "news", None)).await.unwrap().id;
    let stored = here.hub().journal().message(id).await.unwrap().unwrap();
    there.hub().submit_relayed(vec![as_from_lab(stored.message.clone())]).await.remove(0).unwrap();
    let relayed = there.hub().journal().message(id).await.unwrap().unwrap();
    there.write_file(&relayed.message, relayed.seq, &name("general")).await.unwrap();
    here.write_file(&stored.message, stored.seq, &name("general")).await.unwrap();
    assert_eq!(test.texts().await, ["news"]);
    for channels in [&here, &there] {
        assert_eq!(channels.scan().await.unwrap().ingested, 0);
        assert_eq!(channels.find_tampering().await.unwrap(), []);
    }
}

/// A message to all is in the channel for agents without a mailbox, and its file does not list the other
/// recipients.
#[tokio::test]
async fn message_to_all_reaches_mailboxes_after_file() {
    for is_file_first in [true, false] {
        let test = TestChannels::new(&["qc-1"]).await;
        let (lab, office) = linked_twice(&test).await;
        lab.hub().agents().register(Registration::mailbox(name("claude"))).await.unwrap();
        lab.join(&agent("codex"), &name("general")).await.unwrap();
        let id = lab.hub().submit(draft_to(&test, "claude", "all", "news", None)).await.unwrap().id;
        let stored = lab.hub().journal().message(id).await.unwrap().unwrap();
        lab.write_file(&stored.message, stored.seq, &name("general")).await.unwrap();
        if is_file_first {
            assert_eq!(office.scan().await.unwrap().ingested, 1);
        }
        let relayed = as_from_lab(stored.message);
        for _ in 0..2 {
            office.hub().submit_relayed(vec![relayed.clone()]).await.remove(0).unwrap();
        }
        office.scan().await.unwrap();
        let mut had: Vec<_> =
            test.deliveries(id).await.iter().map(|one| format!("{} {}", one.agent, one.route)).collect();
        had.sort();
        assert_eq!(had, ["bob channel:general", "human mailbox:human", "qc-1 mailbox:qc-1"]);
        let message = office.hub().journal().message(id).await.unwrap().unwrap().message;
        assert_eq!(message.from, agent("claude@lab"));
        assert!(!is_in_folder(&message, office.folder().unwrap()), "it was not posted there");
    }
}
