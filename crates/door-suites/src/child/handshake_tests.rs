use serde_json::json;

use crate::child::ChildError;
use crate::child::test_child::{TestHost, call, child, with_timeout};
use crate::host::Caller;

#[tokio::test]
async fn older_revision_is_negotiated() {
    let child = child("old.py", &["2024-11-05"]);
    let opened = with_timeout(child.open(&Caller::default())).await.expect("it opens");
    assert_eq!(opened.protocol_version, "2024-11-05");
}

#[tokio::test]
async fn sessionless_child_gets_meta_per_request() {
    let child = child("old.py", &["2026-07-28"]);
    let host = TestHost::new("host", json!({"elicitation": {}, "tasks": {}}));
    let answer = call(&child, "any", json!({}), &host.caller()).await.expect("an answer");
    let meta = &answer["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({"elicitation": {}}));
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "switchboard");
}

#[tokio::test]
async fn input_required_is_answered_and_retried() {
    let child = child("old.py", &["2026-07-28"]);
    let host = TestHost::new("host", json!({"elicitation": {}}));
    let answer = call(&child, "ask", json!({"kept": 1}), &host.caller()).await.expect("an answer");
    let expected = json!({"by": "host", "method": "elicitation/create", "params": {"message": "who?"}});
    assert_eq!(answer["params"]["inputResponses"], json!({ "who": expected }));
    assert_eq!(answer["params"]["requestState"], "s1");
    assert_eq!(answer["params"]["arguments"], json!({"kept": 1}));
    let nobody = call(&child, "ask", json!({}), &Caller::default()).await;
    assert!(matches!(&nobody, Err(ChildError::Rpc(error)) if error.code == -32021), "{nobody:?}");
    let unable = TestHost::new("unable", json!({}));
    let refused = call(&child, "ask", json!({}), &unable.caller()).await;
    assert!(matches!(&refused, Err(ChildError::Rpc(_))), "{refused:?}");
    assert!(unable.asked.lock().is_empty());
}

#[tokio::test]
async fn unsupported_revision_is_an_error() {
    let child = child("old.py", &["2099-01-01"]);
    let error = with_timeout(child.open(&Caller::default())).await.expect_err("it does not open").to_string();
    assert!(error.contains("it refused `initialize`: unsupported version (-32022)"), "{error}");
}
