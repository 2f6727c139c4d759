use serde_json::{Value, json};

use super::rig::Rig;
use super::stub::{Reply, Stub};

fn turn(content: Value, stop_reason: &str) -> Reply {
    Reply::ok(json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop_reason, "usage": { "input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 5 },
    }))
}

fn text(text: &str) -> Reply {
    turn(json!([{ "type": "text", "text": text }]), "end_turn")
}

fn rig(stub: &Stub) -> Rig {
    Rig::new(json!({ "baseUrl": stub.base, "model": "m" }), &[("ANTHROPIC_API_KEY", "sk-ant-very-secret")])
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_called_until_answer() {
    let first = json!([
        { "type": "thinking", "thinking": "hm", "signature": "c2ln" },
        { "type": "text", "text": "I write it down." },
        { "type": "tool_use", "id": "t1", "name": "notes_add", "input": { "text": "milk" } },
        { "type": "tool_use", "id": "t2", "name": "list", "input": {} },
    ]);
    let stub = Stub::start([turn(first.clone(), "tool_use"), text("Noted: milk.")]).await;
    let rig = rig(&stub);
    let outcome = rig.ask("remember milk").await;
    assert_eq!((outcome.text.as_str(), outcome.is_error), ("Noted: milk.", false));
    let data = json!({
        "answer": "Noted: milk.",
        "calls": [
            { "tool": "notes_add", "args": { "text": "milk" }, "ok": true, "summary": "1 notes" },
            { "tool": "list", "args": {}, "ok": true, "summary": "milk" },
        ],
        "usage": { "inputTokens": 210, "outputTokens": 20 },
        "turns": 2,
        "stopped": "answered",
    });
    assert_eq!(outcome.data, data);
    assert_eq!(rig.trace(), ["call notes.add {\"text\": \"milk\"}", "call list {}"]);

    let requests = stub.requests();
    let [first_request, second] = requests.as_slice() else { panic!("two requests, not {requests:?}") };
    assert_eq!(first_request.path, "/v1/messages");
    assert_eq!(first_request.headers["x-api-key"], "sk-ant-very-secret");
    assert_eq!(first_request.headers["anthropic-version"], "2023-06-01");
    assert_eq!(
        (&first_request.body["model"], &first_request.body["max_tokens"]),
        (&json!("m"), &json!(8192))
    );
    let names: Vec<&str> = first_request.body["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["notes_add", "list", "fail", "long", "picture", "wait"]);
    let system = first_request.body["system"].as_str().expect("a text");
    assert!(
        system.starts_with("Your role is to use the MCP server `notes`") && system.contains("Keeps notes")
    );
    assert!(
        system.contains("Not available:\n  - delete_all: it is destructive") && !system.contains("hidden")
    );
    let messages = json!([
        { "role": "user", "content": [{ "type": "text", "text": "remember milk" }] },
        { "role": "assistant", "content": first },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": "1 notes", "is_error": false },
            { "type": "tool_result", "tool_use_id": "t2", "content": "milk", "is_error": false },
        ] },
    ]);
    assert_eq!(second.body["messages"], messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_errors_go_to_the_model() {
    let calls = json!([
        { "type": "tool_use", "id": "1", "name": "fail", "input": {} },
        { "type": "tool_use", "id": "2", "name": "lst", "input": {} },
        { "type": "tool_use", "id": "3", "name": "delete_all", "input": {} },
        { "type": "tool_use", "id": "4", "name": "hidden", "input": {} },
        { "type": "tool_use", "id": "5", "name": "list", "input": [] },
        { "type": "tool_use", "id": "6", "name": "long", "input": {} },
        { "type": "tool_use", "id": "7", "name": "picture", "input": {} },
    ]);
    let stub = Stub::start([turn(calls, "tool_use"), text("It failed.")]).await;
    let rig = rig(&stub);
    let outcome = rig.ask("try everything").await;
    assert_eq!((outcome.text.as_str(), outcome.is_error), ("It failed.", false));
    let works: Vec<bool> = outcome.calls().into_iter().map(|(_, ok)| ok).collect();
    assert_eq!(works, [false, false, false, false, false, true, true]);
    assert_eq!(rig.trace(), ["call fail {}", "call long {}", "call picture {}"]);
    let results = stub.requests()[1].body["messages"][2]["content"].clone();
    let content = |at: usize| results[at]["content"].as_str().expect("a text").to_owned();
    assert_eq!((content(0).as_str(), &results[0]["is_error"]), ("the disk is on fire", &json!(true)));
    assert_eq!(content(1), "there is no tool 'lst'; did you mean 'list'?");
    assert!(content(2).starts_with("the tool 'delete_all' is not available: it is destructive"));
    assert_eq!(content(3), "there is no tool 'hidden'");
    assert_eq!(content(4), "the arguments must be a JSON object; call the tool again with one");
    assert!(
        content(5).ends_with("[cut here: 100000 bytes in all; ask for less]") && content(5).len() < 25_000
    );
    assert_eq!(content(6), "[not shown: image image/png, about 6 bytes]");
}

#[tokio::test(flavor = "multi_thread")]
async fn destructive_tools_require_permission() {
    let call = json!([{ "type": "tool_use", "id": "1", "name": "delete_all", "input": {} }]);
    let stub = Stub::start([turn(call, "tool_use"), text("Gone.")]).await;
    let settings = json!({ "baseUrl": stub.base, "allowDestructive": true });
    let rig = Rig::new(settings, &[("ANTHROPIC_API_KEY", "sk-ant-very-secret")]);
    let outcome = rig.ask("delete all").await;
    assert_eq!(outcome.calls(), [("delete_all".to_owned(), true)]);
    assert_eq!(rig.trace(), ["call delete_all {}"]);
    assert!(!stub.requests()[0].body["system"].as_str().expect("a text").contains("Not available"));
}

#[tokio::test(flavor = "multi_thread")]
async fn overloaded_api_is_retried_with_limit() {
    let busy = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let stub = Stub::start([
        Reply::status(429, busy.clone()).retry_after("0"),
        Reply::status(529, busy.clone()).retry_after("0.01"),
        text("Here I am."),
    ])
    .await;
    let outcome = rig(&stub).ask("hello?").await;
    assert_eq!((outcome.text.as_str(), outcome.is_error, stub.requests().len()), ("Here I am.", false, 3));

    let stub = Stub::start([Reply::status(500, busy.clone()).retry_after("0")]).await;
    let outcome = rig(&stub).ask("hello?").await;
    let url = format!("{}/v1/messages", stub.base);
    let text = format!("{url} answered HTTP 500 to 4 attempts; try again later; it said: Overloaded.");
    assert_eq!((outcome.text, outcome.is_error, stub.requests().len()), (text, true, 4));
    assert_eq!((&outcome.data["stopped"], &outcome.data["turns"]), (&json!("failed"), &json!(0)));

    // A requested delay beyond the deadline counts as a failure.
    let stub = Stub::start([Reply::status(429, busy).retry_after("3600")]).await;
    let outcome = rig(&stub).ask("hello?").await;
    assert!(outcome.text.contains("HTTP 429 to 1 attempts"), "{}", outcome.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_settings_but_never_keys() {
    let error_body = |message: &str| json!({ "error": { "message": message } });
    for (status, message, expected) in [
        (
            401,
            "invalid x-api-key sk-ant-very-secret",
            "does not accept the key (HTTP 401); check ANTHROPIC_API_KEY; it said: invalid x-api-key [redacted].",
        ),
        (
            404,
            "model: m",
            "has no model 'm' (HTTP 404); set 'model' or 'baseUrl' of the wrapper; it said: model: m.",
        ),
        (400, "bad\u{1b}[31m tools", "refused the request (HTTP 400); it said: bad tools."),
        (302, "", "refused the request (HTTP 302)."),
    ] {
        let stub = Stub::start([Reply::status(status, error_body(message))]).await;
        let outcome = rig(&stub).ask("hello?").await;
        assert_eq!(outcome.text, format!("{}/v1/messages {expected}", stub.base));
        assert!(outcome.is_error && stub.requests().len() == 1);
    }
    let stub = Stub::start([Reply::ok(json!({ "content": "no blocks" }))]).await;
    let outcome = rig(&stub).ask("hello?").await;
    assert!(outcome.text.contains("is invalid: it is the text"), "{}", outcome.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_answer_makes_no_calls() {
    let cut = json!([
        { "type": "text", "text": "I beg" },
        { "type": "tool_use", "id": "1", "name": "list", "input": {} },
    ]);
    let stub = Stub::start([turn(cut, "max_tokens")]).await;
    let rig = rig(&stub);
    let outcome = rig.ask("tell me all").await;
    assert_eq!(outcome.text, "The answer was truncated: it is too long.\nThe model's last words: I beg");
    assert!(outcome.is_error && rig.trace().is_empty());
    assert_eq!(outcome.data["stopped"], json!("length"));
}
