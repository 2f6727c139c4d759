use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::files;

use super::{Client, RootFile, Servers, import, read_client, revert};
use crate::config::Config;
use crate::discovery::discover_with;
use crate::edit::{AddOutcome, remove_child};
use crate::error::SuiteError;
use crate::paths::SuitePaths;
use crate::spec::Launch;

struct Site {
    _folder: TempDir,
    home: PathBuf,
    paths: SuitePaths,
}

impl Site {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (workspace, home) = (root.join("ws"), root.join("home"));
        std::fs::create_dir_all(&workspace).unwrap();
        let paths = SuitePaths { workspace, config: root.join("config"), cache: root.join("cache") };
        Self { _folder: folder, home, paths }
    }

    fn file(&self) -> PathBuf {
        self.paths.workspace.join(".mcp.json")
    }

    fn client(&self, client: Client, path: &str, text: &str) -> Result<Servers, SuiteError> {
        files::put(self.home.join(path), text);
        let before = files::tree(&self.home);
        let home = self.home.display().to_string();
        let servers = read_client(client, None, &self.paths, &|name| (name == "HOME").then(|| home.clone()));
        assert_eq!(files::tree(&self.home), before, "the client's own settings are only read");
        servers
    }
}

fn now() -> Timestamp {
    "2026-11-16T03:00:00Z".parse().unwrap()
}

