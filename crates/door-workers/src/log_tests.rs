use tempfile::TempDir;

use super::*;
use crate::wire::event::{Heartbeat, InjectionRef, Text};

struct All;

impl EventPredicate for All {
    fn matches_all(&self) -> bool {
        true
    }
    fn matches(&self, _: Option<&str>) -> bool {
        true
    }
}

struct Only(&'static str);

impl EventPredicate for Only {
    fn matches_all(&self) -> bool {
        false
    }
    fn matches(&self, job: Option<&str>) -> bool {
        job == Some(self.0)
    }
}

fn open(folder: &TempDir, segment: u64, retention: u64) -> EventLog {
    let config = Config { retention, segment, ..Config::default() };
    EventLog::open(Dir::open_root(folder.path()).unwrap(), &config, Clock::system()).unwrap()
}

fn delta(job: &str, content: &str) -> EventBody {
    let at = InjectionRef { job_id: job.into(), node_id: 0, injection_id: "i".into() };
    EventBody::AssistantDelta(Text { at, content: content.into() })
}

/// Reads everything after `seq`, as a client would.
fn read(log: &EventLog, mut seq: u64, predicate: &dyn EventPredicate) -> Vec<u64> {
    let mut seen = Vec::new();
    while seq < log.newest() {
        let batch = match log.read_ring(seq, predicate, 200) {
            Some(batch) => batch,
            None => log.read_segment(seq, predicate).unwrap(),
        };
        assert!(batch.seq > seq, "no progress after {seq}");
        seen.extend(batch.bytes.split_inclusive(|byte| *byte == b'\n').map(|line| seq_of(line).unwrap()));
        seq = batch.seq;
    }
    seen
}

#[test]
fn log_reads_in_order_from_any_cursor() {
    let folder = TempDir::new().unwrap();
    let log = open(&folder, 2_000, u64::MAX);
    for number in 0..100 {
        log.publish(&delta(if number % 2 == 0 { "even" } else { "odd" }, "x"));
    }
    for start in [0, 1, 37, 99, 100] {
        assert_eq!(read(&log, start, &All), (start + 1..=100).collect::<Vec<_>>());
    }
    assert_eq!(read(&log, 0, &Only("odd")), (1..=50).map(|n| 2 * n).collect::<Vec<_>>());
    // From the segments, as after a restart.
    drop(log);
    let log = open(&folder, 2_000, u64::MAX);
    assert_eq!(log.newest(), 100);
    assert_eq!(log.publish(&delta("odd", "y")), 101);
    for start in [0, 1, 37, 99, 100] {
        assert_eq!(read(&log, start, &All), (start + 1..=101).collect::<Vec<_>>());
    }
    assert_eq!(read(&log, 90, &Only("odd")), [92, 94, 96, 98, 100, 101]);
}

#[test]
fn event_is_invisible_before_flush() {
    let folder = TempDir::new().unwrap();
    let log = open(&folder, 1 << 20, u64::MAX);
    log.append(&delta("j", "x"));
    assert_eq!((log.newest(), log.read_ring(0, &All, 100).unwrap().bytes.len()), (0, 0));
    log.flush();
    assert_eq!(read(&log, 0, &All), [1]);
}

#[test]
fn torn_line_is_removed() {
    let folder = TempDir::new().unwrap();
    let log = open(&folder, 1 << 20, u64::MAX);
    log.publish(&delta("j", "one"));
    log.publish(&delta("j", "two"));
    drop(log);
    let file = folder.path().join(segment_name(1));
    let whole = std::fs::read(&file).unwrap();
    test_support::files::put(&file, &whole[..whole.len() - 5]);
    let log = open(&folder, 1 << 20, u64::MAX);
    assert_eq!(log.publish(&delta("j", "again")), 2);
    assert_eq!(read(&log, 0, &All), [1, 2]);
}

#[test]
fn reboot_gap_is_skipped_by_readers() {
    let folder = TempDir::new().unwrap();
    let log = open(&folder, 1 << 20, u64::MAX);
    log.publish(&delta("j", "one"));
    drop(log);
    test_support::files::put(folder.path().join(BOOT_FILE), "another");
    let log = open(&folder, 1 << 20, u64::MAX);
    let next = log.publish(&delta("j", "two"));
    assert_eq!(next, 2 + SEQ_JUMP);
    assert_eq!(read(&log, 0, &All), [1, next]);
    assert_eq!(read(&log, 1, &All), [next]);
}

#[test]
fn endless_deltas_do_not_fill_disk() {
    let folder = TempDir::new().unwrap();
    let log = open(&folder, 1_000, 3_000);
    let size = || -> u64 {
        let files = std::fs::read_dir(folder.path()).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    log.pin(1);
    for _ in 0..1_000 {
        log.publish(&delta("j", "x"));
    }
    assert!(size() < 15_000, "{}", size());
    let mut events = Vec::new();
    log.scan(|head| events.push(head.event)).unwrap();
    assert_eq!(events.iter().filter(|event| *event == "agent_error").count(), 1);
    assert_eq!(events.last().unwrap(), "agent_error");
    // The event at the end of a turn is always written.
    let last = log.publish(&EventBody::Heartbeat(Heartbeat { jobs: 0, busy: 0 }));
    assert_eq!(read(&log, 0, &All), (1..=last).collect::<Vec<_>>());
    log.unpin(1);
    assert_eq!(log.publish(&delta("j", "again")), last + 1);
    assert!(size() < 5_000, "{}", size());
}

#[test]
fn retention_keeps_pinned_segments() {
    let folder = TempDir::new().unwrap();
    let log = open(&folder, 1_000, 3_000);
    log.pin(5);
    for _ in 0..60 {
        log.publish(&delta("j", "x"));
    }
    assert!(log.oldest() <= 5, "{}", log.oldest());
    log.unpin(5);
    for _ in 0..60 {
        log.publish(&EventBody::Heartbeat(Heartbeat { jobs: 0, busy: 0 }));
    }
    let oldest = log.oldest();
    assert!(oldest > 60, "{oldest}");
    assert_eq!(log.read_segment(3, &All), Err(Expired { oldest }));
    let mut scanned = 0;
    log.scan(|_| scanned += 1).unwrap();
    assert_eq!(scanned, 120 - oldest + 1);
}
