use std::sync::Arc;

use switchboard_sys::files::Dir;

use super::*;

#[test]
fn control_sequences_are_stripped() {
    let cases = [
        ("plain", "plain"),
        ("\u{1b}[31mred\u{1b}[0m text", "red text"),
        ("\u{1b}]0;title\u{7}after", "after"),
        ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
        ("a\tb\u{0}c\u{8}", "a bc"),
        ("cut\u{1b}[", "cut"),
    ];
    for (text, expected) in cases {
        assert_eq!(strip_control(text), expected, "{text:?}");
    }
}

#[test]
fn log_is_bounded_and_retains_newest() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = ChildLog::new(Dir::open_root(dir.path()).ok(), "a/b", None);
    for number in 0..2000 {
        log.note([format!("line {number} {}", "x".repeat(400)).as_bytes()]);
    }
    let size = |name: &str| std::fs::metadata(dir.path().join(name)).expect("the log is there").len();
    assert!(size("a_b.log") + size("a_b.log.1") <= 2 * FILE_CAP + 1024);
    assert!(size("a_b.log.1") >= FILE_CAP);
    let text = std::fs::read_to_string(dir.path().join("a_b.log")).expect("the log is text");
    assert!(text.contains("line 1999 "), "{text}");
    assert_eq!(log.tail().len(), TAIL_LINES);
    assert!(log.last().starts_with("line 1999 "));
    assert_eq!(log.last().len(), QUOTE_CAP);
}

#[test]
fn secrets_never_reach_log_or_errors() {
    let dir = tempfile::tempdir().expect("a folder");
    let redact: Redact = Arc::new(|text: &str| text.replace("hunter2", "***"));
    let log = ChildLog::new(Dir::open_root(dir.path()).ok(), "a", Some(redact));
    log.note([&b"password \x1b[1mhunter2"[..], &b"\xff\xfe"[..]]);
    let text = std::fs::read_to_string(dir.path().join("a.log")).expect("the log is text");
    assert!(text.contains("password ***") && !text.contains("hunter2"), "{text}");
    assert_eq!(log.tail()[0], "password ***");
}
