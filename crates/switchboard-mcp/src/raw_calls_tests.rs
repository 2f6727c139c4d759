use serde_json::json;

use super::*;

#[derive(Clone)]
struct Echo;

impl RawCallHandler for Echo {
    fn accepts(&self, tool: &str) -> bool {
        tool == "echo_suite"
    }

    async fn call(&self, call: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        Ok(call.arguments.unwrap_or_else(|| RawValue::NULL.to_owned()))
    }
}

fn classify(calls: &InFlight, message: &serde_json::Value) -> Classified {
    calls.classify(message.to_string().as_bytes(), &Echo)
}

fn call(id: impl Into<serde_json::Value>, tool: &str) -> serde_json::Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": { "name": tool } })
}

#[test]
fn call_is_forwarded_as_raw_json() {
    let text = br#"{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"echo_suite","arguments":{"z":1,"a":1e400,"n":12345678901234567890123},"_meta":{"progressToken":"p","more":1}}}"#;
    let calls = InFlight::default();
    let Classified::Call(id, call) = calls.classify(text, &Echo) else { panic!("a call") };
    assert_eq!(id.get(), "\"7\"");
    assert_eq!(call.arguments.unwrap().get(), r#"{"z":1,"a":1e400,"n":12345678901234567890123}"#);
    assert_eq!(call.progress_token.unwrap().get(), "\"p\"");
    assert!(calls.finish(&id));
    assert!(!calls.finish(&id), "it ends once");
}

#[test]
fn other_messages_are_ignored() {
    let calls = InFlight::default();
    assert!(matches!(classify(&calls, &call(1, "send_message")), Classified::Other));
    assert!(matches!(
        classify(&calls, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})),
        Classified::Other
    ));
    assert!(matches!(calls.classify(b"[]", &Echo), Classified::Other));
    assert!(matches!(calls.classify(b"{\"method\":", &Echo), Classified::Other));
    let mut stateless = call(1, "echo_suite");
    stateless["params"]["_meta"] = json!({ PROTOCOL_VERSION_META: "2026-07-28" });
    assert!(matches!(classify(&calls, &stateless), Classified::Other));
}

#[test]
fn invalid_requests_are_not_handled_here() {
    let calls = InFlight::default();
    for (field, value) in
        [("jsonrpc", json!("1.0")), ("jsonrpc", json!(null)), ("id", json!(1.5)), ("id", json!({}))]
    {
        let mut request = call(1, "echo_suite");
        request[field] = value;
        assert!(matches!(classify(&calls, &request), Classified::Other), "{request}");
    }
}

#[test]
fn duplicate_id_in_flight_is_rejected() {
    let calls = InFlight::default();
    let Classified::Call(id, _first) = classify(&calls, &call(1, "echo_suite")) else { panic!("a call") };
    let Classified::Refused(refused, error) = classify(&calls, &call(1, "echo_suite")) else {
        panic!("a refusal")
    };
    assert_eq!(refused.get(), "1");
    assert!(error.get().contains("-32600"), "{error}");
    assert!(calls.finish(&id), "the first is not disturbed");
    assert!(matches!(classify(&calls, &call(1, "echo_suite")), Classified::Call(..)));
}

#[test]
fn cancelled_call_has_no_answer() {
    let calls = InFlight::default();
    let Classified::Call(id, ours) = classify(&calls, &call(3, "echo_suite")) else { panic!("a call") };
    let cancel =
        |id: i32| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assert!(matches!(classify(&calls, &cancel(4)), Classified::Other));
    assert!(matches!(classify(&calls, &cancel(3)), Classified::Cancelled));
    assert!(ours.cancelled.is_cancelled());
    assert!(!calls.finish(&id));
}

#[test]
fn arrays_are_not_calls() {
    let calls = InFlight::default();
    let good = call(1, "echo_suite");
    let positions = json!(["2.0", 1, "tools/call", good["params"]]);
    let mut params = good.clone();
    params["params"] = json!(["echo_suite", {}, null]);
    let mut arguments = good.clone();
    arguments["params"]["arguments"] = json!([1]);
    for message in [positions, params, arguments] {
        assert!(matches!(classify(&calls, &message), Classified::Other), "{message}");
    }
    assert!(matches!(classify(&calls, &good), Classified::Call(..)));
}

#[test]
fn calls_in_flight_are_limited() {
    let calls = InFlight::default();
    for id in 0..MAX_IN_FLIGHT {
        assert!(matches!(classify(&calls, &call(id, "echo_suite")), Classified::Call(..)));
    }
    assert!(matches!(classify(&calls, &call("late", "echo_suite")), Classified::Refused(..)));
}

#[test]
fn answer_is_one_line() {
    let id = RawValue::from_string("1".to_owned()).unwrap();
    let result = RawValue::from_string("{\r\n  \"text\": \"a\\nb\"\n}".to_owned()).unwrap();
    let line = String::from_utf8(encode_answer(&id, Ok(result))).unwrap();
    assert_eq!(line, r#"{"jsonrpc":"2.0","id":1,"result":{    "text": "a\nb" }}"#);
}
