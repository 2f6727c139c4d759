use jiff::Timestamp;
use serde_json::json;
use switchboard_core::{Kind, MessageId, Origin};

use super::*;
use crate::wire::{Envelope, to_bytes};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Builds a directory of agents and the routes by which they read.
fn directory(agents: &[(&str, Route)]) -> Directory {
    let mut directory = Directory::default();
    for (id, route) in agents {
        directory.put_agent(switchboard_core::AgentRecord {
            id: id.parse().unwrap(),
            role: None,
            team: None,
            routes: vec![route.clone()],
            registered_at: Timestamp::UNIX_EPOCH,
        });
    }
    directory
}

fn general() -> Route {
    Route::Channel { channel: name("general") }
}

/// The directory of the sending hub.
fn lab() -> Directory {
    directory(&[("amy", general()), ("qc-1@office", Route::Hub { hub: name("office") })])
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

/// The message as it arrives at `office`, sent by `lab`.
fn arrived(message: &Message) -> Result<RelayedMessage, Malformed> {
    let bytes = to_bytes(&to_wire(message, &[], &name("lab"), &lab()));
    let Ok(Envelope::Message(wire)) = Envelope::parse(&bytes) else { panic!("a letter") };
    from_wire(*wire, &name("office"), |realm| *realm == name("attic"))
}

#[test]
fn message_round_trips_with_local_names() {
    let sent = message("codex", "qc-1@office");
    let RelayedMessage { draft, thread, via } = arrived(&sent).expect("taken");
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
fn person_restarts_the_hop_chain() {
    for to in ["#general", "team:backend", "all"] {
        let relayed = arrived(&message("human", to)).expect("taken");
        assert_eq!((relayed.draft.to.to_string().as_str(), relayed.via), (to, vec![]));
        assert_eq!(relayed.draft.from.to_string(), "human@lab", "not the person of this hub");
    }
}

#[test]
fn hub_speaks_for_its_own_agents_only() {
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

/// A channel post on its way from `lab`.
fn post(to: &str, deliveries: &[Delivery]) -> HubMessage<'static> {
    let mut sent = message("codex", to);
    sent.origin.route = Some(general());
    let bytes = to_bytes(&to_wire(&sent, deliveries, &name("lab"), &lab()));
    let Ok(Envelope::Message(wire)) = Envelope::parse(&bytes) else { panic!("a letter") };
    *wire
}

fn to_hub(agent: &str, hub: &str) -> Delivery {
    Delivery {
        id: switchboard_core::DeliveryId(1),
        message: MessageId::from_parts(7, 7),
        agent: agent.parse().unwrap(),
        route: Route::Hub { hub: name(hub) },
        state: switchboard_core::DeliveryState::Queued,
        attempts: 0,
        note: None,
        milestones: switchboard_core::Milestones::default(),
    }
}

#[test]
fn post_is_delivered_by_recipients_hub_only() {
    let is_hub = |realm: &Name| [name("lab"), name("office"), name("attic")].contains(realm);
    let at = |hub: &str, wire: HubMessage<'static>| from_wire(wire, &name(hub), is_hub).expect("taken").draft;
    let wire = post("qc-1@office", &[to_hub("qc-1@office", "office")]);
    let (office, attic) = (at("office", wire.clone()), at("attic", wire));
    assert_eq!((office.to.to_string().as_str(), office.restored), ("qc-1", None));
    assert_eq!((attic.to.to_string().as_str(), attic.restored), ("qc-1@office", Some(vec![])));
    for draft in [office.metadata, attic.metadata] {
        assert_eq!(draft.get(POSTED_IN), Some(&json!("general")));
    }
    // An agent of the sending hub and one of a swarm that the hub is in: neither is delivered again.
    for to in ["amy", "alice@research"] {
        assert_eq!(at("office", post(to, &[])).restored, Some(vec![]), "{to}");
    }
    // An agent of a swarm that only the other hub is in.
    let wire = post("alice@research", &[to_hub("alice@research", "office")]);
    assert_eq!(at("office", wire.clone()).restored, None);
    assert_eq!(at("attic", wire).restored, Some(vec![]));
    let whole = post("#general", &[]);
    assert_eq!((&whole.posted_in, &whole.bound_for), (&None, &None), "that is said by whom it is for");
}

#[test]
fn post_to_unknown_agent_finds_channel_reader() {
    let at_office = |to: &str, agents: &[(&str, Route)]| {
        let relayed =
            from_wire(post(to, &[]), &name("office"), |realm| *realm == name("lab")).expect("taken");
        filter_for_hub(relayed, Some(&name("general")), &directory(agents))
            .map(|relayed| relayed.draft.restored)
    };
    let bob = [("bob", general())];
    assert_eq!(at_office("bob", &bob), Some(None), "it is for him");
    assert_eq!(at_office("Bob", &bob), Some(None));
    assert_eq!(at_office("new-1", &bob), Some(Some(vec![])), "it stands in the channel");
    let mailbox = Route::Mailbox { agent: name("bob") };
    assert_eq!(
        at_office("bob", &[("bob", mailbox), ("cat", general())]),
        Some(Some(vec![])),
        "he is not there"
    );
    assert_eq!(at_office("bob", &[]), None, "nobody reads it");
    // The agent of the sending hub, and the people of each hub.
    assert_eq!(at_office("amy", &[("amy", general())]), Some(Some(vec![])));
    assert_eq!(at_office("human", &bob), Some(Some(vec![])));
}

#[test]
fn metadata_cannot_forge_posted_in() {
    let mut sent = message("codex", "qc-1@office");
    sent.metadata.insert(POSTED_IN.to_owned(), json!("secret"));
    assert_eq!(arrived(&sent).expect("taken").draft.metadata.get(POSTED_IN), None);
}

#[test]
fn hex_round_trips() {
    assert_eq!(from_hex(&to_hex(&[0, 1, 254])), Some(vec![0, 1, 254]));
    for bad in ["0", "zz", "é1"] {
        assert_eq!(from_hex(bad), None, "{bad}");
    }
}
