//! Programs that a repository names: Git's, and ours in committed files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use test_support::process::command;
use test_support::{RunOutput, Sandbox, files, tools};

use crate::{BINARY, bare, workspace};

fn git(sandbox: &Sandbox, args: &[&str]) {
    let mut git = command("git");
    git.env("HOME", sandbox.home()).current_dir(sandbox.path());
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]);
    tools::run(git.args(args)).unwrap();
}

fn script(path: &Path, text: &str) {
    files::put(path, format!("#!/bin/sh\n{text}\n"));
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn repository_programs_do_not_run() {
    let sandbox = workspace();
    git(&sandbox, &["init", "-q"]);
    files::put(sandbox.path().join("file"), "one");
    git(&sandbox, &["add", "file"]);
    git(&sandbox, &["commit", "-qm", "one"]);
    let ran = sandbox.path().join("ran");
    let trap = sandbox.path().join("trap");
    script(&trap, &format!("echo \"$0 $*\" >> {}", ran.display()));
    let trap = trap.to_str().unwrap();
    for key in
        ["core.fsmonitor", "core.pager", "diff.external", "core.editor", "pager.ls-files", "pager.diff"]
    {
        git(&sandbox, &["config", key, trap]);
    }
    let hooks = sandbox.path().join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in ["post-checkout", "post-index-change", "reference-transaction"] {
        script(&hooks.join(hook), &format!("echo {hook} >> {}", ran.display()));
    }
    let _ = std::fs::remove_file(&ran);
    files::put(sandbox.path().join("file"), "two");
    sandbox.run(["doctor"]);
    sandbox.run(["guard"]);
    assert!(!ran.exists(), "{}", std::fs::read_to_string(&ran).unwrap_or_default());
}

/// Runs the binary with this search path.
fn with_path(sandbox: &Sandbox, path: &str, args: &[&str]) -> RunOutput {
    RunOutput::of(sandbox.command(args).env("PATH", path))
}

fn server(sandbox: &Sandbox) -> Value {
    files::read_json_object(&sandbox.path().join(".mcp.json")).unwrap()["mcpServers"]["switchboard"].clone()
}

#[test]
fn committed_files_name_program_on_path() {
    let sandbox = bare();
    let bin = sandbox.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let on_path = format!("{}:/usr/bin:/bin", bin.display());
    let servers = json!({ "mcpServers": { "notes": { "command": "notes" } } }).to_string();
    files::put(sandbox.path().join(".mcp.json"), &servers);
    with_path(&sandbox, "/usr/bin:/bin", &["init"]).ok();
    assert_eq!(server(&sandbox)["command"], BINARY, "PATH does not find it");
    with_path(&sandbox, &on_path, &["suite", "revert"]).ok();
    std::os::unix::fs::symlink(BINARY, bin.join("switchboard")).unwrap();
    with_path(&sandbox, &on_path, &["init"]).ok();
    assert_eq!(server(&sandbox)["command"], "switchboard");
    with_path(&sandbox, &on_path, &["install", "claude"]).ok();
    let hooks = std::fs::read_to_string(sandbox.path().join(".claude/settings.local.json")).unwrap();
    assert!(hooks.contains("\"switchboard hook claude") && !hooks.contains(BINARY), "{hooks}");
    with_path(&sandbox, &on_path, &["install", "codex", "--user"]).ok();
    let user = std::fs::read_to_string(sandbox.home().join(".codex/config.toml")).unwrap();
    assert!(user.contains(BINARY), "a user's own file has the whole path: {user}");
}

#[test]
fn other_program_of_same_name_is_ignored() {
    let sandbox = bare();
    let bin = sandbox.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    script(&bin.join("switchboard"), "exit 1");
    files::put(sandbox.path().join(".mcp.json"), json!({ "mcpServers": {} }).to_string());
    with_path(&sandbox, &format!("{}:/usr/bin:/bin", bin.display()), &["init"]).ok();
    assert_eq!(server(&sandbox)["command"], BINARY);
}

#[test]
fn wrapped_server_names_program_on_path() {
    let sandbox = workspace();
    let bin = sandbox.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(BINARY, bin.join("switchboard")).unwrap();
    let on_path = format!("{}:/usr/bin:/bin", bin.display());
    sandbox.ok(["suite", "add", "notes", "--", "true"]);
    let file = sandbox.file("mcps/notes/.mcp.json");
    for (path, program) in [(on_path.as_str(), "switchboard"), ("/usr/bin:/bin", BINARY)] {
        with_path(&sandbox, path, &["suite", "wrap", "notes"]).ok();
        assert_eq!(files::read_json_object(&file).unwrap()["command"]["cmd"], program);
        let folder = files::tree(sandbox.file("mcps"));
        let has_path = folder.values().any(|entry| String::from_utf8_lossy(&entry.content).contains(BINARY));
        assert_eq!(has_path, program == BINARY, "{folder:?}");
        with_path(&sandbox, path, &["suite", "unwrap", "notes"]).ok();
    }
}
