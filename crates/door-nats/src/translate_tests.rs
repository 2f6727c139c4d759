use jiff::Timestamp;
use serde_json::json;
use switchboard_core::{Kind, MessageId, Origin};

use super::*;
use crate::wire::{Parcel, to_bytes};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn message(from: &str, to: &str) -> Message {
    let id = MessageId::from_parts(7, 7);
    Message {
        id,
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        kind: Kind::delegate_task(),
        body: "hé\u{0}llo \"there\"\n".into(),
        in_reply_to: Some(MessageId::from_parts(6, 6)),
        thread: MessageId::from_parts(5, 5),
        sent_at: Timestamp::UNIX_EPOCH,
        expires_at: Some(Timestamp::MAX),
        metadata: json!({"channels.code": "x"}).as_object().unwrap().clone(),
        origin: Origin {
            native: NativeId { door: Door::Channels, scope: "general".into(), id: "msg-1".into() },
            verified: true,
            route: None,
        },
        via: ["claude", "qc-1@office", "alice@research"].map(|a| Hop::Agent(a.parse().unwrap())).to_vec(),
        signed: Some(vec![0, 255, 16]),
    }
}

/// The message as it arrives at `office`, where `lab` wrote it.
fn arrived(message: &Message) -> Result<Passed, Malformed> {
    let bytes = to_bytes(&to_letter(message, &[], &name("lab")));
    let Ok(Parcel::Letter(letter)) = Parcel::parse(&bytes) else { panic!("a letter") };
    to_passed(*letter, &name("office"), |realm| *realm == name("attic"))
}

#[test]
fn a_message_arrives_as_it_was_written_with_names_as_the_reader_has_them() {
    let sent = message("codex", "qc-1@office");
    let Passed { draft, thread, via } = arrived(&sent).expect("taken");
    assert_eq!(draft.from.to_string(), "codex@lab");
    assert_eq!(draft.to.to_string(), "qc-1");
    assert_eq!(
        via.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["claude@lab", "qc-1", "alice@research"]
    );
    assert_eq!((thread, draft.in_reply_to, draft.id), (sent.thread, sent.in_reply_to, sent.id));
    assert_eq!((draft.body, draft.metadata, draft.signed), (sent.body, sent.metadata, sent.signed));
    assert_eq!((draft.sent_at, draft.expires_at, draft.kind), (sent.sent_at, sent.expires_at, sent.kind));
    assert_eq!(draft.route, Some(Route::Hub { hub: name("lab") }));
    assert!(draft.verified);
}

#[test]
fn groups_keep_their_names_and_a_person_starts_the_chain_anew() {
    for to in ["#general", "team:backend", "all"] {
        let passed = arrived(&message("human", to)).expect("taken");
        assert_eq!((passed.draft.to.to_string().as_str(), passed.via), (to, vec![]));
        assert_eq!(passed.draft.from.to_string(), "human@lab", "not the person of this hub");
    }
}

#[test]
fn a_hub_speaks_for_its_own_agents_alone() {
    let refused = |from: &str, to: &str| arrived(&message(from, to)).expect_err("refused").to_string();
    assert!(refused("codex@office", "all").contains("'from'"), "one of ours");
    assert!(refused("codex@attic", "all").contains("'from'"), "one of a third hub");
    assert!(refused("codex", "qc-1@attic").contains("'to'"));
    assert!(refused("codex", "qc-1@lab").contains("'to'"));
    assert!(refused("codex", "job:7/0").contains("'to'"));
    assert_eq!(
        arrived(&message("codex", "alice@research")).expect("taken").draft.to.to_string(),
        "alice@research",
        "one of a swarm that this hub may be in"
    );
    assert_eq!(
        arrived(&message("alice@research", "all")).expect("taken").draft.from.to_string(),
        "alice@research"
    );
}

#[test]
fn bytes_survive_as_digits_and_nothing_else_is_taken_for_digits() {
    assert_eq!(from_hex(&to_hex(&[0, 1, 254])), Some(vec![0, 1, 254]));
    for bad in ["0", "zz", "é1"] {
        assert_eq!(from_hex(bad), None, "{bad}");
    }
}
