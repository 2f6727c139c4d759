#![expect(clippy::disallowed_methods, reason = "the tests stand in for programs that write as they like")]

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::thread;

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::temp::{has_writer_exited, host_hash, temp_name};
use super::*;
use crate::process::Spawn;

const LIMIT: u64 = 1000;

fn scratch() -> (TempDir, Dir) {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = Dir::open_root(temp.path()).expect("it opens");
    (temp, dir)
}

fn content(dir: &Dir, name: &str) -> Option<Vec<u8>> {
    dir.read(name, LIMIT).expect("readable").map(|contents| contents.bytes)
}

fn mode(dir: &Dir, name: &str) -> u32 {
    fs::metadata(dir.path().join(name)).expect("it exists").mode() & 0o7777
}

fn set_mtime(dir: &Dir, name: &str, at: Timestamp) {
    let file = fs::File::options().write(true).open(dir.path().join(name)).expect("it opens");
    file.set_modified(at.into()).expect("its time is set");
}

#[test]
fn new_file_is_complete_and_private() {
    for durability in [Durability::Synced, Durability::Unsynced] {
        let (_temp, dir) = scratch();
        assert_eq!(dir.create_new("m1", b"hello", durability).expect("created"), Created::Created);
        assert_eq!(content(&dir, "m1").as_deref(), Some(&b"hello"[..]));
        assert_eq!(mode(&dir, "m1"), 0o600);
        assert_eq!(dir.names().expect("listed"), ["m1"]);
        assert_eq!(fs::metadata(dir.path().join("m1")).expect("it exists").nlink(), 1);
    }
}

#[test]
fn shared_directory_sets_mode_of_new_entries() {
    for (shared, file) in [(0o2775, 0o664), (0o750, 0o640), (0o700, 0o600), (0o1777, 0o666)] {
        let temp = tempfile::tempdir().expect("a directory");
        fs::set_permissions(temp.path(), Permissions::from_mode(shared)).expect("it is ours");
        let dir = Dir::open_shared(temp.path()).expect("it opens");
        let below = dir.ensure_subdir("channels").expect("made").ensure_subdir("general").expect("made");
        below.create_new("m1", b"hello", Durability::Unsynced).expect("created");
        below.create_named("m2", b"hello", Durability::Unsynced).expect("created");
        below.append("log", b"hello").expect("written");
        assert_eq!((mode(&dir, "channels"), mode(&dir, "channels/general")), (shared, shared));
        for name in ["m1", "m2", "log"] {
            assert_eq!(mode(&below, name), file, "{name} in {shared:o}");
        }
    }
}

#[test]
fn staged_file_leaves_staging_directory_empty() {
    let (_temp, dir) = scratch();
    let mailbox = dir.ensure_subdir("mailbox").expect("made");
    let create = |bytes| mailbox.create_new_from(&dir, "m1", bytes, Durability::Unsynced).expect("answered");
    assert_eq!(create(b"hello"), Created::Created);
    assert_eq!(create(b"again"), Created::AlreadyExists);
    assert_eq!((content(&mailbox, "m1").as_deref(), mode(&mailbox, "m1")), (Some(&b"hello"[..]), 0o600));
    assert_eq!(dir.names().expect("listed"), ["mailbox"]);
    // Where the two are no neighbours on the disk, the file is made in its own directory.
    let elsewhere = Dir::open_root(std::path::Path::new("/dev/shm"));
    if let Ok(elsewhere) = elsewhere {
        let created =
            mailbox.create_new_from(&elsewhere, "m2", b"far", Durability::Unsynced).expect("created");
        assert_eq!((created, content(&mailbox, "m2").as_deref()), (Created::Created, Some(&b"far"[..])));
    }
}

/// As on macOS and on network mounts.
#[test]
fn named_creation_behaves_like_unnamed_creation() {
    for durability in [Durability::Synced, Durability::Unsynced] {
        let (_temp, dir) = scratch();
        assert_eq!(dir.create_named("m1", b"hello", durability).expect("created"), Created::Created);
        assert_eq!(dir.create_named("m1", b"again", durability).expect("answered"), Created::AlreadyExists);
        assert_eq!(content(&dir, "m1").as_deref(), Some(&b"hello"[..]));
        assert_eq!(mode(&dir, "m1"), 0o600);
        assert_eq!(dir.names().expect("listed"), ["m1"]);
        assert_eq!(fs::metadata(dir.path().join("m1")).expect("it exists").nlink(), 1);
    }
}

