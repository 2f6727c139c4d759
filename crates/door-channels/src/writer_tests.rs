use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::wire::Content;

fn message(text: &str) -> ChannelMessage {
    ChannelMessage {
        id: String::new(),
        timestamp: String::new(),
        session_id: "general".into(),
        from: "codex".into(),
        to: "all".into(),
        kind: "chat".into(),
        content: Content { text: text.into(), ..Content::default() },
        metadata: None,
        extra: serde_json::Map::new(),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn channel() -> (tempfile::TempDir, Dir, Name) {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    (folder, dir, Name::parse("general").unwrap())
}

#[test]
fn posts_in_one_second_stay_in_order() {
    let (_folder, dir, name) = channel();
    let now = at("2026-01-11T16:33:15.5Z");
    // Two independent processes.
    for (writer, text) in [(ChannelWriter::default(), "one"), (ChannelWriter::default(), "two")] {
        writer.post(&dir, &name, "codex", now, &mut message(text)).unwrap();
    }
    let names = dir.names().unwrap();
    assert_eq!(names, ["msg-20260111-163315-codex-0000.json", "msg-20260111-163315-codex-0001.json"]);
    let read = |name: &str| ChannelMessage::parse(&dir.read(name, 9999).unwrap().unwrap().bytes).unwrap();
    assert_eq!((read(&names[0]).content.text, read(&names[1]).content.text), ("one".into(), "two".into()));
    assert_eq!(read(&names[1]).id, "msg-20260111-163315-codex-0001");
}

#[test]
fn clock_set_back_keeps_names_rising() {
    let (_folder, dir, name) = channel();
    let writer = ChannelWriter::default();
    let mut last = (String::new(), String::new());
    for now in
        ["2026-01-11T16:33:15.9Z", "2026-01-11T16:33:15.2Z", "2026-01-11T15:00:00Z", "2026-01-11T16:33:16Z"]
    {
        let mut posted = message("tick");
        writer.post(&dir, &name, "codex", at(now), &mut posted).unwrap();
        let this = (posted.id, posted.timestamp);
        assert!(this.0 > last.0 && this.1 >= last.1, "{this:?} after {last:?}");
        last = this;
    }
}

#[test]
fn taken_numbers_are_skipped() {
    let (_folder, dir, name) = channel();
    let writer = ChannelWriter::default();
    let now = at("2026-01-11T16:33:15Z");
    for number in (0..40).chain([0xffff]) {
        let taken = MessageName { second: now.as_second(), agent: "codex".into(), number };
        dir.create_new(&file_name(&taken.id()), b"{}", Durability::Unsynced).unwrap();
    }
    let mut posted = message("mine");
    writer.post(&dir, &name, "codex", now, &mut posted).unwrap();
    assert_eq!(posted.id, "msg-20260111-163315-codex-0028");
    let full = MessageTime { at: now, number: 0xfffe }.next(now);
    assert_eq!(find_free(&dir, "codex", full).unwrap(), MessageTime::first(at("2026-01-11T16:33:16Z")));
}

#[test]
fn concurrent_writers_lose_nothing_and_keep_order() {
    const EACH: usize = 60;
    let (_folder, dir, name) = channel();
    let dir = Arc::new(dir);
    let clock = switchboard_sys::clock::Clock::system();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (dir, name, clock) = (dir.clone(), name.clone(), clock.clone());
            std::thread::spawn(move || {
                let writer = ChannelWriter::default();
                (0..EACH)
                    .map(|number| {
                        let mut posted = message(&format!("{thread}/{number}"));
                        writer.post(&dir, &name, "codex", clock.now(), &mut posted).unwrap();
                        posted.id
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let posted: Vec<Vec<String>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(posted.iter().all(|ids| ids.is_sorted()), "the order of each is the order of its names");
    let all: BTreeSet<&String> = posted.iter().flatten().collect();
    assert_eq!(all.len(), 4 * EACH);
    assert_eq!(dir.names().unwrap().len(), 4 * EACH);
}

#[tokio::test]
async fn post_after_clock_set_back_sorts_last() {
    let test = crate::test_channels::TestChannels::new(&[]).await;
    let first = test.post("codex", "all", "first").await;
    test.clock.advance(-SignedDuration::from_hours(1));
    let another = test.open_another(|_| ()).await;
    let post = crate::channels::Post::new("codex".parse().unwrap(), "general".parse().unwrap(), "second");
    let second = another.post(post).await.unwrap().message;
    assert!(
        second.order() > first.order(),
        "{} {} after {} {}",
        second.id,
        second.timestamp,
        first.id,
        first.timestamp
    );
    assert_eq!(test.texts().await, ["first", "second"]);
}
