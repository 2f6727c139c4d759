use serde_json::{Value, json};

use super::*;
use crate::model::MembershipStatus;
use crate::roster::prove_key;
use crate::roster::tests::{at, endpoint, id, key, swarm};
use crate::timestamp;

/// A swarm whose master has no epochs, as bob stores it.
fn swarm_without_epochs() -> Swarm {
    Swarm { epoch: 0, joined_at: at(0), ..swarm() }
}

/// Delivers a message that was signed at a second, five seconds later.
fn deliver(swarm: &mut Swarm, sender: &str, message_id: &str, second: i64, content: &Value) -> UpdateOutcome {
    deliver_from(swarm, sender, message_id, second, second - 100, content)
}

fn deliver_from(
    swarm: &mut Swarm,
    sender: &str,
    message_id: &str,
    second: i64,
    window_start: i64,
    content: &Value,
) -> UpdateOutcome {
    let (me, sender) = (id("bob"), id(sender));
    let update = match content["action"].as_str() {
        Some("roster") => RosterUpdate::Roster(serde_json::from_value(content.clone()).unwrap()),
        _ => RosterUpdate::Change(serde_json::from_value(content.clone()).unwrap()),
    };
    let context =
        UpdateContext { me: &me, sender: &sender, to_me: true, at: at(second), now: at(second + 5) };
    // After a round trip through the store.
    *swarm = serde_json::from_str(&serde_json::to_string(swarm).unwrap()).unwrap();
    swarm
        .apply_once(&context, &CarrierMessage { message_id, window_start: at(window_start) }, &update)
        .unwrap()
}

fn joined(name: &str, seed: u8, second: i64) -> Value {
    let member = json!({ "agent_id": name, "endpoint": endpoint(name), "public_key": key(seed).public() });
    json!({ "action": "member_joined", "agent_id": name, "endpoint": endpoint(name), "member": member,
        "joined_at": timestamp::render(at(second)) })
}

fn kicked(name: &str) -> Value {
    json!({ "action": "member_kicked", "agent_id": name })
}

fn rotated(swarm: &Swarm, name: &str, seed: u8) -> Value {
    let new = key(seed);
    json!({ "action": "key_rotated", "agent_id": name, "public_key": new.public(),
        "proof": prove_key(&new, swarm.swarm_id, &id(name)) })
}

#[test]
fn replayed_join_readmits_no_kicked_member() {
    let mut known = swarm_without_epochs();
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m2", 2, &kicked("dave")), UpdateOutcome::Changed);
    assert_eq!(
        deliver(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)),
        UpdateOutcome::Nothing,
        "the same message"
    );
    assert_eq!(
        deliver(&mut known, "alice", "m0", 1, &joined("dave", 4, 1)),
        UpdateOutcome::Nothing,
        "another before it"
    );
    assert_eq!(
        deliver(&mut known, "alice", "m9", 2, &joined("dave", 4, 1)),
        UpdateOutcome::Nothing,
        "at the same time"
    );
    assert!(!known.members.contains_key(&id("dave")) && known.announced.is_empty());
    // Without a key, as another program announces it.
    let flat = json!({ "action": "member_joined", "agent_id": "dave", "endpoint": endpoint("dave") });
    assert_eq!(deliver(&mut known, "alice", "m0", 1, &flat), UpdateOutcome::Nothing);
    assert_eq!(
        deliver(&mut known, "alice", "m3", 3, &flat),
        UpdateOutcome::KeyMissing(id("dave")),
        "invited again"
    );
    // The order of arrival does not matter.
    let mut known = swarm_without_epochs();
    assert_eq!(deliver(&mut known, "alice", "m2", 2, &kicked("dave")), UpdateOutcome::Nothing);
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)), UpdateOutcome::Nothing);
    assert!(!known.members.contains_key(&id("dave")));
}