/// Renders each server on one line: name, then launch settings.
fn lines(servers: &Servers) -> Vec<String> {
    let line = |candidate: &super::Candidate| {
        let written = candidate.file.launch_template(&candidate.name).unwrap();
        let mut words = vec![candidate.name.clone()];
        words.extend(written.command);
        words.extend(written.args);
        words.extend(written.env.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(written.url.map(|url| format!("{} {url}", written.transport)));
        words.extend(written.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        words.extend(written.cwd.map(|cwd| format!("in {cwd}")));
        words.join(" ")
    };
    servers.candidates.iter().map(line).collect()
}

#[test]
fn every_client_format_is_parsed() {
    let common =
        r#"{"mcpServers": {"mem": {"command": "npx", "args": ["-y", "mem"], "env": {"A": "b", "N": 5}}}}"#;
    let mem = "mem npx -y mem A=b N=5 in ../../..";
    for (client, path, text, expected) in [
        (Client::ClaudeDesktop, ".config/Claude/claude_desktop_config.json", common, vec![mem]),
        (
            Client::Cursor,
            ".cursor/mcp.json",
            r#"{"mcpServers": {"h": {"url": "https://a/mcp", "headers": {"Authorization": "Bearer ${env:TOK}"}}, "s": {"url": "https://a/sse"}}}"#,
            vec!["h http https://a/mcp Authorization: Bearer ${TOK}", "s sse https://a/sse"],
        ),
        (
            Client::VsCode,
            ".config/Code/User/mcp.json",
            "{ // user\n \"inputs\": [], \"servers\": {\"h\": {\"type\": \"http\", \"url\": \"https://a\", \"headers\": {\"X-Key\": \"${input:my-key}\"}},}, }",
            vec!["h http https://a X-Key: ${MY_KEY}"],
        ),
        (
            Client::Codex,
            ".codex/config.toml",
            "model = \"x\"\n[mcp_servers.a]\ncommand = \"npx\"\nargs = [\"a\"]\ncwd = \"sub\"\nenv_vars = [\"TOK\"]\nstartup_timeout_sec = 20\n\
             [mcp_servers.a.env]\nB = \"c\"\n[mcp_servers.h]\nurl = \"https://a/mcp\"\nbearer_token_env_var = \"T\"\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n",
            vec![
                "a npx a B=c TOK=${TOK:-} in ../../../sub",
                "h http https://a/mcp Authorization: Bearer ${T}",
            ],
        ),
        (
            Client::Gemini,
            ".gemini/settings.json",
            r#"{"mcpServers": {"a": {"httpUrl": "https://a"}, "b": {"url": "https://b"}, "c": {"url": "https://c", "type": "http"}, "d": {"command": "x", "env": {"T": "$TOK", "U": "${TOK}$"}}}}"#,
            vec![
                "a http https://a",
                "b sse https://b",
                "c http https://c",
                "d x T=${TOK} U=${TOK}$ in ../../..",
            ],
        ),
        (
            Client::Windsurf,
            ".codeium/windsurf/mcp_config.json",
            r#"{"mcpServers": {"w": {"serverUrl": "https://w/mcp"}, "off": {"command": "x", "disabled": true}}}"#,
            vec!["w http https://w/mcp"],
        ),
        (
            Client::Zed,
            ".config/zed/settings.json",
            "{\n// theme\n\"theme\": \"x\",\n\"context_servers\": {\"a\": {\"source\": \"custom\", \"command\": \"c\", \"args\": [\"d\"]}, \"b\": {\"command\": {\"path\": \"p\", \"args\": [\"q\"], \"env\": {\"E\": \"f\"}}}, \"ext\": {\"source\": \"extension\", \"settings\": {}}}}",
            vec!["a c d in ../../..", "b p q E=f in ../../.."],
        ),
    ] {
        let site = Site::new();
        let servers = site.client(client, path, text).unwrap();
        assert_eq!(lines(&servers), expected, "{client:?}");
        assert!(servers.candidates.iter().all(|candidate| candidate.is_own));
    }
}

#[test]
fn claude_code_project_and_global_servers() {
    let site = Site::new();
    let workspace = site.paths.workspace.to_str().unwrap();
    let settings = json!({
        "projects": {
            workspace: { "mcpServers": { "local": { "command": "a" }, "both": { "command": "here" } } },
            "/elsewhere": { "mcpServers": { "other": { "command": "x" } } },
        },
        "mcpServers": {
            "wide": { "type": "http", "url": "https://u/mcp" },
            "both": { "command": "everywhere" },
            "switchboard": { "type": "stdio", "command": "/opt/bin/switchboard", "args": ["mcp"] },
            "switchboard-http": { "type": "http", "url": "http://127.0.0.1:3100/mcp" },
        },
    });
    let servers = site.client(Client::ClaudeCode, ".claude.json", &settings.to_string()).unwrap();
    assert_eq!(lines(&servers), ["both here in ../../..", "local a in ../../..", "wide http https://u/mcp"]);
    assert_eq!(servers.skipped.len(), 1, "{:?}", servers.skipped);
}

#[test]
fn missing_or_damaged_settings_are_reported() {
    let site = Site::new();
    let missing =
        read_client(Client::Zed, None, &site.paths, &|name| (name == "HOME").then(|| "/nowhere".to_owned()));
    let missing = missing.unwrap_err().to_string();
    assert!(
        missing
            .starts_with("no settings of Zed were found; looked in /nowhere/.config/zed/settings.json and "),
        "{missing}"
    );
    let damaged = site.client(Client::Codex, ".codex/config.toml", "a = [").unwrap_err().to_string();
    assert!(damaged.contains("config.toml: is not TOML"), "{damaged}");
    let damaged = site.client(Client::Cursor, ".cursor/mcp.json", "{\"a\": ").unwrap_err().to_string();
    assert!(damaged.contains("mcp.json: is not JSON"), "{damaged}");
    assert_eq!(
        "curser".parse::<Client>().unwrap_err().to_string(),
        "the field 'from' is 'curser', but must be one of claude-code, claude-desktop, cursor, vscode, codex, \
         gemini, windsurf, zed; did you mean 'cursor'?"
    );
}

#[test]
fn workspace_client_file_is_not_the_users() {
    let site = Site::new();
    let file = site.paths.workspace.join(".cursor/mcp.json");
    files::put(&file, r#"{"mcpServers": {"a": {"command": "${workspaceFolder}/x"}}}"#);
    let servers = read_client(Client::Cursor, Some(&file), &site.paths, &|_| None).unwrap();
    assert!(!servers.candidates[0].is_own);
    assert_eq!(lines(&servers), [format!("a {}/x in ../../..", site.paths.workspace.display())]);
}

#[test]
fn users_secret_is_excluded_from_repository() {
    let site = Site::new();
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"API_TOKEN": "literal-value"}}, "b": {"command": "x", "env": {"API_TOKEN": "${T}"}}}}"#;
    let servers = site.client(Client::Cursor, ".cursor/mcp.json", text).unwrap();
    for candidate in &servers.candidates {
        assert_eq!(import(&site.paths, candidate).unwrap(), AddOutcome::Added);
    }
    let ignored =
        |name: &str| site.paths.workspace.join(format!(".switchboard/mcps/{name}/.gitignore")).exists();
    assert_eq!((ignored("a"), ignored("b")), (true, false));
    let found = discover_with(&Config::default(), &site.paths, &|_| Some(String::new()));
    let child = found.child("a").unwrap();
    remove_child(&site.paths, "a", &child.file, now()).unwrap();
    assert!(!site.paths.workspace.join(".switchboard/mcps/a").exists());
}

