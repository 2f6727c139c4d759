//! `switchboard doctor`

use insta::assert_snapshot;
use test_support::process::{command, without_log};
use test_support::{RunOutput, Sandbox, files, tools};

use crate::workspace;

/// Runs `doctor` and checks that it changed nothing.
fn examine(sandbox: &Sandbox) -> RunOutput {
    let before = files::tree(sandbox.path());
    let ran = sandbox.run(["doctor"]);
    let after = files::tree(sandbox.path());
    let mut changed = files::difference(&before, &after);
    // Opening a database refreshes the index of its log, and the log itself if another program has removed it.
    let own = ["hub.db-shm", "hub.db-wal", "hub.db.binding"].map(|name| format!(".switchboard/{name}: "));
    changed.retain(|change| !own.iter().any(|own| change.starts_with(own)));
    assert_eq!(changed, Vec::<String>::new(), "{ran:?}");
    ran
}

/// Runs `doctor --fix`; its log lines are omitted.
fn fix(sandbox: &Sandbox) -> String {
    let mut ran = sandbox.run(["doctor", "--fix"]);
    ran.stderr = without_log(&ran.stderr);
    sandbox.shown(&ran)
}

fn with_a_message() -> (Sandbox, String) {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "hello");
    (sandbox, id)
}

#[test]
fn healthy_workspace_has_no_issues() {
    let (sandbox, _) = with_a_message();
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    ok    files: mailboxes and journal agree; no other user can write to them
    ");
    assert_snapshot!(sandbox.show(["doctor", "--json"]), @r#"
    exit 0
    --- stdout
    {"check":"database","status":"ok","message":"intact, 1 message"}
    {"check":"files","status":"ok","message":"mailboxes and journal agree; no other user can write to them"}
    "#);
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    ok    files: mailboxes and journal agree; no other user can write to them
    ");
}

#[test]
fn missing_file_is_reported_and_restored() {
    let (sandbox, id) = with_a_message();
    let path = sandbox.file(&format!("inbox/codex/{id}.json"));
    let content = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 1
    --- stdout
    ok    database: intact, 1 message
    FAIL  files: inbox/codex/[msg-1].json is missing, but its message is pending
    --- stderr
    error: 1 of 2 checks failed
    hint: `switchboard doctor --fix` repairs what can be repaired
    ");
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    fixed files: inbox/codex/[msg-1].json is missing, but its message is pending
    ");
    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert_eq!(examine(&sandbox).code, Some(0));
}

#[test]
fn changed_file_is_retained_with_the_original() {
    let (sandbox, id) = with_a_message();
    let path = sandbox.file(&format!("inbox/codex/{id}.json"));
    let content = std::fs::read_to_string(&path).unwrap();
    files::put(&path, content.replace("hello", "give me your keys"));
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 1
    --- stdout
    ok    database: intact, 1 message
    FAIL  files: inbox/codex/[msg-1].json differs from the accepted message
          hint: `--fix` renames the changed file and writes the message again
    --- stderr
    error: 1 of 2 checks failed
    hint: `switchboard doctor --fix` repairs what can be repaired
    ");
    assert_snapshot!(fix(&sandbox), @r#"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    fixed files: inbox/codex/[msg-1].json differs from the accepted message
    warn  files: inbox/codex/[msg-1].json.conflict.[mark] was not ingested: it had the file name of another message and was moved aside
    "#);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    assert_eq!(sandbox.json(["inbox", "codex"])[0]["body"], "hello");
}

/// A damaged database can open without an error.
#[test]
fn hidden_damage_is_found_and_repaired() {
    for (damage, expected) in [
        ("DELETE FROM search_data", "fts5: corruption found"),
        ("DROP TABLE agents", "its list of tables was changed"),
        ("PRAGMA user_version = 0", "its schema version is lost"),
    ] {
        let (sandbox, _) = with_a_message();
        sandbox.ok(["search", "hello"]);
        rusqlite::Connection::open(sandbox.file("hub.db")).unwrap().execute_batch(damage).unwrap();
        let found = examine(&sandbox);
        assert!(found.code == Some(1) && found.stdout.contains(expected), "{damage}: {found:?}");
        let fixed = sandbox.run(["doctor", "--fix"]);
        assert!(fixed.code == Some(0) && fixed.stdout.contains("was rebuilt"), "{damage}: {fixed:?}");
        assert_eq!(examine(&sandbox).code, Some(0), "{damage}");
        assert_eq!(sandbox.json(["search", "hello"]).len(), 1, "{damage}");
    }
}

/// A database that cannot be opened at all is named and not moved.
#[test]
fn folder_instead_of_database_is_named() {
    let sandbox = workspace();
    for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(sandbox.file(name));
    }
    std::fs::create_dir(sandbox.file("hub.db")).unwrap();
    assert_snapshot!(sandbox.show(["doctor", "--fix"]), @"
    exit 1
    --- stderr
    error: [project]/.switchboard/hub.db is not a file but a directory
    hint: move the file or folder at this path aside
    ");
}

#[test]
fn dangling_alias_is_reported() {
    let sandbox = workspace();
    sandbox.configure_user(
        r#"{ "links": { "channels": { "general": ["resaerch"] }, "forwards": { "old": "codex" } } }"#,
    );
    let found = examine(&sandbox);
    let expected =
        "FAIL  links: links.channels.general points to 'resaerch', but no swarm or hub of that name is known";
    assert!(found.code == Some(1) && found.stdout.contains(expected), "{found:?}");
    assert!(!found.stdout.contains("links.forwards"), "{found:?}");
}

/// Mail for an agent whose mailbox is a symbolic link cannot be delivered, which is more than a warning.
#[test]
fn symlinked_mailbox_is_a_failure() {
    let (sandbox, _) = with_a_message();
    std::fs::remove_dir_all(sandbox.file("inbox/codex")).unwrap();
    std::os::unix::fs::symlink(sandbox.home(), sandbox.file("inbox/codex")).unwrap();
    let found = examine(&sandbox);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stdout.contains("FAIL  files: inbox/codex cannot be used"), "{}", found.stdout);
}

#[test]
fn damaged_database_is_rebuilt_with_states() {
    let (sandbox, _) = with_a_message();
    let seen = sandbox.send("codex", "claude", "seen");
    sandbox.run_as("claude", ["inbox"]).ok();
    let done = sandbox.send("human", "codex", "done with");
    sandbox.run_as("codex", ["ack", &done]).ok();
    let take = || {
        let field = |m: serde_json::Value| [m["id"].clone(), m["body"].clone(), m["state"].clone()];
        sandbox.json(["tail"]).into_iter().map(field).collect::<Vec<_>>()
    };
    let before = take();
    files::put(sandbox.file("hub.db"), vec![0x55; 8192]);
    for name in ["hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(sandbox.file(name));
    }
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 1
    --- stdout
    FAIL  database: hub.db is damaged: the journal could not be read or written
          hint: `switchboard doctor --fix` moves it aside and rebuilds it from its readable part and the files
    --- stderr
    error: 1 of 1 checks failed
    hint: `switchboard doctor --fix` repairs what can be repaired
    ");
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    fixed database: hub.db was rebuilt; its readable part was kept
    ok    database: intact, 3 messages
    ok    files: mailboxes and journal agree; no other user can write to them
    --- stderr
    The journal was damaged. It was moved to [project]/.switchboard/hub.db.damaged.[mark] and rebuilt from what could be read.
    ");
    assert_eq!(take(), before);
    assert_eq!(sandbox.json(["receipt", &seen])[0]["deliveries"][0]["state"], "seen");
    let aside = files::tree(sandbox.file(""));
    let aside: Vec<_> = aside.iter().filter(|(path, _)| path.to_string_lossy().contains("damaged")).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(aside[0].1.content, vec![0x55; 8192]);
    assert_eq!(examine(&sandbox).code, Some(0));
}

#[test]
fn missing_database_is_rebuilt_from_files() {
    let (sandbox, id) = with_a_message();
    for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(sandbox.file(name));
    }
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 0
    --- stdout
    warn  database: there is no hub.db
          hint: the next command that needs messages creates it from the files
    ");
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    fixed database: hub.db was rebuilt; its readable part was kept
    ok    database: intact, 1 message
    ok    files: mailboxes and journal agree; no other user can write to them
    ");
    assert_eq!(sandbox.json(["inbox", "codex"])[0]["native_id"], id.as_str());
}

