//! Flat tools: tools of a child that are listed individually, unchanged except for the name.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::json::{RawObject, to_raw};
use switchboard_core::{sanitize_description, sanitize_description_value};

use crate::introspect::{BLOCKED, OfferedTool};
use crate::rules;

/// Returns the tool's name, prefixed with the child's name.
pub(crate) fn prefixed_name(child: &str, tool: &str) -> String {
    rules::tool_name(&format!("{child}__{tool}"))
}

/// Returns the listed tool under another name.
///
/// Other fields are kept as the child sent them, but hidden text is removed. A tool that no longer matches its approved
/// pin is reduced to its name.
pub(crate) fn with_name(offered: OfferedTool<'_>, name: &str) -> Box<RawValue> {
    let tool = offered.tool;
    if offered.is_blocked {
        return to_raw(
            &json!({ "name": name, "description": BLOCKED.trim(), "inputSchema": { "type": "object" } }),
        );
    }
    let listed = sanitize_item(&tool.raw, "name");
    let Some(mut object) = RawObject::parse(&listed) else { return listed };
    let has_schema = object.get("inputSchema").is_some_and(|schema| schema.get().starts_with('{'));
    if name == tool.name && has_schema {
        return listed;
    }
    object.set("name", to_raw(name));
    if !has_schema {
        // Hosts require a schema, so replace a missing one by a schema that accepts any arguments.
        object.remove("inputSchema");
        object.set("inputSchema", to_raw(&json!({ "type": "object" })));
    }
    object.to_raw()
}

/// Appends a note to the description of a listed tool.
pub(crate) fn add_note(listed: &RawValue, note: &str) -> Box<RawValue> {
    let Some(mut object) = RawObject::parse(listed) else { return listed.to_owned() };
    let described = object.text("description").map(|described| format!("{described} ")).unwrap_or_default();
    object.remove("description");
    object.set("description", to_raw(&format!("{described}({note})")));
    object.to_raw()
}

/// Sanitizes a listed item: removes hidden text, such as zero-width characters, and notes the removal in the
/// description.
///
/// The value of the identifying member (`called_by`) is not changed. An item without hidden text keeps its exact bytes.
pub(crate) fn sanitize_item(item: &RawValue, called_by: &str) -> Box<RawValue> {
    let Some(mut object) = RawObject::parse(item) else { return item.to_owned() };
    let has_odd_name = object.iter().any(|(key, _)| !sanitize_description(key).flags.is_empty());
    object.retain(|key, _| sanitize_description(key).flags.is_empty());
    let cleaned = |(key, value): (&str, &RawValue)| {
        let mut value: Value = serde_json::from_str(value.get()).ok().filter(|_| key != called_by)?;
        sanitize_description_value(&mut value).then(|| (key.to_owned(), value))
    };
    let mut found: Vec<(String, Value)> = object.iter().filter_map(cleaned).collect();
    if found.is_empty() && !has_odd_name {
        return item.to_owned();
    }
    if let Some(description) = object.text("description") {
        found.retain(|(key, _)| key != "description");
        let noted = format!("{} [hidden text removed]", sanitize_description(&description).text);
        found.push(("description".to_owned(), Value::String(noted)));
    }
    for (key, value) in found {
        object.set(key, to_raw(&value));
    }
    object.to_raw()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{sanitize_item, with_name};
    use crate::introspect::OfferedTool;
    use crate::tool::Tool;
    use switchboard_core::json::to_raw;

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
        let odd = Tool::read(to_raw(&json!({ "name": "a", "description": "b\u{200b}" }))).unwrap();
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
        let listed: Value = serde_json::from_str(sanitize_item(&to_raw(&item), "name").get()).unwrap();
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
