use rmcp::model::{CallToolRequestParams, ClientRequest, Request};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};

use super::rig::Rig;
use super::stub::{Reply, Stub};
use crate::wrapper::server::TOOL;

fn call(tool: &str, tokens: u64) -> Reply {
    Reply::ok(json!({
        "content": [{ "type": "tool_use", "id": "1", "name": tool, "input": {} }],
        "stop_reason": "tool_use", "usage": { "input_tokens": tokens, "output_tokens": 1 },
    }))
}

fn rig(stub: &Stub, bounds: Value) -> Rig {
    let mut settings = bounds;
    settings["baseUrl"] = json!(stub.base);
    Rig::new(settings, &[("ANTHROPIC_API_KEY", "sk-ant-very-secret")])
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_limit_stops_the_loop() {
    let stub = Stub::start([call("list", 1)]).await;
    let rig = rig(&stub, json!({ "maxTurns": 3 }));
    let outcome = rig.ask("go on").await;
    assert_eq!(
        outcome.text,
        "No answer within 3 turns (maxTurns). These calls were made and were not undone:\n- list worked\n- list worked"
    );
    assert_eq!((&outcome.data["stopped"], &outcome.data["turns"]), (&json!("turns"), &json!(3)));
    assert!(outcome.is_error);
    let requests = stub.requests();
    assert_eq!(requests.len(), 3);
    let last =
        requests[2].body["messages"].as_array().and_then(|messages| messages.last()).expect("a message");
    assert!(last["content"][1]["text"].as_str().expect("a note").starts_with("This is your last turn"));
}

#[tokio::test(flavor = "multi_thread")]
async fn token_limit_stops_the_loop() {
    let stub = Stub::start([call("list", 600)]).await;
    let outcome = rig(&stub, json!({ "maxTokens": 1000 })).ask("go on").await;
    assert!(outcome.text.starts_with("No answer within 1000 tokens (maxTokens)."), "{}", outcome.text);
    assert_eq!((&outcome.data["stopped"], stub.requests().len()), (&json!("tokens"), 2));
    assert_eq!(stub.requests()[1].body["max_tokens"], json!(399), "no more than what is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn time_limit_stops_slow_model_and_child() {
    let stub = Stub::start([call("list", 1), Reply::hanging()]).await;
    let outcome = rig(&stub, json!({ "timeoutMs": 2500 })).ask("go on").await;
    let text =
        "No answer within 2500 ms (timeoutMs). These calls were made and were not undone:\n- list worked";
    assert_eq!((outcome.text.as_str(), &outcome.data["stopped"]), (text, &json!("time")));
    assert_eq!(outcome.calls(), [("list".to_owned(), true)]);

    let stub = Stub::start([call("wait", 1)]).await;
    let rig = rig(&stub, json!({ "timeoutMs": 2500 }));
    let client = rig.client().await;
    let outcome = client.ask(json!({ "query": "wait" })).await;
    assert_eq!(outcome.text, "No answer within 2500 ms (timeoutMs).");
    assert_eq!(outcome.data["stopped"], json!("time"));
    rig.traced("cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_question_cancels_the_call() {
    let stub = Stub::start([call("wait", 1)]).await;
    let rig = rig(&stub, json!({}));
    let client = rig.client().await;
    let arguments = json!({ "query": "wait" }).as_object().cloned().expect("an object");
    let request = CallToolRequestParams::new(TOOL).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(Request::new(request));
    let options = PeerRequestOptions::default();
    let handle = client.service().peer().send_cancellable_request(request, options).await.expect("sent");
    rig.traced("call wait {}").await;
    handle.cancel(Some("enough".to_owned())).await.expect("cancelled");
    rig.traced("cancelled").await;
    assert_eq!(stub.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_sends_progress() {
    let answer = json!({ "content": [{ "type": "text", "text": "ok" }], "stop_reason": "end_turn" });
    let stub = Stub::start([call("list", 1), Reply::ok(answer)]).await;
    let rig = rig(&stub, json!({ "model": "m" }));
    let mut client = rig.client().await;
    let outcome = client.ask(json!({ "query": "list them", "context": "all of them" })).await;
    assert_eq!(outcome.text, "ok");
    let question = &stub.requests()[0].body["messages"][0]["content"][0]["text"];
    assert_eq!(question, &json!("list them\n\nContext from the asker:\nall of them"));
    let mut steps = Vec::new();
    for _ in 0..5 {
        steps.push(client.steps.recv().await.expect("a step"));
    }
    steps.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let steps: Vec<String> = steps.into_iter().map(|(_, step)| step).collect();
    let expected = [
        "looks at the tools of notes",
        "asks m",
        "turn 1 of at most 12",
        "uses list",
        "turn 2 of at most 12",
    ];
    assert_eq!(steps, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_questions_are_rejected_early() {
    let stub = Stub::start([call("list", 1)]).await;
    let rig = rig(&stub, json!({}));
    let client = rig.client().await;
    for (arguments, expected) in [
        (json!({}), "the field 'query' is missing; call it with {\"query\": \"…\"}"),
        (json!({ "query": " " }), "the field 'query' is empty; call it with {\"query\": \"…\"}"),
        (
            json!({ "query": "x".repeat(100_001) }),
            "the field 'query' is longer than 100000 bytes; ask for less at once",
        ),
    ] {
        let outcome = client.ask(arguments).await;
        assert_eq!((outcome.text.as_str(), outcome.is_error), (expected, true));
    }
    let unknown = client.service().call_tool(CallToolRequestParams::new("list")).await.expect_err("refused");
    assert!(
        unknown.to_string().contains("there is no tool 'list'; the only one is 'natural_language'"),
        "{unknown}"
    );
    assert!(stub.requests().is_empty() && rig.trace().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_original_is_not_started() {
    let stub = Stub::start([call("list", 1)]).await;
    let rig = rig(&stub, json!({}));
    let file = rig.folder().join("original/.mcp.json");
    let text = std::fs::read_to_string(&file).expect("the original");
    let folder = switchboard_sys::files::Dir::open_root(&rig.folder().join("original")).expect("its folder");
    let changed = text.replace("\"python3\"", "\"sh\"");
    folder.replace(".mcp.json", changed.as_bytes(), 0o600).expect("changed");
    let outcome = rig.ask("list").await;
    assert!(
        outcome
            .text
            .starts_with("the original of 'notes' differs from what was trusted when it was wrapped:\n")
    );
    assert!(outcome.text.contains("python3") && outcome.text.contains("switchboard suite unwrap notes"));
    assert!(stub.requests().is_empty() && rig.trace().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_tool_is_withheld() {
    let answer = json!({ "content": [{ "type": "text", "text": "ok" }], "stop_reason": "end_turn" });
    let stub = Stub::start([Reply::ok(answer)]).await;
    let rig = rig(&stub, json!({}));
    let before = json!({ "name": "list", "description": "Lists other things." });
    let before = serde_json::value::to_raw_value(&before).expect("JSON");
    let mut pins = crate::pins::Pins::load(&rig.paths, "notes.original").expect("pins");
    pins.check(&[before]).expect("remembered");
    rig.ask("list them").await;
    let body = &stub.requests()[0].body;
    let names: Vec<&str> =
        body["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["notes_add", "fail", "long", "picture", "wait"]);
    assert!(body["system"].as_str().expect("a text").contains("- list: it changed since its first use"));
    let waiting = crate::pins::Pins::load(&rig.paths, "notes.original").expect("pins").pending();
    assert_eq!(waiting.iter().map(|problem| problem.tool.as_str()).collect::<Vec<_>>(), ["list"]);
}
