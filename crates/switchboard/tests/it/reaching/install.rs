//! `install` and `uninstall`: a client's settings retain everything that is not ours.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use test_support::files;

use crate::{BINARY, workspace};

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap_or_default()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn installed_settings_are_read_and_removed() {
    let sandbox = workspace();
    let settings = sandbox.path().join(".claude/settings.local.json");
    let theirs = "{\n  // mine\n  \"permissions\": { \"allow\": [\"Bash(ls)\"] },\n  \"hooks\": {\n    \"Stop\": [{ \"hooks\": [{ \"type\": \"command\", \"command\": \"true\" }] }]\n  }\n}\n";
    files::put(&settings, theirs);
    let servers = "{ \"mcpServers\": { \"other\": { \"command\": \"other\" } } }\n";
    files::put(sandbox.path().join(".mcp.json"), servers);
    let dry = sandbox.ok(["install", "claude", "--dry-run"]);
    assert!(dry.contains('+') && dry.contains("asyncRewake") && text(&settings) == theirs, "{dry}");
    sandbox.ok(["install", "claude"]);
    let written = text(&settings);
    assert!(written.contains("// mine") && written.contains("Bash(ls)"), "{written}");
    assert!(written.contains(&format!("{BINARY} hook claude stop --agent claude")), "{written}");
    let mcp: Value = serde_json::from_str(&text(sandbox.path().join(".mcp.json"))).unwrap();
    assert_eq!(mcp["mcpServers"]["switchboard"]["env"]["SWITCHBOARD_AGENT_NAME"], "claude");
    assert_eq!(mcp["mcpServers"]["other"]["command"], "other");
    let copies = names(&sandbox.path().join(".claude"));
    let copy = copies.iter().find(|name| name.starts_with("settings.local.json.backup-")).unwrap();
    assert_eq!(text(sandbox.path().join(".claude").join(copy)), theirs);
    // A second run changes nothing and creates no copy.
    assert!(sandbox.ok(["install", "claude"]).lines().all(|line| line.ends_with("nothing to change")));
    assert_eq!(names(&sandbox.path().join(".claude")), copies);
    sandbox.ok(["uninstall", "claude"]);
    let (left, servers_left) = (text(&settings), text(sandbox.path().join(".mcp.json")));
    assert!(!left.contains("switchboard") && left.contains("// mine") && left.contains("\"true\""), "{left}");
    assert!(!servers_left.contains("switchboard") && servers_left.contains("other"), "{servers_left}");
}

