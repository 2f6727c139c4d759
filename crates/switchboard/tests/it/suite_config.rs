//! Servers as a person adds, imports, trusts and removes them. None of them is started here.

use std::path::PathBuf;

use insta::assert_snapshot;
use serde_json::{Value, json};
use test_support::{RunOutput, Sandbox, files};

use crate::terminal::person::Person;
use crate::{BINARY, bare, workspace};

const ROOT: &str = r#"{
  "mcpServers": {
    "memory": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"], "env": { "API_TOKEN": "s3cr3t-value" } },
    "docs": { "type": "http", "url": "https://docs.example/mcp" }
  }
}
"#;

fn root_file(sandbox: &Sandbox) -> PathBuf {
    sandbox.path().join(".mcp.json")
}

fn with_root() -> Sandbox {
    let sandbox = bare();
    files::put(root_file(&sandbox), ROOT);
    sandbox
}

fn states(sandbox: &Sandbox) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = sandbox.json(["suite", "list"]);
    lines.iter().map(|line| (text(&line["name"]), text(&line["state"]))).collect()
}

/// Normalizes output for a snapshot: also without the date of backups and the path of the binary.
fn shown(sandbox: &Sandbox, args: &[&str]) -> String {
    let text = sandbox.show(args.iter().copied()).replace(BINARY, "[binary]");
    let dated = |word: &str| {
        let (stem, rest) = word.split_once(".20")?;
        Some(format!("{stem}.[date]{}", &rest[rest.find(".mcp.json")?..]))
    };
    let line = |line: &str| {
        line.split(' ').map(|word| dated(word).unwrap_or(word.to_owned())).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn init_imports_file_without_trusting_it() {
    let sandbox = with_root();
    assert_snapshot!(shown(&sandbox, &["init", "codex"]), @r#"
    exit 0
    --- stdout
    Made [project]/.switchboard.
    Imported 2 servers, now one tool each:
      docs                 not trusted yet: switchboard suite trust docs
      memory               not trusted yet: switchboard suite trust memory
      Expect tool lists of about 120 tokens instead of 4180; `switchboard suite warm` and then
      `switchboard suite savings` count what it is.
    [project]/.mcp.json now starts Switchboard.
      The old one is [project]/.switchboard/backups/workspace.[date].mcp.json;
      `switchboard suite revert` puts it back.
    Next:
      switchboard send codex "hello"         write to it
      switchboard inbox codex                see what it has
      switchboard mcp                        what an agent's client starts: its tools (docs/mcp.md)
      switchboard serve                      keep going: MCP over HTTP, files, deliveries
      switchboard suite list                 see the servers that are now suites
    "#);
    let written: Value = serde_json::from_slice(&std::fs::read(root_file(&sandbox)).unwrap()).unwrap();
    let ours = json!({ "type": "stdio", "command": BINARY, "args": ["mcp"], "env": {} });
    assert_eq!(written, json!({ "mcpServers": { "switchboard": ours } }));
    assert_snapshot!(shown(&sandbox, &["suite"]), @"
    exit 0
    --- stdout
    docs (docs_suite, never started)  not trusted yet: switchboard suite trust docs
        docs tools
    memory (memory_suite, never started)  not trusted yet: switchboard suite trust memory
        Knowledge graph
    ");

    let before = files::tree(sandbox.path().join(".switchboard/mcps"));
    let root = std::fs::read(root_file(&sandbox)).unwrap();
    assert_snapshot!(shown(&sandbox, &["init"]), @r#"
    exit 0
    --- stdout
    [project]/.switchboard is complete.
    Next:
      switchboard send codex "hello"         write to it
      switchboard inbox codex                see what it has
      switchboard mcp                        what an agent's client starts: its tools (docs/mcp.md)
      switchboard serve                      keep going: MCP over HTTP, files, deliveries
    "#);
    assert_eq!(files::tree(sandbox.path().join(".switchboard/mcps")), before);
    assert_eq!(std::fs::read(root_file(&sandbox)).unwrap(), root, "a second time changes nothing");
}

#[test]
fn revert_restores_file_byte_for_byte() {
    let sandbox = with_root();
    sandbox.ok(["init", "--yes"]);
    assert_eq!(states(&sandbox), [("docs".into(), "trusted".into()), ("memory".into(), "trusted".into())]);
    let ours = std::fs::read(root_file(&sandbox)).unwrap();
    files::put(root_file(&sandbox), "{}");
    assert_snapshot!(shown(&sandbox, &["suite", "revert"]), @"
    exit 4
    --- stderr
    error: [project]/.mcp.json was edited since switchboard wrote it
    hint: `switchboard suite revert --force` restores the old file and drops the edits
    ");
    files::put(root_file(&sandbox), ours);
    assert_snapshot!(shown(&sandbox, &["suite", "revert"]), @"
    exit 0
    --- stdout
    .mcp.json is again what it was (.switchboard/backups/workspace.[date].mcp.json).
    --- stderr
    Kept in .switchboard/mcps: docs, memory; --purge would have taken them out.
    ");
    assert_eq!(std::fs::read_to_string(root_file(&sandbox)).unwrap(), ROOT);
    assert_eq!(states(&sandbox).len(), 2);

    sandbox.ok(["init"]);
    assert_eq!(states(&sandbox)[0].1, "trusted", "what was trusted still is");
    assert_snapshot!(shown(&sandbox, &["suite", "revert", "--purge"]), @"
    exit 0
    --- stdout
    .mcp.json is again what it was (.switchboard/backups/workspace.[date].mcp.json).
    Took out docs, memory.
    ");
    assert_eq!(std::fs::read_to_string(root_file(&sandbox)).unwrap(), ROOT);
    assert_eq!(states(&sandbox), []);
    assert_snapshot!(shown(&sandbox, &["suite", "revert"]), @"
    exit 5
    --- stderr
    error: there is no backup of .mcp.json in [project]/.switchboard/backups
    hint: only imports of `switchboard init` can be reverted
    ");
}

#[test]
fn unparsable_file_stops_init_before_changes() {
    let sandbox = bare();
    files::put(root_file(&sandbox), "{\n  \"mcpServers\": {\n");
    let before = files::tree(sandbox.path());
    assert_snapshot!(shown(&sandbox, &["init"]), @"
    exit 1
    --- stderr
    error: [project]/.mcp.json: is not JSON: the text ends within an object; a '}' is missing
    hint: nothing was changed; correct .mcp.json, or leave it alone with --no-import
    ");
    assert_eq!(files::tree(sandbox.path()), before);
    sandbox.ok(["init", "--no-import"]);
    assert_eq!(std::fs::read_to_string(root_file(&sandbox)).unwrap(), "{\n  \"mcpServers\": {\n");
}

#[test]
fn client_servers_are_trusted_and_settings_unchanged() {
    let sandbox = bare();
    let settings = sandbox.home().join(".codex/config.toml");
    let text = "[mcp_servers.time]\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"]\n\
        [mcp_servers.switchboard]\ncommand = \"/usr/bin/switchboard\"\nargs = [\"mcp\"]\n";
    files::put(&settings, text);
    assert_snapshot!(shown(&sandbox, &["init", "--from", "codex"]), @r#"
    exit 0
    --- stdout
    Made [project]/.switchboard.
    Imported 1 server, now one tool:
      time                 trusted
      Expect tool lists of about 60 tokens instead of 2090; `switchboard suite warm` and then
      `switchboard suite savings` count what it is.
    Next:
      switchboard agents register codex      make an agent known
      switchboard send codex "hello"         write to it
      switchboard inbox codex                see what it has
      switchboard mcp                        what an agent's client starts: its tools (docs/mcp.md)
      switchboard serve                      keep going: MCP over HTTP, files, deliveries
      switchboard suite list                 see the servers that are now suites
    --- stderr
    Read the settings of Codex: [sandbox]/home/.codex/config.toml.
    "#);
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), text);
    assert_eq!(states(&sandbox), [("time".into(), "trusted".into())]);
    assert_snapshot!(shown(&sandbox, &["init", "--from", "zed"]), @"
    exit 5
    --- stderr
    error: no settings of Zed were found; looked in [sandbox]/home/.config/zed/settings.json and [project]/.zed/settings.json
    hint: give their path with --file PATH
    ");
    assert_snapshot!(shown(&sandbox, &["init", "--from", "emacs"]), @"
    exit 2
    --- stderr
    error: the field 'from' is 'emacs', but must be one of claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf, zed
    ");
    // The agent does not decide whose settings are read.
    sandbox.run_as("codex", ["init", "--json"]).ok();
}

#[test]
fn server_added_by_person_is_trusted() {
    let sandbox = workspace();
    let add = ["suite", "add", "@scope/pkg", "--env", "MODE=a=b", "--description", "Does things.", "--"];
    let command = ["npx", "-y", "@scope/pkg", "--foo", "bar", "--json", "--from", "x", "-v", "--"];
    assert_snapshot!(shown(&sandbox, &[&add[..], &command[..]].concat()), @"
    exit 0
    --- stdout
    Added scope-pkg as the tool scope-pkg_suite, in .switchboard/mcps/scope-pkg/.mcp.json.
    --- stderr
    `switchboard suite list` shows it; `switchboard suite remove scope-pkg` takes it out again.
    ");
    let file = std::fs::read_to_string(sandbox.file("mcps/scope-pkg/.mcp.json")).unwrap();
    assert_snapshot!(file, @r#"
    {
      "name": "scope-pkg",
      "switchboardDescription": "Does things.",
      "command": {
        "cmd": "npx",
        "args": [
          "-y",
          "@scope/pkg",
          "--foo",
          "bar",
          "--json",
          "--from",
          "x",
          "-v",
          "--"
        ],
        "env": {
          "MODE": "a=b"
        }
      },
      "cwd": "../../.."
    }
    "#);
    assert_snapshot!(shown(&sandbox, &["suite", "list"]), @"
    exit 0
    --- stdout
    scope-pkg (scope-pkg_suite, never started)  trusted
        Does things.
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "add", "scope-pkg", "--", "x"]), @r#"
    exit 1
    --- stderr
    error: there is already a server 'scope-pkg', described in [project]/.switchboard/mcps/scope-pkg/.mcp.json
    hint: choose another name, or `switchboard suite remove "scope-pkg"` first
    "#);
    let add = [
        "suite",
        "add",
        "remote",
        "--url",
        "https://a.example/mcp",
        "--header",
        "Authorization=Bearer ${NOT_SET}",
    ];
    assert_snapshot!(shown(&sandbox, &add), @"
    exit 0
    --- stdout
    Added remote as the tool remote_suite, in .switchboard/mcps/remote/.mcp.json.
    It cannot start yet: the field 'headers.Authorization' needs the variable NOT_SET, which is not set; set it, or write ${NOT_SET:-default}.
    ");
    for bad in [
        &["suite", "add", "../evil", "--", "x"][..],
        &["suite", "add", "a"],
        &["suite", "add", "a", "--env", "NOPE", "--", "x"],
        &["suite", "add", "a", "--url", "file:///etc/passwd"],
        &["suite", "add", "a", "--url", "http://a", "--type", "grpc"],
        &["suite", "add", "a", "--", "x", "\u{1b}[2K"],
        &["suite", "add", "a", "--cwd", "/no/such/folder", "--", "x"],
    ] {
        let ran = sandbox.run(bad.iter().copied());
        assert_eq!(ran.code, Some(2), "{bad:?}: {}", ran.stderr);
    }
    assert!(!sandbox.file("mcps/a").exists());
    assert_snapshot!(shown(&sandbox, &["suite", "remove", "scope-pkg"]), @"
    exit 0
    --- stdout
    Removed scope-pkg; its file is now .switchboard/backups/scope-pkg.[date].mcp.json.
    ");
    assert!(!sandbox.file("mcps/scope-pkg").exists());
    assert_snapshot!(shown(&sandbox, &["suite", "remove", "remot"]), @"
    exit 5
    --- stderr
    error: there is no server 'remot' in this workspace; did you mean 'remote'?
    hint: `switchboard suite list` lists all, also those with a problem
    ");
    sandbox.ok(["suite", "remove", "remote"]);
    assert_eq!(states(&sandbox), []);
}

/// Lookalike characters in a command are made visible before a person agrees; JSON has them unchanged.
#[test]
fn trust_shows_lookalike_characters() {
    let sandbox = workspace();
    let settings = json!({ "command": "n\u{43e}de", "args": ["\u{441}at", "привет"] });
    files::put(sandbox.file("mcps/notes/.mcp.json"), settings.to_string());
    let shown = sandbox.ok(["suite", "trust"]);
    for part in ["n\\u{43e}de", "\\u{441}at", "привет"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let exact = sandbox.json(["suite", "trust"])[0]["launch"][0].clone();
    assert!(exact.as_str().unwrap().contains("n\u{43e}de"), "{exact}");
}

#[test]
fn changed_byte_revokes_trust_and_is_shown() {
    let sandbox = workspace();
    let file = sandbox.file("mcps/evil/.mcp.json");
    files::put(&file, r#"{"command": "node", "args": ["server.js"]}"#);
    assert_snapshot!(shown(&sandbox, &["suite", "trust"]), @"
    exit 0
    --- stdout
    evil
        command: node server.js
        folder: [project]/.switchboard/mcps/evil
    --- stderr
    `switchboard suite trust NAME` agrees to one of them, --all to all.
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "trust", "evil", "--yes"]), @"
    exit 0
    --- stdout
    evil
        command: node server.js
        folder: [project]/.switchboard/mcps/evil
    evil is trusted.
    ");
    files::put(
        &file,
        r#"{"command": "node", "args": ["server.js", "--eval"], "env": {"X_TOKEN": "abc-secret"}}"#,
    );
    assert_eq!(states(&sandbox), [("evil".into(), "changed".into())]);
    assert_snapshot!(shown(&sandbox, &["suite", "trust"]), @r#"
    exit 0
    --- stdout
    evil
        command: node server.js --eval
        folder: [project]/.switchboard/mcps/evil
        env X_TOKEN=[redacted]
      changed since it was trusted:
            "args": [
        -     "server.js"
        +     "server.js",
        +     "--eval"
            ],
        +   "env": {
        +     "X_TOKEN": "[redacted] 95478e13"
        +   },
            "cwd": ".switchboard/mcps/evil"
    --- stderr
    `switchboard suite trust NAME` agrees to one of them, --all to all.
    "#);
    assert_snapshot!(shown(&sandbox, &["suite", "trust", "--all", "--json", "--yes"]), @r#"
    exit 0
    --- stdout
    {"launch":["command: node server.js --eval","folder: [project]/.switchboard/mcps/evil","env X_TOKEN=[redacted]"],"name":"evil","state":"trusted"}
    "#);
    assert_snapshot!(shown(&sandbox, &["suite", "trust", "--revoke", "evil"]), @"
    exit 0
    --- stdout
    evil is no longer trusted.
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "trust", "--revoke", "evil"]), @"
    exit 5
    --- stderr
    error: there is no trust in a server 'evil' to take back
    hint: `switchboard suite list` shows which servers are trusted
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "trust", "evli", "--yes"]), @"
    exit 5
    --- stderr
    error: there is no server 'evli' in this workspace; did you mean 'evil'?
    hint: `switchboard suite list` lists all, also those with a problem
    ");
    assert!(!sandbox.file("trust.json").exists(), "what is trusted is kept outside the workspace");
    assert!(sandbox.home().join(".config/switchboard/trust.json").exists());
}

#[test]
fn broken_servers_are_listed_with_working_ones() {
    let sandbox = workspace();
    files::put(sandbox.file("mcps/good/.mcp.json"), r#"{"command": "x", "descripton": "y"}"#);
    files::put(sandbox.file("mcps/bad/.mcp.json"), "{");
    files::put(sandbox.file("mcps/unset/.mcp.json"), r#"{"command": "${NOT_SET}"}"#);
    files::put(sandbox.file("mcps/off/.mcp.json"), r#"{"command": "x"}"#);
    files::put(
        sandbox.path().join("switchboard.config.json"),
        r#"{"suites": {"off": {"enabled": false}, "good": {"sumaryMaxChars": 3, "suiteName": "fine"}}}"#,
    );
    assert_snapshot!(shown(&sandbox, &["suite", "list"]), @"
    exit 0
    --- stdout
    good (fine, never started)  not trusted yet: switchboard suite trust good
        good tools
    unset (unset_suite, never started)  not trusted yet: switchboard suite trust unset
        unset tools
        cannot be started: the field 'command' needs the variable NOT_SET, which is not set; set it, or write ${NOT_SET:-default}
    off  disabled in the settings
    problem: .switchboard/mcps/bad/.mcp.json: is not JSON: the text ends within an object; a '}' is missing (at character 1)
    warning: .switchboard/mcps/good/.mcp.json: the key 'descripton' is not known; did you mean 'description'?
    --- stderr
     WARN switchboard.config.json: the key 'suites.good.sumaryMaxChars' is not known; did you mean 'summaryMaxChars'?
    ");
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"suites": {"good": {"expose": "flt"}}}"#);
    assert_snapshot!(shown(&sandbox, &["suite", "list"]), @"
    exit 1
    --- stderr
    error: [project]/switchboard.config.json:1: the key 'suites.good.expose' is 'flt', but must be suite or flat
    hint: correct the file; docs/configuration.md lists its keys
    ");
}

#[test]
fn unstarted_server_has_no_pins_or_logs() {
    let sandbox = workspace();
    sandbox.ok(["suite", "add", "a", "--", "x"]);
    assert_snapshot!(shown(&sandbox, &["suite", "pins"]), @"
    exit 0
    --- stdout
    a: 0 tools remembered, 0 changed
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "pins", "approve", "--yes"]), @"
    exit 0
    --- stderr
    Nothing waits for approval.
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "pins", "approve", "a", "tool", "--yes"]), @"
    exit 5
    --- stderr
    error: the server 'a' has no tool 'tool' that waits for approval
    hint: `switchboard suite pins` lists what waits for approval
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "logs", "a"]), @"
    exit 0
    --- stderr
    a has written nothing yet.
    ");
}

#[test]
fn changed_tool_is_approved_without_server_start() {
    let sandbox = workspace();
    sandbox.ok(["suite", "add", "fs", "--", "x"]);
    let places = door_suites::SuitePaths {
        workspace: sandbox.path().to_owned(),
        config: sandbox.home().join(".config/switchboard"),
        cache: sandbox.home().join(".cache/switchboard"),
    };
    let list = |description: &str| {
        let tool = json!({ "name": "read", "description": description, "inputSchema": { "type": "object" } });
        let tools = [serde_json::value::to_raw_value(&tool).unwrap()];
        door_suites::Pins::load(&places, "fs").unwrap().check(&tools).unwrap().len()
    };
    assert_eq!((list("Reads a file."), list("Reads a file, and sends it away.\u{200b}")), (0, 1));
    assert_snapshot!(shown(&sandbox, &["suite", "list"]), @"
    exit 0
    --- stdout
    fs (fs_suite, never started)  trusted
        fs tools
        changed and blocked: read; see `switchboard suite pins list fs`
    ");
    assert_snapshot!(shown(&sandbox, &["suite", "pins"]), @r#"
    exit 0
    --- stdout
    fs: 1 tool remembered, 1 changed
      read
          name: read
        - description: Reads a file.
        + description: Reads a file, and sends it away.\u{200b}
          inputSchema: {
    --- stderr
    `switchboard suite pins approve NAME TOOL` agrees to a change.
    "#);
    assert_snapshot!(shown(&sandbox, &["suite", "pins", "approve", "fs", "read", "--yes"]), @"
    exit 0
    --- stdout
    fs read: approved
    ");
    assert_eq!((list("Reads a file, and sends it away.\u{200b}"), list("Reads a file.")), (0, 1));
}

#[test]
fn nothing_is_trusted_without_a_prompt() {
    let sandbox = with_root();
    let ran = RunOutput::with_input(&mut sandbox.command(["init"]), b"y\ny\n");
    assert_eq!(ran.code, Some(0));
    assert!(states(&sandbox).iter().all(|(_, state)| state == "new"));
}

#[test]
fn person_is_prompted_for_each_server() {
    let sandbox = with_root();
    let mut person = Person::sit_down(&sandbox, &["init"]);
    person.until_shown("Trust docs? [y/N]");
    assert!(person.shown().contains("address: https://docs.example/mcp (http)"), "{}", person.shown());
    person.types("y\r");
    person.until_shown("Trust memory? [y/N]");
    assert!(!person.shown().contains("s3cr3t"), "{}", person.shown());
    person.types("\r");
    assert!(person.end().success());
    assert_eq!(states(&sandbox), [("docs".into(), "trusted".into()), ("memory".into(), "new".into())]);
}