fn root(text: &str) -> (Site, RootFile) {
    let site = Site::new();
    files::put(site.file(), text);
    let root = RootFile::read(&site.paths.workspace).unwrap().unwrap();
    (site, root)
}

fn import_site(site: &Site, root: &RootFile) -> Vec<String> {
    let names = root.servers.candidates.iter().map(|candidate| {
        assert_eq!(import(&site.paths, candidate).unwrap(), AddOutcome::Added);
        candidate.name.clone()
    });
    names.collect()
}

#[test]
fn root_file_import_reverts_byte_for_byte() {
    let text = "{\n\t\"mcpServers\": {\"fs\": {\"command\": \"node\", \"args\": [\"./srv.js\", \"--x\"]},\n \
        \"@scope/pkg\": {\"type\": \"sse\", \"url\": \"http://a/sse\"}},\n \"mcps\": {\"t\": {\"command\": \"uvx\"}}, \"other\": 1 }";
    let (site, root) = root(text);
    files::chmod(site.file(), 0o640);
    let children = import_site(&site, &root);
    assert_eq!(children, ["fs", "scope-pkg", "t"]);
    let imported = root.replace(&site.paths, &children, Path::new("/opt/switchboard"), now()).unwrap();
    assert_eq!(std::fs::read(&imported.backup).unwrap(), text.as_bytes());
    assert!(imported.backup.ends_with(".switchboard/backups/workspace.2026-11-16T03-00-00Z.mcp.json"));
    let written: Value = serde_json::from_slice(&std::fs::read(site.file()).unwrap()).unwrap();
    let ours = json!({ "type": "stdio", "command": "/opt/switchboard", "args": ["mcp"], "env": {} });
    assert_eq!(written, json!({ "mcpServers": { "switchboard": ours }, "other": 1 }));

    let found = discover_with(&Config::default(), &site.paths, &|_| None);
    assert_eq!(found.issues, []);
    let Launch::Stdio { args, cwd, .. } = &found.child("fs").unwrap().launch else { panic!("a program") };
    assert_eq!((args.join(" "), cwd), ("./srv.js --x".to_owned(), &site.paths.workspace));
    assert!(matches!(found.child("@scope/pkg").unwrap().launch, Launch::Sse { .. }));

    let again = RootFile::read(&site.paths.workspace).unwrap().unwrap();
    assert!(!again.needs_change() && again.servers.is_empty(), "a second time there is nothing to do");

    let reverted = revert(&site.paths, false).unwrap();
    assert_eq!(reverted.children, children);
    assert_eq!(std::fs::read(site.file()).unwrap(), text.as_bytes());
    assert_eq!(files::tree(site.paths.workspace.clone())[Path::new(".mcp.json")].mode & 0o777, 0o640);
    assert!(matches!(revert(&site.paths, true), Err(SuiteError::NoBackup { .. })));
}

