use switchboard_core::Origin;

use super::*;
use crate::test_channels::{agent, file, name};

fn parsed(value: &Value) -> ChannelMessage {
    ChannelMessage::parse(value.to_string().as_bytes()).unwrap()
}

fn draft(value: &Value) -> Result<Draft, Malformed> {
    to_draft(parsed(value), &name("general"), "msg-1", None)
}

#[test]
fn file_becomes_draft_without_loss() {
    let mut value = file("msg-1", "codex", "claude", "look");
    value["content"]["code"] = "fn main() {}".into();
    value["content"]["artifacts"] = json!(["src/main.rs"]);
    value["content"]["diff"] = "+1".into();
    value["metadata"]["turn"] = "codex".into();
    value["metadata"]["in_reply_to"] = "msg-0".into();
    value["colour"] = "blue".into();
    let draft = draft(&value).unwrap();
    assert_eq!((draft.from.to_string(), draft.to.to_string()), ("codex".into(), "claude".into()));
    assert_eq!((draft.kind.as_str(), draft.body.as_str(), draft.verified), ("chat", "look", false));
    assert_eq!(draft.native, native_id(&name("general"), "msg-1"));
    assert_eq!(draft.route, Some(Route::Channel { channel: name("general") }));

    let message = Message {
        id: draft.id,
        from: draft.from,
        to: draft.to,
        kind: draft.kind,
        body: draft.body,
        in_reply_to: None,
        thread: draft.id,
        sent_at: draft.sent_at,
        expires_at: None,
        metadata: draft.metadata,
        origin: Origin { native: draft.native, verified: false, route: draft.route },
        via: Vec::new(),
        signed: None,
    };
    let mut back = to_file(&message, 7, &name("general"), None, 0);
    assert!(is_file_of(&back, &message));
    assert_eq!(back.metadata.as_mut().unwrap().remove("switchboard").unwrap()["seq"], 7);
    let mut value = parsed(&value);
    value.id.clone_from(&back.id);
    assert_eq!(back, value);
}

#[test]
fn file_name_follows_message_time() {
    let of = |at: &str, tries| {
        let mut value = file("msg-1", "codex", "all", "x");
        value["timestamp"] = at.into();
        let draft = draft(&value).unwrap();
        let origin = Origin { native: draft.native, verified: true, route: None };
        let message = Message {
            id: draft.id,
            from: draft.from,
            to: draft.to,
            kind: draft.kind,
            body: draft.body,
            in_reply_to: None,
            thread: draft.id,
            sent_at: draft.sent_at,
            expires_at: None,
            metadata: Map::new(),
            origin,
            via: Vec::new(),
            signed: None,
        };
        to_file(&message, 1, &name("general"), None, tries).id
    };
    let ids = [
        of("2026-01-11T16:33:15.000Z", 0),
        of("2026-01-11T16:33:15.001Z", 0),
        of("2026-01-11T16:33:15.5Z", 0),
    ];
    assert_eq!(ids[0], "msg-20260111-163315-codex-0000");
    assert!(ids.is_sorted() && ids[1] != ids[0], "{ids:?}");
    assert_eq!(of("2026-01-11T16:33:15.000Z", 3), "msg-20260111-163315-codex-0003");
}

#[test]
fn all_means_channel_or_person() {
    let to = |channel: &str, from: &str, to: &str| {
        recipient(&parsed(&file("msg-1", from, to, "x")), &name(channel)).unwrap().to_string()
    };
    assert_eq!(to("general", "codex", "all"), "#general");
    assert_eq!(to("general", "codex", "ALL"), "#general");
    assert_eq!(to("general", "codex", "codex-1"), "codex");
    assert_eq!(to("general", "codex", "alice@research"), "alice@research");
    assert_eq!(to("human-supervisor", "supervisor", "all"), "human");
    assert_eq!(to("human-supervisor", "human", "all"), "#human-supervisor");
}

#[test]
fn invalid_field_is_named() {
    for (field, bad) in [("from", "../x"), ("to", ""), ("type", "a b"), ("timestamp", "yesterday")] {
        let mut value = file("msg-1", "codex", "all", "x");
        value[field] = bad.into();
        let error = draft(&value).unwrap_err();
        assert!(matches!(error, Malformed::Field { field: named, .. } if named == field), "{error}");
    }
}

#[test]
fn forged_hub_id_is_rejected() {
    let id = MessageId::from_parts(1, 1);
    let mut claims = parsed(&file("msg-1", "mallory", "all", "x"));
    set_id(&mut claims, id, None);
    assert_eq!(hub_id(&claims), Some(id));
    let origin = Origin { native: native_id(&name("general"), "msg-1"), verified: true, route: None };
    let message = Message {
        id,
        from: agent("codex"),
        to: Address::EVERYONE,
        kind: Kind::parse("chat").unwrap(),
        body: "x".into(),
        in_reply_to: None,
        thread: id,
        sent_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        metadata: Map::new(),
        origin,
        via: Vec::new(),
        signed: None,
    };
    assert!(!is_file_of(&claims, &message));
}
