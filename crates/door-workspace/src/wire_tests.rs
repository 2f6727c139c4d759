use std::fmt::Write as _;

use serde_json::json;

use super::*;

const MESSAGES: [&str; 3] = [
    include_str!("../../../fixtures/workspace/message.json"),
    include_str!("../../../fixtures/workspace/message_least.json"),
    include_str!("../../../fixtures/workspace/message_signed.json"),
];

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn parse(text: &str) -> Result<MessageFile, Malformed> {
    MessageFile::parse(text.as_bytes())
}

#[test]
fn messages_round_trip_as_json() {
    for text in MESSAGES {
        let file = parse(text).unwrap();
        assert_eq!(value(&String::from_utf8(file.to_bytes()).unwrap()), value(text));
        assert_eq!(MessageFile::parse(&file.to_bytes()).unwrap(), file);
    }
}

#[test]
fn protocol_example_decodes_field_by_field() {
    let Value::Object(metadata) = json!({
        "priority": 2, "paths": ["src/parser.rs"], "dispatch": { "queue_mode": "keep", "ttl_minutes": 30 },
    }) else {
        unreachable!()
    };
    let expected = MessageFile {
        id: "msg_1735689600000_k3x9p2q7a".into(),
        action: "delegate_task".into(),
        sender: "lead".into(),
        recipient: "coder 1".into(),
        payload: "Add a test for the parser.\nReport the result.".into(),
        reply_to: Some("msg_1735689599000_a1b2c3d4e".into()),
        metadata: Some(metadata),
        team: Some("backend".into()),
        persona: Some("You are a careful engineer.".into()),
        created_at: Some("2025-01-01T00:00:00.000Z".into()),
        extra: Map::new(),
    };
    assert_eq!(parse(MESSAGES[0]).unwrap(), expected);
}

#[test]
fn receipts_and_markers_round_trip_as_json() {
    let text = include_str!("../../../fixtures/workspace/receipt.json");
    let receipt: ReceiptFile = serde_json::from_str(text).unwrap();
    assert_eq!(String::from_utf8(pretty(&receipt)).unwrap(), text);
    let text = include_str!("../../../fixtures/workspace/superseded.json");
    let marker: SupersededFile = serde_json::from_str(text).unwrap();
    assert_eq!(String::from_utf8(pretty(&marker)).unwrap(), text);
}

#[test]
fn optional_fields_may_be_null_or_omitted() {
    let file = parse(include_str!("../../../fixtures/workspace/message_nulls.json")).unwrap();
    let written = value(&String::from_utf8(file.to_bytes()).unwrap());
    let expected = json!({
        "id": "msg_1735689600000_k3x9p2q7c", "action": "submit_result", "sender": "coder 1", "recipient": "lead",
        "payload": "done",
    });
    assert_eq!(written, expected);
}

#[test]
fn unknown_fields_are_retained() {
    let text = r#"{"id":"msg_1_a","action":"execute","sender":"a","recipient":"b","payload":"p","x":null,"y":{"z":[1,2.5]}}"#;
    let file = parse(text).unwrap();
    let Value::Object(extra) = json!({ "x": null, "y": { "z": [1, 2.5] } }) else { unreachable!() };
    assert_eq!(file.extra, extra);
    assert_eq!(value(&String::from_utf8(file.to_bytes()).unwrap()), value(text));
}

#[test]
fn any_action_passes_through() {
    for action in ["delegate_task", "request_review", "submit_result", "status_update", "execute", "dance"] {
        let text =
            json!({ "id": "msg_1_a", "action": action, "sender": "a", "recipient": "b", "payload": "p" });
        assert_eq!(parse(&text.to_string()).unwrap().action, action);
    }
}

type Check = fn(&Malformed) -> bool;

