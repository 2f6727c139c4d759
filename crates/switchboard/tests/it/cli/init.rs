//! `switchboard init`

use insta::assert_snapshot;
use test_support::files;

use crate::bare;

#[test]
fn init_creates_tree_and_prints_next_step() {
    let sandbox = bare();
    assert_snapshot!(sandbox.show(["init"]), @r#"
    exit 0
    --- stdout
    Made [project]/.switchboard.
    Next:
      switchboard agents register codex      make an agent known
      switchboard send codex "hello"         write to it
      switchboard inbox codex                see what it has
      switchboard mcp                        what an agent's client starts: its tools (docs/mcp.md)
      switchboard serve                      keep going: MCP over HTTP, files, deliveries
    "#);
    let made: Vec<String> =
        files::tree(sandbox.path()).keys().map(|path| path.display().to_string()).collect();
    assert_snapshot!(made.join("\n"), @"
    .switchboard
    .switchboard/.gitignore
    .switchboard/archive
    .switchboard/hub.bell
    .switchboard/hub.db
    .switchboard/hub.db-shm
    .switchboard/hub.db-wal
    .switchboard/hub.db.binding
    .switchboard/hub.lock
    .switchboard/inbox
    .switchboard/outbox
    .switchboard/reviews
    .switchboard/state.json
    ");
}

#[test]
fn init_registers_agents() {
    let sandbox = bare();
    assert_snapshot!(sandbox.show(["init", "codex", "Claude Code"]), @r#"
    exit 0
    --- stdout
    Made [project]/.switchboard.
    Next:
      switchboard send "Claude Code" "hello" write to it
      switchboard inbox "Claude Code"        see what it has
      switchboard mcp                        what an agent's client starts: its tools (docs/mcp.md)
      switchboard serve                      keep going: MCP over HTTP, files, deliveries
    "#);
    assert_snapshot!(sandbox.show(["init", "--json"]), @r#"
    exit 0
    --- stdout
    {"agents":["Claude Code","codex"],"created":false,"path":"[project]/.switchboard"}
    "#);
}

#[test]
fn repeated_init_changes_nothing() {
    let sandbox = bare();
    sandbox.ok(["init", "codex"]);
    files::put(sandbox.file(".gitignore"), "# mine\n");
    sandbox.send("human", "codex", "keep me");
    let kept = |tree: files::Tree| {
        let ours = |path: &std::path::PathBuf| {
            path.starts_with(".switchboard/inbox")
                || path.ends_with(".gitignore")
                || path.ends_with("state.json")
        };
        tree.into_iter().filter(|(path, _)| ours(path)).collect::<files::Tree>()
    };
    let before = kept(files::tree(sandbox.path()));
    assert_eq!(before.len(), 5, "{before:?}");
    assert_snapshot!(sandbox.show(["init"]), @r#"
    exit 0
    --- stdout
    [project]/.switchboard is complete.
    Next:
      switchboard send codex "hello"         write to it
      switchboard inbox codex                see what it has
      switchboard mcp                        what an agent's client starts: its tools (docs/mcp.md)
      switchboard serve                      keep going: MCP over HTTP, files, deliveries
    "#);
    assert_eq!(files::difference(&before, &kept(files::tree(sandbox.path()))), Vec::<String>::new());
}

#[test]
fn bad_agent_name_creates_nothing() {
    let sandbox = bare();
    assert_snapshot!(sandbox.show(["init", "codex", "../evil"]), @"
    exit 2
    --- stderr
    error: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'
    ");
    assert!(files::tree(sandbox.path()).is_empty());
}

#[test]
fn created_files_are_private() {
    let sandbox = bare();
    sandbox.ok(["init", "codex"]);
    sandbox.send("human", "codex", "secret");
    let open: Vec<_> = files::tree(sandbox.path())
        .into_iter()
        .filter(|(path, entry)| entry.mode & 0o077 != 0 && path.as_os_str() != ".switchboard")
        .collect();
    assert!(open.is_empty(), "{open:?}");
}
