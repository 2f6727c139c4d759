//! `switchboard serve`

use insta::assert_snapshot;
use rustix::process::Signal;
use test_support::process::without_log;
use test_support::{files, poll};

use crate::workspace;

#[test]
fn dropped_files_are_ingested_until_terminated() {
    let sandbox = workspace();
    let mut serve = sandbox.start(["serve"]);
    assert_snapshot!(sandbox.redact(&serve.line()), @"Serving [project]/.switchboard; MCP at http://127.0.0.1:[port]/mcp with the token in [project]/.switchboard/auth_token. Stop with Ctrl-C.");
    sandbox.drop_file("msg_1763000000000_abc", "claude", "codex", "dropped");
    let receipt = sandbox.file("outbox/claude/msg_1763000000000_abc.receipt.json");
    poll::until("the receipt", || receipt.exists().then_some(()));
    assert_eq!(files::read_json_object(&receipt).unwrap()["status"], "delivered");
    assert_eq!(serve.terminate().code(), Some(0));
    assert_eq!(serve.errors(), "");
    assert_eq!(sandbox.json(["inbox", "codex"])[0]["body"], "dropped");
}

#[test]
fn ctrl_c_ends_serve() {
    let sandbox = workspace();
    let mut serve = sandbox.start(["serve", "--json"]);
    assert_snapshot!(sandbox.redact(&serve.line()), @r#"{"pid":[pid],"port":[port],"serving":"[project]/.switchboard","url":"http://127.0.0.1:[port]/mcp"}"#);
    serve.signal(Signal::INT);
    assert_eq!(serve.wait().code(), Some(0));
}

#[test]
fn second_serve_names_the_first() {
    let sandbox = workspace();
    let mut first = sandbox.serve();
    let ran = sandbox.run(["serve"]);
    assert!(ran.stderr.contains(&format!("process {} on", first.id())), "{ran:?}");
    assert_snapshot!(sandbox.shown(&ran), @"
    exit 3
    --- stderr
    error: process [pid] on [host] already runs `serve` in this workspace
    hint: use the running one, or stop it first
    ");
    assert_snapshot!(sandbox.show(["serve", "--json"]), @r#"
    exit 3
    --- stdout
    {"error":{"code":"already_running","hint":"use the running one, or stop it first","message":"process [pid] on [host] already runs `serve` in this workspace"}}
    "#);
    assert!(first.is_running());
    // A killed `serve` leaves nothing that blocks the next one.
    first.kill();
    assert_eq!(sandbox.serve().terminate().code(), Some(0));
}

#[test]
fn malformed_file_does_not_block_others() {
    let sandbox = workspace();
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"workspace": {"settleMs": 1}}"#);
    let mut serve = sandbox.serve();
    let bad: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("zeros", &[0; 100]),
        ("bom", b"\xef\xbb\xbf{}"),
        ("utf16", b"\xff\xfe{\x00}\x00"),
        ("surrogate", br#"{"id":"msg_1_surrogate","payload":"\ud800"}"#),
        ("twice", br#"{"id":"msg_1_twice","id":"msg_1_twice"}"#),
    ];
    for (name, bytes) in bad {
        files::put_by_rename(sandbox.file(&format!("inbox/codex/msg_1_{name}.json")), bytes);
    }
    sandbox.drop_file("msg_1763000000000_abc", "claude", "codex", "a neighbour");
    let receipt = sandbox.file("outbox/claude/msg_1763000000000_abc.receipt.json");
    poll::until("the neighbour's receipt", || receipt.exists().then_some(()));
    let problems = || sandbox.json(["doctor"]).iter().filter(|check| check["status"] == "warn").count();
    poll::until("all six to be reported", || (problems() == 6).then_some(()));
    assert_eq!(serve.terminate().code(), Some(0));
    for (name, bytes) in bad {
        assert_eq!(std::fs::read(sandbox.file(&format!("inbox/codex/msg_1_{name}.json"))).unwrap(), bytes);
    }
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 1);
}

#[test]
fn growing_file_is_ingested_when_complete() {
    use std::io::Write;
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    let id = "msg_1763000000000_slow";
    let bytes = test_support::message_file(id, "claude", "codex", "written slowly", None);
    let path = sandbox.file(&format!("inbox/codex/{id}.json"));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    let receipt = sandbox.file(&format!("outbox/claude/{id}.receipt.json"));
    for piece in bytes.as_bytes().chunks(bytes.len() / 8 + 1) {
        assert!(!receipt.exists());
        file.write_all(piece).unwrap();
        // Longer than the scan of each part, shorter than the time after which a partial file is rejected.
        poll::within(std::time::Duration::from_millis(60), || receipt.exists().then_some(()));
    }
    drop(file);
    poll::until("the receipt", || receipt.exists().then_some(()));
    assert_eq!(serve.terminate().code(), Some(0));
    assert_eq!(sandbox.json(["inbox", "codex"])[0]["body"], "written slowly");
}

#[test]
fn existing_message_is_never_overwritten() {
    let sandbox = workspace();
    let id = "msg_1763000000000_abc";
    sandbox.drop_file(id, "claude", "codex", "the first");
    let mut serve = sandbox.serve();
    let receipt = sandbox.file(&format!("outbox/claude/{id}.receipt.json"));
    poll::until("the receipt", || receipt.exists().then_some(()));
    sandbox.drop_file(id, "claude", "codex", "the second");
    let conflicts = || {
        let names = std::fs::read_dir(sandbox.file("inbox/codex")).unwrap();
        names
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("conflict"))
            .count()
    };
    poll::until("the new file to be moved aside", || (conflicts() == 1).then_some(()));
    assert_eq!(serve.terminate().code(), Some(0));
    let messages = sandbox.json(["inbox", "codex"]);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["body"], "the first");
    let file = files::read_json_object(&sandbox.file(&format!("inbox/codex/{id}.json"))).unwrap();
    assert_eq!(file["payload"], "the first");
}

#[test]
fn moved_workspace_ends_serve_with_error() {
    let sandbox = workspace();
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"workspace": {"rescanMs": 50}}"#);
    let mut serve = sandbox.serve();
    sandbox.deliver_two_files();
    files::rename(sandbox.file(""), sandbox.path().join("elsewhere"));
    assert_eq!(serve.wait().code(), Some(1));
    assert_snapshot!(sandbox.redact(&without_log(&serve.errors())), @"
    error: [project]/.switchboard was moved or replaced while in use
    hint: run it again in the workspace's current folder
    ");
}

/// Without TLS, only the loopback address can be configured.
#[test]
fn foreign_address_is_refused() {
    let sandbox = workspace();
    let ran = sandbox.run(["serve", "--host", "0.0.0.0"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--host"), "{ran:?}");
    for settings in [r#"{ "http": { "host": "0.0.0.0" } }"#, r#"{ "http": { "listen": "0.0.0.0:3100" } }"#] {
        sandbox.configure_user(settings);
        let mut serve = sandbox.start(["serve", "--json"]);
        let line: serde_json::Value = serde_json::from_str(&serve.line()).unwrap();
        assert!(line["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{line}");
        assert!(serve.terminate().success());
    }
}
