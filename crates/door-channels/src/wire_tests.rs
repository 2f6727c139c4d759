use serde_json::json;

use super::*;

/// Example of the section "Message Format".
fn example() -> Value {
    json!({
        "id": "msg-20260111-163315-claude-4c78",
        "timestamp": "2026-01-11T16:33:15.123Z",
        "session_id": "agent-os-paper",
        "from": "claude",
        "to": "codex",
        "type": "chat",
        "content": { "text": "Your message text here", "code": null, "artifacts": [] },
        "metadata": { "mode": "chat", "turn": "claude", "in_reply_to": "msg-20260111-163300-codex-a1b2" },
    })
}

#[test]
fn protocol_example_round_trips() {
    let message = ChannelMessage::parse(example().to_string().as_bytes()).unwrap();
    assert_eq!(message.in_reply_to(), Some("msg-20260111-163300-codex-a1b2"));
    assert_eq!(serde_json::from_slice::<Value>(&message.to_bytes()).unwrap(), example());
}

#[test]
fn unknown_types_and_fields_are_preserved() {
    let mut message = example();
    message["type"] = "code-review".into();
    message["colour"] = "blue".into();
    message["content"]["diff"] = "+1".into();
    let read = ChannelMessage::parse(message.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&read.to_bytes()).unwrap(), message);
}

#[test]
fn optional_fields_may_be_missing_or_null() {
    let mut message = example();
    message["metadata"] = Value::Null;
    message["content"] = json!({ "text": "hi", "artifacts": null });
    let read = ChannelMessage::parse(message.to_string().as_bytes()).unwrap();
    assert_eq!(read.in_reply_to(), None);
    assert_eq!((read.content.code, read.content.artifacts), (None, vec![]));
}

#[test]
fn missing_required_field_is_named() {
    for field in ["id", "timestamp", "session_id", "from", "to", "type", "content"] {
        let mut message = example();
        message.as_object_mut().unwrap().remove(field);
        let error = ChannelMessage::parse(message.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    assert_eq!(ChannelMessage::parse(b" \n"), Err(Malformed::Empty));
    assert!(ChannelMessage::parse(b"\xff\xfe{}").is_err());
}

#[test]
fn protocol_heartbeat_round_trips() {
    let heartbeat = json!({
        "agent_id": "codex", "timestamp": "2026-01-11T16:30:00.000Z", "state": "AWAKE",
        "substate": "IDLE", "watcher_pid": 12345, "channel": "agent-os-paper",
    });
    let read = PresenceFile::parse(heartbeat.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&read.to_bytes()).unwrap(), heartbeat);
}

#[test]
fn order_is_by_time_then_id() {
    let message = |timestamp: &str, id: &str| {
        let mut message = ChannelMessage::parse(example().to_string().as_bytes()).unwrap();
        (message.timestamp, message.id) = (timestamp.into(), id.into());
        message
    };
    let early = message("2026-01-11T16:33:15.123Z", "msg-z");
    let late = message("2026-01-11T17:33:15.124+01:00", "msg-a");
    let same = message("2026-01-11T16:33:15.124Z", "msg-b");
    assert!(early.order() < late.order() && late.order() < same.order());
}

#[test]
fn time_without_zone_is_utc() {
    let noon = "2026-01-11T12:00:00Z".parse::<Timestamp>().ok();
    for text in [
        "2026-01-11T12:00:00",
        "2026-01-11T12:00:00.000000",
        "2026-01-11 12:00:00",
        "2026-01-11T14:00:00+02:00",
    ] {
        assert_eq!(time(text), noon, "{text}");
    }
    for text in ["", "yesterday", "1768132800"] {
        assert_eq!(time(text), None, "{text}");
    }
}

#[test]
fn byte_order_mark_is_ignored() {
    let marked = [b"\xef\xbb\xbf", example().to_string().as_bytes()].concat();
    assert_eq!(serde_json::to_value(ChannelMessage::parse(&marked).unwrap()).unwrap(), example());
}
