//! Which workspace is used, and who the sender is.

use insta::assert_snapshot;
use test_support::RunOutput;

use crate::{bare, workspace};

#[test]
fn missing_workspace_error_suggests_init() {
    let sandbox = bare();
    assert_snapshot!(sandbox.show(["inbox"]), @"
    exit 5
    --- stderr
    error: no workspace in [project] or above it
    hint: create one with `switchboard init`
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--json"]), @r#"
    exit 5
    --- stdout
    {"error":{"code":"no_workspace","hint":"create one with `switchboard init`","message":"no workspace in [project] or above it"}}
    "#);
    for verb in [
        vec!["ack", "x"],
        vec!["wait"],
        vec!["receipt", "x"],
        vec!["agents"],
        vec!["team"],
        vec!["tail"],
        vec!["thread", "x"],
        vec!["search", "x"],
        vec!["serve"],
        vec!["doctor"],
    ] {
        let ran = sandbox.run(&verb);
        assert_eq!(ran.code, Some(5), "{verb:?}: {ran:?}");
        assert!(ran.stderr.contains("hint: create one with `switchboard init`"), "{verb:?}: {ran:?}");
    }
    assert_eq!(std::fs::read_dir(sandbox.path()).unwrap().count(), 0);
}

#[test]
fn nearest_parent_folder_is_the_workspace() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "hello");
    let deep = sandbox.path().join("a/b/c");
    std::fs::create_dir_all(&deep).unwrap();
    let from_below = RunOutput::of(sandbox.command(["inbox", "codex", "--json"]).current_dir(&deep));
    assert_eq!(from_below.ok().lines().count(), 1);
    RunOutput::of(sandbox.command(["init"]).current_dir(sandbox.path().join("a"))).ok();
    let from_below = RunOutput::of(sandbox.command(["agents", "--json"]).current_dir(&deep));
    assert_eq!(from_below.ok(), "", "the nearer one counts, and it has no agents");
}

#[test]
fn variable_and_option_override_the_workspace() {
    let (sandbox, other) = (bare(), workspace());
    other.send("claude", "codex", "hello");
    let root = other.path().to_str().unwrap();
    let by_variable =
        RunOutput::of(sandbox.command(["inbox", "codex", "--json"]).env("SWITCHBOARD_WORKSPACE_ROOT", root));
    assert_eq!(by_variable.ok().lines().count(), 1);
    let by_option = sandbox.run(["inbox", "codex", "--json", "--workspace", root]);
    assert_eq!(by_option.stdout, by_variable.stdout);
    let mut both = sandbox.command(["inbox", "codex", "--workspace", root]);
    assert_eq!(RunOutput::of(both.env("SWITCHBOARD_WORKSPACE_ROOT", sandbox.path())).code, Some(0));
    let nowhere = RunOutput::of(sandbox.command(["inbox"]).env("SWITCHBOARD_WORKSPACE_ROOT", sandbox.path()));
    assert_snapshot!(sandbox.shown(&nowhere), @"
    exit 5
    --- stderr
    error: [project] has no .switchboard folder
    hint: create one with `switchboard init`
    ");
    let missing = sandbox.run(["inbox", "--workspace", "not/there"]);
    assert_snapshot!(sandbox.shown(&missing), @"
    exit 5
    --- stderr
    error: the folder not/there does not exist
    hint: check --workspace and SWITCHBOARD_WORKSPACE_ROOT
    ");
}

#[test]
fn sender_precedence_is_option_variable_person() {
    let sandbox = workspace();
    sandbox.ok(["send", "codex", "1"]);
    sandbox.run_as("claude", ["send", "codex", "2"]).ok();
    sandbox.run_as("claude", ["send", "codex", "3", "--from", "codex"]).ok();
    sandbox.run_as("", ["send", "codex", "4"]).ok();
    let from: Vec<_> = sandbox.json(["inbox", "codex"]).into_iter().map(|m| m["from"].clone()).collect();
    assert_eq!(from, ["human", "claude", "codex", "human"]);
    assert_snapshot!(sandbox.show_as("../x", ["send", "codex", "x"]), @"
    exit 2
    --- stderr
    error: '../x' is not an address: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'
    hint: check --from and SWITCHBOARD_AGENT_NAME
    ");
    assert_snapshot!(sandbox.show_as("alice@research", ["send", "codex", "x"]), @"
    exit 4
    --- stderr
    error: alice@research is not an agent of this hub
    ");
    assert_snapshot!(sandbox.show_as("stranger", ["send", "codex", "x"]), @r#"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered
    note: 'stranger' is not registered and cannot receive a reply; `switchboard agents register "stranger"`
    "#);
}

#[test]
fn empty_variable_counts_as_unset() {
    let sandbox = workspace();
    let mut command = sandbox.command(["inbox", "codex"]);
    test_support::RunOutput::of(command.env("SWITCHBOARD_WORKSPACE_ROOT", "").current_dir(sandbox.path()))
        .ok();
}
