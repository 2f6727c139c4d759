//! Tools that are listed by themselves, as the child has them but for the name.

use serde_json::json;
use serde_json::value::RawValue;

use crate::introspect::{BLOCKED, Offered};
use crate::neutral::neutral;
use crate::raw::{Object, raw};
use crate::rules;

/// The name of a tool that says whose it is.
pub(crate) fn prefixed(child: &str, tool: &str) -> String {
    rules::tool_name(&format!("{child}__{tool}"))
}

/// The tool under another name. All else that the child says stays as it is, except that what is hidden in the
/// description is taken out, and that nothing is told of a tool that is no longer what its owner approved.
pub(crate) fn renamed(offered: Offered<'_>, name: &str) -> Box<RawValue> {
    let tool = offered.tool;
    if offered.is_blocked {
        return raw(
            &json!({ "name": name, "description": BLOCKED.trim(), "inputSchema": { "type": "object" } }),
        );
    }
    let description = Object::parse(&tool.raw).and_then(|object| object.text("description"));
    let harmless = description.as_deref().map(neutral).filter(|harmless| !harmless.flags.is_empty());
    if name == tool.name && harmless.is_none() {
        return tool.raw.clone();
    }
    let name = raw(&name);
    let description = harmless.map(|harmless| raw(&format!("{} [hidden text removed]", harmless.text)));
    let Some(mut object) = Object::parse(&tool.raw) else { return tool.raw.clone() };
    object.set("name", &name);
    if let Some(description) = &description {
        object.set("description", description);
    }
    object.to_raw()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::renamed;
    use crate::introspect::Offered;
    use crate::raw::raw;
    use crate::tool::Tool;

    #[test]
    fn only_the_name_changes() {
        let text = concat!(
            r#"{"inputSchema":{"type":"object","z":1.0},"name":"add","#,
            r#""execution":{"taskSupport":"optional"},"description":"Adds."}"#
        );
        let tool = Tool::read(serde_json::from_str(text).unwrap()).unwrap();
        let offered = Offered { tool: &tool, is_blocked: false };
        assert_eq!(renamed(offered, "add").get(), text);
        assert_eq!(renamed(offered, "x__add").get(), text.replace("\"add\"", "\"x__add\""));
    }

    #[test]
    fn what_is_hidden_is_taken_out_and_of_a_changed_tool_nothing_is_told() {
        let odd = Tool::read(raw(&json!({ "name": "a", "description": "b\u{200b}" }))).unwrap();
        let offered = Offered { tool: &odd, is_blocked: false };
        assert_eq!(renamed(offered, "a").get(), r#"{"description":"b [hidden text removed]","name":"a"}"#);
        let blocked = renamed(Offered { is_blocked: true, ..offered }, "a");
        let blocked: Value = serde_json::from_str(blocked.get()).unwrap();
        assert_eq!(blocked["description"], "[changed: blocked until approved]");
    }
}
