//! `switchboard reserve` and `switchboard guard`

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use test_support::{RunOutput, Sandbox, files};

use crate::workspace;

/// Creates a workspace in a Git repository.
fn repository() -> Sandbox {
    let sandbox = workspace();
    git(&sandbox, sandbox.path(), None, &["init", "-q", "-b", "main"]).ok();
    files::put(sandbox.path().join(".gitignore"), ".switchboard/\n");
    files::put(sandbox.path().join("src/a.rs"), "one\n");
    commit(&sandbox, sandbox.path(), None).ok();
    sandbox
}

/// Runs Git as an agent, or as the person.
#[expect(clippy::disallowed_methods, reason = "Git is run as a person runs it")]
fn git(sandbox: &Sandbox, folder: &Path, agent: Option<&str>, args: &[&str]) -> RunOutput {
    let mut command = Command::new("git");
    command.current_dir(folder).env("HOME", sandbox.home()).env("GIT_CONFIG_NOSYSTEM", "1");
    command
        .env_remove("SWITCHBOARD_AGENT_NAME")
        .args(["-c", "user.name=t", "-c", "user.email=t@t"])
        .args(args);
    if let Some(agent) = agent {
        command.env("SWITCHBOARD_AGENT_NAME", agent);
    }
    RunOutput::of(&mut command)
}

fn commit(sandbox: &Sandbox, folder: &Path, agent: Option<&str>) -> RunOutput {
    git(sandbox, folder, agent, &["add", "-A"]).ok();
    git(sandbox, folder, agent, &["commit", "-q", "-m", "work"])
}

fn hook(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(".git/hooks/pre-commit")
}