#[test]
fn replayed_kick_spares_rejoined_member() {
    let mut known = swarm_without_epochs();
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &kicked("carol")), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m2", 2, &joined("carol", 3, 2)), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &kicked("carol")), UpdateOutcome::Nothing);
    assert_eq!(deliver(&mut known, "alice", "m0", 1, &kicked("carol")), UpdateOutcome::Nothing);
    assert!(known.members.contains_key(&id("carol")));
}

#[test]
fn replayed_join_readmits_no_departed_member() {
    let mut known = swarm_without_epochs();
    assert_eq!(
        deliver(&mut known, "carol", "c1", 5, &json!({ "action": "member_left" })),
        UpdateOutcome::Changed
    );
    assert_eq!(deliver(&mut known, "alice", "m0", 4, &joined("carol", 3, 4)), UpdateOutcome::Nothing);
    assert!(!known.members.contains_key(&id("carol")));
    assert_eq!(deliver(&mut known, "alice", "m1", 7, &joined("carol", 3, 7)), UpdateOutcome::Changed);
    assert_eq!(
        deliver(&mut known, "carol", "c1", 5, &json!({ "action": "member_left" })),
        UpdateOutcome::Nothing
    );
    assert!(known.members.contains_key(&id("carol")));
}

#[test]
fn replayed_master_change_is_ignored() {
    let mut known = swarm_without_epochs();
    let to = |name: &str| json!({ "action": "master_changed", "new_master": name });
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &to("carol")), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "carol", "m2", 2, &to("alice")), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &to("carol")), UpdateOutcome::Nothing);
    assert_eq!(known.master, id("alice"));
    assert_eq!(
        deliver(&mut known, "alice", "m0", -1, &to("carol")),
        UpdateOutcome::Nothing,
        "from before we joined"
    );
    assert_eq!(
        deliver(&mut known, "alice", "m0", -1, &json!({ "action": "swarm_dissolved" })),
        UpdateOutcome::Nothing
    );
    assert_eq!((known.master.as_str(), known.status), ("alice", MembershipStatus::Active));
}

#[test]
fn replayed_rotation_keeps_latest_key() {
    let mut known = swarm_without_epochs();
    let (first, second) = (rotated(&known, "carol", 8), rotated(&known, "carol", 9));
    assert_eq!(deliver(&mut known, "carol", "c1", 1, &first), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "carol", "c2", 2, &second), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "carol", "c1", 1, &first), UpdateOutcome::Nothing);
    assert_eq!(deliver(&mut known, "carol", "c0", 1, &first), UpdateOutcome::Nothing);
    // The master announces a key that was replaced in the meantime.
    assert_eq!(deliver(&mut known, "alice", "m2", 4, &second), UpdateOutcome::Nothing);
    assert_eq!(deliver(&mut known, "alice", "m1", 3, &first), UpdateOutcome::Nothing);
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
}