/// Where the system has files without a name, this one makes use of them.
#[cfg(target_os = "linux")]
#[test]
fn unnamed_file_is_invisible_and_its_events_known() {
    let (_temp, dir) = scratch();
    let created = dir.create_unnamed(&dir, "m1", b"hello", Durability::Unsynced).expect("created");
    assert_eq!(created, Some(Created::Created), "this machine's file systems have such files");
    assert_eq!(
        dir.create_unnamed(&dir, "m1", b"x", Durability::Unsynced).expect("told"),
        Some(Created::AlreadyExists)
    );
    assert!(is_unfinished("#11925147") && is_unfinished(".tmp-1-2"));
    assert!(!is_unfinished("#") && !is_unfinished("#1a") && !is_unfinished("msg_1.json"));
}

#[test]
fn existing_file_is_not_replaced() {
    let (temp, dir) = scratch();
    fs::write(temp.path().join("m1"), "first").expect("written");
    assert_eq!(
        dir.create_new("m1", b"second", Durability::Unsynced).expect("answered"),
        Created::AlreadyExists
    );
    assert_eq!(content(&dir, "m1").as_deref(), Some(&b"first"[..]));
    assert_eq!(dir.names().expect("listed"), ["m1"]);

    symlink("nowhere", temp.path().join("m2")).expect("linked");
    assert_eq!(dir.create_new("m2", b"x", Durability::Unsynced).expect("answered"), Created::AlreadyExists);
    assert!(!temp.path().join("nowhere").exists(), "the link was not followed");
}