#[test]
fn hook_stops_commit_to_reserved_files() {
    let sandbox = repository();
    sandbox.run_as("codex", ["reserve", "src/", "--note", "rewriting it"]).ok();
    files::put(sandbox.path().join("src/a.rs"), "two\n");
    // Without the hook, commits are not checked.
    git(&sandbox, sandbox.path(), None, &["add", "-A"]).ok();
    let ran = sandbox.run_as("claude", ["guard"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let problem = "error: 'src/a.rs' is reserved by codex ('src/**' until ";
    assert!(ran.stderr.starts_with(problem) && ran.stderr.contains("): rewriting it"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--no-verify"), "{}", ran.stderr);
    sandbox.ok(["guard", "install"]);
    for agent in [Some("claude"), None] {
        let ran = commit(&sandbox, sandbox.path(), agent);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(problem), "{}", ran.stderr);
    }
    commit(&sandbox, sandbox.path(), Some("codex")).ok();
    // A removed or renamed file is reserved as well.
    git(&sandbox, sandbox.path(), None, &["mv", "src/a.rs", "b.rs"]).ok();
    assert_eq!(commit(&sandbox, sandbox.path(), Some("claude")).code, Some(1));
    sandbox.run_as("codex", ["reserve", "--release"]).ok();
    commit(&sandbox, sandbox.path(), Some("claude")).ok();
}

#[test]
fn previous_hook_runs_and_is_restored() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = repository();
    files::put(hook(&sandbox), "#!/bin/sh\necho ran >> ran.log\n[ ! -e stop ]\n");
    std::fs::set_permissions(hook(&sandbox), std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = std::fs::read_to_string(hook(&sandbox)).unwrap();
    for _ in 0..2 {
        let output = sandbox.json(["guard", "install"]);
        assert_eq!(output[0]["kept"], json!(true));
    }
    files::put(sandbox.path().join("x"), "1");
    commit(&sandbox, sandbox.path(), None).ok();
    assert_eq!(std::fs::read_to_string(sandbox.path().join("ran.log")).unwrap(), "ran\n");
    files::put(sandbox.path().join("stop"), "");
    assert_eq!(commit(&sandbox, sandbox.path(), None).code, Some(1), "the hook that was there says no");
    sandbox.ok(["guard", "uninstall"]);
    assert_eq!(std::fs::read_to_string(hook(&sandbox)).unwrap(), before);
    assert_eq!(sandbox.run(["guard", "uninstall"]).code, Some(5));

    // A hooks folder that is part of the repository stays untouched.
    git(&sandbox, sandbox.path(), None, &["config", "core.hooksPath", ".hooks"]).ok();
    let ran = sandbox.run(["guard", "install"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("are files of it") && ran.stderr.contains("hint: add the line"), "{ran:?}");
}

#[test]
fn hook_admits_commit_without_a_workspace() {
    let sandbox = repository();
    sandbox.ok(["guard", "install"]);
    std::fs::remove_dir_all(sandbox.path().join(".switchboard")).unwrap();
    files::put(sandbox.path().join("x"), "1");
    commit(&sandbox, sandbox.path(), None).ok();
}

#[test]
fn worktrees_are_separate_unless_shared() {
    let sandbox = repository();
    sandbox.ok(["guard", "install"]);
    let other = sandbox.path().parent().unwrap().join("other");
    git(&sandbox, sandbox.path(), None, &["worktree", "add", "-q", other.to_str().unwrap()]).ok();
    // A second worktree shares the workspace of the first one.
    let there = |agent: &str, args: &[&str]| {
        RunOutput::of(sandbox.command(args).current_dir(&other).env("SWITCHBOARD_AGENT_NAME", agent))
    };
    sandbox.run_as("codex", ["reserve", "src/**"]).ok();
    there("claude", &["reserve", "src/a.rs"]).ok();
    files::put(other.join("src/a.rs"), "three\n");
    commit(&sandbox, &other, Some("claude")).ok();
    there("claude", &["reserve", "--release"]).ok();

    sandbox.run_as("codex", ["reserve", "src/**", "--shared"]).ok();
    let ran = there("claude", &["reserve", "src/a.rs"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("'src/a.rs' overlaps 'src/**', reserved by codex until"), "{ran:?}");
    files::put(other.join("src/a.rs"), "four\n");
    assert_eq!(commit(&sandbox, &other, Some("claude")).code, Some(1));
}

#[test]
fn reservations_are_listed_reported_and_released() {
    let sandbox = workspace();
    let made = RunOutput::of(
        sandbox.command(["reserve", "SRC/**", "docs/x.md", "--json"]).env("SWITCHBOARD_AGENT_NAME", "codex"),
    );
    assert_eq!(made.ok().lines().count(), 2);
    for taken in ["src/a.rs", "docs/"] {
        std::fs::create_dir_all(sandbox.path().join("docs")).unwrap();
        let ran = sandbox.run_as("claude", ["reserve", taken]);
        assert_eq!(ran.code, Some(3), "{taken}: {ran:?}");
    }
    assert_eq!(sandbox.json(["reserve"])[1]["pattern"], "docs/x.md");
    let agents = sandbox.json(["agents"]);
    let codex = agents.iter().find(|agent| agent["name"] == "codex").unwrap();
    assert_eq!(codex["reservations"], json!(["SRC/**", "docs/x.md"]));
    let events = sandbox.json(["tail", "--events"]);
    let events: Vec<_> = events.iter().map(|event| (&event["event"], &event["thing"])).collect();
    assert_eq!(events, [(&json!("reserved"), &json!("SRC/**")), (&json!("reserved"), &json!("docs/x.md"))]);
    assert_eq!(sandbox.json(["tail"]).len(), 0);
    assert_eq!(sandbox.run_as("codex", ["reserve", "--release", "docs/x.md"]).ok(), "1 released");
    assert_eq!(sandbox.run_as("claude", ["reserve", "--release"]).ok(), "0 released");
    assert_eq!(sandbox.json(["reserve"]).len(), 1);
    for bad in ["../x", "/etc/passwd", "src/[a", "a\\b"] {
        let ran = sandbox.run_as("codex", ["reserve", bad]);
        assert_eq!(ran.code, Some(2), "{bad}: {ran:?}");
    }
}

#[test]
fn invalid_reservation_release_or_guard_fails() {
    let sandbox = workspace();
    let ran = sandbox.run_as("cdex", ["reserve", "src/a.rs"]);
    assert!(ran.code == Some(5) && ran.stderr.contains("did you mean 'codex'?"), "{ran:?}");
    sandbox.run_as("codex", ["reserve", "src/a.rs"]).ok();
    let ran = sandbox.run_as("codex", ["reserve", "--release", "src/b.rs"]);
    assert!(ran.code == Some(5) && ran.stderr.contains("'src/b.rs' is not reserved by you"), "{ran:?}");
    assert_eq!(sandbox.run_as("codex", ["reserve", "--release", "src/a.rs"]).ok(), "1 released");
    let ran = sandbox.run(["guard"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(5), 2), "{ran:?}");
    assert!(ran.stderr.starts_with("error: there is no repository of Git in "), "{ran:?}");
}
