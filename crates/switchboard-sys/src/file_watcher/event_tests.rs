use notify::Event;
use notify::event::{AccessKind, DataChange, Flag, MetadataKind};

use super::*;

fn of(kind: EventKind, paths: &[&str]) -> Option<FileEvent> {
    let event = paths.iter().fold(Event::new(kind), |event, path| event.add_path((*path).into()));
    translate(Ok(event))
}

#[test]
fn changes_are_translated_and_reads_dropped() {
    let file = EventKind::Create(CreateKind::File);
    for (kind, expected, is_folder) in [
        (file, ChangeKind::Created, false),
        (EventKind::Create(CreateKind::Folder), ChangeKind::Created, true),
        (EventKind::Modify(ModifyKind::Data(DataChange::Any)), ChangeKind::Modified, false),
        (EventKind::Modify(ModifyKind::Name(RenameMode::To)), ChangeKind::Modified, false),
        (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), ChangeKind::Attributes, false),
        (EventKind::Remove(RemoveKind::File), ChangeKind::Removed, false),
        (EventKind::Remove(RemoveKind::Folder), ChangeKind::Removed, true),
        (EventKind::Any, ChangeKind::Other, false),
    ] {
        let Some(FileEvent::Changed(change)) = of(kind, &["/a/b"]) else { panic!("{kind:?}") };
        assert_eq!((change.kind, change.is_folder, change.paths), (expected, is_folder, vec!["/a/b".into()]));
    }
    assert_eq!(of(EventKind::Access(AccessKind::Any), &["/a/b"]), None);
}

#[test]
fn unfinished_files_are_no_change() {
    let file = EventKind::Create(CreateKind::File);
    assert_eq!(of(file, &["/a/.tmp-1"]), None);
    assert_eq!(of(file, &["/a/.tmp-1", "/a/.tmp-2"]), None);
    let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::Both));
    assert!(of(renamed, &["/a/.tmp-1", "/a/b"]).is_some(), "the finished name counts");
}

#[test]
fn lost_events_are_reported() {
    assert_eq!(of(EventKind::Create(CreateKind::File), &[]), Some(FileEvent::Missed));
    assert_eq!(translate(Err(notify::Error::generic("x"))), Some(FileEvent::Missed));
    let overflow = Event::new(EventKind::Access(AccessKind::Any)).set_flag(Flag::Rescan);
    assert_eq!(translate(Ok(overflow)), Some(FileEvent::Missed));
}
