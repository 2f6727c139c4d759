use serde_json::json;

use super::*;
use crate::ledger::Swarm;

pub(crate) fn id(text: &str) -> PeerId {
    PeerId::parse(text).unwrap()
}

pub(crate) fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_770_000_000 + second).unwrap()
}

pub(crate) fn endpoint(name: &str) -> Endpoint {
    Endpoint::parse(&format!("https://{name}.example.com/swarm")).unwrap()
}

/// A swarm that alice leads, as bob knows it.
pub(crate) fn swarm() -> Swarm {
    let mut swarm: Swarm = serde_json::from_value(json!({
        "swarm_id": "550e8400-e29b-41d4-a716-446655440000", "realm": "research", "name": "Research", "master": "alice",
        "epoch": 3, "members": {}, "joined_at": "2026-02-05T14:30:00Z", "invites_since": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    for (name, seed) in [("alice", 1), ("bob", 2), ("carol", 3)] {
        swarm.put_member(&id(name), endpoint(name), key(seed).public(), at(0));
    }
    swarm
}

fn said(
    swarm: &mut Swarm,
    sender: &str,
    to_me: bool,
    content: serde_json::Value,
) -> Result<Applied, NoAuthority> {
    let (me, sender) = (id("bob"), id(sender));
    let content: SystemContent = serde_json::from_value(content).unwrap();
    swarm.apply(&Said { me: &me, sender: &sender, to_me, now: at(1) }, &content)
}

fn joined(name: &str, seed: u8, epoch: u64) -> serde_json::Value {
    let member = json!({ "agent_id": name, "endpoint": endpoint(name), "public_key": key(seed).public() });
    json!({ "action": "member_joined", "agent_id": name, "endpoint": endpoint(name), "member": member, "epoch": epoch })
}

#[test]
fn the_masters_count_says_what_is_old_and_what_was_missed() {
    let mut known = swarm();
    assert_eq!(said(&mut known, "alice", false, joined("dave", 4, 4)), Ok(Applied::Changed));
    assert_eq!((known.epoch, known.members.len()), (4, 4));
    let kick = |epoch| json!({ "action": "member_kicked", "agent_id": "dave", "epoch": epoch });
    assert_eq!(said(&mut known, "alice", false, kick(4)), Ok(Applied::Nothing), "S11: not newer");
    assert_eq!(known.members.len(), 4);
    assert_eq!(said(&mut known, "alice", false, kick(9)), Ok(Applied::Behind));
    assert_eq!((known.epoch, known.members.len()), (9, 3));
    assert_eq!(
        said(&mut known, "alice", false, joined("dave", 4, 5)),
        Ok(Applied::Nothing),
        "an old announcement"
    );
    assert_eq!(known.members.len(), 3);
}

#[test]
fn masters_that_do_not_count_are_believed_and_keys_are_asked_for() {
    let mut known = swarm();
    let flat = json!({ "type": "system", "action": "member_joined", "swarm_id": known.swarm_id, "agent_id": "dave",
        "endpoint": "https://dave.example.com/swarm", "joined_at": "2026-02-05T14:30:00.000Z" });
    assert_eq!(said(&mut known, "alice", false, flat), Ok(Applied::KeyMissing(id("dave"), endpoint("dave"))));
    assert_eq!(known.members.len(), 3, "not before its key is known");
    let kicked = json!({ "action": "member_kicked", "member": "carol", "reason": "x" });
    assert_eq!(said(&mut known, "alice", false, kicked), Ok(Applied::Changed));
    assert!(!known.members.contains_key(&id("carol")));
    let left = json!({ "action": "member_left" });
    assert_eq!(said(&mut known, "alice", false, left), Ok(Applied::Changed));
    assert_eq!(known.standing, Standing::Dissolved, "a swarm without a master is none");
}

#[test]
fn two_accounts_of_one_member_have_to_agree() {
    let mut told = joined("dave", 4, 4);
    told["agent_id"] = "eve".into();
    assert_eq!(said(&mut swarm(), "alice", false, told), Err(NoAuthority::Field { field: "member" }));
    let clash = joined("bobmessage", 4, 4);
    assert_eq!(said(&mut swarm(), "alice", false, clash), Err(NoAuthority::Taken));
    let same_key = joined("dave", 3, 4);
    assert_eq!(said(&mut swarm(), "alice", false, same_key), Err(NoAuthority::Taken));
}

/// S13: what the former master says after it handed the role over.
#[test]
fn the_role_goes_over_once_and_the_old_master_is_a_member() {
    let mut known = swarm();
    let transfer =
        json!({ "action": "master_transfer", "new_master": "bob", "epoch": 4, "banned": ["mallory"] });
    assert_eq!(said(&mut known, "alice", true, transfer.clone()), Ok(Applied::Promoted));
    assert_eq!((known.master.as_str(), known.epoch), ("bob", 4));
    assert!(known.banned.contains_key(&id("mallory")));
    assert_eq!(said(&mut known, "alice", true, transfer), Ok(Applied::Nothing), "its answer got lost");
    let changed =
        json!({ "action": "master_changed", "old_master": "alice", "new_master": "bob", "epoch": 4 });
    assert_eq!(said(&mut known, "alice", false, changed), Ok(Applied::Nothing));
    let kick = json!({ "action": "member_kicked", "agent_id": "carol", "epoch": 5 });
    assert_eq!(
        said(&mut known, "alice", false, kick),
        Err(NoAuthority::NotMaster { action: "member_kicked" })
    );
    let back = json!({ "action": "master_changed", "new_master": "alice", "epoch": 9 });
    assert_eq!(
        said(&mut known, "alice", false, back),
        Err(NoAuthority::NotMaster { action: "master_changed" })
    );
    let stranger = json!({ "action": "master_changed", "new_master": "nobody", "epoch": 9 });
    assert_eq!(said(&mut swarm(), "alice", false, stranger), Err(NoAuthority::NotAMember));
}

#[test]
fn a_new_key_needs_the_old_one_or_the_master_and_a_proof() {
    let new = key(9);
    let rotated = |swarm: &Swarm, who: &str| {
        json!({ "action": "key_rotated", "agent_id": who, "public_key": new.public(),
            "proof": prove_key(&new, swarm.swarm_id, &id(who)) })
    };
    for sender in ["carol", "alice"] {
        let mut known = swarm();
        let content = rotated(&known, "carol");
        assert_eq!(said(&mut known, sender, false, content), Ok(Applied::Changed), "{sender}");
        assert_eq!(known.members[&id("carol")].public_key, new.public());
    }
    let mut known = swarm();
    let content = rotated(&known, "alice");
    assert_eq!(
        said(&mut known, "carol", false, content),
        Err(NoAuthority::NotMaster { action: "key_rotated" })
    );
    let mut content = rotated(&known, "carol");
    content["proof"] = prove_key(&new, Uuid::nil(), &id("carol")).into();
    assert_eq!(said(&mut known, "carol", false, content), Err(NoAuthority::NoProof), "for another swarm");
}
