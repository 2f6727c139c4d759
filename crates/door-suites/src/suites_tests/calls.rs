//! Tests of calls through a suite.

use serde_json::json;

use super::rig::{Rig, call, call_text, tools};

#[tokio::test]
async fn results_arrive_byte_for_byte() {
    let rig = Rig::new();
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let result = call(
        &suites,
        "box_suite",
        json!({ "action": "call", "subtool": "echo", "args": { "message": "hi" } }),
    )
    .await;
    assert_eq!(
        result.unwrap().get(),
        concat!(
            r#"{"content":[{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"audience":["user"]}},"#,
            r#"{"type":"odd","unknown":[1.5,12345678901234567890]}],"structuredContent":{"name":"echo","#,
            r#""arguments":{"message":"hi"}},"_meta":{"x":"y"}}"#,
        )
    );
    let failed = call(&suites, "box_suite", json!({ "action": "call", "subtool": "fails" })).await.unwrap();
    assert_eq!(failed.get(), r#"{"content":[{"type":"text","text":"it failed"}],"isError":true}"#);
    let error =
        call(&suites, "box_suite", json!({ "action": "call", "subtool": "refuses" })).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (-32042, "not this one"));
    assert_eq!(error.data.unwrap().get(), r#"{"why":["because"]}"#);
    suites.close().await;
}

#[tokio::test]
async fn invalid_arguments_never_reach_the_child() {
    let rig = Rig::new();
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let (text, failed) = call_text(
        &suites,
        "box_suite",
        json!({ "action": "call", "subtool": "echo", "args": { "message": 7 } }),
    )
    .await;
    assert!(failed);
    for part in [
        "- message: ",
        r#"Schema: {"properties":{"message":{"type":"string"}},"required":["message"],"type":"object"}"#,
        r#"Example: {"action":"call","subtool":"echo","args":{"message":"…"}}"#,
    ] {
        assert!(text.contains(part), "{text}");
    }
    let (counted, _) = call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;
    assert_eq!(counted, "1", "the first call that got there");
    let (text, failed) =
        call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "ehco" })).await;
    assert!(failed && text.contains("Did you mean echo"), "{text}");
    suites.close().await;
}

#[tokio::test]
async fn oversized_result_is_an_error() {
    let rig = Rig::new();
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let (text, failed) = call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "big" })).await;
    assert!(
        failed && text.contains("more than the limit of"),
        "{}",
        text.chars().take(200).collect::<String>()
    );
    let (counted, _) = call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;
    assert_eq!(counted, "2");
    suites.close().await;
}

#[tokio::test]
async fn read_only_results_are_cached_until_write() {
    let rig = Rig::new().with(json!({ "suites": { "box": { "cache": { "ttlMs": 60_000 } } } }));
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let count = || call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" }));
    assert_eq!((count().await.0, count().await.0), ("1".to_owned(), "1".to_owned()));
    let (_, failed) = call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "write" })).await;
    assert!(!failed);
    assert_eq!(count().await.0, "3", "asked anew after a tool that may have changed something");
    suites.close().await;
}

#[tokio::test]
async fn rate_limit_is_enforced() {
    let rig =
        Rig::new().with(json!({ "suites": { "box": { "rateLimit": { "calls": 2, "perMs": 3_600_000 } } } }));
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let count = || call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" }));
    assert_eq!((count().await.0, count().await.0), ("1".to_owned(), "2".to_owned()));
    let (text, failed) = count().await;
    assert!(failed && text.contains("accepts no calls for"), "{text}");
    let (_, failed) = call_text(&suites, "box_suite", json!({ "action": "introspect" })).await;
    assert!(!failed, "looking is free");
    suites.close().await;
}

#[tokio::test]
async fn usage_is_summed_over_processes() {
    let rig = Rig::new();
    rig.child("box", &tools());
    for round in 1..=2 {
        let suites = rig.open_trusted();
        suites.list_tools(&crate::Caller::default()).await;
        call_text(&suites, "box_suite", json!({ "action": "introspect" })).await;
        call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "count" })).await;
        suites.close().await;
        let report = suites.savings();
        let counted = &report.measured.counted;
        assert_eq!((counted.lists, counted.introspects, counted.calls), (round, round, round));
        assert_eq!(report.measured.flat, round * report.flat as u64);
        assert!(report.flat > report.suites && report.children[0].introspect > 0, "{report:?}");
    }
}

#[tokio::test]
async fn savings_report_excludes_unknown_children() {
    let rig = Rig::new();
    rig.child("box", &tools());
    rig.child("other", &tools());
    let report = rig.open().savings();
    assert_eq!((report.unknown.as_slice(), report.flat), (&["box".to_owned(), "other".to_owned()][..], 0));
    assert_eq!(report.typical_saved_percent, None);
}

#[tokio::test]
async fn calls_by_people_are_not_counted() {
    let rig = Rig::new().with(json!({ "suites": { "box": { "suiteName": "renamed" } } }));
    rig.child("box", &tools());
    let suites = rig.open_trusted();
    let caller = crate::Caller::default();
    let request = switchboard_core::json::to_raw(&json!({ "action": "call", "subtool": "count" }));
    for name in ["box", "renamed"] {
        let answer = suites.call_child(name, Some(&request), &caller).await.unwrap().unwrap();
        assert!(answer.get().contains("\"text\""), "{answer}");
    }
    assert!(suites.call_child("boxes", Some(&request), &caller).await.is_none());
    assert_eq!(suites.children(), ["box"]);
    suites.close().await;
    assert_eq!(suites.savings().measured.counted, crate::UsageCounts::default());
}

/// Verifies that a tool can be used right after the server has announced it.
///
/// The server answers a call and then announces a new tool, which the next call uses.
#[tokio::test]
async fn announced_tools_are_usable_at_once() {
    let rig = Rig::new();
    let tools = |name: &str| json!([{ "name": "rename" }, { "name": name, "description": name }]);
    let new = ["a", "b", "c", "d", "e", "f"];
    rig.child("box", &json!({ "tools": tools("old"), "next": new.map(tools) }));
    let suites = rig.open_trusted();
    for (place, name) in new.into_iter().enumerate() {
        call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "rename" })).await;
        let action = if place % 2 == 0 { "call" } else { "introspect" };
        let (text, failed) =
            call_text(&suites, "box_suite", json!({ "action": action, "subtool": name })).await;
        assert!(!failed, "{name}: {text}");
    }
    let (text, failed) =
        call_text(&suites, "box_suite", json!({ "action": "call", "subtool": "never" })).await;
    assert!(failed && text.contains("is not available"), "{text}");
    suites.close().await;
}
