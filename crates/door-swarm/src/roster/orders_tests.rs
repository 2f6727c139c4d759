use serde_json::{Value, json};

use super::*;
use crate::ledger::Standing;
use crate::roster::prove_key;
use crate::roster::tests::{at, endpoint, id, key, swarm};
use crate::stamp;

/// A swarm whose master does not count, as bob knows it.
fn uncounted() -> Swarm {
    Swarm { epoch: 0, joined_at: at(0), ..swarm() }
}

/// Says something, signed at a second and heard five seconds later.
fn say(swarm: &mut Swarm, sender: &str, message_id: &str, second: i64, content: &Value) -> Applied {
    say_from(swarm, sender, message_id, second, second - 100, content)
}

fn say_from(
    swarm: &mut Swarm,
    sender: &str,
    message_id: &str,
    second: i64,
    window_start: i64,
    content: &Value,
) -> Applied {
    let (me, sender) = (id("bob"), id(sender));
    let order = match content["action"].as_str() {
        Some("roster") => Order::Roster(serde_json::from_value(content.clone()).unwrap()),
        _ => Order::Change(serde_json::from_value(content.clone()).unwrap()),
    };
    let said = Said { me: &me, sender: &sender, to_me: true, at: at(second), now: at(second + 5) };
    // As it is read from the ledger each time.
    *swarm = serde_json::from_str(&serde_json::to_string(swarm).unwrap()).unwrap();
    swarm.apply_once(&said, &Carrier { message_id, window_start: at(window_start) }, &order).unwrap()
}

fn joined(name: &str, seed: u8, second: i64) -> Value {
    let member = json!({ "agent_id": name, "endpoint": endpoint(name), "public_key": key(seed).public() });
    json!({ "action": "member_joined", "agent_id": name, "endpoint": endpoint(name), "member": member,
        "joined_at": stamp::render(at(second)) })
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
fn replayed_join_leaves_kicked_member_out() {
    let mut known = uncounted();
    assert_eq!(say(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m2", 2, &kicked("dave")), Applied::Changed);
    assert_eq!(
        say(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)),
        Applied::Nothing,
        "the same message"
    );
    assert_eq!(
        say(&mut known, "alice", "m0", 1, &joined("dave", 4, 1)),
        Applied::Nothing,
        "another before it"
    );
    assert_eq!(
        say(&mut known, "alice", "m9", 2, &joined("dave", 4, 1)),
        Applied::Nothing,
        "at the same time"
    );
    assert!(!known.members.contains_key(&id("dave")) && known.announced.is_empty());
    // Without a key, as another program announces it.
    let flat = json!({ "action": "member_joined", "agent_id": "dave", "endpoint": endpoint("dave") });
    assert_eq!(say(&mut known, "alice", "m0", 1, &flat), Applied::Nothing);
    assert_eq!(say(&mut known, "alice", "m3", 3, &flat), Applied::KeyMissing(id("dave")), "invited again");
    // The order in which they come does not matter.
    let mut known = uncounted();
    assert_eq!(say(&mut known, "alice", "m2", 2, &kicked("dave")), Applied::Nothing);
    assert_eq!(say(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)), Applied::Nothing);
    assert!(!known.members.contains_key(&id("dave")));
}

#[test]
fn replayed_kick_spares_returned_member() {
    let mut known = uncounted();
    assert_eq!(say(&mut known, "alice", "m1", 1, &kicked("carol")), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m2", 2, &joined("carol", 3, 2)), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m1", 1, &kicked("carol")), Applied::Nothing);
    assert_eq!(say(&mut known, "alice", "m0", 1, &kicked("carol")), Applied::Nothing);
    assert!(known.members.contains_key(&id("carol")));
}

