//! `switchboard.config.json`

use insta::assert_snapshot;
use test_support::files;

use crate::workspace;

const NAME: &str = "switchboard.config.json";

#[test]
fn unknown_key_warns_with_nearest_match() {
    let sandbox = workspace();
    files::put(sandbox.path().join(NAME), r#"{"hub": {"bodyLimitByte": 5}, "wrkspace": {}, "$schema": "x"}"#);
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @"
    exit 0
    --- stderr
     WARN switchboard.config.json: the key 'wrkspace' is not known; did you mean 'workspace'?
     WARN switchboard.config.json: the key 'hub.bodyLimitByte' is not known; did you mean 'bodyLimitBytes'?
    No messages for codex.
    ");
    assert_snapshot!(sandbox.show(["inbox", "codex", "--json"]), @"
    exit 0
    --- stderr
     WARN switchboard.config.json: the key 'wrkspace' is not known; did you mean 'workspace'?
     WARN switchboard.config.json: the key 'hub.bodyLimitByte' is not known; did you mean 'bodyLimitBytes'?
    ");
}

#[test]
fn unparsable_file_is_an_error() {
    let sandbox = workspace();
    files::put(sandbox.path().join(NAME), "{");
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @"
    exit 1
    --- stderr
    error: [project]/switchboard.config.json:1: a '}' is missing
    hint: correct the file; docs/configuration.md lists its keys
    ");
    files::put(sandbox.path().join(NAME), r#"{"hub": {"bodyLimitBytes": "much"}}"#);
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @r#"
    exit 1
    --- stderr
    error: [project]/switchboard.config.json:1: 'hub.bodyLimitBytes' is the text "much", but must be a whole number, 0 or more
    hint: correct the file; docs/configuration.md lists its keys
    "#);
    assert_snapshot!(sandbox.show(["inbox", "codex", "--json"]), @r#"
    exit 1
    --- stdout
    {"error":{"code":"bad_config","hint":"correct the file; docs/configuration.md lists its keys","message":"[project]/switchboard.config.json:1: 'hub.bodyLimitBytes' is the text \"much\", but must be a whole number, 0 or more"}}
    "#);
    files::put(sandbox.path().join(NAME), "[]");
    assert_eq!(sandbox.run(["inbox", "codex"]).code, Some(1));
}

#[test]
fn comments_and_trailing_commas_are_accepted() {
    let sandbox = workspace();
    let file = "{\n  // small bodies only\n  \"hub\": { \"bodyLimitBytes\": 5, },\n}\n";
    files::put(sandbox.path().join(NAME), file);
    sandbox.ok(["send", "codex", "12345"]);
    assert_eq!(sandbox.run(["send", "codex", "123456"]).code, Some(1));
    sandbox.configure_user("{ /* mine */ \"hub\": { \"bodyLimitBytes\": 4, }, }");
    assert_eq!(sandbox.run(["send", "codex", "12345"]).code, Some(1));
}

#[test]
fn errors_name_the_line_of_the_setting() {
    let sandbox = workspace();
    files::put(sandbox.path().join(NAME), "{\n  // limits\n  \"hub\": {\n    \"replyHops\": -1\n  }\n}\n");
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @"
    exit 1
    --- stderr
    error: [project]/switchboard.config.json:4: 'hub.replyHops' is the number -1, but must be a whole number, 0 or more
    hint: correct the file; docs/configuration.md lists its keys
    ");
    files::put(sandbox.path().join(NAME), "{\n  hub: {}\n}\n");
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @"
    exit 1
    --- stderr
    error: [project]/switchboard.config.json:2: a key is not in double quotes
    hint: correct the file; docs/configuration.md lists its keys
    ");
}

#[test]
fn limits_are_read_from_file() {
    let sandbox = workspace();
    files::put(sandbox.path().join(NAME), r#"{"hub": {"bodyLimitBytes": 5}}"#);
    sandbox.ok(["send", "codex", "12345"]);
    assert_snapshot!(sandbox.show(["send", "codex", "123456"]), @"
    exit 1
    --- stderr
    error: the body has 6 bytes and the limit is 5
    hint: put the content into a file of the workspace and send its path
    ");
}

#[test]
fn reply_chain_stops_at_configured_limit() {
    let sandbox = workspace();
    files::put(sandbox.path().join(NAME), r#"{"hub": {"replyHops": 2}}"#);
    let mut last = sandbox.send("claude", "codex", "0");
    let mut codes = Vec::new();
    for number in 0..6 {
        let (from, to) = if number % 2 == 0 { ("codex", "claude") } else { ("claude", "codex") };
        let ran = sandbox.run_as(from, ["send", to, "again", "--reply-to", &last]);
        codes.push(ran.code);
        if ran.code != Some(0) {
            assert_eq!(ran.code, Some(4), "{ran:?}");
            break;
        }
        last = ran.ok();
    }
    assert_eq!(codes.last(), Some(&Some(4)), "{codes:?}");
    assert!(!sandbox.json(["inbox", "human"]).is_empty(), "the person gets a notice");
}

#[test]
fn workspace_file_enables_no_user_only_setting() {
    let sandbox = workspace();
    let file = r#"{"terminals": {"tmux": true, "bridge": true, "executeFromFiles": true}, "http": {"allowedOrigins": ["https://evil.example"]}}"#;
    files::put(sandbox.path().join(NAME), file);
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @"
    exit 0
    --- stderr
     WARN switchboard.config.json: 'http.allowedOrigins' counts only in your own ~/.config/switchboard/config.json
     WARN switchboard.config.json: 'terminals.bridge' counts only in your own ~/.config/switchboard/config.json
     WARN switchboard.config.json: 'terminals.executeFromFiles' counts only in your own ~/.config/switchboard/config.json
     WARN switchboard.config.json: 'terminals.tmux' counts only in your own ~/.config/switchboard/config.json
    No messages for codex.
    ");
    sandbox.configure_user(file);
    files::put(sandbox.path().join(NAME), "{}");
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @"
    exit 0
    --- stderr
    No messages for codex.
    ");
    sandbox.configure_user(r#"{"terminals": {"tmux": "yes"}}"#);
    assert_snapshot!(sandbox.show(["inbox", "codex"]), @r#"
    exit 1
    --- stderr
    error: [sandbox]/home/.config/switchboard/config.json:1: 'terminals.tmux' is the text "yes", but must be true or false
    hint: correct the file; docs/configuration.md lists its keys
    "#);
}

#[test]
fn raised_limit_applies_to_files() {
    let sandbox = workspace();
    sandbox.configure_user(r#"{"hub": {"bodyLimitBytes": 10000000}}"#);
    let body = sandbox.path().join("body");
    files::put(&body, "x".repeat(9_000_000));
    sandbox.ok(["send", "codex", "--file", body.to_str().unwrap()]);
    sandbox.ok(["doctor"]);
    for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(sandbox.file(name));
    }
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 1);
    sandbox.ok(["doctor"]);
}

#[test]
fn user_file_may_be_symbolic_link() {
    let sandbox = workspace();
    sandbox.configure_user("{}");
    let place = sandbox.home().join(".config/switchboard/config.json");
    let elsewhere = sandbox.home().join("dotfiles.json");
    files::put(&elsewhere, r#"{"hub": {"bodyLimitBytes": 5}}"#);
    std::fs::remove_file(&place).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
    assert_eq!(sandbox.run(["send", "codex", "123456"]).code, Some(1));
    sandbox.ok(["send", "codex", "12345"]);
}

#[test]
fn errors_name_file_and_setting() {
    let sandbox = workspace();
    for (file, problem) in [
        (r#"{"hub": []}"#, "'hub' must be an object"),
        ("[]", "it must be an object"),
        (
            r#"{"workspace": {"retention": {"archiveDays": "90"}}}"#,
            r#"'workspace.retention.archiveDays' is the text "90", but must be a whole number, 0 or more"#,
        ),
    ] {
        files::put(sandbox.path().join(NAME), file);
        let ran = sandbox.run(["inbox", "codex"]);
        assert!(ran.stderr.contains(problem), "{ran:?}");
    }
    std::fs::remove_file(sandbox.path().join(NAME)).unwrap();
    std::os::unix::fs::symlink("elsewhere", sandbox.path().join(NAME)).unwrap();
    let ran = sandbox.run(["inbox", "codex"]);
    assert!(ran.stderr.contains("symbolic link"), "{ran:?}");
}
