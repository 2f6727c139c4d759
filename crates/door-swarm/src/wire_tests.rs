use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::state::{KnownKey, MembershipState, StateMember};

/// Every example of the specification, verbatim except for `...` and `|`.
fn examples() -> Value {
    serde_json::from_str(include_str!("../../../fixtures/swarm/examples.json")).unwrap()
}

fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(value: &Value) {
    let read: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    assert_eq!(&serde_json::to_value(read).unwrap(), value);
}

#[test]
fn specification_examples_round_trip() {
    let examples = examples();
    round_trip::<Envelope>(&examples["message"]);
    round_trip::<Envelope>(&examples["message_with_everything"]);
    for reference in examples["references"].as_array().unwrap() {
        round_trip::<Reference>(reference);
        serde_json::from_value::<Reference>(reference.clone()).unwrap().check().unwrap();
    }
    round_trip::<JoinRequest>(&examples["join_request"]);
    round_trip::<JoinAccepted>(&examples["join_accepted"]);
    for content in examples["system"].as_array().unwrap() {
        round_trip::<SystemContent>(content);
    }
    for state in examples["states"].as_array().unwrap() {
        round_trip::<MembershipState>(state);
    }
    round_trip::<StateMember>(&examples["state_member"]);
    for key in examples["public_keys"].as_object().unwrap().values() {
        round_trip::<KnownKey>(key);
    }
}

#[test]
fn unknown_fields_and_nulls_are_ignored() {
    let mut message = examples()["message"].clone();
    let plain: Envelope = serde_json::from_value(message.clone()).unwrap();
    message["novelty"] = json!({ "deep": [1] });
    for field in
        ["in_reply_to", "thread_id", "priority", "expires_at", "references", "attachments", "metadata"]
    {
        message[field] = Value::Null;
    }
    assert_eq!(serde_json::from_value::<Envelope>(message).unwrap(), plain);
}

#[test]
fn fields_keep_the_wire_order() {
    let everything: Envelope = serde_json::from_value(examples()["message_with_everything"].clone()).unwrap();
    let text = serde_json::to_string(&everything).unwrap();
    let order = [
        "protocol_version",
        "message_id",
        "timestamp",
        "sender",
        "recipient",
        "swarm_id",
        "\"type\"",
        "\"content\"",
        "signature",
        "in_reply_to",
        "thread_id",
        "priority",
        "expires_at",
        "attachments",
        "references",
        "metadata",
    ];
    let places: Vec<_> = order.iter().map(|field| text.find(field).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn references_need_fields_of_their_type() {
    for (reference, problem) in [
        (json!({ "type": "github_issue", "repo": "o/r" }), "number"),
        (json!({ "type": "github_issue", "repo": "o/r", "number": 0 }), "number"),
        (json!({ "type": "github_pr", "number": 3 }), "repo"),
        (json!({ "type": "github_repo", "repo": "no-slash" }), "owner/name"),
        (json!({ "type": "github_commit", "repo": "o/r", "sha": "xyz" }), "sha"),
        (json!({ "type": "url" }), "url"),
        (json!({ "type": "url", "url": "file:///etc/passwd" }), "https://"),
    ] {
        let read: Reference = serde_json::from_value(reference.clone()).unwrap();
        assert!(read.check().unwrap_err().to_string().contains(problem), "{reference}");
    }
    for bad in [json!({ "type": "jira" }), json!({ "type": "url", "url": "https://x", "action": "stolen" })] {
        assert!(serde_json::from_value::<Reference>(bad).is_err());
    }
}

#[test]
fn same_major_version_is_compatible() {
    for good in ["0.1.0", "0.2.7", "0.10"] {
        assert!(is_compatible(good), "{good}");
    }
    for bad in ["1.0.0", "", "0.x", "00000000000000000000000000000000000000.1", "-0.1", "0.1.0-beta"] {
        assert!(!is_compatible(bad), "{bad}");
    }
}

#[test]
fn system_content_parses_flat_and_nested() {
    for (text, subject) in [
        (
            r#"{"type": "system", "action": "member_joined", "agent_id": "g", "endpoint": "https://g/swarm"}"#,
            "g",
        ),
        (r#"{"action":"member_kicked","member":"g","reason":"x"}"#, "g"),
        (
            r#"{"action":"member_joined","member":{"agent_id":"g","endpoint":"https://g","public_key":"k"}}"#,
            "g",
        ),
    ] {
        assert_eq!(serde_json::from_str::<SystemContent>(text).unwrap().subject(), Some(subject), "{text}");
    }
}

proptest! {
    #[test]
    fn message_round_trips(content in ".{0,200}", recipient in "[a-zA-Z0-9_.-]{1,20}",
        priority in proptest::option::of(0_u8..3), number in any::<u32>()) {
        let mut value = examples()["message_with_everything"].clone();
        value["content"] = content.into();
        value["recipient"] = recipient.into();
        value["metadata"] = json!({ "n": number, "t": true, "z": null });
        match priority {
            Some(n) => value["priority"] = ["low", "normal", "high"][usize::from(n)].into(),
            None => drop(value.as_object_mut().unwrap().remove("priority")),
        }
        let read: Envelope = serde_json::from_value(value.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(read).unwrap(), value);
    }
}
