use serde_json::json;
use switchboard_core::{Name, Origin};

use super::*;
use crate::endpoint::Endpoint;
use crate::roster::tests::swarm;
use crate::signing::verify_envelope;

fn key() -> SecretKey {
    SecretKey::from_seed(&[2; 32])
}

fn identity() -> Identity {
    serde_json::from_value(json!({
        "agent": "bob", "endpoint": "https://bob.example.com/swarm", "home": "/nowhere", "public_key": key().public(),
        "created_at": "2026-02-05T14:30:00Z",
    }))
    .unwrap()
}

fn message(from: &str, to: &str, kind: &str) -> Message {
    let id = MessageId::from_parts(1_770_000_000_000, 7);
    Message {
        id,
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        kind: Kind::parse(kind).unwrap(),
        body: "ünï \"text\"".to_owned(),
        in_reply_to: None,
        thread: id,
        sent_at: "2026-02-05T14:30:00.123456Z".parse().unwrap(),
        expires_at: None,
        metadata: Map::from_iter([
            ("channels.code".to_owned(), json!("secret")),
            ("mine".to_owned(), json!(1)),
        ]),
        origin: Origin {
            native: NativeId { door: Door::Workspace, scope: String::new(), id: id.to_string() },
            verified: true,
            route: None,
        },
        via: Vec::new(),
        signed: None,
    }
}

fn build_envelope(message: &Message, seconds_later: i64) -> (Envelope, Value) {
    let (swarm, identity, recipient) = (swarm(), identity(), PeerId::parse("carol").unwrap());
    let now = message.sent_at.saturating_add(SignedDuration::from_secs(seconds_later)).unwrap();
    let outgoing = OutgoingEnvelope {
        message,
        swarm: &swarm,
        identity: &identity,
        recipient: &recipient,
        in_reply_to: None,
        thread: None,
        now,
    };
    let value: Value = serde_json::from_str(&outgoing.to_text(&key())).unwrap();
    (serde_json::from_value(value.clone()).unwrap(), value)
}

#[test]
fn outgoing_message_has_both_signatures() {
    let (envelope, value) = build_envelope(&message("codex", "carol@research", "request_review"), 1);
    assert!(Payload::of(&envelope).verify(&key().public(), &envelope.signature));
    assert_eq!(verify_envelope(&key().public(), &value), Some(true));
    assert_eq!((envelope.recipient.as_str(), envelope.kind), ("carol", MessageType::Message));
    assert_eq!(envelope.timestamp, "2026-02-05T14:30:00.123Z");
    let metadata = envelope.metadata.unwrap();
    assert_eq!(
        (metadata["on_behalf_of"].as_str(), metadata["kind"].as_str()),
        (Some("codex"), Some("request_review"))
    );
    assert!(!value.to_string().contains("secret") && !metadata.contains_key("mine"));
    assert_eq!(Uuid::parse_str(&envelope.message_id).unwrap().get_version_num(), 4);
}

#[test]
fn retry_has_same_id_and_new_time() {
    let message = message("bob", "all@research", "message");
    let ((first, _), (again, _)) = (build_envelope(&message, 1), build_envelope(&message, 4000));
    assert_eq!(first.message_id, again.message_id);
    assert_eq!(again.timestamp, "2026-02-05T15:36:40.123Z");
    assert_eq!(first.recipient, "broadcast");
    assert!(Payload::of(&again).verify(&key().public(), &again.signature));
}

/// A `system` message from an agent becomes a plain message: only the door sends system messages.
#[test]
fn system_messages_come_from_door_only() {
    assert_eq!(build_envelope(&message("codex", "carol@research", "system"), 1).0.kind, MessageType::Message);
    assert_eq!(
        build_envelope(&message("codex", "carol@research", "notification"), 1).0.kind,
        MessageType::Notification
    );
    let (execute, _) = build_envelope(&message("codex", "carol@research", "execute"), 1);
    assert!(!execute.metadata.unwrap().contains_key("kind"));
}

#[test]
fn peer_ids_are_scoped_and_execute_refused() {
    let (swarm, identity) = (swarm(), identity());
    let (mut envelope, _) = build_envelope(&message("bob", "carol@research", "message"), 1);
    envelope.metadata = Some(Map::from_iter([("kind".to_owned(), json!("execute"))]));
    envelope.recipient = "bob".to_owned();
    let sender = PeerId::parse("carol").unwrap();
    let draft = |envelope: &Envelope, is_whole| {
        let incoming = IncomingMessage {
            envelope,
            swarm: &swarm,
            identity: &identity,
            sender: &sender,
            member: &swarm.members[&sender],
            is_whole,
            parent: None,
            timestamp: "2026-02-05T14:30:00Z".parse().unwrap(),
            id: MessageId::from_parts(1, 1),
        };
        incoming.to_draft().unwrap()
    };
    let taken = draft(&envelope, true);
    assert_eq!(taken.kind.as_str(), "message");
    assert_eq!(taken.native.scope, format!("{} carol bob", swarm.swarm_id));
    assert_eq!(taken.from, AgentId { name: Name::parse("carol").unwrap(), realm: Some(swarm.realm.clone()) });
    envelope.metadata = Some(Map::from_iter([("kind".to_owned(), json!("request_review"))]));
    assert_eq!(draft(&envelope, true).kind.as_str(), "request_review");
    assert_eq!(draft(&envelope, false).kind.as_str(), "message", "unsigned, it says nothing");
    assert!(Endpoint::parse(&envelope.sender.endpoint).is_ok());
}
