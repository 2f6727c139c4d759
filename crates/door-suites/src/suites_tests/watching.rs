//! Tests of file changes while suites are open.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::rig::{Rig, call_text, names, tools};
use crate::suites::SuitesEvent;
use crate::test_files::write;

#[tokio::test]
async fn watcher_applies_new_child_and_settings() {
    let rig = Rig::new();
    rig.child("box", &tools());
    rig.trust();
    let suites = rig.open();
    let mut events = suites.events();
    let (stop, settings) = (CancellationToken::new(), rig.paths().workspace.join("switchboard.config.json"));
    let load = {
        let settings = settings.clone();
        move || {
            let text = std::fs::read_to_string(&settings).unwrap_or_else(|_| "{}".to_owned());
            serde_json::from_str(&text).ok()
        }
    };
    let watching = tokio::spawn(crate::watch(suites.clone(), load, stop.clone()));
    // Let the watcher run up to its first wait, so that it misses no change.
    tokio::task::yield_now().await;

    write(&settings, "{ half");
    write(&settings, &json!({ "suites": { "box": { "suiteName": "renamed" } } }).to_string());
    let event = tokio::time::timeout(Duration::from_mins(1), events.recv()).await.unwrap();
    assert!(matches!(event, Ok(SuitesEvent::ToolsChanged)));
    assert_eq!(names(&suites.tools()), ["renamed"]);

    rig.child("other", &tools());
    let event = tokio::time::timeout(Duration::from_mins(1), events.recv()).await.unwrap();
    assert!(matches!(event, Ok(SuitesEvent::ToolsChanged)));
    assert_eq!(names(&suites.tools()), ["renamed", "other_suite", "switchboard_tools"]);
    let (text, failed) = call_text(&suites, "other_suite", json!({ "action": "introspect" })).await;
    assert!(failed && text.contains("not trusted yet"), "{text}");
    assert!(events.try_recv().is_err(), "one change, one event");

    stop.cancel();
    watching.await.unwrap();
    suites.close().await;
}
