//! A message wakes a waiter in another process.

use test_support::{Running, poll};

use crate::workspace;

/// True if a process watches files, which reports mail at once; `None` without `/proc`.
fn is_listening(pid: u32) -> Option<bool> {
    let handles = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = handles.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(links.filter(|link| link.to_string_lossy().contains("inotify")).count() >= 2)
}

#[test]
fn wake_one_waiter() {
    let sandbox = workspace();
    let mut command = sandbox.command(["wait", "--timeout", "60s", "--json", "--from", "codex"]);
    let mut waiting = Running::start(&mut command);
    poll::until("it to wait", || is_listening(waiting.id()).unwrap_or(true).then_some(()));
    assert!(waiting.is_running());
    let id = sandbox.send("claude", "codex", "wake up");
    let (status, lines) = waiting.wait_for_rest(poll::TIMEOUT);
    assert_eq!((status.code(), lines.len()), (Some(0), 1), "{}", waiting.errors());
    let message: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(message["native_id"], id.as_str());
    assert_eq!(message["body"], "wake up");
    assert_eq!(sandbox.json(["receipt", &id])[0]["deliveries"][0]["state"], "seen");
}

#[test]
fn wake_every_waiter() {
    let sandbox = workspace();
    let mut waiting: Vec<Running> = ["codex", "claude"]
        .iter()
        .map(|name| {
            Running::start(&mut sandbox.command(["wait", "--timeout", "60s", "--json", "--from", name]))
        })
        .collect();
    for one in &waiting {
        poll::until("it to wait", || is_listening(one.id()).unwrap_or(true).then_some(()));
    }
    let id = sandbox.send("human", "all", "wake up");
    for one in &mut waiting {
        let (status, lines) = one.wait_for_rest(poll::TIMEOUT);
        assert_eq!((status.code(), lines.len()), (Some(0), 1), "{}", one.errors());
        assert!(lines[0].contains(&id));
    }
}

#[test]
fn wake_waiter_by_dropped_file() {
    let sandbox = workspace();
    let mut waiting =
        Running::start(&mut sandbox.command(["wait", "--timeout", "60s", "--json", "--from", "codex"]));
    poll::until("it to wait", || is_listening(waiting.id()).unwrap_or(true).then_some(()));
    sandbox.drop_file("msg_1763000000000_abc", "claude", "codex", "wake up");
    let (status, lines) = waiting.wait_for_rest(poll::TIMEOUT);
    assert_eq!((status.code(), lines.len()), (Some(0), 1), "{}", waiting.errors());
    assert!(lines[0].contains("msg_1763000000000_abc"), "{lines:?}");
}
