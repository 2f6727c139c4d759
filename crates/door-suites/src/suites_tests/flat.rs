//! Tests of flat children.

use serde_json::{Value, json};
use switchboard_core::json::to_raw;

use super::rig::{Rig, call, names, tools};
use crate::child::ListKind;
use crate::host::Caller;

fn flat(bare: bool) -> Value {
    json!({ "expose": { "mode": "flat", "bare": bare } })
}

#[tokio::test]
async fn flat_tools_are_listed_with_prefix() {
    let rig = Rig::new().with(json!({ "suites": { "box": flat(false) } }));
    rig.child("box", &tools());
    rig.child("folded", &tools());
    let suites = rig.open_trusted();
    assert_eq!(names(&suites.tools()), ["folded_suite"], "nothing is started just to look");
    let list = suites.list_tools(&Caller::default()).await;
    assert_eq!(names(&list)[..3], ["folded_suite", "box__echo", "box__count"]);
    let mut expected = tools()["tools"][0].clone();
    expected["name"] = Value::from("box__echo");
    assert_eq!(serde_json::from_str::<Value>(list[1].get()).unwrap(), expected, "unknown fields stay");
    let result = call(&suites, "box__echo", json!({ "message": 7 })).await.unwrap();
    let result: Value = serde_json::from_str(result.get()).unwrap();
    assert_eq!(
        result["structuredContent"],
        json!({ "name": "echo", "arguments": { "message": 7 } }),
        "the child checks"
    );
    suites.close().await;

    let suites = rig.open();
    assert_eq!(names(&suites.tools()).len(), 9, "known from now on, without a start");
    assert!(suites.has_tool("box__echo") && !suites.has_tool("echo"));
}

#[tokio::test]
async fn bare_names_require_uniqueness() {
    let rig = Rig::new().with(json!({ "suites": { "a": flat(true), "b": flat(true) } }));
    rig.child("a", &json!({ "tools": [{ "name": "one" }, { "name": "both" }, { "name": "send_message" }] }));
    rig.child("b", &json!({ "tools": [{ "name": "two" }, { "name": "both" }] }));
    let suites = rig.open_trusted();
    suites.reserve(["send_message".to_owned()]);
    let list = suites.list_tools(&Caller::default()).await;
    assert_eq!(names(&list), ["one", "a__both", "a__send_message", "two", "b__both"]);
    let issues: Vec<String> = suites.issues().into_iter().map(|problem| problem.message).collect();
    assert_eq!(issues.len(), 3, "{issues:?}");
    assert!(issues[0].contains("the name both is taken, so the tool is called a__both"), "{issues:?}");
    suites.close().await;
}

#[tokio::test]
async fn changed_list_is_announced_and_listed() {
    let rig = Rig::new().with(json!({ "suites": { "box": flat(true) } }));
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    suites.list_tools(&Caller::default()).await;
    let mut events = suites.events();
    rig.lists("box", &json!({ "tools": [{ "name": "new" }] }));
    call(&suites, "announce", json!({})).await.unwrap();
    let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.recv()).await.unwrap();
    assert!(matches!(event, Ok(crate::SuitesEvent::ToolsChanged)));
    assert_eq!(names(&suites.tools()), ["new"]);
    suites.close().await;
}

#[tokio::test]
async fn slow_child_is_announced_when_ready() {
    let settings = json!({ "timeouts": { "childSpawnMs": 300_000 }, "suites": { "box": flat(false), "gate": flat(false) } });
    let rig = Rig::new().with(settings);
    rig.child("box", &tools());
    let open = rig.paths().cache.join("open");
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/children/gate.py");
    rig.describe("gate", &json!({ "command": { "cmd": "python3", "args": ["-B", script, open] } }));
    let suites = rig.open_trusted();
    let mut events = suites.events();
    let list = names(&suites.list_tools(&Caller::default()).await);
    assert!(!list.iter().any(|name| name.starts_with("gate__")), "{list:?}");
    crate::test_files::write(&open, "");
    let event = tokio::time::timeout(std::time::Duration::from_mins(1), events.recv()).await.unwrap();
    assert!(matches!(event, Ok(crate::SuitesEvent::ToolsChanged)), "{event:?}");
    let list = names(&suites.tools());
    assert!(
        ["gate__echo", "box__echo"].iter().all(|name| list.iter().any(|listed| listed == name)),
        "{list:?}"
    );
    suites.close().await;
}

