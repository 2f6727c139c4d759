use super::*;

#[test]
fn client_input_parses_with_extra_keys() {
    let bytes =
        br#"{"session_id":"s","cwd":"/p","hook_event_name":"Stop","stop_hook_active":true,"new":[1]}"#;
    let input = Input::parse(bytes, Event::Stop).unwrap();
    assert_eq!((input.cwd.as_deref(), input.stop_hook_active), (Some("/p"), true));
    assert!(!input.is_of_a_subagent());
    let inner = br#"{"hook_event_name":"PostToolUse","agent_id":"a1"}"#;
    assert!(Input::parse(inner, Event::PostTool).unwrap().is_of_a_subagent());
    let begun = br#"{"hook_event_name":"SessionStart","source":"startup"}"#;
    for event in [Event::SessionStart, Event::Idle] {
        assert!(Input::parse(begun, event).is_ok());
    }
}

#[test]
fn foreign_input_is_a_nonblocking_error() {
    for (bytes, problem) in [
        (&b"not json"[..], "is neither true, false nor null"),
        (b"[]", "is a list, but must be"),
        (br#"{"hook_event_name":"PreToolUse"}"#, "hook_event_name is 'PreToolUse', but `stop` is for Stop"),
    ] {
        let failure = Input::parse(bytes, Event::Stop).unwrap_err();
        assert!(failure.message.contains(problem), "{}", failure.message);
        assert_eq!(failure.exit, Exit::Failed);
    }
}
