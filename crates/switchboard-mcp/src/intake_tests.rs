use serde_json::json;

use super::*;

/// Returns the error answer to invalid bytes.
fn refusal(bytes: impl AsRef<[u8]>) -> Value {
    let refused = read(bytes.as_ref()).expect_err("these bytes are no message");
    serde_json::from_slice(&refused.to_json()).unwrap()
}

fn code_and_id(bytes: impl AsRef<[u8]>) -> (i64, Value) {
    let answer = refusal(bytes);
    (answer["error"]["code"].as_i64().unwrap(), answer["id"].clone())
}

fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

#[test]
fn id_is_returned_exactly() {
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    for id in ["1", "0", "-7", "9007199254740993", "9223372036854775807", r#""a""#, r#""""#, &long] {
        let message = read(ping(id).as_bytes()).unwrap();
        let ClientJsonRpcMessage::Request(request) = message else { panic!("{id} is a request's") };
        assert_eq!(serde_json::to_string(&request.id).unwrap(), id);
    }
    for id in ["null", "1.0", "1.5", "1e2", "-0", "9223372036854775808", "true", "[1]", r#"{"a":1}"#] {
        let answer = read(ping(id).as_bytes()).unwrap_err().to_json();
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600"#)),
            "{answer}"
        );
    }
}

#[test]
fn invalid_json_is_parse_error() {
    let two = ping("1") + &ping("2");
    for bytes in ["{", "nonsense", r#"{"jsonrpc":"2.0","id":1,"#, &two, "\u{1}"] {
        assert_eq!(code_and_id(bytes), (-32700, Value::Null), "{bytes}");
    }
    assert_eq!(code_and_id(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"), (-32700, Value::Null));
}

#[test]
fn batch_is_rejected_with_hint() {
    let answer = refusal(format!(" [{},{}]", ping("1"), ping("2")));
    let expected = json!({"jsonrpc": "2.0", "id": null, "error": {
        "code": -32600,
        "message": "batches exist in the revision 2025-03-26 only; send each message on its own",
    }});
    assert_eq!(answer, expected);
}

#[test]
fn batch_is_split_within_bounds() {
    assert!(batch(ping("1").as_bytes()).is_none());
    let text = format!(" [{} , 7,[{}],{{\"id\":2}}]", ping("1"), ping("2"));
    let parts = batch(text.as_bytes()).unwrap().unwrap();
    let parts: Vec<&str> = parts.into_iter().map(RawValue::get).collect();
    assert_eq!(parts, [&*ping("1"), "7", &*format!("[{}]", ping("2")), r#"{"id":2}"#]);

    let refused = |text: String| {
        let refused = batch(text.as_bytes()).unwrap().unwrap_err();
        let answer: Value = serde_json::from_slice(&refused.to_json()).unwrap();
        (answer["error"]["code"].clone(), answer["error"]["message"].as_str().unwrap().to_owned())
    };
    let many = |count: usize| format!("[{}]", vec![ping("1"); count].join(","));
    assert_eq!(batch(many(MAX_BATCH).as_bytes()).unwrap().unwrap().len(), MAX_BATCH);
    let table = [
        (many(MAX_BATCH + 1), -32600, "at most 64"),
        ("[]".to_owned(), -32600, "empty"),
        (format!("[{}", ping("1")), -32700, "the text ends"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}]"#.to_owned(), -32600, "on its own"),
    ];
    for (text, code, problem) in table {
        let (reply, message) = refused(text);
        assert!(reply == code && message.contains(problem), "{reply} {message}");
    }
}

#[test]
fn invalid_message_is_answered_with_its_id() {
    assert_eq!(code_and_id("7"), (-32600, Value::Null));
    let problem = refusal("7")["error"]["message"].as_str().unwrap().to_owned();
    assert!(problem.contains("must be an object"), "{problem}");
    assert_eq!(code_and_id("{}"), (-32600, Value::Null));
    assert_eq!(code_and_id(r#"{"jsonrpc":"1.0","id":3,"method":"ping"}"#), (-32600, json!(3)));
    assert_eq!(code_and_id(r#"{"jsonrpc":"2.0","id":3}"#), (-32600, json!(3)));
    assert_eq!(code_and_id(r#"{"jsonrpc":"2.0","id":3,"method":7}"#), (-32600, json!(3)));
    assert_eq!(code_and_id(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#), (-32600, Value::Null));
}

#[test]
fn deeply_nested_json_is_rejected() {
    let deep = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"x","params":{{"a":{}}}}}"#, "[".repeat(100_000));
    assert_eq!(code_and_id(&deep), (-32700, Value::Null));
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let deep = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"x","params":{{"a":{deep}}}}}"#);
    assert_eq!(code_and_id(&deep), (-32600, json!(4)));
}

#[test]
fn invalid_params_are_named() {
    let answer = refusal(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"arguments":{}}}"#);
    let expected = json!({"jsonrpc": "2.0", "id": 5, "error": {
        "code": -32602, "message": "invalid params of `tools/call`: The argument 'name' is missing",
    }});
    assert_eq!(answer, expected);
    for arguments in ["[1]", "5", r#""{}""#] {
        let params = format!(r#"{{"name":"x","arguments":{arguments}}}"#);
        let request = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params}}}"#);
        let message = refusal(&request)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("arguments: expected an object, got"), "{message}");
    }
    for params in ["[]", r#""x""#, "7"] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{params}}}"#);
        assert_eq!(refusal(&request)["error"]["message"], "`params` must be an object");
    }
    for method in ["initialize", "resources/read", "prompts/get", "completion/complete"] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"{method}","params":{{"x":1}}}}"#);
        assert_eq!(code_and_id(request), (-32602, json!(5)), "{method}");
    }
}

#[test]
fn unknown_method_reaches_the_handler() {
    assert!(read(br#"{"jsonrpc":"2.0","id":5,"method":"acme/thing","params":{"x":1}}"#).is_ok());
}

#[test]
fn error_without_id_is_accepted() {
    let message = read(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#).unwrap();
    assert!(matches!(message, ClientJsonRpcMessage::Error(_)));
}

#[test]
fn era_is_detected_from_the_request() {
    let request = |method: &str, meta: Value| {
        let params = json!({"_meta": meta, "name": "t"});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        read(&serde_json::to_vec(&request).unwrap()).unwrap()
    };
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let modern = request("tools/call", json!({version: "2026-07-28", capabilities: {}}));
    let half = request("tools/call", json!({version: "2026-07-28"}));
    let plain = request("tools/call", json!({}));
    assert!(is_stateless(Some(&modern), Some("2026-07-28")));
    assert!(is_stateless(Some(&half), None));
    assert!(is_stateless(Some(&plain), Some("2026-07-28")));
    assert!(!is_stateless(Some(&plain), Some("2025-11-25")));
    assert!(!is_stateless(Some(&plain), None));
    assert!(!is_stateless(None, None));

    assert!(opens_session(&modern));
    assert!(!opens_session(&half));
    assert!(!opens_session(&plain));
    assert!(!opens_session(&request("server/discover", json!({version: "2026-07-28", capabilities: {}}))));
}
