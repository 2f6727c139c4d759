use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::files;

use super::{BUILT_IN, Descriptions, suite_description};
use crate::config::Config;
use crate::mcp_json::{McpFile, ResolveContext, resolve_spec};
use crate::paths::SuitePaths;

fn describe(file: &Value, config: &Value, descriptions: &Value, instructions: Option<&str>) -> String {
    let config: Config = serde_json::from_value(config.clone()).unwrap();
    let descriptions: Descriptions = serde_json::from_value(descriptions.clone()).unwrap();
    let (file, _) = McpFile::parse(file.to_string().as_bytes()).unwrap();
    let around =
        ResolveContext { file: Path::new("/ws/.mcp.json"), folder: "", config: &config, lookup: &|_| None };
    let spec = resolve_spec("memory".to_owned(), file, &around).unwrap();
    suite_description(&spec, &config, &descriptions, instructions)
}

#[test]
fn owner_description_precedes_built_in_and_instructions() {
    let package = "@modelcontextprotocol/server-memory";
    let mut file = json!({ "command": "npx", "args": ["-y", package], "description": "theirs", "switchboardDescription": "ours" });
    let config = json!({ "suites": { "Memory": { "description": "settings" } } });
    let descriptions = json!({ "mcps": { "memory": { "switchboard": "file", "claude": "role" } } });
    let instructions = Some("Stores things. Call read_graph first.");
    assert_eq!(describe(&file, &config, &descriptions, instructions), "ours");
    file["switchboardDescription"] = json!("  ");
    assert_eq!(describe(&file, &config, &descriptions, instructions), "settings");
    assert_eq!(describe(&file, &json!({}), &descriptions, instructions), "file");
    let built_in = "Knowledge graph";
    assert_eq!(describe(&file, &json!({}), &json!({}), instructions), built_in);
    file["args"] = json!(["other"]);
    assert_eq!(describe(&file, &json!({}), &json!({}), instructions), "theirs");
    file["description"] = Value::Null;
    assert_eq!(describe(&file, &json!({}), &json!({}), instructions), "Stores things.");
    assert_eq!(describe(&file, &json!({}), &json!({}), None), "memory tools");
}

#[test]
fn npm_package_is_recognized_by_path() {
    let path = "/opt/@tools/node_modules/@modelcontextprotocol/server-memory/dist/index.js";
    let file = json!({ "command": "node", "args": [path] });
    assert_eq!(describe(&file, &json!({}), &json!({}), None), "Knowledge graph");
}

#[test]
fn long_sentence_is_cut_between_words() {
    let text = "wörd ".repeat(60);
    let cut = describe(&json!({ "command": "x" }), &json!({}), &json!({}), Some(&text));
    assert!(cut.chars().count() <= 121 && cut.ends_with("wörd…"), "{cut}");
}

#[test]
fn well_known_servers_are_recognized() {
    let time = "Current time and conversion between time zones.";
    for file in [
        json!({ "command": "uvx", "args": ["mcp-server-time"] }),
        json!({ "command": "uvx", "args": ["mcp-server-time@2025.1"] }),
        json!({ "command": "/opt/venv/bin/mcp-server-time" }),
        json!({ "command": "docker", "args": ["run", "-i", "--rm", "mcp/time:latest"] }),
    ] {
        assert_eq!(describe(&file, &json!({}), &json!({}), None), time);
    }
    let linear = describe(&json!({ "url": "https://mcp.linear.app/mcp" }), &json!({}), &json!({}), None);
    assert_eq!(linear, "Linear: issues, projects, cycles and comments.");
}

#[test]
fn built_in_descriptions_are_short_and_unique() {
    assert!(BUILT_IN.len() >= 40);
    let mut seen = BTreeSet::new();
    for known in BUILT_IN.iter() {
        assert!(known.text.split(' ').count() <= 12, "{}", known.text);
        for name in &known.known_as {
            assert_eq!(*name, name.to_ascii_lowercase());
            assert!(seen.insert(name), "{name}");
        }
    }
}

#[test]
fn descriptions_file_is_loaded_or_reported() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_owned();
    let paths = SuitePaths { workspace: path.clone(), config: path.clone(), cache: path.clone() };
    assert_eq!(Descriptions::load(&paths).unwrap().mcps, BTreeMap::new());
    let file = path.join(".switchboard/mcp-descriptions.json");
    files::put(&file, r#"{"mcps": {"Memory": {"switchboard": "a", "claude": "b"}}}"#);
    assert_eq!(Descriptions::load(&paths).unwrap().get("memory").unwrap().claude.as_deref(), Some("b"));
    files::put(&file, "[");
    assert!(Descriptions::load(&paths).unwrap_err().message.starts_with("is not a file of descriptions"));
}
