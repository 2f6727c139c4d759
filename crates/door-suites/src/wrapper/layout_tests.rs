use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use switchboard_sys::files::{Dir, Durability};

use super::{is_wrapper, unwrap_child, wrap_child};
use crate::discovery::discover_with;
use crate::spec::Launch;
use crate::trust::TrustStore;
use crate::wrapper::WrapperError;
use crate::wrapper::tests::rig::Rig;

fn wrap(rig: &Rig, name: &str) -> Result<super::WrapOutcome, WrapperError> {
    wrap_child(name, Path::new("/opt/switchboard"), &rig.config, &rig.paths, &|name| rig.lookup(name))
}

fn unwrap(rig: &Rig, name: &str) -> Result<super::UnwrapOutcome, WrapperError> {
    unwrap_child(name, &rig.config, &rig.paths, &|name| rig.lookup(name))
}

/// Returns every file below `.switchboard`, with content and mode.
fn files(rig: &Rig) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![rig.paths.workspace.join(".switchboard")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mode = path.metadata().expect("a file").permissions().mode() & 0o777;
                files.insert(path.clone(), (std::fs::read(&path).expect("a file"), mode));
            }
        }
    }
    files
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}

#[test]
fn unwrap_removes_exactly_what_wrap_created() {
    let rig = Rig::unwrapped(json!({}), &[]);
    let file = rig.folder().join(".mcp.json");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    rig.trust();
    let before = files(&rig);
    let wrapped = wrap(&rig, "NOTES").expect("wrapped");
    assert_eq!((wrapped.name.as_str(), wrapped.kept_role), ("notes", false));

    assert_eq!(std::fs::read(rig.folder().join("original/.mcp.json")).expect("kept"), before[&file].0);
    let wrapper = read(&file);
    assert_eq!(wrapper["description"], json!("Keeps notes"));
    assert_eq!(wrapper["command"]["cmd"], json!("/opt/switchboard"));
    assert_eq!(wrapper["command"]["args"], json!(["suite", "wrapper", "notes"]));
    assert_eq!(wrapper["command"]["env"]["ANTHROPIC_API_KEY"], json!("${ANTHROPIC_API_KEY:-}"));
    assert_eq!(wrapper["rpcTimeoutMs"], json!(615_000));
    assert_eq!(files(&rig)[&file].1, 0o640);
    let role = std::fs::read_to_string(&wrapped.role).expect("a role");
    assert!(role.starts_with("Your role is to use the MCP server `notes` for other agents."));
    let texts = read(&rig.paths.workspace.join(".switchboard/mcp-descriptions.json"));
    assert_eq!(texts["mcps"]["notes"]["switchboard"], json!("Keeps notes"));
    assert_eq!(texts["mcps"]["notes"]["claude"], json!(role.trim_end()));

    let found = discover_with(&rig.config, &rig.paths, &|name| rig.lookup(name));
    let child = found.find_child("notes").expect("the wrapper");
    assert!(is_wrapper(child) && TrustStore::load(&rig.paths).state(child).is_trusted());
    let again = wrap(&rig, "notes").expect_err("refused");
    assert_eq!(
        again.to_string(),
        "the server 'notes' is already wrapped; `switchboard suite unwrap notes` removes the wrapper"
    );

    let unwrapped = unwrap(&rig, "notes").expect("unwrapped");
    assert_eq!((unwrapped.kept, unwrapped.is_trusted), (vec![], true));
    assert_eq!(files(&rig), before);
    assert!(!rig.folder().join("original").exists());
    let found = discover_with(&rig.config, &rig.paths, &|name| rig.lookup(name));
    let child = found.find_child("notes").expect("the child");
    assert!(!is_wrapper(child) && TrustStore::load(&rig.paths).state(child).is_trusted());
    let again = unwrap(&rig, "notes").expect_err("refused");
    assert_eq!(
        again.to_string(),
        "the server 'notes' is not wrapped; `switchboard suite wrap notes` wraps it"
    );
}