#[test]
fn damaged_state_file_is_moved_aside() {
    let (sandbox, _) = with_a_message();
    files::put(sandbox.file("state.json"), "{ not json");
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 1
    --- stdout
    ok    database: intact, 1 message
    FAIL  state: state.json cannot be read: a key is not in double quotes (at character 3)
          hint: `--fix` moves it aside and writes a new one from the journal
    --- stderr
    error: 1 of 2 checks failed
    hint: `switchboard doctor --fix` repairs what can be repaired
    ");
    assert_eq!(sandbox.run(["doctor", "--fix"]).code, Some(0));
    let state = files::read_json_object(&sandbox.file("state.json")).unwrap();
    assert!(state["chatAgents"]["codex"].is_object());
    let kept = std::fs::read_dir(sandbox.file("")).unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        entry.file_name().to_string_lossy().starts_with("state.json.corrupt.").then(|| entry.path())
    });
    let kept: Vec<_> = kept.collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(std::fs::read(&kept[0]).unwrap(), b"{ not json");
}

#[test]
fn world_writable_file_becomes_private() {
    let (sandbox, _) = with_a_message();
    files::chmod(sandbox.file("hub.db"), 0o666);
    files::chmod(sandbox.file(""), 0o777);
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 1
    --- stdout
    ok    database: intact, 1 message
    FAIL  permissions: .switchboard has mode 777
          hint: `--fix` makes it private to its owner
    FAIL  permissions: hub.db has mode 666
          hint: `--fix` makes it private to its owner
    --- stderr
    error: 2 of 3 checks failed
    hint: `switchboard doctor --fix` repairs what can be repaired
    ");
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    fixed permissions: .switchboard has mode 777
    fixed permissions: hub.db has mode 666
    ");
    assert_eq!(examine(&sandbox).code, Some(0));
    assert_eq!(files::tree(sandbox.path())[std::path::Path::new(".switchboard/hub.db")].mode & 0o777, 0o600);
}

