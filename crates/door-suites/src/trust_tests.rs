use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::files;

use super::{TrustState, TrustStore, render_launch};
use crate::config::Config;
use crate::mcp_json::{McpFile, ResolveContext, resolve_spec};
use crate::paths::SuitePaths;
use crate::spec::ChildSpec;

struct Site {
    _folder: TempDir,
    paths: SuitePaths,
}

impl Site {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("ws")).unwrap();
        let paths = SuitePaths {
            workspace: path("ws"),
            config: path("home/.config/switchboard"),
            cache: path("cache"),
        };
        Self { _folder: folder, paths }
    }

    fn trust(&self) -> TrustStore {
        TrustStore::load(&self.paths)
    }
}

fn spec(file: &Value) -> ChildSpec {
    spec_with(file, &|_| Some("value".to_owned()))
}

fn spec_with(file: &Value, lookup: crate::expand::Lookup<'_>) -> ChildSpec {
    let (file, _) = McpFile::parse(file.to_string().as_bytes()).unwrap();
    let context = ResolveContext {
        file: Path::new("/ws/.switchboard/mcps/x/.mcp.json"),
        folder: ".switchboard/mcps/x",
        config: &Config::default(),
        lookup,
    };
    resolve_spec("x".to_owned(), file, &context).unwrap()
}

fn base() -> Value {
    json!({ "command": "npx", "args": ["-y", "pkg"], "env": { "MODE": "fast", "API_TOKEN": "s3cr3t-value" } })
}

#[test]
fn nothing_is_trusted_without_approval() {
    let site = Site::new();
    let (trust, child) = (site.trust(), spec(&base()));
    assert_eq!(trust.state(&child), TrustState::New);
    assert!(!site.paths.config.exists(), "asking leaves no trace");
    assert!(!trust.revoke("x").unwrap());
    trust.grant(&child).unwrap();
    assert_eq!(trust.state(&child), TrustState::Trusted);
    let mode = std::fs::metadata(site.paths.config.join("trust.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(trust.revoke("X").unwrap());
    assert_eq!(trust.state(&child), TrustState::New);
}

#[test]
fn every_launch_field_affects_trust() {
    let site = Site::new();
    let trust = site.trust();
    trust.grant(&spec(&base())).unwrap();
    let change = |key: &str, value: Value| {
        let mut file = base();
        file[key] = value;
        spec(&file)
    };
    for changed in [
        change("command", json!("npx2")),
        change("args", json!(["-y", "pkg "])),
        change("args", json!(["-y pkg"])),
        change("args", json!(["pkg", "-y"])),
        change("env", json!({ "MODE": "fast" })),
        change("env", json!({ "MODE": "slow", "API_TOKEN": "s3cr3t-value" })),
        change("env", json!({ "MODE": "fast", "API_TOKEN": "s3cr3t-valuf" })),
        change("env", json!({ "MODE": "fast", "API_TOKEN": "s3cr3t-value", "LD_PRELOAD": "x" })),
        change("cwd", json!("..")),
        change("framing", json!("newline")),
        spec(&json!({ "url": "http://a" })),
    ] {
        match trust.state(&changed) {
            TrustState::Changed { diff } => {
                assert!(diff.lines().any(|line| line.starts_with(['+', '-'])), "{diff}");
                assert!(!diff.contains("s3cr3t"), "{diff}");
            }
            other => panic!("{other:?}: {:?}", changed.template),
        }
    }
    let described = change("description", json!("another text"));
    assert_eq!(trust.state(&described), TrustState::Trusted, "a description starts nothing");
}

#[test]
fn changed_header_or_url_revokes_trust() {
    let site = Site::new();
    let trust = site.trust();
    let remote = |url: &str, token: &str| spec(&json!({ "url": url, "headers": { "Authorization": token } }));
    trust.grant(&remote("https://a.example/mcp", "Bearer ${T}")).unwrap();
    assert!(trust.state(&remote("https://a.example/mcp", "Bearer ${T}")).is_trusted());
    assert!(!trust.state(&remote("https://b.example/mcp", "Bearer ${T}")).is_trusted());
    assert!(!trust.state(&remote("https://a.example/mcp", "Bearer ${OPENAI_API_KEY}")).is_trusted());
}

#[test]
fn variable_name_affects_trust_value_does_not() {
    let site = Site::new();
    let file = json!({ "command": "x", "args": ["${A}"] });
    site.trust().grant(&spec_with(&file, &|_| Some("one".to_owned()))).unwrap();
    assert!(site.trust().state(&spec_with(&file, &|_| Some("two".to_owned()))).is_trusted());
    assert!(!site.trust().state(&spec(&json!({ "command": "x", "args": ["${B}"] }))).is_trusted());
}

#[test]
fn decision_of_other_process_is_noticed() {
    let site = Site::new();
    let (host, person, child) = (site.trust(), site.trust(), spec(&base()));
    assert_eq!(host.state(&child), TrustState::New);
    person.grant(&child).unwrap();
    assert_eq!(host.state(&child), TrustState::Trusted);
    person.revoke("x").unwrap();
    assert_eq!(host.state(&child), TrustState::New);
}

#[test]
fn trust_is_per_workspace() {
    let site = Site::new();
    site.trust().grant(&spec(&base())).unwrap();
    let mut other = site.paths.clone();
    other.workspace = site.paths.cache.clone();
    std::fs::create_dir(&other.workspace).unwrap();
    assert_eq!(TrustStore::load(&other).state(&spec(&base())), TrustState::New);
}

#[test]
fn concurrent_decisions_are_not_lost() {
    let site = Site::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let trust = site.trust();
            scope.spawn(move || {
                let mut child = spec(&base());
                child.name = format!("child{number}");
                trust.grant(&child).unwrap();
            });
        }
    });
    for number in 0..8 {
        let mut child = spec(&base());
        child.name = format!("child{number}");
        assert!(site.trust().state(&child).is_trusted(), "child{number}");
    }
}

#[test]
fn damaged_file_trusts_nothing_and_stays() {
    let site = Site::new();
    let child = spec(&base());
    site.trust().grant(&child).unwrap();
    let file = site.paths.config.join("trust.json");
    files::put(&file, "{");
    assert_eq!(site.trust().state(&child), TrustState::New);
    let error = site.trust().grant(&child).unwrap_err().to_string();
    assert!(error.contains("trust.json: cannot be read: the text ends"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"{");
}

#[test]
fn rendered_launch_redacts_only_secrets() {
    let file = json!({
        "command": "npx", "args": ["-y", "a b", "", "token=./evil/script.sh"],
        "env": { "API_TOKEN": "s3cr3t-value", "OTHER_TOKEN": "${OTHER}", "MODE": "fast" },
    });
    assert_eq!(
        render_launch(&spec(&file).template, None),
        [
            "command: npx -y 'a b' '' token=./evil/script.sh",
            "folder: .switchboard/mcps/x",
            "env API_TOKEN=[redacted]",
            "env MODE=fast",
            "env OTHER_TOKEN=${OTHER}"
        ]
    );
    let remote = spec(&json!({ "url": "https://me:hunter2@a.example/mcp", "headers": { "X-Key": "abc" } }));
    assert_eq!(
        render_launch(&remote.template, Some(Path::new("/work"))),
        ["address: https://me:[redacted]@a.example/mcp (http)", "header X-Key=[redacted]"]
    );
}
