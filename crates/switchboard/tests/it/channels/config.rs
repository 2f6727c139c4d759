//! The section `channels` of the settings, under `serve`.

use std::path::Path;

use serde_json::json;
use test_support::files;

use super::{Program, answer_to, post};
use crate::workspace;

#[test]
fn user_watchers_run_under_serve() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "echo 42");
    let root = sandbox.path().join("shared");
    std::fs::create_dir_all(&root).unwrap();
    let watcher = |agent: &str| json!({ "agent": agent, "channel": "general", "command": [program.path()] });
    let watchers = [watcher("qc-1"), watcher("docs-1"), watcher("gemini-1")];
    let settings = json!({ "channels": { "root": root, "watchers": watchers } });
    sandbox.configure_user(&settings.to_string());
    let mut serve = sandbox.serve();
    for agent in ["qc-1", "docs-1", "gemini"] {
        let question = post(&sandbox, "human", agent, "what is it?");
        assert_eq!(answer_to(&sandbox, &question)["from"], agent);
    }
    assert!(serve.errors().contains("'gemini-1' is deprecated; watching as 'gemini'"), "{}", serve.errors());
    assert!(root.join("channels/general").is_dir() && root.join("signals/presence/qc-1.json").exists());
    assert!(serve.terminate().success());
    let beat = std::fs::read_to_string(root.join("signals/presence/docs-1.json")).unwrap();
    assert!(beat.contains("OFFLINE"), "{beat}");
}

#[test]
fn repository_settings_run_no_program() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "echo 42");
    let watcher = json!({ "agent": "qc-1", "channel": "general", "command": [program.path()] });
    let settings = json!({ "channels": { "root": "/tmp", "watchers": [watcher] } });
    files::put(sandbox.path().join("switchboard.config.json"), settings.to_string());
    let ran = sandbox.run(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "hi"]);
    assert!(ran.stderr.contains("'channels.watchers' counts only in your own"), "{}", ran.stderr);
    assert!(ran.stderr.contains("'channels.root' counts only in your own"), "{}", ran.stderr);
    assert!(sandbox.file("channels/general").is_dir());
}

#[test]
fn bad_setting_is_named() {
    let sandbox = workspace();
    for (settings, named) in [
        (r#"{"channels":{"root":"relative"}}"#, "channels.root"),
        (r#"{"channels":{"watchers":[{"agent":"a","channel":"b"}]}}"#, "channels.watchers[0].command"),
        (
            r#"{"channels":{"watchers":[{"agent":"a","channel":"b","preset":"gpt"}]}}"#,
            "codex, claude, gemini",
        ),
        (r#"{"channels":{"watchers":[{"agent":"a","channel":"b","comand":["x"]}]}}"#, "comand"),
        (
            r#"{"channels":{"watchers":[{"agent":"human","channel":"b","command":["x"]}]}}"#,
            ".config/switchboard/config.json:1: 'channels.watchers[0]': 'agent' is 'human'",
        ),
    ] {
        sandbox.configure_user(settings);
        let ran = sandbox.run(["channel", "list"]);
        assert!(ran.code == Some(1) && ran.stderr.contains(named), "{settings}: {}", ran.stderr);
    }
}

#[test]
fn shared_folder_files_get_group_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    let (sandbox, shared) = (workspace(), tempfile::tempdir().unwrap());
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o2770)).unwrap();
    sandbox.configure_user(&json!({ "channels": { "root": shared.path() } }).to_string());
    let posted =
        sandbox.json(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "hi"]);
    let file = Path::new(posted[0]["file_path"].as_str().unwrap()).to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o660, 0o2770));
    let own = workspace();
    let posted = own.json(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "hi"]);
    assert_eq!(mode(Path::new(posted[0]["file_path"].as_str().unwrap())), 0o600);
}
