#![expect(clippy::disallowed_methods, reason = "the tests stand in for programs that write as they like")]

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::files::Created;
use crate::process::Spawn;

const NAME: &str = "state.json";
const LOCK: &str = "state.json.lock";
const HOLDER: &str = "state.json.lock-holder";

/// Far longer than any of these waits takes, so that only a hang reaches it.
const PATIENT: LockOptions = LockOptions { wait: Duration::from_mins(1), refresh: Duration::from_secs(5) };
const IMPATIENT: LockOptions =
    LockOptions { wait: Duration::from_millis(30), refresh: Duration::from_secs(5) };

fn scratch() -> (TempDir, Dir) {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = Dir::open_root(temp.path()).expect("it opens");
    (temp, dir)
}

/// Sets the time of the lock to `age` before now, as if it had been left alone for so long.
fn set_age(dir: &Dir, age: Duration) {
    let lock = fs::File::open(dir.path().join(LOCK)).expect("the lock opens");
    lock.set_modified(SystemTime::now() - age).expect("its time is set");
}

/// A lock as another program makes it.
fn foreign_lock(dir: &Dir, age: Duration) {
    fs::create_dir(dir.path().join(LOCK)).expect("made");
    set_age(dir, age);
}

fn lock_stamp(dir: &Dir) -> DirStat {
    dir.subdir_stat(LOCK).expect("examined").expect("the lock is there")
}

/// Writes the holder file that `owner` would have written for the lock as it is now.
fn write_holder(dir: &Dir, owner: &str) {
    let text = format!("{owner}\n{}\n", identity(&lock_stamp(dir)));
    dir.replace(HOLDER, text.as_bytes(), 0o644).expect("written");
}

/// An owner on this host whose process has ended.
async fn dead_owner() -> String {
    let mut child = Spawn::new("true").spawn().expect("`true` starts");
    child.wait().await.expect("`true` ends");
    let us = ProcessIdentity::this_process();
    format!("{}/{}/1", us.host(), child.pid())
}

fn assert_busy(result: Result<DirLock, LockError>) -> Option<String> {
    match result {
        Err(LockError::Busy { holder, .. }) => holder,
        other => panic!("expected a busy lock, got {other:?}"),
    }
}

#[test]
fn lock_is_empty_directory_until_dropped() {
    let (temp, dir) = scratch();
    let lock = DirLock::acquire(&dir, NAME, LockOptions::default()).expect("acquired");
    assert!(lock.is_held());
    assert_eq!(dir.names().expect("listed"), [LOCK, HOLDER]);
    assert_eq!(fs::read_dir(temp.path().join(LOCK)).expect("listed").count(), 0);
    drop(lock);
    assert_eq!(dir.names().expect("listed"), [""; 0]);
}

#[test]
fn second_holder_waits_and_learns_holder() {
    let (_temp, dir) = scratch();
    let lock = DirLock::acquire(&dir, NAME, PATIENT).expect("acquired");
    let start = Instant::now();
    let result = DirLock::acquire(&dir, NAME, IMPATIENT);
    assert!(start.elapsed() >= IMPATIENT.wait);
    assert_eq!(assert_busy(result), Some(ProcessIdentity::this_process().to_string()));
    drop(lock);
    drop(DirLock::acquire(&dir, NAME, IMPATIENT).expect("acquired"));
}

#[test]
fn locks_on_different_files_are_independent() {
    let (_temp, dir) = scratch();
    let _one = DirLock::acquire(&dir, "one", IMPATIENT).expect("acquired");
    let _two = DirLock::acquire(&dir, "two", IMPATIENT).expect("acquired");
}

/// Counts up in a file under the lock, from eight threads at once.
fn count_to_200(dir: &Dir) {
    let counted = "counter";
    assert_eq!(dir.create_new(counted, b"0", Durability::Unsynced).expect("created"), Created::Created);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // Each thread comes with a handle of its own, as another process would.
                let dir = Dir::open_root(dir.path()).expect("it opens");
                for _ in 0..25 {
                    let lock = DirLock::acquire(&dir, NAME, PATIENT).expect("acquired");
                    let bytes = dir.read(counted, 100).expect("readable").expect("it is there").bytes;
                    let count: u32 = str::from_utf8(&bytes).expect("text").parse().expect("a number");
                    thread::yield_now();
                    let next = (count + 1).to_string();
                    dir.replace_with(counted, next.as_bytes(), 0o600, Durability::Unsynced)
                        .expect("replaced");
                    assert!(lock.is_held());
                }
            });
        }
    });
    assert_eq!(dir.read(counted, 100).expect("readable").expect("it is there").bytes, b"200");
    assert_eq!(dir.names().expect("listed"), [counted]);
}

#[test]
fn eight_threads_exclude_each_other() {
    let (_temp, dir) = scratch();
    count_to_200(&dir);
}

#[test]
fn eight_threads_exclude_each_other_after_a_stale_lock() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::from_secs(11));
    count_to_200(&dir);
}

#[test]
fn stale_lock_is_taken_over() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::from_secs(11));
    let lock = DirLock::acquire(&dir, NAME, IMPATIENT).expect("taken over");
    assert!(lock.is_held());
    assert_eq!(dir.names().expect("listed"), [LOCK, HOLDER], "the stale lock is removed");
}

#[test]
fn fresh_foreign_lock_is_respected() {
    for age in [Duration::ZERO, Duration::from_secs(8)] {
        let (_temp, dir) = scratch();
        foreign_lock(&dir, age);
        let before = lock_stamp(&dir);
        assert_eq!(assert_busy(DirLock::acquire(&dir, NAME, IMPATIENT)), None);
        assert_eq!(lock_stamp(&dir), before);
        assert_eq!(dir.names().expect("listed"), [LOCK]);
    }
}