#[test]
fn concurrent_writers_create_file_once() {
    let (_temp, dir) = scratch();
    let created: Vec<Created> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8_u8)
            .map(|writer| {
                let dir = &dir;
                scope.spawn(move || {
                    dir.create_new("m1", &[writer; 64], Durability::Unsynced).expect("answered")
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    assert_eq!(created.iter().filter(|&&created| created == Created::Created).count(), 1);
    let bytes = content(&dir, "m1").expect("it is there");
    assert_eq!(bytes, [bytes[0]; 64]);
    assert_eq!(dir.names().expect("listed"), ["m1"]);
}

#[test]
fn failed_write_leaves_no_file() {
    let (temp, dir) = scratch();
    let long = "x".repeat(300);
    assert!(matches!(dir.create_new(&long, b"x", Durability::Unsynced), Err(FileError::Io { .. })));
    fs::create_dir(temp.path().join("taken")).expect("made");
    assert!(matches!(dir.replace("taken", b"x", 0o600), Err(FileError::Io { .. })));
    assert_eq!(dir.names().expect("listed"), ["taken"]);
}

#[test]
fn replaced_file_has_exact_mode() {
    let (_temp, dir) = scratch();
    for (text, mode_bits) in [("one", 0o600), ("two", 0o664), ("three", 0o444), ("four", 0o777)] {
        dir.replace("state", text.as_bytes(), mode_bits).expect("replaced");
        assert_eq!(content(&dir, "state").as_deref(), Some(text.as_bytes()));
        assert_eq!(mode(&dir, "state"), mode_bits);
    }
    assert_eq!(dir.names().expect("listed"), ["state"]);
}

#[test]
fn replacing_symlink_keeps_its_target() {
    let (temp, dir) = scratch();
    fs::write(temp.path().join("target"), "kept").expect("written");
    symlink("target", temp.path().join("state")).expect("linked");
    dir.replace("state", b"new", 0o600).expect("replaced");
    assert_eq!(content(&dir, "target").as_deref(), Some(&b"kept"[..]));
    assert_eq!(content(&dir, "state").as_deref(), Some(&b"new"[..]));
}

#[test]
fn path_like_names_are_refused() {
    let (_temp, dir) = scratch();
    for name in ["", ".", "..", "a/b", "/a", "a/", "../a", "a\0b"] {
        let is_bad = |result: Result<(), FileError>| matches!(result, Err(FileError::BadName { name: bad }) if bad == name);
        assert!(is_bad(dir.read(name, LIMIT).map(drop)), "{name:?}");
        assert!(is_bad(dir.stat(name).map(drop)), "{name:?}");
        assert!(is_bad(dir.subdir(name).map(drop)), "{name:?}");
        assert!(is_bad(dir.ensure_subdir(name).map(drop)), "{name:?}");
        assert!(is_bad(dir.create_new(name, b"", Durability::Unsynced).map(drop)), "{name:?}");
        assert!(is_bad(dir.replace(name, b"", 0o600)), "{name:?}");
        assert!(is_bad(dir.move_new(name, &dir, "x").map(drop)), "{name:?}");
        assert!(is_bad(dir.move_new("x", &dir, name).map(drop)), "{name:?}");
        assert!(is_bad(dir.remove(name).map(drop)), "{name:?}");
    }
    assert_eq!(dir.names().expect("listed"), [""; 0]);
}

#[test]
fn read_stops_at_limit() {
    let (_temp, dir) = scratch();
    dir.create_new("m1", b"12345", Durability::Unsynced).expect("created");
    assert_eq!(dir.read("m1", 5).expect("readable").expect("it is there").bytes, b"12345");
    let error = dir.read("m1", 4).expect_err("too large");
    assert!(matches!(error, FileError::TooLarge { size: 5, limit: 4, .. }), "{error}");
    assert_eq!(dir.read("missing", 4).expect("answered"), None);
    assert!(dir.read("m1", u64::MAX).expect("readable").is_some());
}

#[test]
fn only_regular_files_are_read_without_blocking() {
    let (temp, dir) = scratch();
    fs::write(temp.path().join("file"), "secret").expect("written");
    symlink("file", temp.path().join("link")).expect("linked");
    symlink("nowhere", temp.path().join("dangling")).expect("linked");
    fs::create_dir(temp.path().join("folder")).expect("made");
    let _socket = UnixListener::bind(temp.path().join("socket")).expect("bound");
    let found = |dir: &Dir, name: &str| match dir.read(name, LIMIT) {
        Err(FileError::NotAFile { found, path }) => {
            assert_eq!(path, dir.path().join(name));
            found
        }
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(found(&dir, "link"), "symbolic link");
    assert_eq!(found(&dir, "dangling"), "symbolic link");
    assert_eq!(found(&dir, "folder"), "directory");
    assert_eq!(found(&dir, "socket"), "socket");
    assert_eq!(found(&Dir::open_root(Path::new("/dev")).expect("it opens"), "null"), "device");
}

#[tokio::test]
async fn fifo_is_refused_without_writer() {
    let (_temp, dir) = scratch();
    let mut mkfifo = Spawn::new("mkfifo").args(["pipe"]).cwd(dir.path()).spawn().expect("`mkfifo` starts");
    assert!(mkfifo.wait().await.expect("`mkfifo` ends").success());
    assert!(matches!(dir.read("pipe", LIMIT), Err(FileError::NotAFile { found: "FIFO", .. })));
    assert!(matches!(dir.subdir("pipe"), Err(FileError::NotADirectory { found: "FIFO", .. })));
}

#[test]
fn file_stat_changes_with_file() {
    let (_temp, dir) = scratch();
    assert_eq!(dir.stat("state").expect("answered"), None);
    dir.replace("state", b"one", 0o600).expect("replaced");
    let first = dir.stat("state").expect("answered").expect("it is there");
    let read = dir.read("state", LIMIT).expect("readable").expect("it is there");
    assert_eq!(read, Contents { bytes: b"one".to_vec(), stat: first });
    assert_eq!((first.len, first.is_regular), (3, true));
    assert_eq!(first.uid, rustix::process::geteuid().as_raw());
    dir.replace("state", b"two", 0o600).expect("replaced");
    assert_ne!(dir.stat("state").expect("answered"), Some(first));
}

#[test]
fn symlink_has_its_own_stat() {
    let (temp, dir) = scratch();
    fs::write(temp.path().join("file"), "long content").expect("written");
    symlink("file", temp.path().join("link")).expect("linked");
    let stamp = dir.stat("link").expect("answered").expect("it is there");
    assert!(!stamp.is_regular);
    assert_eq!(stamp.len, "file".len() as u64);
}

#[test]
fn directory_stat_changes_with_its_names() {
    let (_temp, dir) = scratch();
    let before = dir.dir_stat().expect("examined");
    assert_eq!(dir.dir_stat().expect("examined"), before);
    // The system's file clock is coarse: write until it has moved on.
    let changed = (0..10_000).any(|number| {
        dir.create_new(&format!("m{number}"), b"", Durability::Unsynced).expect("created");
        dir.dir_stat().expect("examined") != before
    });
    assert!(changed);
    assert_eq!(dir.dir_stat().expect("examined").inode, before.inode);
}

#[test]
fn names_are_sorted_and_utf8() {
    let (temp, dir) = scratch();
    for name in ["b", "a", "ü", ".hidden"] {
        fs::write(temp.path().join(name), "").expect("written");
    }
    // Not every file system takes such a name.
    let _ = fs::write(temp.path().join(std::ffi::OsStr::from_bytes(b"bad-\xff")), "");
    assert_eq!(dir.names().expect("listed"), [".hidden", "a", "b", "ü"]);
    assert_eq!(dir.names().expect("listed again, from the start").len(), 4);
}

#[test]
fn subdirectory_is_created_once_for_owner() {
    let (_temp, dir) = scratch();
    assert!(dir.subdir("inbox").expect("answered").is_none());
    let made = dir.ensure_subdir("inbox").expect("made");
    let again = dir.ensure_subdir("inbox").expect("found");
    assert_eq!(made.dir_stat().expect("examined").inode, again.dir_stat().expect("examined").inode);
    assert_eq!(made.path(), dir.path().join("inbox"));
    assert_eq!(mode(&dir, "inbox"), 0o700);
    made.create_new("m1", b"x", Durability::Unsynced).expect("created");
    let opened = dir.subdir("inbox").expect("answered").expect("it is there");
    assert_eq!(opened.names().expect("listed"), ["m1"]);
}

#[test]
fn non_directory_is_not_opened() {
    let (temp, dir) = scratch();
    fs::write(temp.path().join("file"), "").expect("written");
    fs::create_dir(temp.path().join("real")).expect("made");
    symlink("real", temp.path().join("link")).expect("linked");
    for (name, expected) in [("file", "file"), ("link", "symbolic link")] {
        for result in [dir.subdir(name).map(drop), dir.ensure_subdir(name).map(drop)] {
            assert!(
                matches!(result, Err(FileError::NotADirectory { found, .. }) if found == expected),
                "{name}"
            );
        }
    }
    let error = Dir::open_root(&temp.path().join("file")).expect_err("not a directory");
    assert!(matches!(error, FileError::NotADirectory { found: "file", .. }), "{error}");
    let error = Dir::open_root(&temp.path().join("missing")).expect_err("missing");
    assert!(matches!(error, FileError::Io { .. }), "{error}");
}

#[test]
fn linked_root_is_opened_by_real_path() {
    let temp = tempfile::tempdir().expect("a directory");
    let real = temp.path().canonicalize().expect("it exists").join("real");
    fs::create_dir(&real).expect("made");
    symlink("real", temp.path().join("link")).expect("linked");
    let dir = Dir::open_root(&temp.path().join("link")).expect("it opens");
    assert_eq!(dir.path(), real);
    assert!(dir.is_at_path());
}

#[test]
fn swapped_directory_is_not_at_its_path() {
    let (temp, dir) = scratch();
    let inbox = dir.ensure_subdir("inbox").expect("made");
    assert!(inbox.is_at_path());
    fs::rename(temp.path().join("inbox"), temp.path().join("moved")).expect("renamed");
    assert!(!inbox.is_at_path());
    fs::create_dir(temp.path().join("inbox")).expect("made");
    assert!(!inbox.is_at_path(), "another directory has the name");
    symlink("moved", temp.path().join("other")).expect("linked");
    inbox.create_new("m1", b"x", Durability::Synced).expect("created");
    assert!(temp.path().join("moved/m1").exists(), "writes follow the handle, not the path");
}

#[test]
fn file_moves_to_free_name() {
    let (_temp, dir) = scratch();
    let to = dir.ensure_subdir("done").expect("made");
    dir.create_new("m1", b"x", Durability::Unsynced).expect("created");
    assert_eq!(dir.move_new("m1", &to, "m2").expect("moved"), Moved::Moved);
    assert_eq!(content(&dir, "m1"), None);
    assert_eq!(content(&to, "m2").as_deref(), Some(&b"x"[..]));
    assert_eq!(dir.move_new("m1", &to, "m2").expect("answered"), Moved::SourceMissing);
}

#[test]
fn move_to_existing_name_changes_nothing() {
    let (_temp, dir) = scratch();
    dir.create_new("m1", b"one", Durability::Unsynced).expect("created");
    dir.create_new("m2", b"two", Durability::Unsynced).expect("created");
    assert_eq!(dir.move_new("m1", &dir, "m2").expect("answered"), Moved::AlreadyExists);
    assert_eq!(content(&dir, "m1").as_deref(), Some(&b"one"[..]));
    assert_eq!(content(&dir, "m2").as_deref(), Some(&b"two"[..]));
}

#[test]
fn interrupted_move_is_completed() {
    let (temp, dir) = scratch();
    dir.create_new("m1", b"x", Durability::Unsynced).expect("created");
    fs::hard_link(temp.path().join("m1"), temp.path().join("m2")).expect("linked");
    assert_eq!(dir.move_new("m1", &dir, "m2").expect("moved"), Moved::Moved);
    assert_eq!(dir.names().expect("listed"), ["m2"]);
}

#[test]
fn move_onto_itself_keeps_file() {
    let (temp, dir) = scratch();
    dir.create_new("m1", b"x", Durability::Unsynced).expect("created");
    assert_eq!(dir.move_new("m1", &dir, "m1").expect("answered"), Moved::AlreadyExists);
    fs::hard_link(temp.path().join("m1"), temp.path().join("other")).expect("linked");
    assert_eq!(dir.move_new("m1", &dir, "m1").expect("answered"), Moved::AlreadyExists);
    assert_eq!(dir.names().expect("listed"), ["m1", "other"]);
}

#[test]
fn only_regular_files_are_moved() {
    let (temp, dir) = scratch();
    symlink("nowhere", temp.path().join("link")).expect("linked");
    let error = dir.move_new("link", &dir, "m1").expect_err("refused");
    assert!(matches!(error, FileError::NotAFile { found: "symbolic link", .. }), "{error}");
    assert_eq!(dir.names().expect("listed"), ["link"]);
}

#[test]
fn move_into_removed_directory_keeps_file() {
    let (temp, dir) = scratch();
    let to = dir.ensure_subdir("done").expect("made");
    fs::remove_dir(temp.path().join("done")).expect("removed");
    dir.create_new("m1", b"x", Durability::Unsynced).expect("created");
    assert!(matches!(dir.move_new("m1", &to, "m1"), Err(FileError::Io { .. })));
    assert_eq!(content(&dir, "m1").as_deref(), Some(&b"x"[..]));
}

#[test]
fn concurrent_moves_move_file_once() {
    let same_name = |_| "taken".to_owned();
    let own_name = |mover| format!("taken-{mover}");
    for to_name in [same_name as fn(u8) -> String, own_name] {
        let (_temp, dir) = scratch();
        dir.create_new("m1", b"x", Durability::Unsynced).expect("created");
        let results: Vec<Moved> = thread::scope(|scope| {
            let movers: Vec<_> = (0..8)
                .map(|mover| {
                    let dir = &dir;
                    scope.spawn(move || dir.move_new("m1", dir, &to_name(mover)).expect("answered"))
                })
                .collect();
            movers.into_iter().map(|mover| mover.join().expect("no panic")).collect()
        });
        let (winner, _) =
            (0..).zip(&results).find(|(_, moved)| **moved == Moved::Moved).expect("one moved it");
        assert_eq!(results.iter().filter(|&&moved| moved == Moved::Moved).count(), 1);
        assert_eq!(content(&dir, &to_name(winner)).as_deref(), Some(&b"x"[..]));
        assert_eq!(content(&dir, "m1"), None);
    }
}

#[test]
fn remove_returns_whether_file_existed() {
    let (temp, dir) = scratch();
    dir.create_new("m1", b"x", Durability::Unsynced).expect("created");
    assert!(dir.remove("m1").expect("removed"));
    assert!(!dir.remove("m1").expect("answered"));
    fs::create_dir(temp.path().join("folder")).expect("made");
    assert!(matches!(dir.remove("folder"), Err(FileError::Io { .. })));
}

#[tokio::test]
async fn temp_files_of_killed_writers_are_cleared() {
    let (temp, dir) = scratch();
    let mut child = Spawn::new("true").spawn().expect("`true` starts");
    child.wait().await.expect("`true` ends");
    let (dead, live, host) = (child.pid(), std::process::id(), host_hash());
    let of_the_dead = format!(".tmp-{dead}-{host}-1");
    let at_work = format!(".tmp-{live}-{host}-2");
    let given_up = format!(".tmp-{live}-{host}-3");
    let elsewhere = format!(".tmp-{dead}-0123456789abcdef-4");
    let elsewhere_old = format!(".tmp-{dead}-0123456789abcdef-5");
    for name in [&of_the_dead, &at_work, &given_up, &elsewhere, &elsewhere_old, "m1", ".tmp-odd"] {
        fs::write(temp.path().join(name), "x").expect("written");
    }
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
    for name in [&of_the_dead, &at_work, &elsewhere, "m1", ".tmp-odd"] {
        set_mtime(&dir, name, now - SignedDuration::from_mins(59));
    }
    for name in [&given_up, &elsewhere_old] {
        set_mtime(&dir, name, now - SignedDuration::from_mins(61));
    }
    fs::create_dir(temp.path().join(".tmp-folder")).expect("made");
    assert_eq!(dir.clear_stale_temps(now).expect("cleared"), 3);
    let mut left = [at_work, elsewhere, "m1".to_owned(), ".tmp-odd".to_owned(), ".tmp-folder".to_owned()];
    left.sort();
    assert_eq!(dir.names().expect("listed"), left);
}

#[test]
fn own_temp_names_are_recognised() {
    let name = temp_name();
    assert!(is_temp(&name));
    assert!(!has_writer_exited(&name));
    assert!(!is_temp("m1"));
    assert_ne!(name, temp_name());
}

#[test]
fn full_disk_error_is_distinguished() {
    let error = |errno: Errno| FileError::Io { action: "write", path: "x".into(), source: errno.into() };
    assert!(error(Errno::NOSPC).is_no_space());
    assert!(error(Errno::DQUOT).is_no_space());
    assert!(!error(Errno::IO).is_no_space());
    assert!(!FileError::BadName { name: String::new() }.is_no_space());
}

#[test]
fn errors_name_file_and_cause() {
    let (_temp, dir) = scratch();
    let error: FileError = dir.io_error("open", "m1")(Errno::ACCESS);
    assert_eq!(error.to_string(), format!("cannot open {}", dir.path().join("m1").display()));
    assert!(std::error::Error::source(&error).is_some());
    let error = dir.read("a\nb/c", LIMIT).expect_err("refused");
    assert_eq!(error.to_string(), "`a\\nb/c` is not a file name");
}

#[test]
fn append_creates_file_and_refuses_symlink() {
    let temp = tempfile::tempdir().expect("a folder");
    let dir = Dir::open_root(temp.path()).expect("it opens");
    assert_eq!(dir.append("log", b"one\n").expect("it is made"), 4);
    assert_eq!(dir.append("log", b"two\n").expect("it is added to"), 8);
    assert_eq!(std::fs::read(temp.path().join("log")).expect("it is there"), b"one\ntwo\n");
    std::os::unix::fs::symlink("log", temp.path().join("link")).expect("a link");
    assert!(matches!(dir.append("link", b"x"), Err(FileError::NotAFile { .. })));
}
