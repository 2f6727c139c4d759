use uuid::Uuid;

use super::*;
use crate::members::RosterEntry;
use crate::model::Ban;
use crate::roster::tests::{at, endpoint, id, key, swarm};

/// A swarm that alice leads, with two provisional members that name one key.
fn contested() -> Swarm {
    let mut swarm = swarm();
    swarm.joined_at = at(0);
    for (second, name) in [(5, "mallory"), (6, "dave")] {
        let entry = RosterEntry {
            id: id(name),
            endpoint: endpoint(name),
            public_key: key(10).public(),
            joined_at: at(second),
            provisional: true,
        };
        assert!(swarm.insert_entry(entry), "{name}");
    }
    swarm
}

/// A message from dave to alice, signed after dave joined.
fn message() -> SignedMessage {
    SignedMessage {
        sender: id("dave"),
        endpoint: endpoint("dave").to_string(),
        recipient: "alice".to_owned(),
        at: at(7),
        public_key: key(10).public(),
        is_resent: false,
    }
}

#[test]
fn contests_name_members_and_command() {
    let swarm = contested();
    assert_eq!(swarm.rivals(&id("dave")), [&id("mallory")]);
    assert_eq!(swarm.rivals(&id("bob")), Vec::<&PeerId>::new());
    let contested_keys = swarm.contested_keys();
    assert_eq!(contested_keys.len(), 1);
    assert_eq!(
        contested_keys[0].message(),
        "'dave' and 'mallory' of 'research' name the same key, and none has proved it"
    );
    for me in ["alice", "bob"] {
        assert!(
            contested_keys[0].hint(&id(me)).contains("switchboard swarm kick ID --swarm research"),
            "{me}"
        );
    }
    assert!(contested_keys[0].hint(&id("bob")).contains("owner of 'alice'"));
}

#[test]
fn message_to_master_proves_key() {
    let (alice, dave, mallory) = (id("alice"), id("dave"), id("mallory"));
    let mut swarm = contested();
    assert!(swarm.is_key_proof(&alice, &message()));
    assert_eq!(swarm.settle_key(&alice, &dave, KeyProof::Message), [mallory]);
    let proven = &swarm.members[&dave];
    assert!(!proven.provisional && proven.proved_by_message && !swarm.members.contains_key(&id("mallory")));
    assert!(swarm.banned.is_empty() && swarm.contested_keys().is_empty());
    assert!(swarm.announcements[0].content.contains("member_left"), "{:?}", swarm.announcements);
    assert_eq!(swarm.epoch, 5, "one for the removal, and one so that others ask for the roster");
    assert!(!swarm.is_key_proof(&alice, &message()), "it has proved its key");
    // The ban of a removed provisional member does not cover the agent that signs with its key.
    assert!(Ban::of(Some(&swarm.members[&dave]), at(8)).provisional);
}

#[test]
fn resent_or_early_message_proves_nothing() {
    let (alice, swarm) = (id("alice"), contested());
    let other = |change: &dyn Fn(&mut SignedMessage)| {
        let mut message = message();
        change(&mut message);
        message
    };
    let messages = [
        ("a broadcast", other(&|message| message.recipient = "broadcast".to_owned())),
        ("to another member", other(&|message| message.recipient = "bob".to_owned())),
        ("another sender has sent it", other(&|message| message.is_resent = true)),
        ("from before it joined", other(&|message| message.at = at(6))),
        ("by another key", other(&|message| message.public_key = key(11).public())),
        ("by a proven member", other(&|message| message.sender = id("bob"))),
        ("by nobody", other(&|message| message.sender = id("nobody"))),
        ("for an entry of a squatter", other(&|message| message.endpoint = endpoint("mallory").to_string())),
        ("without an endpoint", other(&|message| message.endpoint = String::new())),
    ];
    for (what, message) in messages {
        assert!(!swarm.is_key_proof(&alice, &message), "{what}");
    }
    // Any member may send to the master alone, and only the master decides.
    let to_bob = other(&|message| message.recipient = "bob".to_owned());
    assert!(!swarm.is_key_proof(&id("bob"), &to_bob));
    // A copy that the squatter resends under the owner's id is the owner's message, and proves the owner's key.
    assert!(swarm.is_key_proof(&alice, &message()));
}

#[test]
fn message_before_master_change_proves_nothing() {
    let mut swarm = contested();
    (swarm.master, swarm.invites_since) = (id("bob"), at(20));
    let to_bob = |second| SignedMessage { recipient: "bob".to_owned(), at: at(second), ..message() };
    assert!(!swarm.is_key_proof(&id("bob"), &to_bob(19)));
    assert!(swarm.is_key_proof(&id("bob"), &to_bob(21)));
    // Also for a former membership.
    swarm.remove_member(&id("dave"));
    let again = RosterEntry {
        id: id("dave"),
        endpoint: endpoint("dave"),
        public_key: key(10).public(),
        joined_at: at(30),
        provisional: true,
    };
    assert!(swarm.insert_entry(again));
    assert!(!swarm.is_key_proof(&id("bob"), &to_bob(21)));
    assert!(swarm.is_key_proof(&id("bob"), &to_bob(31)));
}

#[test]
fn members_hub_drops_squatter_itself() {
    let mut swarm = contested();
    assert_eq!(swarm.settle_key(&id("bob"), &id("dave"), KeyProof::Signature), [id("mallory")]);
    assert_eq!((swarm.epoch, swarm.announcements.len()), (3, 0), "only the master announces");
    assert!(swarm.left_out["mallory"].contains("'dave' has proved"));
    assert!(!swarm.members[&id("dave")].proved_by_message);
}

#[test]
fn pending_requests_yield_to_proof() {
    let (alice, dave, mallory) = (id("alice"), id("dave"), id("mallory"));
    let mut swarm = contested();
    let waiting = |second: i64, is_signed: bool| crate::model::PendingJoin {
        endpoint: endpoint("elsewhere"),
        public_key: key(u8::try_from(second).unwrap()).public(),
        invite: Uuid::nil().to_string(),
        asked_at: at(7),
        signed_at: is_signed.then(|| at(7)),
        denied: false,
    };
    let requests = [("marge", 10, false), ("mary", 10, true), ("other", 11, false)];
    for (name, seed, is_signed) in requests {
        swarm.pending.insert(id(name), waiting(seed, is_signed));
    }
    assert_eq!(swarm.settle_key(&alice, &dave, KeyProof::Signature), [mallory]);
    assert!(swarm.pending.keys().eq(&[id("mary"), id("other")]), "{:?}", swarm.pending);
}

#[test]
fn proved_keys_are_held() {
    let mut swarm = contested();
    let (carol, bob) = (id("carol"), id("bob"));
    assert_eq!(swarm.key_holder(&key(10).public(), &carol), None, "provisional members give way to a proof");
    assert_eq!(swarm.key_holder(&key(2).public(), &carol), Some(&bob));
    assert_eq!(swarm.key_holder(&key(2).public(), &bob), None, "its own");
    swarm.members.get_mut(&id("alice")).unwrap().provisional = true;
    assert_eq!(swarm.key_holder(&key(1).public(), &carol), Some(&id("alice")), "the master's always");
}