#[test]
fn lock_from_future_is_fresh() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::ZERO);
    let lock = fs::File::open(dir.path().join(LOCK)).expect("the lock opens");
    lock.set_modified(SystemTime::now() + Duration::from_hours(1)).expect("its time is set");
    assert_busy(DirLock::acquire(&dir, NAME, IMPATIENT));
}

#[tokio::test]
async fn lock_of_exited_holder_is_taken_over() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::from_secs(1));
    write_holder(&dir, &dead_owner().await);
    let lock = DirLock::acquire(&dir, NAME, IMPATIENT).expect("taken over");
    assert_eq!(lock.lock_path.holder_of(&lock_stamp(&dir)), Some(ProcessIdentity::this_process()));
}

#[tokio::test]
async fn old_holder_file_does_not_match_new_lock() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::from_secs(2));
    write_holder(&dir, &dead_owner().await);
    // Another process created the lock again, perhaps with the same inode number, but not at the same time.
    set_age(&dir, Duration::from_secs(1));
    assert_eq!(assert_busy(DirLock::acquire(&dir, NAME, IMPATIENT)), None);
}

#[test]
fn unreadable_holder_file_is_ignored() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::ZERO);
    let identity = identity(&lock_stamp(&dir));
    let texts = [String::new(), "\n".to_owned(), format!("no owner\n{identity}\n"), "x".repeat(5000)];
    for text in texts {
        dir.replace(HOLDER, text.as_bytes(), 0o644).expect("written");
        assert_eq!(assert_busy(DirLock::acquire(&dir, NAME, IMPATIENT)), None);
    }
    dir.replace(HOLDER, b"\xff\n1 2\n", 0o644).expect("written");
    assert_eq!(assert_busy(DirLock::acquire(&dir, NAME, IMPATIENT)), None);
    dir.remove(HOLDER).expect("removed");
    fs::create_dir(dir.path().join(HOLDER)).expect("made");
    assert_eq!(assert_busy(DirLock::acquire(&dir, NAME, IMPATIENT)), None);
}

#[test]
fn held_lock_and_holder_file_are_refreshed() {
    let (_temp, dir) = scratch();
    let options = LockOptions { refresh: Duration::from_millis(5), ..PATIENT };
    let lock = DirLock::acquire(&dir, NAME, options).expect("acquired");
    set_age(&dir, Duration::from_secs(8));
    let aged = lock_stamp(&dir);
    let start = Instant::now();
    loop {
        let now = lock_stamp(&dir);
        if now.mtime_ns > aged.mtime_ns && lock.lock_path.holder_of(&now).is_some() {
            break;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "the lock was not refreshed");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(lock.is_held());
}

#[test]
fn lost_lock_is_not_removed() {
    let (temp, dir) = scratch();
    let lost = DirLock::acquire(&dir, NAME, PATIENT).expect("acquired");
    fs::remove_dir(temp.path().join(LOCK)).expect("removed");
    assert!(!lost.is_held());
    foreign_lock(&dir, Duration::ZERO);
    let theirs = lock_stamp(&dir);
    assert!(!lost.is_held());
    drop(lost);
    assert_eq!(lock_stamp(&dir), theirs);
}

#[test]
fn refreshed_lock_is_not_taken_over() {
    let (_temp, dir) = scratch();
    foreign_lock(&dir, Duration::from_secs(11));
    let lock_path = LockPath::new(dir.clone(), NAME);
    assert!(lock_path.is_abandoned(&lock_stamp(&dir)));
    set_age(&dir, Duration::ZERO);
    assert!(!lock_path.remove_abandoned().expect("answered"));
    assert_eq!(dir.names().expect("listed"), [LOCK]);
}

#[test]
fn lock_is_restored_only_if_free() {
    let (temp, dir) = scratch();
    let lock_path = LockPath::new(dir.clone(), NAME);
    fs::create_dir(temp.path().join("aside")).expect("made");
    assert!(lock_path.restore("aside"));
    fs::create_dir(temp.path().join("aside")).expect("made");
    assert!(!lock_path.restore("aside"));
    assert_eq!(dir.names().expect("listed"), ["aside", LOCK]);
}

#[test]
fn only_one_process_takes_over() {
    let (_temp, dir) = scratch();
    let lock_path = LockPath::new(dir.clone(), NAME);
    foreign_lock(&dir, Duration::from_secs(11));
    let turn = lock_path.lock_takeover().expect("nobody else");
    assert!(!lock_path.remove_abandoned().expect("answered"));
    drop(turn);
    assert!(lock_path.remove_abandoned().expect("answered"));
    assert_eq!(dir.names().expect("listed"), [""; 0]);
}

#[test]
fn non_directory_is_no_lock() {
    let (temp, dir) = scratch();
    fs::write(temp.path().join(LOCK), "").expect("written");
    let error = DirLock::acquire(&dir, NAME, IMPATIENT).expect_err("refused");
    assert!(matches!(error, LockError::Io(FileError::NotADirectory { found: "file", .. })), "{error}");
    let error = DirLock::acquire(&dir, "a/b", IMPATIENT).expect_err("refused");
    assert!(matches!(error, LockError::Io(FileError::BadName { .. })), "{error}");
}

#[test]
fn busy_lock_error_names_holder() {
    let error = |holder: Option<&str>| LockError::Busy {
        path: "/w/state.json.lock".into(),
        waited: Duration::from_millis(15_020),
        holder: holder.map(str::to_owned),
    };
    assert_eq!(error(Some("a/1/2")).to_string(), "/w/state.json.lock is held by a/1/2 (waited 15.0 s)");
    assert_eq!(error(None).to_string(), "/w/state.json.lock is held by another program (waited 15.0 s)");
}