#[test]
fn replayed_join_leaves_departed_member_out() {
    let mut known = uncounted();
    assert_eq!(say(&mut known, "carol", "c1", 5, &json!({ "action": "member_left" })), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m0", 4, &joined("carol", 3, 4)), Applied::Nothing);
    assert!(!known.members.contains_key(&id("carol")));
    assert_eq!(say(&mut known, "alice", "m1", 7, &joined("carol", 3, 7)), Applied::Changed);
    assert_eq!(say(&mut known, "carol", "c1", 5, &json!({ "action": "member_left" })), Applied::Nothing);
    assert!(known.members.contains_key(&id("carol")));
}

#[test]
fn replayed_master_change_is_ignored() {
    let mut known = uncounted();
    let to = |name: &str| json!({ "action": "master_changed", "new_master": name });
    assert_eq!(say(&mut known, "alice", "m1", 1, &to("carol")), Applied::Changed);
    assert_eq!(say(&mut known, "carol", "m2", 2, &to("alice")), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m1", 1, &to("carol")), Applied::Nothing);
    assert_eq!(known.master, id("alice"));
    assert_eq!(say(&mut known, "alice", "m0", -1, &to("carol")), Applied::Nothing, "from before we joined");
    assert_eq!(say(&mut known, "alice", "m0", -1, &json!({ "action": "swarm_dissolved" })), Applied::Nothing);
    assert_eq!((known.master.as_str(), known.standing), ("alice", Standing::Active));
}

#[test]
fn replayed_rotation_keeps_latest_key() {
    let mut known = uncounted();
    let (first, second) = (rotated(&known, "carol", 8), rotated(&known, "carol", 9));
    assert_eq!(say(&mut known, "carol", "c1", 1, &first), Applied::Changed);
    assert_eq!(say(&mut known, "carol", "c2", 2, &second), Applied::Changed);
    assert_eq!(say(&mut known, "carol", "c1", 1, &first), Applied::Nothing);
    assert_eq!(say(&mut known, "carol", "c0", 1, &first), Applied::Nothing);
    // The master's word for a key that was replaced since.
    assert_eq!(say(&mut known, "alice", "m2", 4, &second), Applied::Nothing);
    assert_eq!(say(&mut known, "alice", "m1", 3, &first), Applied::Nothing);
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
}

/// Members change their keys, and leave, before the master has counted it.
#[test]
fn roster_of_same_epoch_changes_nothing() {
    let mut known = swarm();
    let roster = serde_json::to_value(&known.whole_roster()[0]).unwrap();
    let change = rotated(&known, "carol", 9);
    assert_eq!(say(&mut known, "carol", "c1", 1, &change), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m1", 9, &roster), Applied::Nothing);
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
    assert_eq!(say(&mut known, "carol", "c2", 2, &json!({ "action": "member_left" })), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m2", 9, &roster), Applied::Nothing);
    assert!(!known.members.contains_key(&id("carol")));
}

/// After a gap the roster of the same count is wanted, and still brings no replaced key back.
#[test]
fn roster_after_gap_spares_rotated_key() {
    let mut known = swarm();
    let change = rotated(&known, "carol", 9);
    let mut roster = serde_json::to_value(&known.whole_roster()[0]).unwrap();
    assert_eq!(say(&mut known, "carol", "c1", 1, &change), Applied::Changed);
    let kick = json!({ "action": "member_kicked", "agent_id": "nobody", "epoch": 7 });
    assert_eq!(say(&mut known, "alice", "m1", 2, &kick), Applied::Behind);
    let dave = json!({ "agent_id": "dave", "endpoint": endpoint("dave"), "public_key": key(4).public() });
    roster["members"].as_array_mut().unwrap().push(dave);
    roster["epoch"] = 7.into();
    assert_eq!(say(&mut known, "alice", "m2", 9, &roster), Applied::Changed);
    assert!(known.members.contains_key(&id("dave")), "what was missed");
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
    roster["members"].as_array_mut().unwrap().pop();
    assert_eq!(say(&mut known, "alice", "m3", 10, &roster), Applied::Nothing, "nothing is missing any more");
    assert!(known.members.contains_key(&id("dave")));
}

/// A roster that the master had signed before it heard a member's own word.
#[test]
fn earlier_roster_spares_own_word() {
    let mut known = swarm();
    let mut roster = serde_json::to_value(&known.whole_roster()[0]).unwrap();
    roster["epoch"] = 7.into();
    let change = rotated(&known, "carol", 9);
    assert_eq!(say(&mut known, "carol", "c1", 5, &change), Applied::Changed);
    let moved = json!({ "action": "endpoint_changed", "endpoint": endpoint("elsewhere") });
    assert_eq!(say(&mut known, "carol", "c3", 5, &moved), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m1", 4, &roster), Applied::Changed);
    assert_eq!(known.members[&id("carol")].public_key, key(9).public());
    assert_eq!(known.members[&id("carol")].endpoint, endpoint("elsewhere"));
    assert_eq!(say(&mut known, "carol", "c2", 6, &json!({ "action": "member_left" })), Applied::Changed);
    roster["epoch"] = 8.into();
    assert_eq!(say(&mut known, "alice", "m2", 5, &roster), Applied::Changed);
    assert!(!known.members.contains_key(&id("carol")));
    roster["epoch"] = 9.into();
    assert_eq!(
        say(&mut known, "alice", "m3", 7, &roster),
        Applied::Changed,
        "the master has heard, and has it back"
    );
    assert_eq!(known.members[&id("carol")].public_key, key(9).public(), "with the key of its own word");
}

/// A window that is set wider later does not bring forgotten orders back.
#[test]
fn forgotten_orders_stay_applied() {
    let mut known = uncounted();
    assert_eq!(say(&mut known, "alice", "m1", 1, &joined("dave", 4, 1)), Applied::Changed);
    assert_eq!(say(&mut known, "alice", "m2", 2, &kicked("dave")), Applied::Changed);
    assert_eq!(say_from(&mut known, "alice", "m3", 500, 400, &kicked("nobody")), Applied::Nothing);
    assert_eq!(known.orders.applied.len(), 1, "the others are forgotten");
    assert!(!known.orders.marks.contains_key(&id("dave")));
    for message in ["m1", "m0"] {
        let replay = say_from(&mut known, "alice", message, 1, -9999, &joined("dave", 4, 1));
        assert_eq!(replay, Applied::Nothing, "{message}");
    }
    assert!(!known.members.contains_key(&id("dave")));
}

#[test]
fn remembered_orders_are_bounded() {
    let mut known = uncounted();
    let (me, alice) = (id("bob"), id("alice"));
    let order = Order::Change(Box::new(serde_json::from_value(kicked("nobody")).unwrap()));
    for n in 0..i64::try_from(MOST_ORDERS).unwrap() + 50 {
        let said = Said { me: &me, sender: &alice, to_me: true, at: at(n), now: at(n) };
        let message_id = format!("m{n}");
        let carrier = Carrier { message_id: &message_id, window_start: at(-9) };
        known.apply_once(&said, &carrier, &order).unwrap();
    }
    assert!(known.orders.applied.len() <= MOST_ORDERS);
    assert!(known.orders.floor >= Some(at(49)), "{:?}", known.orders.floor);
}
