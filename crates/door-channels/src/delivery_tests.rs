use serde_json::Map;
use switchboard_core::{DeliveryState, Kind, NativeId};
use switchboard_hub::{Accepted, Draft};

use super::*;
use crate::test_channels::{TestChannels, agent, name, soon};

/// A message from another door.
fn letter(test: &TestChannels, from: &str, to: &str, body: &str, in_reply_to: Option<MessageId>) -> Draft {
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
    let settled = test.channels.hub().settled(accepted.id);
    soon(async {
        tokio::select! { () = run_deliveries(&test.channels, outbound) => {}, settled = settled => drop(settled.unwrap()) }
    })
    .await;
    accepted
}

#[tokio::test]
async fn a_message_to_a_channel_is_one_file_for_all_its_readers() {
    let test = TestChannels::new(&["claude"]).await;
    for reader in ["codex", "qc-1"] {
        test.channels.join(&agent(reader), &name("general")).await.unwrap();
    }
    let sent = send(&test, letter(&test, "claude", "#general", "news", None)).await;
    let reading = test.channels.read(&name("general"), None).await.unwrap();
    let [file] = &reading.messages[..] else { panic!("{reading:?}") };
    assert_eq!(
        (file.from.as_str(), file.to.as_str(), file.kind.as_str()),
        ("claude", "all", "delegate_task")
    );
    assert_eq!(file.metadata.as_ref().unwrap()["switchboard"]["id"], sent.id.to_string());
    let states: Vec<_> = test.deliveries(sent.id).await.iter().map(|delivery| delivery.state).collect();
    assert_eq!(states, [DeliveryState::Delivered; 2]);
    assert_eq!(test.channels.altered().await.unwrap(), [], "what was delivered is what was accepted");
    assert_eq!(test.channels.sweep().await.unwrap().taken, 0, "its own file is nothing new");
    assert_eq!(test.another(|_| ()).await.sweep().await.unwrap().taken, 0);
}

#[tokio::test]
async fn a_reply_by_file_to_what_the_hub_delivered_finds_the_message_and_its_sender() {
    let test = TestChannels::new(&["claude"]).await;
    test.channels.join(&agent("codex"), &name("general")).await.unwrap();
    let sent = send(&test, letter(&test, "claude", "codex", "please look", None)).await;
    let file = test.channels.read(&name("general"), None).await.unwrap().messages.remove(0);
    let mut reply = crate::test_channels::file("msg-20260111-163316-codex-0001", "codex", "claude", "done");
    reply["metadata"]["in_reply_to"] = file.id.into();
    test.drop_file(&reply);
    test.channels.sweep().await.unwrap();
    let reply = test.stored("msg-20260111-163316-codex-0001").await.message;
    assert_eq!((reply.in_reply_to, reply.thread), (Some(sent.id), sent.id));
    assert_eq!(test.deliveries(reply.id).await[0].route.to_string(), "mailbox:claude");
    // And the other way: an answer that comes by another door names the file it answers.
    send(&test, letter(&test, "claude", "codex", "thanks", Some(reply.id))).await;
    let last = test.channels.read(&name("general"), None).await.unwrap();
    let thanks = last.messages.iter().find(|message| message.content.text == "thanks").unwrap();
    assert_eq!(thanks.in_reply_to(), Some("msg-20260111-163316-codex-0001"));
}

#[tokio::test]
async fn a_repeated_delivery_finds_its_own_file_and_a_foreign_one_is_left() {
    let test = TestChannels::new(&["claude"]).await;
    let draft = letter(&test, "claude", "human", "once", None);
    let accepted = test.channels.hub().submit(draft).await.unwrap();
    let stored = test.channels.hub().message(accepted.id).await.unwrap().unwrap();
    let first_choice = name_of(&to_file(&stored.message, stored.seq, &name("general"), None, 0));
    let dir = test.channels.tree().make_channel(&name("general")).unwrap();
    dir.create_new(&first_choice, b"{\"of\":\"somebody else\"}", Durability::Later).unwrap();
    let file = |tries| to_file(&stored.message, stored.seq, &name("general"), None, tries);
    let native = place_file(&dir, &stored.message, file, 1 << 20).unwrap();
    assert_eq!(place_file(&dir, &stored.message, file, 1 << 20).unwrap(), native);
    assert_eq!(dir.names().unwrap().len(), 2);
    assert_eq!(dir.read(&first_choice, 99).unwrap().unwrap().bytes, b"{\"of\":\"somebody else\"}");
}

#[tokio::test]
async fn a_post_whose_process_died_before_its_file_is_completed_once() {
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
    assert_eq!(test.channels.sweep().await.unwrap().taken, 0);
}