/// Members rotate keys and leave before the master has counted it.
#[test]
fn roster_of_same_epoch_changes_nothing() {
    let mut known = swarm();
    let roster = serde_json::to_value(&known.roster_parts()[0]).unwrap();
    let change = rotated(&known, "carol", 9);
    assert_eq!(deliver(&mut known, "carol", "c1", 1, &change), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m1", 9, &roster), UpdateOutcome::Nothing);
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
    assert_eq!(
        deliver(&mut known, "carol", "c2", 2, &json!({ "action": "member_left" })),
        UpdateOutcome::Changed
    );
    assert_eq!(deliver(&mut known, "alice", "m2", 9, &roster), UpdateOutcome::Nothing);
    assert!(!known.members.contains_key(&id("carol")));
}

/// After a gap, a roster with the current epoch is wanted, and still restores no replaced key.
#[test]
fn roster_after_gap_spares_rotated_key() {
    let mut known = swarm();
    let change = rotated(&known, "carol", 9);
    let mut roster = serde_json::to_value(&known.roster_parts()[0]).unwrap();
    assert_eq!(deliver(&mut known, "carol", "c1", 1, &change), UpdateOutcome::Changed);
    let kick = json!({ "action": "member_kicked", "agent_id": "nobody", "epoch": 7 });
    assert_eq!(deliver(&mut known, "alice", "m1", 2, &kick), UpdateOutcome::Behind);
    let dave = json!({ "agent_id": "dave", "endpoint": endpoint("dave"), "public_key": key(4).public() });
    roster["members"].as_array_mut().unwrap().push(dave);
    roster["epoch"] = 7.into();
    assert_eq!(deliver(&mut known, "alice", "m2", 9, &roster), UpdateOutcome::Changed);
    assert!(known.members.contains_key(&id("dave")), "what was missed");
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
    roster["members"].as_array_mut().unwrap().pop();
    assert_eq!(
        deliver(&mut known, "alice", "m3", 10, &roster),
        UpdateOutcome::Nothing,
        "nothing is missing any more"
    );
    assert!(known.members.contains_key(&id("dave")));
}

/// The master signed the roster before it received a member's own message.
#[test]
fn earlier_roster_spares_own_message() {
    let mut known = swarm();
    let mut roster = serde_json::to_value(&known.roster_parts()[0]).unwrap();
    roster["epoch"] = 7.into();
    let change = rotated(&known, "carol", 9);
    assert_eq!(deliver(&mut known, "carol", "c1", 5, &change), UpdateOutcome::Changed);
    let moved = json!({ "action": "endpoint_changed", "endpoint": endpoint("elsewhere") });
    assert_eq!(deliver(&mut known, "carol", "c3", 5, &moved), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m1", 4, &roster), UpdateOutcome::Changed);
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
    assert_eq!(known.members[&id("carol")].endpoint, endpoint("elsewhere"));
    assert_eq!(
        deliver(&mut known, "carol", "c2", 6, &json!({ "action": "member_left" })),
        UpdateOutcome::Changed
    );
    roster["epoch"] = 8.into();
    assert_eq!(deliver(&mut known, "alice", "m2", 5, &roster), UpdateOutcome::Changed);
    assert!(!known.members.contains_key(&id("carol")));
    roster["epoch"] = 9.into();
    assert_eq!(
        deliver(&mut known, "alice", "m3", 7, &roster),
        UpdateOutcome::Changed,
        "the master has heard, and has it back"
    );
    assert_eq!(known.members[&id("carol")].public_key, key(9).public(), "with the key of its own word");
}

/// Widening the time window does not make discarded updates valid again.
#[test]
fn discarded_updates_stay_applied() {
    let mut known = swarm_without_epochs();
    assert_eq!(deliver(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)), UpdateOutcome::Changed);
    assert_eq!(deliver(&mut known, "alice", "m2", 2, &kicked("dave")), UpdateOutcome::Changed);
    assert_eq!(deliver_from(&mut known, "alice", "m3", 500, 400, &kicked("nobody")), UpdateOutcome::Nothing);
    assert_eq!(known.orders.applied.len(), 1, "the others are forgotten");
    assert!(!known.orders.marks.contains_key(&id("dave")));
    for message in ["m1", "m0"] {
        let replay = deliver_from(&mut known, "alice", message, 1, -9999, &joined("dave", 4, 1));
        assert_eq!(replay, UpdateOutcome::Nothing, "{message}");
    }
    assert!(!known.members.contains_key(&id("dave")));
}

#[test]
fn update_history_is_bounded() {
    let mut known = swarm_without_epochs();
    let (me, alice) = (id("bob"), id("alice"));
    let update = RosterUpdate::Change(Box::new(serde_json::from_value(kicked("nobody")).unwrap()));
    for n in 0..i64::try_from(MAX_UPDATES).unwrap() + 50 {
        let context = UpdateContext { me: &me, sender: &alice, to_me: true, at: at(n), now: at(n) };
        let message_id = format!("m{n}");
        let carrier = CarrierMessage { message_id: &message_id, window_start: at(-9) };
        known.apply_once(&context, &carrier, &update).unwrap();
    }
    assert!(known.orders.applied.len() <= MAX_UPDATES);
    assert!(known.orders.floor >= Some(at(49)), "{:?}", known.orders.floor);
}
