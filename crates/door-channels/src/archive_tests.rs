use super::*;
use crate::test_channels::{TestChannels, file, name, with_timeout, write_carelessly};

const MONTH: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Creates a channel with an old message in each of two months and a current one; forty days have passed
/// since.
async fn aged() -> TestChannels {
    let test = TestChannels::new(&[]).await;
    for (id, at) in [
        ("msg-20200115-101010-codex-0001", "2020-01-15T10:10:10Z"),
        ("msg-20200201-000000-qc-1-0001", "2020-02-01T00:00:00Z"),
    ] {
        let mut message = file(id, "codex", "all", id);
        message["timestamp"] = at.into();
        test.drop_file(&message);
    }
    test.clock.advance(SignedDuration::from_hours(24 * 40));
    test.post("codex", "all", "new").await;
    test
}

#[tokio::test]
async fn archived_messages_move_by_month_and_stay_readable() {
    let test = aged().await;
    let general = name("general");
    let archived = test.channels.archive(&general, MONTH).await.unwrap();
    assert_eq!(archived, ArchiveSummary { moved: 2, skipped: 0 });
    assert!(test.path("channels/general/archive/2020-01/msg-20200115-101010-codex-0001.json").is_file());
    assert!(test.path("channels/general/archive/2020-02/msg-20200201-000000-qc-1-0001.json").is_file());
    assert_eq!(
        test.texts().await,
        ["msg-20200115-101010-codex-0001", "msg-20200201-000000-qc-1-0001", "new"]
    );
    let last = test.channels.read(&general, Some(2)).await.unwrap().messages;
    let texts: Vec<_> = last.iter().map(|message| message.content.text.as_str()).collect();
    assert_eq!(texts, ["msg-20200201-000000-qc-1-0001", "new"]);
    let after = test.channels.read_after(&general, "msg-20200115-101010-codex-0001").await.unwrap();
    assert_eq!(after.messages.len(), 2);
    let list = test.channels.list().await.unwrap();
    assert_eq!((list[0].messages, list[0].archived), (1, 2));
    assert_eq!(
        test.channels.archive(&general, MONTH).await.unwrap(),
        ArchiveSummary::default(),
        "nothing is left to move"
    );
}

#[tokio::test]
async fn archived_messages_are_not_ingested_again() {
    let test = aged().await;
    let general = name("general");
    test.channels.scan().await.unwrap();
    let seen = test.channels.read(&general, None).await.unwrap();
    let mut follower = test.channels.follow(&general, &seen).await.unwrap();
    assert_eq!(test.channels.archive(&general, MONTH).await.unwrap().moved, 2);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0);
    assert_eq!(test.open_another(|_| ()).await.scan().await.unwrap().ingested, 0);
    assert_eq!(test.channels.find_tampering().await.unwrap(), [], "moved is not deleted");
    test.post("codex", "all", "next").await;
    let next = with_timeout(follower.next()).await.unwrap();
    assert_eq!(next.messages.iter().map(|m| m.content.text.as_str()).collect::<Vec<_>>(), ["next"]);
}

#[tokio::test]
async fn rejected_and_recent_files_are_not_archived() {
    let test = TestChannels::new(&[]).await;
    let general = name("general");
    write_carelessly(&test.path("channels/general/msg-20200101-000000-codex-0001.json"), "{");
    test.drop_file(&file("msg-20200101-000000-late-0001", "late", "all", "from the past"));
    assert_eq!(
        test.channels.archive(&general, MONTH).await.unwrap(),
        ArchiveSummary { moved: 0, skipped: 2 }
    );
    test.clock.advance(SignedDuration::from_hours(2));
    assert_eq!(
        test.channels.archive(&general, MONTH).await.unwrap(),
        ArchiveSummary { moved: 1, skipped: 1 }
    );
    assert!(test.channels.archive(&name("genral"), MONTH).await.is_err());
}

#[tokio::test]
async fn interrupted_move_is_completed_and_read_once() {
    let test = aged().await;
    let general = name("general");
    let id = "msg-20200115-101010-codex-0001.json";
    let (from, to) = (test.path("channels/general"), test.path("channels/general/archive/2020-01"));
    std::fs::create_dir_all(&to).unwrap();
    std::fs::hard_link(from.join(id), to.join(id)).unwrap();
    assert_eq!(test.texts().await.len(), 3);
    assert_eq!(test.channels.archive(&general, MONTH).await.unwrap().moved, 2);
    assert!(!from.join(id).exists() && to.join(id).exists());
}
