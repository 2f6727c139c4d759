use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use test_support::files;

use super::{Discovery, discover_with};
use crate::config::Config;
use crate::paths::SuitePaths;

struct Site {
    folder: TempDir,
}

impl Site {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn put(&self, path: &str, text: &str) {
        files::put(self.path().join(path), text);
    }

    fn child(&self, name: &str, text: &str) {
        self.put(&format!(".switchboard/mcps/{name}/.mcp.json"), text);
    }

    fn discover(&self, config: serde_json::Value) -> Discovery {
        let path = |name: &str| self.path().join(name);
        let paths =
            SuitePaths { workspace: self.path().to_owned(), config: path("config"), cache: path("cache") };
        discover_with(&serde_json::from_value::<Config>(config).unwrap(), &paths, &|_| None)
    }
}

fn names(found: &Discovery) -> Vec<&str> {
    found.children.iter().map(|child| child.name.as_str()).collect()
}

fn messages(issues: &[super::Issue]) -> Vec<String> {
    let show = |problem: &super::Issue| {
        let file = problem.file.file_name().unwrap().to_string_lossy().into_owned();
        let folder = problem.file.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        format!("{folder}/{file}: {}", problem.message)
    };
    issues.iter().map(show).collect()
}

#[test]
fn children_are_sorted_and_named() {
    let site = Site::new();
    site.child("b", r#"{"command": "x"}"#);
    site.child("zz", r#"{"name": "@scope/a", "command": "x"}"#);
    site.put(".switchboard/mcps/README.md", "not a folder");
    site.put(".switchboard/mcps/empty/other.json", "{}");
    site.put(".switchboard/mcps/b/original/.mcp.json", r#"{"command": "hidden"}"#);
    let found = site.discover(json!({}));
    assert_eq!(names(&found), ["b", "scope-a"]);
    assert_eq!((found.issues, found.warnings), (vec![], vec![]));
}

#[test]
fn empty_workspace_has_no_issues() {
    assert_eq!(Site::new().discover(json!({})), Discovery::default());
}

#[test]
fn invalid_file_never_hides_another() {
    let site = Site::new();
    site.child("good", r#"{"command": "x"}"#);
    site.child("bad", "{");
    site.child("huge", &format!(r#"{{"command": "{}"}}"#, "x".repeat(300 << 10)));
    site.child("path", r#"{"name": "../../etc", "command": "x"}"#);
    site.child("unset", r#"{"command": "x", "args": ["${NOPE}"]}"#);
    std::fs::create_dir_all(site.path().join(".switchboard/mcps/folder/.mcp.json")).unwrap();
    let found = site.discover(json!({}));
    assert_eq!(names(&found), ["good", "unset"]);
    let messages = messages(&found.issues);
    assert_eq!(messages.len(), 4, "{messages:#?}");
    assert!(messages[0].starts_with("bad/.mcp.json: is not JSON: the text ends within"), "{}", messages[0]);
    assert!(messages[1].ends_with("is not a file but a directory"), "{}", messages[1]);
    assert!(messages[2].contains("more than the 262144 allowed"), "{}", messages[2]);
    assert!(
        messages[3].starts_with("path/.mcp.json: the field 'name': '../../etc' cannot be the name"),
        "{}",
        messages[3]
    );
    let unready = found.child("unset").unwrap().unready.as_deref().unwrap();
    assert!(unready.starts_with("the field 'args[0]' needs the variable NOPE"), "{unready}");
}

#[test]
fn symbolic_links_are_not_followed() {
    let (site, elsewhere) = (Site::new(), Site::new());
    elsewhere.put("x/.mcp.json", r#"{"command": "evil"}"#);
    site.child("good", r#"{"command": "x"}"#);
    symlink(elsewhere.path().join("x"), site.path().join(".switchboard/mcps/folder")).unwrap();
    std::fs::create_dir_all(site.path().join(".switchboard/mcps/file")).unwrap();
    symlink(elsewhere.path().join("x/.mcp.json"), site.path().join(".switchboard/mcps/file/.mcp.json"))
        .unwrap();
    let found = site.discover(json!({}));
    assert_eq!(names(&found), ["good"]);
    let messages = messages(&found.issues);
    assert!(
        messages[0].starts_with("mcps/folder: is a symbolic link, which is not followed"),
        "{}",
        messages[0]
    );
    assert!(messages[1].ends_with("is not a file but a symbolic link"), "{}", messages[1]);
}

#[test]
fn patterns_stay_below_the_workspace() {
    let site = Site::new();
    site.put("tools/one/mcp.json", r#"{"command": "x"}"#);
    site.put("tools/deep/er/two/mcp.json", r#"{"command": "x"}"#);
    site.put("node_modules/three/mcp.json", r#"{"command": "x"}"#);
    let globs = ["tools/**/mcp.json", "./tools/*/mcp.json", "../*/.mcp.json", "/etc/*.json", "**", "a[/b"];
    let found = site.discover(json!({ "discoverGlobs": globs }));
    assert_eq!(names(&found), ["one", "two"]);
    let messages: Vec<&str> = found.issues.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages[0],
        "the key 'discoverGlobs[2]' is '../*/.mcp.json', but must stay inside the workspace"
    );
    assert_eq!(
        messages[1],
        "the key 'discoverGlobs[3]' is '/etc/*.json', but must stay inside the workspace"
    );
    assert_eq!(messages[2], "the key 'discoverGlobs[4]' is '**', but must end with the name of a file");
    assert!(messages[3].starts_with("the key 'discoverGlobs[5]' is 'a[/b': "), "{}", messages[3]);
    assert_eq!(names(&site.discover(json!({ "discoverGlobs": ["**/mcp.json"] }))), ["one", "two"]);
}

#[test]
fn first_path_wins_name_collision() {
    let site = Site::new();
    site.child("a", r#"{"command": "x"}"#);
    site.child("b", r#"{"name": "A", "command": "y"}"#);
    site.child("c", r#"{"name": "a_suite", "command": "y"}"#);
    site.child("d", r#"{"command": "y"}"#);
    site.child("e", r#"{"name": "switchboard_tools", "command": "y"}"#);
    let found = site.discover(json!({ "suites": { "d": { "suiteName": "a_suite" } } }));
    assert_eq!(names(&found), ["a"]);
    let messages = messages(&found.issues);
    assert_eq!(messages.len(), 4, "{messages:#?}");
    assert!(messages[0].starts_with("b/.mcp.json: the name 'a' is taken by 'a' in "), "{}", messages[0]);
    assert!(
        messages[1].starts_with("c/.mcp.json: the name 'a_suite' is taken by 'a' in "),
        "{}",
        messages[1]
    );
    assert!(
        messages[2].starts_with("d/.mcp.json: the name 'a_suite' is taken by 'a' in "),
        "{}",
        messages[2]
    );
    assert!(messages[3].contains("is taken by Switchboard itself"), "{}", messages[3]);
}

#[test]
fn settings_disable_children_and_unknown_names_warn() {
    let site = Site::new();
    site.child("memory", r#"{"command": "x", "comand": 1}"#);
    site.child("off", r#"{"command": "x"}"#);
    let found = site.discover(json!({ "suites": { "off": { "enabled": false }, "memmory": {} } }));
    assert_eq!((names(&found), found.disabled.as_slice()), (vec!["memory"], ["off".to_owned()].as_slice()));
    let warnings = messages(&found.warnings);
    assert_eq!(warnings[0], "memory/.mcp.json: the key 'comand' is not known; did you mean 'command'?");
    assert!(
        warnings[1].ends_with("the key 'suites.memmory' names no server; did you mean 'memory'?"),
        "{}",
        warnings[1]
    );
}

#[test]
fn lookup_returns_child_or_similar_names() {
    let site = Site::new();
    site.child("memory", r#"{"command": "x"}"#);
    site.child("c", r#"{"name": "@up/ctx", "command": "x"}"#);
    let found = site.discover(json!({}));
    assert_eq!(found.find_child("MEMORY").unwrap().name, "memory");
    assert_eq!(found.find_child("@up/ctx").unwrap().name, "up-ctx");
    assert_eq!(
        found.find_child("memry").unwrap_err().to_string(),
        "there is no server 'memry' in this workspace; did you mean 'memory'?"
    );
}

/// The limit is for a release build; this one is not optimized and shares the machine with other tests.
#[test]
fn twenty_children_are_discovered_quickly() {
    let site = Site::new();
    for number in 0..20 {
        let file =
            json!({ "command": "npx", "args": ["-y", format!("pkg-{number}")], "env": { "A": "${B:-c}" } });
        site.child(&format!("child{number}"), &file.to_string());
    }
    let once = || {
        let start = std::time::Instant::now();
        assert_eq!(site.discover(json!({})).children.len(), 20);
        start.elapsed()
    };
    let quickest = (0..20).map(|_| once()).min().unwrap();
    let bound = if cfg!(debug_assertions) { 200 } else { 2 };
    assert!(quickest < std::time::Duration::from_millis(bound), "{quickest:?}");
}