#[tokio::test]
async fn resources_prompts_and_completion_go_to_their_owner() {
    let rig = Rig::new().with(json!({ "suites": { "a": flat(false), "b": flat(false) } }));
    rig.child(
        "a",
        &json!({
            "instructions": "a", "tools": [], "level": true,
            "resources": [{ "uri": "x://a", "name": "a" }, { "uri": "x://both", "name": "of a" }],
            "templates": [{ "uriTemplate": "x://things/{id}", "name": "t" }],
            "prompts": [{ "name": "greet" }],
        }),
    );
    rig.child(
        "b",
        &json!({
            "instructions": "b", "tools": [],
            "resources": [{ "uri": "x://b", "name": "b" }, { "uri": "x://both", "name": "of b" }],
            "templates": [{ "uriTemplate": "x://things/b/{id}", "name": "t" }],
            "prompts": [{ "name": "greet" }, { "name": "part" }],
        }),
    );
    rig.child("folded", &json!({ "instructions": "folded", "tools": [], "resources": [{ "uri": "x://folded", "name": "f" }] }));
    let suites = rig.open_trusted();
    let caller = Caller::default();
    assert_eq!(names(&suites.list(ListKind::Resources, &caller).await), ["a", "of a", "b"]);
    assert_eq!(names(&suites.list(ListKind::Prompts, &caller).await), ["greet", "part"]);
    for (method, params, owner) in [
        ("resources/read", json!({ "uri": "x://b" }), Some("b")),
        ("resources/read", json!({ "uri": "x://both" }), Some("a")),
        ("resources/read", json!({ "uri": "x://things/7" }), Some("a")),
        ("resources/subscribe", json!({ "uri": "x://things/b/7" }), Some("b")),
        ("resources/read", json!({ "uri": "x://folded" }), None),
        ("prompts/get", json!({ "name": "greet" }), Some("a")),
        ("prompts/get", json!({ "name": "part", "arguments": { "k": "v" } }), Some("b")),
        ("completion/complete", json!({ "ref": { "type": "ref/prompt", "name": "part" } }), Some("b")),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": "x://things/{id}" } }),
            Some("a"),
        ),
        ("logging/setLevel", json!({ "level": "debug" }), Some("a")),
        ("unknown/method", json!({}), None),
    ] {
        let answer = suites.request(method, Some(to_raw(&params)), &caller).await;
        let answer = answer.map(|answer| serde_json::from_str::<Value>(answer.unwrap().get()).unwrap());
        let expected = owner.map(|owner| json!({ "answered": owner, "method": method, "params": params }));
        assert_eq!(answer, expected, "{method} {params}");
    }
    let error =
        suites.request("resources/read", Some(to_raw(&json!({}))), &caller).await.unwrap().unwrap_err();
    assert_eq!(error.code, -32602);
    suites.close().await;
}

#[tokio::test]
async fn truncated_list_is_noted_in_first_description() {
    let rig = Rig::new().with(json!({ "suites": { "box": flat(false) } }));
    let many: Vec<Value> = (0..10_001).map(|number| json!({ "name": format!("tool_{number}") })).collect();
    rig.child("box", &json!({ "tools": many }));
    let suites = rig.open_trusted();
    let list = suites.list_tools(&Caller::default()).await;
    let first: Value = serde_json::from_str(list[0].get()).unwrap();
    let expected = "(box lists too many tools; only the first 10000 can be used)";
    assert_eq!((list.len(), &first["description"]), (10_000, &json!(expected)));
    assert!(!list[1].get().contains("only the first"), "{}", list[1].get());
    suites.close().await;
}
