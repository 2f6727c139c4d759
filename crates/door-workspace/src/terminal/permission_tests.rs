use jiff::SignedDuration;
use serde_json::{Map, json};
use switchboard_core::{AgentRecord, Kind, MessageId, NativeId, Origin};

use super::*;
use crate::test_workspace::{agent, name};

fn began() -> Timestamp {
    Timestamp::from_second(1_763_000_000).unwrap()
}

fn message() -> Message {
    let id = MessageId::from_parts(1_763_000_000_500, 1);
    Message {
        id,
        from: agent("claude"),
        to: agent("codex").into(),
        kind: Kind::parse(EXECUTE).unwrap(),
        body: "cargo test".into(),
        in_reply_to: None,
        thread: id,
        sent_at: began() + SignedDuration::from_secs(1),
        expires_at: None,
        metadata: Map::new(),
        origin: Origin {
            native: NativeId { door: Door::Workspace, scope: String::new(), id: "msg_1_a".into() },
            verified: true,
            route: None,
        },
        via: Vec::new(),
        signed: None,
    }
}

fn judge(message: &Message, seq: i64, from_files: bool) -> Result<String, Refusal> {
    let mut directory = Directory::default();
    directory.put_agent(AgentRecord {
        id: agent("claude"),
        role: None,
        team: None,
        routes: Vec::new(),
        registered_at: began(),
    });
    let permission = Permission { after: 10, began: began(), from_files };
    text_to_type(message, seq, &directory, &permission, began() + SignedDuration::from_secs(2))
}

#[test]
fn message_of_local_sender_is_typed_sanitized() {
    assert_eq!(judge(&message(), 11, false), Ok("cargo test".into()));
    let person = Message { from: AgentId::human(), body: "/clear\r\nnow".into(), ..message() };
    assert_eq!(judge(&person, 11, false), Ok("clear\nnow".into()));
}

#[test]
fn other_messages_are_refused_with_a_reason() {
    let refused = |change: fn(&mut Message)| {
        let mut message = message();
        change(&mut message);
        judge(&message, 11, true).unwrap_err()
    };
    assert_eq!(judge(&message(), 10, true), Err(Refusal::Old));
    assert!(matches!(refused(|m| m.from = agent("claude@research")), Refusal::Elsewhere { .. }));
    assert!(matches!(refused(|m| m.from = agent("human@research")), Refusal::Elsewhere { .. }));
    for door in Door::ALL.into_iter().filter(|door| *door != Door::Workspace) {
        let mut message = message();
        message.origin.native.door = door;
        assert_eq!(judge(&message, 11, true), Err(Refusal::Elsewhere { from: agent("claude"), door }));
    }
    assert!(matches!(refused(|m| m.from = agent("stranger")), Refusal::UnknownSender { .. }));
    assert!(matches!(refused(|m| m.to = "team:backend".parse().unwrap()), Refusal::Group { .. }));
    assert!(matches!(refused(|m| m.to = "all".parse().unwrap()), Refusal::Group { .. }));
    assert_eq!(refused(|m| m.expires_at = Some(began() + SignedDuration::from_secs(2))), Refusal::Expired);
    assert_eq!(refused(|m| m.body = "\x1b[A !".into()), Refusal::Empty);
    assert_eq!(refused(|m| m.body = "x".repeat(MAX_TEXT + 1)), Refusal::TooLong { size: MAX_TEXT + 1 });
    let foreign = |m: &mut Message| drop(m.metadata.insert("workspace.owner".into(), json!(1234)));
    assert_eq!(refused(foreign), Refusal::ForeignFile);
}

#[test]
fn dropped_file_must_be_permitted_and_new() {
    let mut message = message();
    message.origin.verified = false;
    assert_eq!(judge(&message, 11, false), Err(Refusal::Unverified));
    assert_eq!(judge(&message, 11, true), Ok("cargo test".into()));
    // Found now, but written before: a file that came with a cloned repository.
    message.sent_at = began() - SignedDuration::from_secs(1);
    assert_eq!(judge(&message, 11, true), Err(Refusal::Old));
}

#[test]
fn sender_name_matches_in_any_spelling() {
    let spelled = Message { from: AgentId::local(name("CLAUDE")), ..message() };
    assert_eq!(judge(&spelled, 11, false), Ok("cargo test".into()));
}
