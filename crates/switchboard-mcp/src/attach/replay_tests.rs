use super::*;

const TRAITS: ToolTraits = ToolTraits {
    is_session_state: |tool| tool == "register",
    is_retryable: |tool| tool != "once",
    idempotency_key: |tool| (tool == "send").then_some("key"),
};

fn texts(lines: &[Vec<u8>]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8(line.clone()).unwrap()).collect()
}

fn remembered() -> ReplayState {
    ReplayState::new(TRAITS).unwrap()
}

fn call(id: &str, tool: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
    )
    .into_bytes()
}

fn answer(id: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes()
}

#[test]
fn new_server_gets_initialize_and_agent() {
    let mut session = remembered();
    let initialize = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#.to_vec();
    let initialized = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec();
    session.record_request(initialize.clone());
    session.record_answer(&answer("0"));
    session.record_request(initialized.clone());
    for (id, is_error) in [("1", "true"), (r#""two""#, "false")] {
        session.record_request(call(id, "register"));
        let result = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"isError":{is_error}}}}}"#);
        session.record_answer(result.as_bytes());
    }
    assert_eq!(
        texts(&session.opening_lines()),
        texts(&[initialize, initialized, call(r#""two""#, "register")])
    );
    assert!(session.drain_unanswered().is_empty());
}

#[test]
fn unanswered_calls_are_retried_unless_unsafe() {
    let mut session = remembered();
    for (id, tool) in [("1", "look"), ("2", "once"), ("3", "look"), ("4", "look")] {
        session.record_request(call(id, tool));
    }
    session.record_answer(&answer("3"));
    session.record_request(
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#.to_vec(),
    );
    let drain_unanswered = session.drain_unanswered();
    let again: Vec<_> = drain_unanswered.iter().filter(|(_, refusal)| refusal.is_none()).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].0, call("1", "look"));
    let (_, refusal) = drain_unanswered.iter().find(|(_, refusal)| refusal.is_some()).unwrap();
    let refusal: Value = serde_json::from_slice(refusal.as_ref().unwrap()).unwrap();
    assert_eq!((&refusal["id"], &refusal["result"]["isError"]), (&json!(2), &json!(true)));
    // Its answer is still pending.
    session.record_answer(&answer("1"));
    assert!(session.drain_unanswered().is_empty());
}

#[test]
fn call_gets_idempotency_key() {
    let mut session = remembered();
    let idempotency_key = |line: Vec<u8>| {
        let line: Value = serde_json::from_slice(&line).unwrap();
        line["params"]["arguments"]["key"].clone()
    };
    let first = idempotency_key(session.record_request(call("1", "send")));
    let second = idempotency_key(session.record_request(call("2", "send")));
    assert!(first.is_string() && first != second);
    assert_ne!(
        first,
        idempotency_key(remembered().record_request(call("1", "send"))),
        "another session has the same"
    );
    let own = br#"{"id":3,"method":"tools/call","params":{"name":"send","arguments":{"key":"mine"}}}"#;
    assert_eq!(idempotency_key(session.record_request(own.to_vec())), "mine");
    let plain = call("4", "look");
    assert_eq!(session.record_request(plain.clone()), plain);
}

#[test]
fn invalid_lines_are_relayed_unchanged() {
    let mut session = remembered();
    for line in ["nonsense", "[]", "{}", r#"{"id":null}"#, "\u{0}"] {
        assert_eq!(session.record_request(line.as_bytes().to_vec()), line.as_bytes());
        session.record_answer(line.as_bytes());
    }
    assert!(session.drain_unanswered().is_empty() && session.opening_lines().is_empty());
}

#[test]
fn reused_id_is_another_call() {
    let mut session = remembered();
    let idempotency_key =
        |line: Vec<u8>| serde_json::from_slice::<Value>(&line).unwrap()["params"]["arguments"]["key"].clone();
    let first = idempotency_key(session.record_request(call("1", "send")));
    session.record_answer(&answer("1"));
    let second = idempotency_key(session.record_request(call("1", "send")));
    assert!(first.is_string() && second.is_string() && first != second, "{first} {second}");
    // Replayed to another server, it has the same idempotency key.
    let again = session.drain_unanswered().pop().unwrap().0;
    assert_eq!(idempotency_key(again), second);
}

#[test]
fn batch_is_recorded_by_parts() {
    let batch = [b"[", call("1", "look").as_slice(), b",", &call("2", "once"), b"]"].concat();
    for (version, is_taken) in [("2025-03-26", true), ("2025-11-25", false)] {
        let mut session = remembered();
        session.record_request(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#.to_vec());
        let answer = format!(r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{version}"}}}}"#);
        session.record_answer(answer.as_bytes());
        let lines = session.record_line(batch.clone());
        if is_taken {
            assert_eq!(lines, [call("1", "look"), call("2", "once")]);
            assert_eq!(session.drain_unanswered().len(), 2);
        } else {
            assert_eq!(lines, std::slice::from_ref(&batch));
            assert!(session.drain_unanswered().is_empty());
        }
    }
}
