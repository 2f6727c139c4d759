use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Pins;
use crate::paths::SuitePaths;

fn paths(folder: &TempDir) -> SuitePaths {
    let path = |name: &str| folder.path().join(name);
    SuitePaths { workspace: folder.path().to_owned(), config: path("config"), cache: path("cache") }
}

fn raw(tools: &[Value]) -> Vec<Box<RawValue>> {
    tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect()
}

fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

const NONE: [&str; 0] = [];

#[test]
fn thousands_of_renamed_tools_compare_by_hash() {
    let folder = TempDir::new().unwrap();
    let paths = paths(&folder);
    let many = |prefix: &str| -> Vec<Value> {
        (0..2_000).map(|number| tool(&format!("{prefix}{number}"), &format!("Does {number}."))).collect()
    };
    let mut pins = Pins::load(&paths, "fs").unwrap();
    assert_eq!(pins.check(&raw(&many("old"))).unwrap(), NONE);
    assert_eq!(pins.check(&raw(&many("new"))).unwrap().len(), 2_000);
    let waiting = pins.pending();
    assert_eq!(waiting.len(), 2_000);
    let one = waiting.iter().find(|problem| problem.tool == "new1004").unwrap();
    assert_eq!(one.diff, "- name: old1004\n+ name: new1004\n  renamed; otherwise unchanged");
}

#[test]
fn changed_description_is_blocked_until_approved() {
    let folder = TempDir::new().unwrap();
    let paths = paths(&folder);
    let before = raw(&[tool("read", "Reads a file.\nSafely."), tool("write", "Writes.")]);
    let after = raw(&[tool("read", "Reads a file.\nAnd ~/.ssh."), tool("write", "Writes.")]);
    let mut pins = Pins::load(&paths, "fs").unwrap();
    assert_eq!(pins.check(&before).unwrap(), NONE);
    assert_eq!(pins.check(&before).unwrap(), NONE);

    let mut later = Pins::load(&paths, "FS").unwrap();
    assert_eq!(later.check(&after).unwrap(), ["read"]);
    let issues = later.pending();
    assert_eq!(
        issues[0].diff,
        "  description: Reads a file.\n- description: Safely.\n+ description: And ~/.ssh.\n  inputSchema: {"
    );

    // A person approves in another process, which has listed nothing.
    let mut person = Pins::load(&paths, "fs").unwrap();
    assert_eq!(person.pending(), issues);
    assert!(person.approve(Some("write")).is_err());
    assert_eq!(person.approve(Some("read")).unwrap(), ["read"]);
    assert_eq!(later.check(&after).unwrap(), NONE);
    assert_eq!(later.check(&before).unwrap(), ["read"], "what was before is now the change");
}

#[test]
fn only_model_visible_parts_are_pinned() {
    let folder = TempDir::new().unwrap();
    let base =
        json!({ "name": "a", "description": "d", "inputSchema": { "type": "object", "properties": {} } });
    let mut pins = Pins::load(&paths(&folder), "x").unwrap();
    assert_eq!(pins.check(&raw(std::slice::from_ref(&base))).unwrap(), NONE);
    for (key, value) in [
        ("description", json!("d ")),
        ("description", json!("d\u{200b}")),
        ("inputSchema", json!({ "type": "object", "properties": { "x": {} } })),
        ("outputSchema", json!({})),
        ("annotations", json!({ "readOnlyHint": true })),
        ("title", json!("A")),
    ] {
        let mut changed = base.clone();
        changed[key] = value;
        assert_eq!(pins.check(&raw(&[changed])).unwrap(), ["a"], "{key}");
        let issues = pins.pending();
        assert!(issues[0].diff.contains('+'), "{}", issues[0].diff);
        assert!(!issues[0].diff.contains('\u{200b}'), "what is hidden is shown");
    }
    let reordered =
        r#"{"inputSchema":{"properties":{},"type":"object"},"_meta":{"x":1},"description":"d","name":"a"}"#;
    assert_eq!(pins.check(&[RawValue::from_string(reordered.to_owned()).unwrap()]).unwrap(), NONE);
}

#[test]
fn later_tool_is_new_until_used() {
    let folder = TempDir::new().unwrap();
    let paths = paths(&folder);
    let mut pins = Pins::load(&paths, "x").unwrap();
    pins.check(&raw(&[tool("a", "A")])).unwrap();
    let both = raw(&[tool("a", "A"), tool("b", "B")]);
    assert_eq!(pins.check(&both).unwrap(), NONE);
    assert_eq!(pins.new_tools().iter().collect::<Vec<_>>(), ["b"]);
    assert_eq!(pins.check(&raw(&[tool("a", "A"), tool("b", "B2")])).unwrap(), NONE, "not used, not pinned");
    pins.check(&both).unwrap();
    pins.pin_new("b").unwrap();
    pins.pin_new("a").unwrap();
    assert!(pins.new_tools().is_empty());
    assert_eq!(pins.check(&raw(&[tool("b", "B2")])).unwrap(), ["b"]);
}

#[test]
fn removed_pins_stay_and_renames_are_detected() {
    let folder = TempDir::new().unwrap();
    let mut pins = Pins::load(&paths(&folder), "x").unwrap();
    pins.check(&raw(&[tool("a", "A"), tool("b", "B")])).unwrap();
    assert_eq!(pins.check(&raw(&[tool("b", "B")])).unwrap(), NONE, "removed tools are no problem");
    assert_eq!(pins.check(&raw(&[tool("b", "B"), tool("c", "A")])).unwrap(), ["c"]);
    assert_eq!(pins.pending()[0].diff, "- name: a\n+ name: c\n  renamed; otherwise unchanged");
    assert_eq!(pins.approve(None).unwrap(), ["c"]);
    assert_eq!(pins.check(&raw(&[tool("b", "B"), tool("c", "A")])).unwrap(), NONE);
    assert_eq!(pins.check(&raw(&[tool("a", "A3")])).unwrap(), ["a"], "it came back changed");
}

#[test]
fn concurrent_first_listings_agree() {
    let folder = TempDir::new().unwrap();
    let paths = paths(&folder);
    let (mut one, mut two) = (Pins::load(&paths, "x").unwrap(), Pins::load(&paths, "x").unwrap());
    assert_eq!(one.check(&raw(&[tool("a", "A")])).unwrap(), NONE);
    assert_eq!(two.check(&raw(&[tool("a", "A2")])).unwrap(), ["a"]);
}

#[test]
fn invalid_tools_are_skipped_forget_resets() {
    let folder = TempDir::new().unwrap();
    let paths = paths(&folder);
    let mut pins = Pins::load(&paths, "x").unwrap();
    let odd = raw(&[json!(5), json!({ "name": 5 }), json!({}), tool("a", "A")]);
    assert_eq!(pins.check(&odd).unwrap(), NONE);
    assert_eq!(pins.pinned().map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
    Pins::forget(&paths, "x").unwrap();
    assert_eq!(Pins::load(&paths, "x").unwrap().check(&raw(&[tool("a", "other")])).unwrap(), NONE);
}
