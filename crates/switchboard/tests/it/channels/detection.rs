//! How changes are detected where file events are incomplete.

use std::path::Path;

use serde_json::json;
use test_support::fault::Shim;
use test_support::fuse::Mount;
use test_support::{Running, Sandbox, files, poll, tools};

use super::{Program, answer_to, post};
use crate::workspace;

/// An hour between two periodic polls.
const SELDOM: u64 = 3_600_000;

fn drop_message(sandbox: &Sandbox, number: usize) {
    let id = format!("msg-20260111-163315-dropper-{number:04x}");
    let message = json!({
        "id": id, "timestamp": "2026-01-11T16:33:15Z", "session_id": "general", "from": "dropper", "to": "all",
        "type": "chat", "content": { "text": number.to_string() },
    });
    files::put(sandbox.file(&format!("channels/general/{id}.json")), message.to_string());
}

fn journaled(sandbox: &Sandbox) -> usize {
    sandbox.json(["tail", "-n", "100000"]).len()
}

/// The system queues 16,384 events for a program that does not read them, and drops later ones.
#[test]
fn storm_of_events_overflows_the_queue() {
    const FILES: usize = 6000;
    let kept = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
    let kept: usize = kept.map_or(0, |kept| kept.trim().parse().unwrap());
    assert!(kept < 3 * FILES, "{FILES} files are too few for a system that keeps {kept} events");
    let sandbox = workspace();
    sandbox.configure_user(&json!({ "channels": { "rescanMs": SELDOM } }).to_string());
    post(&sandbox, "codex", "all", "first");
    let serve = sandbox.serve();
    drop_message(&sandbox, FILES);
    poll::until("the first file", || (journaled(&sandbox) == 2).then_some(()));
    serve.signal(rustix::process::Signal::STOP);
    // Creating, writing and closing a file are at least three events.
    for number in 0..FILES {
        drop_message(&sandbox, number);
    }
    serve.signal(rustix::process::Signal::CONT);
    poll::until("all files", || (journaled(&sandbox) == FILES + 2).then_some(()));
    let mut numbers: Vec<usize> = sandbox
        .json(["tail", "-n", "100000"])
        .iter()
        .filter_map(|message| message["body"].as_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..=FILES).collect::<Vec<_>>(), "each is there once");
    drop::<Running>(serve);
}

#[test]
fn watch_exhaustion_falls_back_to_polling() {
    let shim = Shim::get(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let Ok(shim) = shim.inspect_err(|reason| tools::skip("c3_without_a_free_watch", reason)) else { return };
    let sandbox = workspace();
    sandbox.configure_user(&json!({ "channels": { "rescanMs": SELDOM } }).to_string());
    post(&sandbox, "codex", "all", "first");
    let serve = Running::start(shim.disable_file_events(&mut sandbox.command(["serve", "--port", "0"])));
    assert!(serve.line().starts_with("Serving "));
    for number in 1..=2 {
        drop_message(&sandbox, number);
        poll::until("a file", || (journaled(&sandbox) == number + 1).then_some(()));
    }
    assert!(serve.errors().contains("no file events"), "{}", serve.errors());
}

#[test]
fn polling_alone_wakes_watchers_and_readers() {
    let sandbox = workspace();
    sandbox
        .configure_user(&json!({ "channels": { "detection": "polling", "rescanMs": SELDOM } }).to_string());
    let program = Program::new(&sandbox, "program", "echo 42");
    let watch = sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    watch.line();
    let tail = sandbox.start(["channel", "tail", "--channel", "general", "--json"]);
    let dropped = json!({
        "id": "msg-20260111-163315-human-0001", "timestamp": switchboard_sys::clock::Clock::system().now().to_string(), "session_id": "general",
        "from": "docs-1", "to": "qc-1", "type": "chat", "content": { "text": "what is it?" },
    });
    files::put_by_rename(
        sandbox.file("channels/general/msg-20260111-163315-human-0001.json"),
        dropped.to_string(),
    );
    assert_eq!(answer_to(&sandbox, "msg-20260111-163315-human-0001")["content"]["text"], "42");
    let text = || serde_json::from_str::<serde_json::Value>(&tail.line()).unwrap()["content"]["text"].clone();
    assert_eq!((text(), text()), ("what is it?".into(), "42".into()));
}

/// A real mount that reports no changes made on its other side.
#[test]
fn mount_without_events_is_polled() {
    let test = "mount_without_events_is_polled";
    let mount = match Mount::new() {
        Ok(Some(mount)) => mount,
        Ok(None) => return eprintln!("skipped: {test}: nothing can be mounted here"),
        Err(reason) => return tools::skip(test, &reason),
    };
    let sandbox = workspace();
    let settings = json!({ "channels": { "root": mount.mounted(), "rescanMs": SELDOM } });
    sandbox.configure_user(&settings.to_string());
    let program = Program::new(&sandbox, "program", "echo 42");
    let mut watch =
        sandbox.command(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    let watch = Running::start(watch.env("SWITCHBOARD_LOG", "info"));
    watch.line();
    let tail = sandbox.start(["channel", "tail", "--channel", "general", "--json"]);
    for number in 1..=3 {
        let id = format!("msg-20260111-163315-docs-1-{number:04x}");
        let now = switchboard_sys::clock::Clock::system().now().to_string();
        let dropped = json!({
            "id": id, "timestamp": now, "session_id": "general", "from": "docs-1", "to": "qc-1", "type": "chat",
            "content": { "text": "what is it?" },
        });
        let place = mount.backing_folder().join("channels/general");
        files::put_by_rename(place.join(format!("{id}.json")), dropped.to_string());
        assert_eq!(answer_to(&sandbox, &id)["content"]["text"], "42");
        let text =
            || serde_json::from_str::<serde_json::Value>(&tail.line()).unwrap()["content"]["text"].clone();
        assert_eq!((text(), text()), ("what is it?".into(), "42".into()));
    }
    assert_eq!(program.runs(), 3);
    // Users on the other side find the answers there, and the heartbeat.
    assert_eq!(std::fs::read_dir(mount.backing_folder().join("channels/general")).unwrap().count(), 6);
    assert!(mount.backing_folder().join("signals/presence/qc-1.json").is_file());
    assert!(watch.errors().contains("polling every few seconds"), "{}", watch.errors());
}
