use std::collections::BTreeSet;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::{ToolPolicy, Toolbox};
use crate::expose::ToolFilter;

fn listed(tools: serde_json::Value) -> Vec<Box<RawValue>> {
    tools.as_array().expect("a list").iter().map(|tool| to_raw_value(tool).expect("JSON")).collect()
}

#[test]
fn filtered_tools_are_hidden_destructive_withheld() {
    let tools = listed(json!([
        { "name": "read", "description": "Reads.\u{202e}", "inputSchema": { "type": "object", "properties": {} } },
        { "name": "delete_all" },
        { "name": "secret" },
        { "name": "changed" },
        { "title": "no name" },
    ]));
    let (exposed, _) = ToolFilter::new(None, &["sec*".to_owned()]);
    let changed = BTreeSet::from(["changed".to_owned()]);
    let toolbox = Toolbox::new(&tools, &ToolPolicy { exposed: &exposed, destructive: false, changed });
    assert_eq!(toolbox.names, ["read"]);
    assert!(!toolbox.definitions[0].description.contains('\u{202e}'));
    assert_eq!(toolbox.definitions[0].schema.get(), r#"{"properties":{},"type":"object"}"#);
    let withheld: Vec<&str> = toolbox.withheld.iter().map(|withheld| withheld.tool.as_str()).collect();
    assert_eq!(withheld, ["delete_all", "changed"]);
    assert_eq!(
        toolbox.position("delete_all").expect_err("withheld"),
        "the tool 'delete_all' is not available: it is destructive, and allowDestructive is not set"
    );
    assert_eq!(toolbox.position("secret").expect_err("unknown"), "there is no tool 'secret'");
    assert_eq!(
        toolbox.position("raed").expect_err("unknown"),
        "there is no tool 'raed'; did you mean 'read'?"
    );

    let changed = BTreeSet::new();
    let toolbox = Toolbox::new(&tools, &ToolPolicy { exposed: &exposed, destructive: true, changed });
    assert_eq!(toolbox.names, ["read", "delete_all", "changed"]);
}

#[test]
fn tool_names_are_valid_and_unique() {
    let long = "x".repeat(70);
    let tools = listed(json!([
        { "name": "a.b", "inputSchema": { "type": "string" } },
        { "name": "a/b" },
        { "name": "a_b" },
        { "name": long },
        { "name": format!("{long}y") },
    ]));
    let (exposed, _) = ToolFilter::new(None, &[]);
    let allowed = ToolPolicy { exposed: &exposed, destructive: false, changed: BTreeSet::new() };
    let toolbox = Toolbox::new(&tools, &allowed);
    let names: Vec<&str> = toolbox.definitions.iter().map(|definition| definition.name.as_str()).collect();
    assert_eq!(names, ["a_b", "a_b_2", "a_b_3", &"x".repeat(64), &format!("{}_2", "x".repeat(62))]);
    assert_eq!(toolbox.definitions[0].schema.get(), r#"{"type":"object"}"#);
    let many: Vec<_> = (0..200).map(|number| json!({ "name": format!("t{number}") })).collect();
    let toolbox = Toolbox::new(&listed(many.into()), &allowed);
    assert_eq!((toolbox.definitions.len(), toolbox.withheld.len()), (128, 72));
}
