use serde_json::json;

use super::*;

#[derive(Clone)]
struct Echo;

impl Passing for Echo {
    fn takes(&self, tool: &str) -> bool {
        tool == "echo_suite"
    }

    async fn call(&self, call: PassedCall) -> Result<Box<RawValue>, Box<RawValue>> {
        Ok(call.arguments.unwrap_or_else(|| RawValue::NULL.to_owned()))
    }
}

fn see(calls: &OnTheirWay, message: &serde_json::Value) -> Seen {
    calls.see(message.to_string().as_bytes(), &Echo)
}

fn call(id: impl Into<serde_json::Value>, tool: &str) -> serde_json::Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": { "name": tool } })
}

#[test]
fn a_call_is_taken_as_it_was_written() {
    let text = br#"{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"echo_suite","arguments":{"z":1,"a":1e400,"n":12345678901234567890123},"_meta":{"progressToken":"p","more":1}}}"#;
    let calls = OnTheirWay::default();
    let Seen::Call(id, call) = calls.see(text, &Echo) else { panic!("a call") };
    assert_eq!(id.get(), "\"7\"");
    assert_eq!(call.arguments.unwrap().get(), r#"{"z":1,"a":1e400,"n":12345678901234567890123}"#);
    assert_eq!(call.progress_token.unwrap().get(), "\"p\"");
    assert!(calls.ended(&id));
    assert!(!calls.ended(&id), "it ends once");
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let calls = OnTheirWay::default();
    assert!(matches!(see(&calls, &call(1, "send_message")), Seen::Other));
    assert!(matches!(see(&calls, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})), Seen::Other));
    assert!(matches!(calls.see(b"[]", &Echo), Seen::Other));
    assert!(matches!(calls.see(b"{\"method\":", &Echo), Seen::Other));
    let mut stateless = call(1, "echo_suite");
    stateless["params"]["_meta"] = json!({ VERSION: "2026-07-28" });
    assert!(matches!(see(&calls, &stateless), Seen::Other));
}

#[test]
fn m8_what_is_no_good_request_is_left_to_be_refused() {
    let calls = OnTheirWay::default();
    for (field, value) in
        [("jsonrpc", json!("1.0")), ("jsonrpc", json!(null)), ("id", json!(1.5)), ("id", json!({}))]
    {
        let mut request = call(1, "echo_suite");
        request[field] = value;
        assert!(matches!(see(&calls, &request), Seen::Other), "{request}");
    }
}

#[test]
fn m7_two_calls_at_once_have_two_ids() {
    let calls = OnTheirWay::default();
    let Seen::Call(id, _first) = see(&calls, &call(1, "echo_suite")) else { panic!("a call") };
    let Seen::Refused(refused, error) = see(&calls, &call(1, "echo_suite")) else { panic!("a refusal") };
    assert_eq!(refused.get(), "1");
    assert!(error.get().contains("-32600"), "{error}");
    assert!(calls.ended(&id), "the first is not disturbed");
    assert!(matches!(see(&calls, &call(1, "echo_suite")), Seen::Call(..)));
}

#[test]
fn a_call_can_be_called_off_and_then_has_no_answer() {
    let calls = OnTheirWay::default();
    let Seen::Call(id, ours) = see(&calls, &call(3, "echo_suite")) else { panic!("a call") };
    let cancel =
        |id: i32| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assert!(matches!(see(&calls, &cancel(4)), Seen::Other));
    assert!(matches!(see(&calls, &cancel(3)), Seen::Cancelled));
    assert!(ours.cancelled.is_cancelled());
    assert!(!calls.ended(&id));
}

#[test]
fn a_list_is_no_call_and_neither_are_lists_in_one() {
    let calls = OnTheirWay::default();
    let good = call(1, "echo_suite");
    let positions = json!(["2.0", 1, "tools/call", good["params"]]);
    let mut params = good.clone();
    params["params"] = json!(["echo_suite", {}, null]);
    let mut arguments = good.clone();
    arguments["params"]["arguments"] = json!([1]);
    for message in [positions, params, arguments] {
        assert!(matches!(see(&calls, &message), Seen::Other), "{message}");
    }
    assert!(matches!(see(&calls, &good), Seen::Call(..)));
}

#[test]
fn there_is_room_for_so_many() {
    let calls = OnTheirWay::default();
    for id in 0..MOST {
        assert!(matches!(see(&calls, &call(id, "echo_suite")), Seen::Call(..)));
    }
    assert!(matches!(see(&calls, &call("late", "echo_suite")), Seen::Refused(..)));
}

#[test]
fn an_answer_is_one_line() {
    let id = RawValue::from_string("1".to_owned()).unwrap();
    let result = RawValue::from_string("{\r\n  \"text\": \"a\\nb\"\n}".to_owned()).unwrap();
    let line = String::from_utf8(answer(&id, Ok(result))).unwrap();
    assert_eq!(line, r#"{"jsonrpc":"2.0","id":1,"result":{    "text": "a\nb" }}"#);
}
