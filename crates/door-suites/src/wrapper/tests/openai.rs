use serde_json::{Value, json};

use super::rig::Rig;
use super::stub::{Reply, Stub};

fn reply(message: Value, finish_reason: &str) -> Reply {
    Reply::ok(json!({
        "id": "c1", "object": "chat.completion",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason }],
        "usage": { "prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57 },
    }))
}

fn rig(stub: &Stub) -> Rig {
    let settings = json!({ "provider": "openai", "baseUrl": format!("{}/v1/", stub.base), "model": "local" });
    Rig::new(settings, &[("OPENAI_API_KEY", "sk-very-secret")])
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_return_to_the_model() {
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let first = json!({
        "role": "assistant", "content": null, "reasoning_content": "kept",
        "tool_calls": [
            call("a", "notes_add", "{\"text\": \"milk"),
            call("b", "notes_add", "{\"text\": \"eggs\"}"),
            call("c", "list", ""),
            call("d", "fail", "{}"),
        ],
    });
    let last =
        reply(json!({ "role": "assistant", "content": [{ "type": "text", "text": "Eggs." }] }), "stop");
    let stub = Stub::start([reply(first.clone(), "tool_calls"), last]).await;
    let rig = rig(&stub);
    let outcome = rig.ask("remember milk and eggs").await;
    assert_eq!((outcome.text.as_str(), outcome.is_error), ("Eggs.", false));
    assert_eq!(outcome.data["usage"], json!({ "inputTokens": 100, "outputTokens": 14 }));
    let calls = [("notes_add", false), ("notes_add", true), ("list", true), ("fail", false)];
    assert_eq!(outcome.calls(), calls.map(|(tool, ok)| (tool.to_owned(), ok)));

    let requests = stub.requests();
    assert_eq!(requests[0].path, "/v1/chat/completions");
    assert_eq!(requests[0].headers["authorization"], "Bearer sk-very-secret");
    assert_eq!(requests[0].body["tools"][0]["function"]["name"], json!("notes_add"));
    let messages = requests[1].body["messages"].as_array().expect("messages").clone();
    assert_eq!(messages[1], json!({ "role": "user", "content": "remember milk and eggs" }));
    assert_eq!(messages[2], first, "it is sent back as it came");
    let problem = messages[3]["content"].as_str().expect("a text");
    assert!(
        problem.starts_with("ERROR: the arguments are not valid JSON: the text ends within a string"),
        "{problem}"
    );
    assert_eq!(messages[4], json!({ "role": "tool", "tool_call_id": "b", "content": "1 notes" }));
    assert_eq!(messages[5]["content"], json!("eggs"));
    assert_eq!(messages[6]["content"], json!("ERROR: the disk is on fire"));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_errors_are_distinguished() {
    let stub = Stub::start([reply(json!({ "role": "assistant", "refusal": "I will not." }), "stop")]).await;
    let outcome = rig(&stub).ask("do it").await;
    assert_eq!(outcome.text, "The model declined to answer.\nThe model's last words: I will not.");
    assert_eq!(outcome.data["stopped"], json!("declined"));

    let stub =
        Stub::start([Reply::status(401, json!({ "error": { "message": "no: sk-very-secret" } }))]).await;
    let outcome = rig(&stub).ask("do it").await;
    assert!(outcome.text.ends_with("check OPENAI_API_KEY; it said: no: [redacted]."), "{}", outcome.text);

    let stub = Stub::start([Reply::ok(json!({ "choices": [] }))]).await;
    let outcome = rig(&stub).ask("do it").await;
    assert!(outcome.text.ends_with("is invalid: it has no choices."), "{}", outcome.text);
}
