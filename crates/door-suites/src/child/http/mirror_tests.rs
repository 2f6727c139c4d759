use serde_json::json;
use switchboard_core::json::to_raw;

use super::*;

#[test]
fn tool_with_invalid_annotations_is_excluded() {
    let bad = [
        json!({"a": {"type": "string", "x-mcp-header": ""}}),
        json!({"a": {"type": "string", "x-mcp-header": "not a token"}}),
        json!({"a": {"type": "string", "x-mcp-header": 1}}),
        json!({"a": {"type": "number", "x-mcp-header": "A"}}),
        json!({"a": {"x-mcp-header": "A"}}),
        json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
    ];
    for properties in bad {
        let tool = json!({"name": "bad", "inputSchema": {"properties": properties}});
        let mirror = HeaderMirror::default();
        let list = mirror.record_tools(&to_raw(&json!({"ttlMs": 1, "tools": [{"name": "good"}, tool]})));
        let list: Value = serde_json::from_str(list.expect("it changes").get()).expect("it is JSON");
        assert_eq!(list, json!({"ttlMs": 1, "tools": [{"name": "good"}]}));
        assert!(mirror.is_invalid("bad") && !mirror.is_invalid("good"));
    }
}

#[test]
fn only_annotated_arguments_are_mirrored() {
    let schema = json!({"properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "absent": {"type": "string", "x-mcp-header": "Absent"},
        "null": {"type": "string", "x-mcp-header": "Null"},
        "plain": {"type": "string"},
        "inner": {"properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
        "list": {"items": {"type": "string", "x-mcp-header": "Item"}},
    }});
    let mirror = HeaderMirror::default();
    let list = to_raw(&json!({"tools": [{"name": "tool", "inputSchema": schema}, {"name": "other"}]}));
    assert!(mirror.record_tools(&list).is_none());
    let headers = |name: &str| -> Vec<(String, String)> {
        let arguments = json!({
            "region": "Zürich", "count": 42, "null": null, "plain": "x",
            "inner": {"flag": true}, "list": ["x"],
        });
        let headers = mirror.headers(Some(&to_raw(&json!({"name": name, "arguments": arguments}))));
        let mut headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().expect("it is text").to_owned()))
            .collect();
        headers.sort();
        headers
    };
    let expected = [("count", "42"), ("flag", "true"), ("region", "=?base64?WsO8cmljaA==?=")];
    let expected = expected.map(|(name, value)| (format!("mcp-param-{name}"), value.to_owned()));
    assert_eq!(headers("tool"), expected);
    assert_eq!(headers("other"), []);
}
