use serde_json::json;

use super::{ranked, words};
use crate::raw::raw;
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
        Tool::read(raw(&json!({ "name": name, "description": description, "inputSchema": schema }))).unwrap()
    })
    .collect()
}

#[test]
fn names_count_more_than_descriptions_and_the_order_is_always_the_same() {
    let tools = tools();
    assert_eq!(ranked("search files", &tools)[0], 2);
    assert_eq!(ranked("entity", &tools), [3]);
    assert_eq!(ranked("content of file", &tools)[0], 0, "by words of the description");
    assert_eq!(ranked("PATTERN", &tools), [2], "by the name of an argument");
    assert!(ranked("weather", &tools).is_empty());
    assert!(ranked("", &tools).is_empty());
    assert_eq!(ranked("file", &tools), ranked("file file", &tools));
}

#[test]
fn words_are_found_in_every_way_of_writing_names() {
    assert_eq!(words("readTextFile"), ["read", "text", "file"]);
    assert_eq!(words("read_text-files"), ["read", "text", "file"]);
    assert_eq!(words("HTTPServer v2"), ["httpserver", "v2"]);
    assert_eq!(words("entries class"), ["entry", "class"]);
}