#[test]
fn malformed_files_have_distinct_errors() {
    let utf16: Vec<u8> = MESSAGES[1].encode_utf16().flat_map(u16::to_le_bytes).collect();
    let is_json = |e: &Malformed| matches!(e, Malformed::Json { .. });
    let is_fields = |e: &Malformed| matches!(e, Malformed::Fields { .. });
    let least = MESSAGES[1].trim_end().trim_end_matches('}');
    let cases: Vec<(&str, Vec<u8>, Check)> = vec![
        ("empty", vec![], |e| *e == Malformed::Empty),
        ("only space", b" \n\t".to_vec(), |e| *e == Malformed::Empty),
        ("one byte", b"{".to_vec(), is_json),
        ("zeros", vec![0; 100], is_json),
        ("byte order mark", [b"\xef\xbb\xbf", MESSAGES[1].as_bytes()].concat(), |e| {
            *e == Malformed::ByteOrderMark
        }),
        ("UTF-16", [b"\xff\xfe".to_vec(), utf16].concat(), |e| *e == Malformed::NotUtf8 { at: 0 }),
        ("lone surrogate", format!(r#"{least},"x":"\ud800"}}"#).into_bytes(), is_json),
        ("truncated", MESSAGES[0].as_bytes()[..100].to_vec(), is_json),
        ("something after it", format!("{}{}", MESSAGES[1], MESSAGES[1]).into_bytes(), is_json),
        ("a key twice", format!(r#"{least},"sender":"other"}}"#).into_bytes(), is_json),
        (
            "a key twice within",
            format!(r#"{least},"metadata":{{"a":1,"b":{{"a":1,"a":1}}}}}}"#).into(),
            is_json,
        ),
        ("a number beyond all", format!(r#"{least},"x":1e999}}"#).into_bytes(), is_json),
        ("deep", format!("{least},\"x\":{}", "[".repeat(100_000)).into_bytes(), is_json),
        (
            "deep and closed",
            format!("{least},\"x\":{}{}}}", "[".repeat(9999), "]".repeat(9999)).into(),
            is_json,
        ),
        ("an array", b"[]".to_vec(), is_fields),
        ("no payload", br#"{"id":"msg_1_a","action":"x","sender":"a","recipient":"b"}"#.to_vec(), is_fields),
        ("a number for a text", format!(r#"{least},"team":7}}"#).into_bytes(), is_fields),
        ("metadata that is no object", format!(r#"{least},"metadata":[]}}"#).into_bytes(), is_fields),
    ];
    for (case, bytes, is_right) in cases {
        let error = MessageFile::parse(&bytes).expect_err(case);
        assert!(is_right(&error), "{case}: {error:?}");
    }
}

#[test]
fn duplicate_key_is_named() {
    let text = r#"{"id":"msg_1_a","id":"msg_1_b"}"#;
    let problem = "the key 'id' appears twice (at character 20)".to_owned();
    assert_eq!(parse(text), Err(Malformed::Json { problem }));
}

#[test]
fn many_keys_are_harmless() {
    let mut text = MESSAGES[1].trim_end().trim_end_matches('}').to_owned();
    text.push_str(",\"metadata\":{");
    for key in 0..200_000 {
        write!(text, "\"{key}\":{key},").unwrap();
    }
    text.push_str("\"last\":0}}");
    assert_eq!(parse(&text).unwrap().metadata.unwrap().len(), 200_001);
}

proptest::proptest! {
    #[test]
    fn any_text_survives_writing_and_reading(payload in ".*", sender in ".*", key in ".*") {
        let file = MessageFile {
            payload,
            sender,
            metadata: Some(Map::from_iter([(key, Value::Bool(true))])),
            ..parse(MESSAGES[1]).unwrap()
        };
        proptest::prop_assert_eq!(MessageFile::parse(&file.to_bytes()), Ok(file));
    }

    #[test]
    fn garbage_is_refused_without_harm(bytes: Vec<u8>) {
        if let Ok(file) = MessageFile::parse(&bytes) {
            proptest::prop_assert_eq!(MessageFile::parse(&file.to_bytes()), Ok(file));
        }
    }
}

#[test]
fn field_of_wrong_type_is_named() {
    let file = r#"{"id": "msg_1_a", "action": "execute", "sender": "a", "recipient": "b", "payload": 5}"#;
    let error = MessageFile::parse(file.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the file is not a message: the field 'payload' is the number 5, but must be a text in double quotes"
    );
    let error = MessageFile::parse(b"{}").unwrap_err().to_string();
    assert_eq!(error, "the file is not a message: the field 'id' is missing");
}
