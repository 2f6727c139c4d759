//! Flat tools: listed one by one, unchanged except for the name.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::{sanitize_description, sanitize_description_value};

use crate::introspect::{BLOCKED, OfferedTool};
use crate::raw::{Object, raw};
use crate::rules;

/// Returns the tool name prefixed with the child's name.
pub(crate) fn prefixed_name(child: &str, tool: &str) -> String {
    rules::tool_name(&format!("{child}__{tool}"))
}

/// Input schema for a tool whose child declares none; hosts require one.
const ANY_ARGUMENTS: &str = r#"{"type":"object"}"#;

/// Returns the tool under another name. Other fields stay as the child sent them, except that hidden text is removed
/// and that a tool which no longer matches its approved pin is reduced to its name.
pub(crate) fn with_name(offered: OfferedTool<'_>, name: &str) -> Box<RawValue> {
    let tool = offered.tool;
    if offered.is_blocked {
        return raw(
            &json!({ "name": name, "description": BLOCKED.trim(), "inputSchema": { "type": "object" } }),
        );
    }
    let listed = sanitize_item(&tool.raw, "name");
    let Some(mut object) = Object::parse(&listed) else { return listed };
    let has_schema = object.get("inputSchema").is_some_and(|schema| schema.get().starts_with('{'));
    if name == tool.name && has_schema {
        return listed;
    }
    let name = raw(&name);
    object.set("name", &name);
    if !has_schema {
        object.0.retain(|(key, _)| key != "inputSchema");
        let any = serde_json::from_str(ANY_ARGUMENTS).unwrap_or(RawValue::NULL);
        object.0.push(("inputSchema".to_owned(), any));
    }
    object.to_raw()
}

/// Appends a note to the tool's description.
pub(crate) fn add_note(listed: &RawValue, note: &str) -> Box<RawValue> {
    let Some(mut object) = Object::parse(listed) else { return listed.to_owned() };
    let described = object.text("description").map(|described| format!("{described} ")).unwrap_or_default();
    let described = raw(&format!("{described}({note})"));
    object.0.retain(|(key, _)| key != "description");
    object.0.push(("description".to_owned(), &described));
    object.to_raw()
}

/// Sanitizes a listed item: removes hidden text and says so in the description. The identifying member (`called_by`) is
/// not changed. If nothing is hidden, the bytes stay the same.
pub(crate) fn sanitize_item(item: &RawValue, called_by: &str) -> Box<RawValue> {
    let Some(mut object) = Object::parse(item) else { return item.to_owned() };
    let has_odd_name = object.0.iter().any(|(key, _)| !sanitize_description(key).flags.is_empty());
    object.0.retain(|(key, _)| sanitize_description(key).flags.is_empty());
    let cleaned = |(key, value): &(String, &RawValue)| {
        let mut value: Value =
            serde_json::from_str(value.get()).ok().filter(|_| key.as_str() != called_by)?;
        sanitize_description_value(&mut value).then(|| (key.clone(), value))
    };
    let mut found: Vec<(String, Value)> = object.0.iter().filter_map(cleaned).collect();
    if found.is_empty() && !has_odd_name {
        return item.to_owned();
    }
    if let Some(description) = object.text("description") {
        found.retain(|(key, _)| key != "description");
        let noted = format!("{} [hidden text removed]", sanitize_description(&description).text);
        found.push(("description".to_owned(), Value::String(noted)));
    }
    let found: Vec<(String, Box<RawValue>)> =
        found.into_iter().map(|(key, value)| (key, raw(&value))).collect();
    for (key, value) in &found {
        object.set(key, value);
    }
    object.to_raw()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{sanitize_item, with_name};
    use crate::introspect::OfferedTool;
    use crate::raw::raw;
    use crate::tool::Tool;

    #[test]
    fn flat_tool_changes_only_its_name() {
        let text = concat!(
            r#"{"inputSchema":{"type":"object","z":1.0},"name":"add","#,
            r#""execution":{"taskSupport":"optional"},"description":"Adds."}"#
        );
        let tool = Tool::read(serde_json::from_str(text).unwrap()).unwrap();
        let offered = OfferedTool { tool: &tool, is_blocked: false };
        assert_eq!(with_name(offered, "add").get(), text);
        assert_eq!(with_name(offered, "x__add").get(), text.replace("\"add\"", "\"x__add\""));
    }

    #[test]
    fn hidden_text_and_blocked_tool_are_removed() {
        let odd = Tool::read(raw(&json!({ "name": "a", "description": "b\u{200b}" }))).unwrap();
        let offered = OfferedTool { tool: &odd, is_blocked: false };
        assert_eq!(
            with_name(offered, "a").get(),
            r#"{"description":"b [hidden text removed]","name":"a","inputSchema":{"type":"object"}}"#
        );
        let blocked = with_name(OfferedTool { is_blocked: true, ..offered }, "a");
        let blocked: Value = serde_json::from_str(blocked.get()).unwrap();
        assert_eq!(blocked["description"], "[changed: blocked until approved]");
    }

    #[test]
    fn hidden_text_is_removed_from_all_parts() {
        let hidden = "a\u{e0041}\u{202e}\u{1b}[31mb<IMPORTANT>";
        let item = json!({
            "name": "x", "title": hidden, "description": "d", "big": 1.50,
            "annotations": { "title": hidden },
            "inputSchema": { "properties": { hidden: { "description": hidden, "enum": [hidden] } }, "required": [hidden] },
            hidden: 1,
        });
        let listed: Value = serde_json::from_str(sanitize_item(&raw(&item), "name").get()).unwrap();
        let plain = "ab&lt;IMPORTANT>";
        assert_eq!(
            listed,
            json!({
                "name": "x", "title": plain, "description": "d [hidden text removed]", "big": 1.5,
                "annotations": { "title": plain },
                "inputSchema": { "properties": { plain: { "description": plain, "enum": [plain] } }, "required": [plain] },
            })
        );
    }
}
