use serde_json::json;

use crate::child::test_child::{TestHost, call, child, until};
use crate::host::Caller;

#[tokio::test]
async fn requests_reach_calling_client_with_child_name() {
    let child = child("asker.py", &[]);
    let all = json!({"roots": {}, "sampling": {}, "elicitation": {}, "experimental": {}});
    let host = TestHost::new("host", all);
    for method in ["roots/list", "sampling/createMessage", "elicitation/create"] {
        let answer = call(&child, method, json!({ "m": method }), &host.caller()).await.expect("an answer");
        let expected = json!({"by": "host", "method": method, "params": {"about": {"m": method}}});
        assert_eq!(answer["told"]["result"], expected);
        assert_eq!(host.asked.lock().pop(), Some(("fixture".to_owned(), method.to_owned())));
    }
    let opened = child.initialized().expect("it runs");
    assert_eq!(opened.capabilities["client"], json!({"roots": {}, "sampling": {}, "elicitation": {}}));
}

#[tokio::test]
async fn undeclared_capability_is_refused_with_reason() {
    let child = child("asker.py", &[]);
    let host = TestHost::new("host", json!({"roots": {}}));
    let answer = call(&child, "sampling/createMessage", json!({}), &host.caller()).await.expect("an answer");
    let error = &answer["told"]["error"];
    assert_eq!(error["code"], -32601);
    assert!(error["message"].as_str().expect("text").contains("did not declare `sampling`"), "{error}");
    let answer = call(&child, "tea/make", json!({}), &host.caller()).await.expect("an answer");
    assert_eq!(answer["told"]["error"]["code"], -32601);
    assert!(host.asked.lock().is_empty());
    assert_eq!(child.status().counts.refused_requests, 2);
}

#[tokio::test]
async fn request_without_client_is_refused() {
    let child = child("asker.py", &[]);
    let answer = call(&child, "roots/list", json!({}), &Caller::default()).await.expect("an answer");
    assert!(
        answer["told"]["error"]["message"].as_str().expect("text").contains("no client is connected"),
        "{answer}"
    );
}

#[tokio::test]
async fn ping_is_answered() {
    let child = child("asker.py", &[]);
    let answer = call(&child, "ping", json!({}), &Caller::default()).await.expect("an answer");
    assert_eq!(answer["told"]["result"], json!({}));
}

#[tokio::test]
async fn ambiguous_request_is_refused() {
    let child = child("asker.py", &[]);
    let first = TestHost::silent("first", json!({"roots": {}}));
    let second = TestHost::new("second", json!({"roots": {}}));
    let caller = first.caller();
    let (waiting, answer) = tokio::join!(call(&child, "roots/list", json!({}), &caller), async {
        until(|| !first.asked.lock().is_empty()).await;
        let answer = call(&child, "roots/list", json!({}), &second.caller()).await.expect("an answer");
        caller.cancelled.cancel();
        answer
    });
    assert!(waiting.is_err());
    let reason = answer["told"]["error"]["message"].as_str().expect("text").to_owned();
    assert!(reason.contains("2 clients use this server"), "{reason}");
    assert!(second.asked.lock().is_empty());
}

#[tokio::test]
async fn child_can_cancel_its_request() {
    let child = child("asker.py", &[]);
    let host = TestHost::silent("host", json!({"roots": {}}));
    call(&child, "roots/list", json!({"call_off": true}), &host.caller()).await.expect("an answer");
    until(|| *host.dropped.lock() == host.asked.lock().len()).await;
}