#[test]
fn revert_refuses_edited_file_unless_forced() {
    let (site, root) = root(r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let children = import_site(&site, &root);
    root.replace(&site.paths, &children, Path::new("/sb"), now()).unwrap();
    files::put(site.file(), "{\"mine\": true}");
    assert!(matches!(revert(&site.paths, false), Err(SuiteError::Edited { .. })));
    assert_eq!(std::fs::read(site.file()).unwrap(), b"{\"mine\": true}");
    revert(&site.paths, true).unwrap();
    assert_eq!(std::fs::read(site.file()).unwrap(), br#"{"mcpServers": {"a": {"command": "x"}}}"#);
}

#[test]
fn skipped_servers_stay_in_root_file() {
    let (site, root) = root(
        r#"{"mcpServers": {"good": {"command": "x"}, "odd": {"type": "grpc", "url": "http://a"}, "nul": {"command": "x\u0000"}, "n": 5}}"#,
    );
    assert_eq!(root.servers.skipped.keys().collect::<Vec<_>>(), ["n", "nul", "odd"]);
    let children = import_site(&site, &root);
    root.replace(&site.paths, &children, Path::new("/sb"), now()).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(site.file()).unwrap()).unwrap();
    let names: Vec<&String> = written["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["n", "nul", "odd", "switchboard"]);
}

#[test]
fn invalid_root_file_error_names_position() {
    for (text, expected) in [
        ("{\n  \"mcpServers\": {,}\n}", "is not JSON: a key is not in double quotes (line 2, character 18)"),
        ("[]", "is not a JSON object"),
        (r#"{"mcpServers": []}"#, "the key 'mcpServers' is not an object"),
    ] {
        let site = Site::new();
        files::put(site.file(), text);
        let error = RootFile::read(&site.paths.workspace).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    let site = Site::new();
    assert!(RootFile::read(&site.paths.workspace).unwrap().is_none());
    std::os::unix::fs::symlink("/etc/hostname", site.file()).unwrap();
    assert!(RootFile::read(&site.paths.workspace).unwrap_err().to_string().ends_with("symbolic link"));
}

#[test]
fn existing_server_is_not_overwritten() {
    let (site, root) = root(r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let file = site.paths.workspace.join(".switchboard/mcps/a/.mcp.json");
    files::put(&file, r#"{"command": "mine"}"#);
    assert_eq!(
        import(&site.paths, &root.servers.candidates[0]).unwrap(),
        AddOutcome::Differs { file: file.clone() }
    );
    assert_eq!(std::fs::read(&file).unwrap(), br#"{"command": "mine"}"#);
}

#[test]
fn symbolic_link_folder_is_not_written() {
    let (site, root) = root(r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    std::fs::create_dir_all(site.paths.workspace.join(".switchboard/mcps")).unwrap();
    std::fs::create_dir_all(&site.home).unwrap();
    std::os::unix::fs::symlink(&site.home, site.paths.workspace.join(".switchboard/mcps/a")).unwrap();
    assert!(import(&site.paths, &root.servers.candidates[0]).is_err());
    assert!(files::tree(&site.home).is_empty());
}

#[test]
fn concurrently_edited_root_file_is_not_overwritten() {
    let (site, root) = root(r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let children = import_site(&site, &root);
    let edited = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#;
    files::put(site.file(), edited);
    let refused = root.replace(&site.paths, &children, Path::new("/sb"), now());
    assert!(matches!(refused, Err(SuiteError::ModifiedConcurrently { .. })), "{refused:?}");
    assert_eq!(std::fs::read_to_string(site.file()).unwrap(), edited);
}

#[test]
fn duplicate_under_both_keys_retains_skipped() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}}, "mcps": {"a": {"command": "y"}}}"#;
    let (site, root) = root(text);
    let children = import_site(&site, &root);
    assert_eq!((children.as_slice(), root.servers.skipped.len()), (&["a".to_owned()][..], 1));
    root.replace(&site.paths, &children, Path::new("/sb"), now()).unwrap();
    let now: Value = serde_json::from_slice(&std::fs::read(site.file()).unwrap()).unwrap();
    assert_eq!(now["mcpServers"]["a"], json!({ "command": "y" }));
}

#[test]
fn client_limits_are_imported_or_noted() {
    let site = Site::new();
    let text = "[mcp_servers.a]\ncommand = \"x\"\nenabled_tools = [\"read\"]\ndisabled_tools = [\"drop\"]\n\
                tool_timeout_sec = 1.5\nstartup_timeout_sec = 20\n";
    let servers = site.client(Client::Codex, ".codex/config.toml", text).unwrap();
    let [a] = servers.candidates.as_slice() else { panic!("{servers:?}") };
    assert_eq!((a.file.rpc_timeout_ms, a.file.spawn_timeout_ms), (Some(1500), Some(20_000)));
    for expected in ["expose.allow in switchboard.config.json to [\"read\"]", "expose.deny"] {
        assert!(a.notes.iter().any(|note| note.contains(expected)), "{expected}: {:?}", a.notes);
    }
    let text = r#"{"servers": {"b": {"command": "x", "envFile": "${workspaceFolder}/.env"}}}"#;
    let servers = site.client(Client::VsCode, ".config/Code/User/mcp.json", text).unwrap();
    assert!(servers.candidates[0].notes[0].contains(".env are not imported"), "{servers:?}");
}

#[test]
fn byte_order_mark_is_reported() {
    let site = Site::new();
    files::put(site.file(), "\u{feff}{}");
    let error = RootFile::read(&site.paths.workspace).unwrap_err().to_string();
    assert!(error.contains("byte order mark"), "{error}");
}
