use super::*;
use crate::test_channels::write_carelessly;

#[test]
fn unchanged_folder_is_relisted_only_if_unreliable() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    let now = Timestamp::from_nanosecond(dir.dir_stat().unwrap().ctime_ns).unwrap();
    let after = |secs| now + SignedDuration::from_secs(secs);
    let automatic = Config::new(folder.path());
    let polling = Config { detection: Detection::Polling, ..automatic.clone() };
    let (sure, doubtful) =
        (FolderStamp::at(&dir, now, &automatic).unwrap(), FolderStamp::at(&dir, now, &polling).unwrap());
    for (secs, listed_again) in [(1, false), (29, false), (31, true), (-3600, true)] {
        let next = FolderStamp::at(&dir, after(secs), &polling).unwrap();
        assert_eq!(!next.is_unchanged_since(Some(&doubtful)), listed_again, "after {secs} s");
        assert!(FolderStamp::at(&dir, after(secs), &automatic).unwrap().is_unchanged_since(Some(&sure)));
    }
    assert!(!sure.is_unchanged_since(None));
    write_carelessly(&folder.path().join("new"), "");
    assert!(!FolderStamp::at(&dir, after(1), &polling).unwrap().is_unchanged_since(Some(&doubtful)));
    assert!(!FolderStamp::at(&dir, after(1), &automatic).unwrap().is_unchanged_since(Some(&sure)));
}

#[test]
fn stamp_within_a_tick_is_not_settled() {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    let changed = Timestamp::from_nanosecond(dir.dir_stat().unwrap().ctime_ns).unwrap();
    let settled = |ms| {
        let at = changed + SignedDuration::from_millis(ms);
        FolderStamp::at(&dir, at, &Config::new(folder.path())).unwrap().is_settled()
    };
    assert_eq!([0, 10, 60].map(settled), [false, false, true]);
}