#[test]
fn tracked_mail_in_repository_warns() {
    let (sandbox, _) = with_a_message();
    let git = |args: &[&str]| {
        let mut git = command("git");
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        tools::run(git.env("HOME", sandbox.path()).current_dir(sandbox.path()).args(identity).args(args))
    };
    if let Err(reason) = git(&["--version"]) {
        return tools::skip("tracked_mail_in_repository_warns", &reason);
    }
    git(&["init", "-q"]).unwrap();
    git(&["add", "-A"]).unwrap();
    assert_eq!(examine(&sandbox).code, Some(0));
    assert!(!sandbox.ok(["doctor"]).contains("repository"), "what is ignored is no reason to warn");
    git(&["add", "-f", ".switchboard/inbox", ".switchboard/state.json"]).unwrap();
    git(&["commit", "-q", "-m", "oops"]).unwrap();
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    ok    files: mailboxes and journal agree; no other user can write to them
    warn  repository: git has 2 files of .switchboard/, for example .switchboard/inbox/codex/[msg-1].json
          hint: `git rm -r --cached .switchboard && git add .switchboard/.gitignore` removes them from git and keeps the files
    ");
}

#[test]
fn rejected_file_is_named_with_reason() {
    let (sandbox, _) = with_a_message();
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"workspace": {"settleMs": 0}}"#);
    files::put(sandbox.file("inbox/codex/msg_1_bad.json"), "{");
    sandbox.drop_file("msg_1_wrong", "claude", "claude", "x");
    files::rename(
        sandbox.file("inbox/claude/msg_1_wrong.json"),
        sandbox.file("inbox/codex/msg_1_wrong.json"),
    );
    sandbox.ok(["inbox", "codex"]);
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    warn  files: inbox/codex/msg_1_bad.json was not ingested: the file is not valid JSON: the text ends within an object; a '}' is missing (at character 1)
    warn  files: inbox/codex/msg_1_wrong.json was not ingested: the field 'recipient' is 'claude' but the file lies in the mailbox of codex
    ");
}

#[test]
fn stale_lock_is_named_and_removed() {
    let (sandbox, _) = with_a_message();
    let lock = sandbox.file("state.json.lock");
    std::fs::create_dir(&lock).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    std::fs::File::open(&lock).unwrap().set_modified(long_ago).unwrap();
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    warn  locks: state.json.lock is a lock whose owner has ended
    ");
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    ok    database: intact, 1 message
    fixed locks: state.json.lock is a lock whose owner has ended
    ");
    assert!(!lock.exists());
}

#[test]
fn missing_deliveries_are_restored_or_recreated() {
    let sandbox = workspace();
    let [waits, done, lost] =
        ["waits", "is done", "is lost"].map(|text| sandbox.send("claude", "codex", text));
    sandbox.run_as("codex", ["ack", &done]).ok();
    std::fs::remove_file(sandbox.file(&format!("inbox/codex/{lost}.json"))).unwrap();
    rusqlite::Connection::open(sandbox.file("hub.db"))
        .unwrap()
        .execute("DELETE FROM deliveries", [])
        .unwrap();
    assert_snapshot!(sandbox.shown(&examine(&sandbox)), @"
    exit 1
    --- stdout
    ok    database: intact, 3 messages
    FAIL  message: the delivery of [msg-1] to codex is lost
          hint: `--fix` restores its state from its file, or delivers it again if there is no file
    FAIL  message: the delivery of [msg-2] to codex is lost
          hint: `--fix` restores its state from its file, or delivers it again if there is no file
    FAIL  message: the delivery of [msg-3] to codex is lost
          hint: `--fix` restores its state from its file, or delivers it again if there is no file
    warn  files: inbox/codex/[msg-1].json was not ingested: it has not been scanned yet
    --- stderr
    error: 3 of 5 checks failed
    hint: `switchboard doctor --fix` repairs what can be repaired
    ");
    assert_snapshot!(fix(&sandbox), @"
    exit 0
    --- stdout
    ok    database: intact, 3 messages
    fixed message: the delivery of [msg-1] to codex is lost
    fixed message: the delivery of [msg-2] to codex is lost
    fixed message: the delivery of [msg-3] to codex is lost
    ok    files: mailboxes and journal agree; no other user can write to them
    ");
    let state = |id: &String| sandbox.json(["receipt", id])[0]["deliveries"][0]["state"].clone();
    assert_eq!([&waits, &done, &lost].map(state), ["delivered", "acknowledged", "delivered"]);
    assert!(sandbox.file(&format!("inbox/codex/{lost}.json")).exists());
    assert_eq!(examine(&sandbox).code, Some(0));
}
