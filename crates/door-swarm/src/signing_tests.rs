use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Signatures that the existing implementation made.
pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../fixtures/swarm/vectors.json")).unwrap()
}

pub(crate) fn vector_key() -> SecretKey {
    SecretKey::from_seed(&std::array::from_fn(|n| u8::try_from(n).unwrap()))
}

fn payload(vector: &Value) -> Payload<'_> {
    let text = |field: &str| vector[field].as_str().unwrap();
    Payload {
        message_id: text("message_id"),
        timestamp: text("timestamp"),
        swarm_id: text("swarm_id"),
        recipient: text("recipient"),
        kind: MessageType::from_wire(text("type")).unwrap(),
        content: text("content"),
    }
}

#[test]
fn vectors_match_byte_for_byte() {
    let (vectors, key) = (vectors(), vector_key());
    assert_eq!(key.public().to_wire(), vectors["public_key_b64"].as_str().unwrap());
    for vector in vectors["messages"].as_array().unwrap() {
        let payload = payload(vector);
        let digest: [u8; 32] = Sha256::digest(payload.bytes()).into();
        let expected = vector["sha256_hex"].as_str().unwrap();
        let byte = |n: usize| u8::from_str_radix(&expected[2 * n..2 * n + 2], 16).unwrap();
        assert_eq!(digest, std::array::from_fn(byte));
        let signature = vector["signature_b64"].as_str().unwrap();
        assert_eq!(payload.sign(&key), signature);
        assert!(payload.verify(&key.public(), signature));
    }
}

/// Encodings of a signature that lax verifiers accept.
#[test]
fn signature_has_one_encoding() {
    let (vectors, key) = (vectors(), vector_key().public());
    let vector = &vectors["messages"][0];
    let (payload, good) = (payload(vector), vector["signature_b64"].as_str().unwrap());
    let bytes = STANDARD.decode(good).unwrap();
    let mut bad = vec![
        String::new(),
        good.trim_end_matches('=').to_owned(),
        good.replace('/', "_").replace('+', "-"),
        format!(" {good}"),
        format!("{good}\n"),
        STANDARD.encode(&bytes[..63]),
        STANDARD.encode([&bytes[..], &[0]].concat()),
        STANDARD.encode([0; 64]),
    ];
    // S + L is the same number to a verifier without a range check.
    let order: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let (mut carry, mut shifted) = (0_u16, bytes.clone());
    for (byte, more) in shifted[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(more) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    bad.push(STANDARD.encode(shifted));
    for signature in bad {
        assert!(!payload.verify(&key, &signature), "{signature:?}");
    }
}

fn envelope() -> Value {
    json!({
        "protocol_version": "0.1.0", "message_id": "550e8400-e29b-41d4-a716-446655440000",
        "timestamp": "2026-02-05T14:30:00.000Z", "sender": { "agent_id": "a", "endpoint": "https://a.example.com/swarm" },
        "recipient": "broadcast", "swarm_id": "660e8400-e29b-41d4-a716-446655440001", "type": "message",
        "content": "hello", "signature": "x", "in_reply_to": "550e8400-e29b-41d4-a716-446655440001",
        "priority": "high", "expires_at": "2026-02-06T14:30:00.000Z", "thread_id": "t",
        "references": [{ "type": "github_issue", "repo": "o/r", "number": 1, "action": "claimed" }],
        "attachments": [{ "type": "url", "mime_type": "text/plain", "content": "https://x.example.com" }],
        "metadata": { "k": "v", "n": 1 },
    })
}

/// The fields that the protocol's own signature does not cover.
#[test]
fn altered_envelope_is_detected() {
    let key = vector_key();
    let mut signed = envelope();
    assert_eq!(verify_envelope(&key.public(), &signed), None, "it carries none yet");
    let signature = sign_envelope(&key, &signed).unwrap();
    signed["metadata"][ENVELOPE_SIGNATURE] = signature.into();
    signed["signature"] = "another".into();
    assert_eq!(verify_envelope(&key.public(), &signed), Some(true));
    let changes: [(&str, Value); 12] = [
        ("/protocol_version", json!("0.2.0")),
        ("/sender/endpoint", json!("https://evil.example.com/swarm")),
        ("/sender/agent_id", json!("b")),
        ("/in_reply_to", json!("550e8400-e29b-41d4-a716-446655440002")),
        ("/references/0/action", json!("completed")),
        ("/expires_at", json!("2027-02-06T14:30:00.000Z")),
        ("/priority", json!("low")),
        ("/attachments/0/content", json!("https://evil.example.com")),
        ("/metadata/k", json!("w")),
        ("/metadata/n", json!(2)),
        ("/thread_id", json!("u")),
        ("/content", json!("hullo")),
    ];
    for (path, value) in changes {
        let mut changed = signed.clone();
        *changed.pointer_mut(path).unwrap() = value;
        assert_eq!(verify_envelope(&key.public(), &changed), Some(false), "{path}");
    }
    let mut more = signed.clone();
    more["extra"] = json!(1);
    assert_eq!(verify_envelope(&key.public(), &more), Some(false), "a field more");
}

#[test]
fn envelope_without_metadata_can_be_signed() {
    let key = vector_key();
    let mut bare = envelope();
    bare.as_object_mut().unwrap().remove("metadata");
    let signature = sign_envelope(&key, &bare).unwrap();
    bare["metadata"] = json!({ ENVELOPE_SIGNATURE: signature });
    assert_eq!(verify_envelope(&key.public(), &bare), Some(true));
}

proptest! {
    /// However the bytes are shifted between fields, a reader that checks the recipient finds one reading.
    #[test]
    fn signature_has_one_reading(cut in 0_usize..40, content in "[a-z{}\"]{0,30}") {
        let key = vector_key();
        let base = Payload {
            message_id: "550e8400-e29b-41d4-a716-446655440000", timestamp: "2026-02-05T14:30:00.000Z",
            swarm_id: "660e8400-e29b-41d4-a716-446655440001", recipient: "bob", kind: MessageType::Message,
            content: &content,
        };
        let signature = base.sign(&key);
        let run = format!("bobmessage{content}");
        if let Some((recipient, rest)) = run.split_at_checked(cut) {
            for kind in [MessageType::Message, MessageType::System, MessageType::Notification] {
                let Some(content) = rest.strip_prefix(kind.as_str()) else { continue };
                let moved = Payload { recipient, kind, content, ..base };
                let is_same = recipient == "bob" && kind == MessageType::Message;
                if moved.verify(&key.public(), &signature) && !is_same {
                    // Only an id that conflicts with the real recipient's could be accepted.
                    let clashes = crate::PeerId::parse(recipient)
                        .is_ok_and(|id| id.conflicts_with(&crate::PeerId::parse("bob").unwrap()));
                    prop_assert!(clashes, "{recipient}");
                }
            }
        }
    }
}