#[test]
fn user_settings_are_found_per_client() {
    let sandbox = workspace();
    let home = sandbox.home();
    files::put(home.join("dotfiles/settings.json"), "{}\n");
    std::fs::create_dir_all(home.join(".claude")).unwrap();
    std::os::unix::fs::symlink(home.join("dotfiles/settings.json"), home.join(".claude/settings.json"))
        .unwrap();
    files::put(home.join(".claude.json"), "{ \"numStartups\": 3 }");
    std::fs::set_permissions(home.join(".claude.json"), std::fs::Permissions::from_mode(0o640)).unwrap();
    sandbox.ok(["install", "claude", "codex", "--user"]);
    // People keep their settings in a repository: the symbolic link stays, and its target changes.
    assert!(home.join(".claude/settings.json").is_symlink());
    assert!(text(home.join("dotfiles/settings.json")).contains("hook claude post-tool\""));
    let claude: Value = serde_json::from_str(&text(home.join(".claude.json"))).unwrap();
    assert_eq!(
        (&claude["numStartups"], &claude["mcpServers"]["switchboard"]["args"][0]),
        (&3.into(), &"mcp".into())
    );
    let mode = std::fs::metadata(home.join(".claude.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(text(home.join(".codex/config.toml")).contains("[mcp_servers.switchboard]"));
    assert!(text(home.join(".codex/hooks.json")).contains("hook codex stop\""));
    sandbox.ok(["uninstall", "claude", "codex", "--user"]);
    assert_eq!(text(home.join(".codex/config.toml")).trim(), "");
    assert!(!text(home.join("dotfiles/settings.json")).contains("switchboard"));
}

#[test]
fn unknown_settings_stay_untouched() {
    let sandbox = workspace();
    let settings = sandbox.path().join(".claude/settings.local.json");
    for broken in ["{ \"hooks\": ", "{ \"hooks\": [] }"] {
        files::put(&settings, broken);
        let ran = sandbox.run(["install", "claude"]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("settings.local.json") && ran.stderr.contains("nothing was changed"),
            "{}",
            ran.stderr
        );
        assert_eq!((text(&settings), sandbox.path().join(".mcp.json").exists()), (broken.to_owned(), false));
    }
    // A symbolic link of the repository could point anywhere.
    std::fs::remove_file(&settings).unwrap();
    files::put(sandbox.home().join("precious"), "{}");
    std::os::unix::fs::symlink(sandbox.home().join("precious"), &settings).unwrap();
    assert_eq!(sandbox.run(["install", "claude"]).code, Some(1));
    assert_eq!(text(sandbox.home().join("precious")), "{}");
}

/// The program was moved, and so was the command that the client starts.
#[test]
fn moved_program_is_reported_and_rewritten() {
    let sandbox = workspace();
    sandbox.ok(["install", "claude", "codex"]);
    let files = [".mcp.json", ".claude/settings.local.json", ".codex/config.toml", ".codex/hooks.json"];
    let path = |file: &str| sandbox.path().join(file);
    let installed: Vec<String> = files.iter().map(|file| text(path(file))).collect();
    assert!(!sandbox.ok(["doctor"]).contains("clients:"));
    for (file, was) in files.iter().zip(&installed) {
        files::put(path(file), was.replace(BINARY, "/gone/switchboard"));
    }
    let report = sandbox.ok(["doctor"]);
    for file in files {
        let line = format!("{file} starts /gone/switchboard, which does not exist");
        assert!(report.contains(&line), "{line}: {report}");
    }
    sandbox.ok(["install", "claude", "codex"]);
    for (file, was) in files.iter().zip(&installed) {
        assert!(!text(path(file)).contains("/gone/") && text(path(file)).contains(BINARY), "{file}: {was}");
    }
    assert!(!sandbox.ok(["doctor"]).contains("clients:"));
}

/// The encoding that an editor gave a file stays.
#[test]
fn byte_order_mark_and_line_ends_stay() {
    let sandbox = workspace();
    let servers = sandbox.path().join(".mcp.json");
    let theirs = "\u{feff}{\r\n  // mine\r\n  \"mcpServers\": {\r\n    \"other\": { \"command\": \"x\" }\r\n  }\r\n}\r\n";
    files::put(&servers, theirs);
    sandbox.ok(["install", "claude"]);
    let written = text(&servers);
    assert!(written.starts_with("\u{feff}{\r\n  // mine\r\n") && written.contains(BINARY), "{written:?}");
    assert!(!written.replace("\r\n", "").contains('\n'), "one kind of line end: {written:?}");
    sandbox.ok(["uninstall", "claude"]);
    let left = text(&servers);
    assert!(left.starts_with("\u{feff}{\r\n  // mine\r\n") && !left.contains(BINARY), "{left:?}");

    let open = "{\n\t\"a\": 1\n}";
    files::put(&servers, open);
    sandbox.ok(["install", "claude"]);
    assert!(text(&servers).contains(BINARY) && !text(&servers).ends_with('\n'), "{}", text(&servers));
    sandbox.ok(["uninstall", "claude"]);
    assert_eq!(text(&servers), open);

    for twice in [
        "{ \"mcpServers\": {}, \"mcpServers\": { \"other\": { \"command\": \"x\" } } }",
        "{ \"mcpServers\": { \"switchboard\": {}, \"switchboard\": {} } }",
    ] {
        files::put(&servers, twice);
        let ran = sandbox.run(["install", "claude"]);
        assert!(ran.code == Some(1) && ran.stderr.contains("twice"), "{ran:?}");
        assert_eq!(text(&servers), twice);
    }
    files::put(&servers, "{}");
    std::fs::set_permissions(&servers, std::fs::Permissions::from_mode(0o444)).unwrap();
    let ran = sandbox.run(["install", "claude"]);
    assert!(ran.code == Some(1) && ran.stderr.contains(".mcp.json is read-only"), "{ran:?}");
    assert_eq!(text(&servers), "{}");
}

/// A foreign entry stays untouched, and one that its owner has edited retains the edits.
#[test]
fn foreign_entry_is_not_overwritten() {
    let sandbox = workspace();
    let servers = sandbox.path().join(".mcp.json");
    let theirs = r#"{ "mcpServers": { "switchboard": { "command": "npx", "args": ["other"] } } }"#;
    files::put(&servers, theirs);
    let ran = sandbox.run(["install", "claude"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("'mcpServers.switchboard' is another server; rename it first"), "{ran:?}");
    assert_eq!((text(&servers), sandbox.path().join(".claude").exists()), (theirs.to_owned(), false));
    let mine = r#"{ "mcpServers": { "switchboard": { "command": "switchboard", "args": ["mcp", "--profile", "full"], "env": { "X": "1", "SWITCHBOARD_AGENT_NAME": "ann" } } } }"#;
    files::put(&servers, mine);
    sandbox.ok(["install", "claude"]);
    assert_eq!(text(&servers), mine, "what its owner changed stays");
}

/// The clients' own variables locate their settings. No client has to be installed, and each file is reported.
#[test]
fn moved_settings_are_found() {
    let sandbox = workspace();
    let (claude, codex) = (sandbox.path().join("c"), sandbox.path().join("x"));
    std::fs::create_dir_all(&claude).unwrap();
    std::fs::create_dir_all(&codex).unwrap();
    let mut install = sandbox.command(["install", "claude", "codex", "--user"]);
    let install = install.env("CLAUDE_CONFIG_DIR", &claude).env("CODEX_HOME", &codex);
    let answer = test_support::RunOutput::of(install).ok();
    for file in [
        claude.join(".claude.json"),
        claude.join("settings.json"),
        codex.join("config.toml"),
        codex.join("hooks.json"),
    ] {
        assert!(text(&file).contains("switchboard"), "{}", file.display());
        assert!(answer.contains(file.to_str().unwrap()), "{answer}");
    }
    assert!(!sandbox.home().join(".claude").exists() && !sandbox.home().join(".codex").exists());
}

/// Installed settings have no token, so a new token needs no reinstall. Every client is named; there is no `--all`.
#[test]
fn install_writes_no_token_or_unrequested_client() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    let token = text(sandbox.file("auth_token"));
    sandbox.ok(["install", "claude", "codex"]);
    for below in [".mcp.json", ".claude/settings.local.json", ".codex/config.toml", ".codex/hooks.json"] {
        let written = text(sandbox.path().join(below));
        assert!(!written.contains(token.trim()) && !written.contains("http"), "{below}: {written}");
    }
    assert!(serve.terminate().success());
    assert_eq!(sandbox.run(["install", "--all"]).code, Some(2));
    assert_eq!(sandbox.run(["install"]).code, Some(2));
}
