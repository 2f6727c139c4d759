use super::*;
use crate::test_channels::{file, write_carelessly};

const LEASE: SignedDuration = SignedDuration::from_mins(6);

fn folder() -> (tempfile::TempDir, Dir) {
    let folder = tempfile::TempDir::new().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    (folder, dir)
}

fn noon() -> Timestamp {
    "2026-01-11T12:00:00Z".parse().unwrap()
}

fn acquire(dir: &Dir, now: Timestamp) -> Acquisition {
    take_as(dir, now, &format!("{:016x}", fastrand::u64(..)))
}

fn take_as(dir: &Dir, now: Timestamp, watcher: &str) -> Acquisition {
    AnswerLease::acquire(dir, "general.msg-1", now, LEASE, watcher).unwrap()
}

#[test]
fn watcher_takes_over_its_lost_lease() {
    let (_folder, dir) = folder();
    let mut lost = expect_acquired(take_as(&dir, noon(), "one"));
    assert!(lost.store_answer(reply()).unwrap());
    assert!(matches!(take_as(&dir, noon(), "other"), Acquisition::Busy));
    assert_eq!(expect_acquired(take_as(&dir, noon(), "one")).reply(), Some(&reply()));
}

fn expect_acquired(acquisition: Acquisition) -> AnswerLease {
    let Acquisition::Acquired(lease) = acquisition else { panic!("{acquisition:?}") };
    lease
}

fn reply() -> ChannelMessage {
    ChannelMessage::parse(file("msg-2", "codex", "all", "42").to_string().as_bytes()).unwrap()
}

#[test]
fn lease_is_exclusive_until_done() {
    let (_folder, dir) = folder();
    let lease = expect_acquired(acquire(&dir, noon()));
    assert!(matches!(acquire(&dir, noon()), Acquisition::Busy));
    lease.complete().unwrap();
    assert!(matches!(acquire(&dir, noon()), Acquisition::Done));
}

#[test]
fn released_lease_can_be_acquired() {
    let (_folder, dir) = folder();
    expect_acquired(acquire(&dir, noon())).release().unwrap();
    expect_acquired(acquire(&dir, noon()));
}

#[test]
fn successor_finds_the_stored_answer() {
    let (_folder, dir) = folder();
    let mut late = expect_acquired(acquire(&dir, noon()));
    assert!(late.store_answer(reply()).unwrap());
    assert!(matches!(acquire(&dir, noon() + LEASE - SignedDuration::from_secs(1)), Acquisition::Busy));
    let next = expect_acquired(acquire(&dir, noon() + LEASE));
    assert_eq!(next.reply(), Some(&reply()));
    assert!(!late.store_answer(reply()).unwrap(), "it slept for too long");
    late.release().unwrap();
    assert!(matches!(acquire(&dir, noon() + LEASE), Acquisition::Busy), "the new owner still has it");
    assert_eq!(dir.names().unwrap(), ["general.msg-1.json"]);
}

#[test]
fn dead_or_unreadable_lease_is_free() {
    let (folder, dir) = folder();
    expect_acquired(acquire(&dir, noon()));
    let path = folder.path().join("general.msg-1.json");
    let mut lease: LeaseFile = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // A pid that no process has: the kernel's highest is 2^22.
    lease.owner = format!("{}/4194999/1", ProcessIdentity::this_process().host());
    write_carelessly(&path, pretty(&lease));
    expect_acquired(acquire(&dir, noon()));
    write_carelessly(&path, "{");
    expect_acquired(acquire(&dir, noon()));
}

#[test]
fn concurrent_takeover_has_one_winner() {
    let (_folder, dir) = folder();
    expect_acquired(acquire(&dir, noon()));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let dir = dir.clone();
            std::thread::spawn(move || matches!(acquire(&dir, noon() + LEASE), Acquisition::Acquired(_)))
        })
        .collect();
    let owners = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|is_ours| *is_ours).count();
    assert_eq!(owners, 1);
}

#[test]
fn old_leases_are_removed() {
    let (_folder, dir) = folder();
    expect_acquired(acquire(&dir, noon())).complete().unwrap();
    let now = switchboard_sys::clock::Clock::system().now();
    clear_old(&dir, now).unwrap();
    assert_eq!(dir.names().unwrap().len(), 1);
    clear_old(&dir, now + KEPT + LEASE).unwrap();
    assert!(dir.names().unwrap().is_empty());
}