#[test]
fn existing_texts_are_preserved() {
    let rig = Rig::unwrapped(json!({}), &[]);
    rig.trust();
    let root = Dir::open_root(&rig.paths.workspace.join(".switchboard")).expect("a folder");
    let texts =
        json!({ "extra": 1, "mcps": { "Notes": { "claude": "You are the librarian." }, "time": {} } });
    root.create_new("mcp-descriptions.json", texts.to_string().as_bytes(), Durability::Unsynced)
        .expect("a file");
    let wrapped = wrap(&rig, "notes").expect("wrapped");
    assert_eq!(std::fs::read_to_string(&wrapped.role).expect("a role"), "You are the librarian.\n");
    let folder = Dir::open_root(&rig.folder()).expect("its folder");
    folder.replace("CLAUDE.md", b"You are mine.\n", 0o600).expect("edited");
    let unwrapped = unwrap(&rig, "notes").expect("unwrapped");
    assert_eq!(unwrapped.kept, [rig.folder().join("CLAUDE.md")]);
    assert_eq!(read(&rig.paths.workspace.join(".switchboard/mcp-descriptions.json")), texts);

    // The existing role now belongs to its author.
    let wrapped = wrap(&rig, "notes").expect("wrapped again");
    assert!(wrapped.kept_role);
    unwrap(&rig, "notes").expect("unwrapped");
    assert_eq!(std::fs::read_to_string(rig.folder().join("CLAUDE.md")).expect("a role"), "You are mine.\n");
}

#[test]
fn only_trusted_workspace_children_are_wrapped() {
    let rig = Rig::unwrapped(json!({}), &[]);
    let before = files(&rig);
    assert_eq!(
        wrap(&rig, "notes").expect_err("refused").to_string(),
        "the server 'notes' is not trusted yet: run `switchboard suite trust notes` first"
    );
    assert_eq!(
        wrap(&rig, "nots").expect_err("refused").to_string(),
        "there is no server 'nots' in this workspace; did you mean 'notes'?"
    );
    rig.trust();
    assert_eq!(files(&rig), before, "a refusal changes nothing");
    let original =
        Dir::open_root(&rig.folder()).expect("a folder").ensure_subdir("original").expect("a folder");
    original.create_new(".mcp.json", b"{}", Durability::Unsynced).expect("a file");
    assert!(matches!(wrap(&rig, "notes"), Err(WrapperError::OtherOriginal { .. })));
}

#[test]
fn interrupted_wrap_is_completed() {
    let rig = Rig::unwrapped(json!({}), &[]);
    rig.trust();
    let bytes = std::fs::read(rig.folder().join(".mcp.json")).expect("the child");
    let original =
        Dir::open_root(&rig.folder()).expect("a folder").ensure_subdir("original").expect("a folder");
    original.create_new(".mcp.json", &bytes, Durability::Unsynced).expect("a file");
    wrap(&rig, "notes").expect("wrapped");
    unwrap(&rig, "notes").expect("unwrapped");
    assert_eq!(std::fs::read(rig.folder().join(".mcp.json")).expect("the child"), bytes);
}

#[test]
fn wrapper_gets_variables_of_its_original() {
    let rig = Rig::unwrapped(json!({}), &[("TOKEN", "t"), ("PLACE", "here")]);
    let file = json!({ "name": "notes", "type": "http", "url": "https://${HOST:-x.example}/mcp",
        "headers": { "Authorization": "Bearer ${TOKEN}", "X": "${PLACE}-${PLACE:-y}" } });
    let folder = Dir::open_root(&rig.folder()).expect("its folder");
    folder.replace(".mcp.json", file.to_string().as_bytes(), 0o600).expect("replaced");
    let discover = || discover_with(&rig.config, &rig.paths, &|name| rig.lookup(name));
    TrustStore::load(&rig.paths).grant(discover().find_child("notes").expect("the child")).expect("trusted");
    wrap(&rig, "notes").expect("wrapped");
    let found = discover();
    let Launch::Stdio { env, cwd, .. } = &found.find_child("notes").expect("the wrapper").launch else {
        panic!("a wrapper is a program")
    };
    let variable = |name: &str| env.get(name).map(String::as_str);
    assert_eq!((variable("TOKEN"), variable("PLACE"), variable("HOST")), (Some("t"), Some("here"), Some("")));
    assert_eq!(*cwd, rig.folder());
    let written = read(&rig.folder().join(".mcp.json"));
    assert_eq!(written["command"]["env"]["TOKEN"], json!("${TOKEN}"));
    assert_eq!(written["name"], json!("notes"));

    // Unwrapping must work without any variables.
    let unwrapped = unwrap_child("notes", &rig.config, &rig.paths, &|_| None).expect("unwrapped");
    assert!(unwrapped.is_trusted);
    assert_eq!(read(&rig.folder().join(".mcp.json")), file);
}
