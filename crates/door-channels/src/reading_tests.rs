use super::*;
use crate::test_channels::{TestChannels, file, name, with_timeout, write_carelessly};

#[tokio::test]
async fn messages_are_read_by_time_then_id() {
    let test = TestChannels::new(&[]).await;
    for (id, at, text) in [
        ("msg-20260111-163315-zoe-0001", "16:33:15.100", "first"),
        ("msg-20260111-163315-amy-0001", "16:33:15.900", "third"),
        ("msg-20260111-163315-bob-0001", "16:33:15.500", "second"),
        ("msg-20260111-163316-amy-0001", "16:33:16.000", "fourth"),
    ] {
        let mut message = file(id, "codex", "all", text);
        message["timestamp"] = format!("2026-01-11T{at}Z").into();
        test.drop_file(&message);
    }
    assert_eq!(test.texts().await, ["first", "second", "third", "fourth"]);
    let last = test.channels.read(&name("general"), Some(2)).await.unwrap();
    let texts: Vec<_> = last.messages.iter().map(|message| message.content.text.as_str()).collect();
    assert_eq!(texts, ["third", "fourth"]);
    let after = test.channels.read_after(&name("general"), "msg-20260111-163315-bob-0001").await.unwrap();
    assert_eq!(after.messages.len(), 2);
}

#[tokio::test]
async fn cursor_errors_are_distinct() {
    let test = TestChannels::new(&[]).await;
    let gone = test.post("codex", "all", "gone").await.id;
    let there = test.post("codex", "all", "there").await.id;
    std::fs::remove_file(test.path(&format!("channels/general/{gone}.json"))).unwrap();
    let general = name("general");
    let ahead = test.channels.read_after(&general, "msg-20990101-000000-x-0000").await;
    assert!(matches!(&ahead, Err(ChannelError::Ahead { newest, .. }) if *newest == there), "{ahead:?}");
    let expired = test.channels.read_after(&general, &gone).await;
    assert!(matches!(&expired, Err(ChannelError::Expired { oldest, .. }) if *oldest == there), "{expired:?}");
    let unknown = test.channels.read_after(&general, "msg-20200101-000000-x-0000").await;
    assert!(matches!(unknown, Err(ChannelError::UnknownMessage { .. })), "{unknown:?}");
    let unknown = test.channels.read(&name("genral"), None).await;
    assert!(
        matches!(&unknown, Err(ChannelError::UnknownChannel { near, .. }) if near == &["general"]),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn follower_sees_each_message_once() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "all", "before").await;
    let seen = test.channels.read(&name("general"), None).await.unwrap();
    let mut follower = test.channels.follow(&name("general"), &seen).await.unwrap();
    test.drop_file(&file("msg-20200101-000000-late-0001", "late", "all", "from the past"));
    let next = with_timeout(follower.next()).await.unwrap();
    assert_eq!(next.messages[0].content.text, "from the past");
    test.post("codex", "all", "after").await;
    let next = with_timeout(follower.next()).await.unwrap();
    assert_eq!(next.messages.iter().map(|m| m.content.text.as_str()).collect::<Vec<_>>(), ["after"]);
}

#[tokio::test]
async fn list_counts_and_skips_invalid_files() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "all", "one").await;
    test.post("codex", "all", "two").await;
    write_carelessly(&test.path("channels/general/msg-bad.json"), "{");
    let list = test.channels.list().await.unwrap();
    assert_eq!((list.len(), list[0].messages), (1, 3));
    let reading = test.channels.read(&name("general"), None).await.unwrap();
    assert_eq!(reading.unreadable.len(), 1);
    assert_eq!(reading.unreadable[0].0, "msg-bad.json");
}

#[tokio::test]
async fn known_messages_need_no_listing() {
    let test = TestChannels::new(&[]).await;
    test.channels.scan_channel(&name("general")).await.unwrap();
    for text in ["one", "two", "three"] {
        test.post("codex", "all", text).await;
    }
    let last = test.post("codex", "all", "four").await;
    // A listing would find this file. It is not ingested.
    test.drop_file(&file("msg-20300111-163316-claude-0001", "claude", "all", "unknown"));
    let known = async |count, without: &str| {
        let known = test.channels.read_known(&name("general"), count, without).await.unwrap();
        known.into_iter().map(|message| message.content.text).collect::<Vec<_>>()
    };
    assert_eq!(known(2, &last.id).await, ["two", "three"]);
    assert_eq!(known(9, "").await, ["one", "two", "three", "four"]);
    assert_eq!(known(0, "").await, [""; 0]);
}
