//! Message files that were changed after posting, and files that are no messages.

use test_support::{Sandbox, files, poll};

use super::{messages, post};
use crate::workspace;

fn doctor(sandbox: &Sandbox) -> Vec<(String, String)> {
    let ran = sandbox.run(["doctor", "--json"]);
    let checks = ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    checks
        .filter(|check| check["check"] == "channels")
        .map(|check| (text(&check["status"]), text(&check["message"])))
        .collect()
}

#[test]
fn edit_and_removal_are_reported() {
    let sandbox = workspace();
    let kept = post(&sandbox, "codex", "all", "kept");
    let edited = post(&sandbox, "codex", "all", "pay 10");
    let deleted = post(&sandbox, "codex", "all", "a promise");
    let ok = ("ok".to_owned(), "1 channel, 3 messages; files and journal agree".to_owned());
    assert_eq!(doctor(&sandbox), [ok]);
    let serve = sandbox.serve();
    let path = |id: &str| sandbox.file(&format!("channels/general/{id}.json"));
    let wait_for_log = |what: String| {
        poll::until(&what, || serve.errors().contains(&what).then_some(()));
    };
    let first = post(&sandbox, "codex", "all", "seen");
    std::fs::remove_file(path(&first)).unwrap();
    wait_for_log(format!("channels/general/{first}.json was deleted after it was posted"));
    let text = std::fs::read_to_string(path(&edited)).unwrap();
    files::put(path(&edited), text.replace("pay 10", "pay 10000"));
    wait_for_log(format!("channels/general/{edited}.json was changed after it was posted"));
    std::fs::remove_file(path(&deleted)).unwrap();
    wait_for_log(format!("channels/general/{deleted}.json was deleted after it was posted"));
    let issues: Vec<String> =
        doctor(&sandbox).into_iter().map(|(status, text)| format!("{status} {text}")).collect();
    assert_eq!(issues.len(), 3, "{issues:?}");
    assert!(issues.iter().all(|line| line.starts_with("fail ")), "{issues:?}");
    let ids: Vec<_> = messages(&sandbox).iter().map(|message| message["id"].clone()).collect();
    assert_eq!(ids, [kept.as_str(), edited.as_str()]);
    let accepted: Vec<_> = sandbox.json(["tail", "-n", "10"]).iter().map(|m| m["body"].clone()).collect();
    assert_eq!(accepted, ["kept", "pay 10", "a promise", "seen"]);
}

#[test]
fn doctor_names_rejected_files() {
    let sandbox = workspace();
    let path = sandbox.file("channels/general/msg-20260111-163315-codex-0001.json");
    files::put(&path, "{");
    let serve = sandbox.serve();
    let issue = poll::until("an issue", || doctor(&sandbox).into_iter().find(|(status, _)| status == "warn"));
    assert!(
        issue.1.starts_with("channels/general/msg-20260111-163315-codex-0001.json was not ingested"),
        "{issue:?}"
    );
    drop(serve);
}

#[test]
fn doctor_reports_removed_channel() {
    let sandbox = workspace();
    post(&sandbox, "codex", "all", "one");
    post(&sandbox, "codex", "all", "two");
    std::fs::remove_dir_all(sandbox.file("channels/general")).unwrap();
    let gone = "channels/general was deleted, and 2 of its messages now have no file".to_owned();
    assert_eq!(doctor(&sandbox), [("fail".to_owned(), gone)]);
}

#[test]
fn doctor_reports_duplicate_folder_and_missing_files() {
    let sandbox = workspace();
    post(&sandbox, "codex", "all", "one");
    std::fs::create_dir(sandbox.file("channels/General")).unwrap();
    let watcher = serde_json::json!({ "agent": "qc-1", "channel": "general", "command": ["true"], "role": "/nowhere/role.md" });
    sandbox.configure_user(&serde_json::json!({ "channels": { "watchers": [watcher] } }).to_string());
    let warn = |text: &str| ("warn".to_owned(), text.to_owned());
    assert_eq!(
        doctor(&sandbox),
        [
            warn("channels/General and channels/general are the same channel"),
            warn("the watcher of qc-1 has no file /nowhere/role.md"),
        ]
    );
}

#[test]
fn doctor_continues_past_damaged_journal_entry() {
    let sandbox = workspace();
    for text in ["one", "two", "three"] {
        post(&sandbox, "codex", "all", text);
    }
    let journal = rusqlite::Connection::open(sandbox.file("hub.db")).unwrap();
    journal.execute("UPDATE messages SET body = 'else' WHERE body = 'two'", []).unwrap();
    drop(journal);
    for args in [&["doctor"][..], &["doctor", "--fix"]] {
        let ran = sandbox.run(args);
        assert!(ran.code == Some(1) && ran.stderr.contains("checks failed"), "{ran:?}");
        assert!(ran.stdout.contains("is damaged in the journal"), "{ran:?}");
        assert!(ran.stdout.contains("channels: 1 channel, 3 messages"), "{ran:?}");
    }
}
