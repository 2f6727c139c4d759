use serde_json::json;
use switchboard_core::json::to_raw;

use super::{rank_tools, tokenize};
use crate::tool::Tool;

fn tools() -> Vec<Tool> {
    [
        ("read_text_file", "Read the complete contents of a file as text.", "path"),
        ("write_file", "Create a new file or overwrite an existing one.", "content"),
        ("searchFiles", "Find what matches a pattern.", "pattern"),
        ("create_entities", "Make new entities in the graph.", "entities"),
    ]
    .into_iter()
    .map(|(name, description, argument)| {
        let schema = json!({ "type": "object", "properties": { (argument): {} } });
        Tool::read(to_raw(&json!({ "name": name, "description": description, "inputSchema": schema })))
            .unwrap()
    })
    .collect()
}

#[test]
fn names_outrank_descriptions_with_stable_order() {
    let tools = tools();
    assert_eq!(rank_tools("search files", &tools)[0], 2);
    assert_eq!(rank_tools("entity", &tools), [3]);
    assert_eq!(rank_tools("content of file", &tools)[0], 0, "by words of the description");
    assert_eq!(rank_tools("PATTERN", &tools), [2], "by the name of an argument");
    assert!(rank_tools("weather", &tools).is_empty());
    assert!(rank_tools("", &tools).is_empty());
    assert_eq!(rank_tools("file", &tools), rank_tools("file file", &tools));
}

#[test]
fn tokens_match_in_every_naming_style() {
    assert_eq!(tokenize("readTextFile"), ["read", "text", "file"]);
    assert_eq!(tokenize("read_text-files"), ["read", "text", "file"]);
    assert_eq!(tokenize("HTTPServer v2"), ["httpserver", "v2"]);
    assert_eq!(tokenize("entries class"), ["entry", "class"]);
}
