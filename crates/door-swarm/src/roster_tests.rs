use serde_json::json;

use super::*;
use crate::keys::SecretKey;
use crate::model::Swarm;

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

/// A swarm that alice leads, as bob stores it.
pub(crate) fn swarm() -> Swarm {
    let mut swarm: Swarm = serde_json::from_value(json!({
        "swarm_id": "550e8400-e29b-41d4-a716-446655440000", "realm": "research", "name": "Research", "master": "alice",
        "epoch": 3, "members": {}, "joined_at": "2026-02-05T14:30:00Z", "invites_since": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    for (name, seed) in [("alice", 1), ("bob", 2), ("carol", 3)] {
        swarm.insert_member(&id(name), endpoint(name), key(seed).public(), at(0));
    }
    swarm
}

fn context(
    swarm: &mut Swarm,
    sender: &str,
    to_me: bool,
    content: serde_json::Value,
) -> Result<UpdateOutcome, UpdateError> {
    let (me, sender) = (id("bob"), id(sender));
    let content: SystemContent = serde_json::from_value(content).unwrap();
    swarm.apply(&UpdateContext { me: &me, sender: &sender, to_me, at: at(1), now: at(1) }, &content)
}

fn joined(name: &str, seed: u8, epoch: u64) -> serde_json::Value {
    let member = json!({ "agent_id": name, "endpoint": endpoint(name), "public_key": key(seed).public() });
    json!({ "action": "member_joined", "agent_id": name, "endpoint": endpoint(name), "member": member, "epoch": epoch })
}

#[test]
fn epoch_reveals_replays_and_gaps() {
    let mut known = swarm();
    assert_eq!(context(&mut known, "alice", false, joined("dave", 4, 4)), Ok(UpdateOutcome::Changed));
    assert_eq!((known.epoch, known.members.len()), (4, 4));
    let kick = |epoch| json!({ "action": "member_kicked", "agent_id": "dave", "epoch": epoch });
    assert_eq!(context(&mut known, "alice", false, kick(4)), Ok(UpdateOutcome::Nothing), "S11: not newer");
    assert_eq!(known.members.len(), 4);
    assert_eq!(context(&mut known, "alice", false, kick(9)), Ok(UpdateOutcome::Behind));
    assert_eq!((known.epoch, known.members.len()), (9, 3));
    assert_eq!(
        context(&mut known, "alice", false, joined("dave", 4, 5)),
        Ok(UpdateOutcome::Nothing),
        "an old announcement"
    );
    assert_eq!(known.members.len(), 3);
}

#[test]
fn master_without_epochs_is_accepted() {
    let mut known = swarm();
    let flat = json!({ "type": "system", "action": "member_joined", "swarm_id": known.swarm_id, "agent_id": "dave",
        "endpoint": "https://dave.example.com/swarm", "joined_at": "2026-02-05T14:30:00.000Z" });
    assert_eq!(context(&mut known, "alice", false, flat), Ok(UpdateOutcome::KeyMissing(id("dave"))));
    assert_eq!(known.announced[&id("dave")].endpoint, endpoint("dave"));
    assert_eq!(known.members.len(), 3, "not before its key is known");
    let kicked = json!({ "action": "member_kicked", "member": "carol", "reason": "x" });
    assert_eq!(context(&mut known, "alice", false, kicked), Ok(UpdateOutcome::Changed));
    assert!(!known.members.contains_key(&id("carol")));
    let left = json!({ "action": "member_left" });
    assert_eq!(context(&mut known, "alice", false, left), Ok(UpdateOutcome::Changed));
    assert_eq!(known.status, MembershipStatus::Dissolved, "a swarm without a master is none");
}

#[test]
fn flat_and_nested_member_must_agree() {
    let mut entry = joined("dave", 4, 4);
    entry["agent_id"] = "eve".into();
    assert_eq!(context(&mut swarm(), "alice", false, entry), Err(UpdateError::Field { field: "member" }));
    let clash = joined("bobmessage", 4, 4);
    assert_eq!(context(&mut swarm(), "alice", false, clash), Err(UpdateError::Taken));
    let same_key = joined("dave", 3, 4);
    assert_eq!(context(&mut swarm(), "alice", false, same_key), Err(UpdateError::Taken));
}

/// Messages of the former master after it transferred the role.
#[test]
fn master_role_transfers_once() {
    let mut known = swarm();
    let transfer =
        json!({ "action": "master_transfer", "new_master": "bob", "epoch": 3, "banned": ["mallory"] });
    assert_eq!(context(&mut known, "alice", true, transfer.clone()), Ok(UpdateOutcome::Nothing));
    assert_eq!((known.master.as_str(), known.epoch), ("alice", 3), "it was asked, and no more");
    assert!(known.banned.contains_key(&id("mallory")));
    assert_eq!(
        context(&mut known, "alice", true, transfer.clone()),
        Ok(UpdateOutcome::Nothing),
        "its answer got lost"
    );
    let mut late = transfer.clone();
    late["epoch"] = 4.into();
    assert_eq!(
        context(&mut swarm(), "alice", true, late),
        Ok(UpdateOutcome::Behind),
        "it has missed something"
    );
    // Until the master has the answer, its updates count, and a removed member stays removed.
    let kick = json!({ "action": "member_kicked", "agent_id": "carol", "epoch": 4 });
    assert_eq!(context(&mut known, "alice", false, kick), Ok(UpdateOutcome::Changed));
    let changed =
        json!({ "action": "master_changed", "old_master": "alice", "new_master": "bob", "epoch": 5 });
    assert_eq!(context(&mut known, "alice", false, changed.clone()), Ok(UpdateOutcome::Promoted));
    assert_eq!((known.master.as_str(), known.epoch), ("bob", 5));
    assert_eq!(known.banned.keys().map(PeerId::as_str).collect::<Vec<_>>(), ["carol", "mallory"]);
    assert_eq!(context(&mut known, "alice", false, changed), Ok(UpdateOutcome::Nothing));
    assert_eq!(context(&mut known, "alice", true, transfer), Ok(UpdateOutcome::Nothing));
    let kick = json!({ "action": "member_kicked", "agent_id": "alice", "epoch": 6 });
    assert_eq!(
        context(&mut known, "alice", false, kick),
        Err(UpdateError::NotMaster { action: "member_kicked" })
    );
    let back = json!({ "action": "master_changed", "new_master": "alice", "epoch": 9 });
    assert_eq!(
        context(&mut known, "alice", false, back),
        Err(UpdateError::NotMaster { action: "master_changed" })
    );
    let stranger = json!({ "action": "master_changed", "new_master": "nobody", "epoch": 9 });
    assert_eq!(context(&mut swarm(), "alice", false, stranger), Err(UpdateError::NotAMember));
}

#[test]
fn rotation_needs_authority_and_proof() {
    let new = key(9);
    let rotated = |swarm: &Swarm, who: &str| {
        json!({ "action": "key_rotated", "agent_id": who, "public_key": new.public(),
            "proof": prove_key(&new, swarm.swarm_id, &id(who)) })
    };
    for sender in ["carol", "alice"] {
        let mut known = swarm();
        let content = rotated(&known, "carol");
        assert_eq!(context(&mut known, sender, false, content), Ok(UpdateOutcome::Changed), "{sender}");
        assert_eq!(known.members[&id("carol")].public_key, new.public());
    }
    let mut known = swarm();
    let content = rotated(&known, "alice");
    assert_eq!(
        context(&mut known, "carol", false, content),
        Err(UpdateError::NotMaster { action: "key_rotated" })
    );
    let mut content = rotated(&known, "carol");
    content["proof"] = prove_key(&new, Uuid::nil(), &id("carol")).into();
    assert_eq!(context(&mut known, "carol", false, content), Err(UpdateError::NoProof), "for another swarm");
}

fn deliver_at(
    swarm: &mut Swarm,
    me: &str,
    sender: &str,
    second: i64,
    content: serde_json::Value,
) -> Result<UpdateOutcome, UpdateError> {
    let (me, sender) = (id(me), id(sender));
    let content: SystemContent = serde_json::from_value(content).unwrap();
    swarm.apply(
        &UpdateContext { me: &me, sender: &sender, to_me: true, at: at(second), now: at(second) },
        &content,
    )
}

/// A message about an earlier membership does not affect a later one, however often and late it arrives.
#[test]
fn departure_ends_only_its_membership() {
    let mut known = swarm();
    let of_before = json!({ "action": "member_left", "joined_at": timestamp::render(at(-9)) });
    assert_eq!(
        deliver_at(&mut known, "bob", "carol", 5, of_before),
        Ok(UpdateOutcome::Nothing),
        "signed anew"
    );
    let plain = json!({ "action": "member_left" });
    assert_eq!(
        deliver_at(&mut known, "bob", "carol", -1, plain.clone()),
        Ok(UpdateOutcome::Nothing),
        "signed before"
    );
    assert_eq!(known, swarm());
    let update = json!({ "action": "member_left", "joined_at": timestamp::render(at(0)) });
    assert_eq!(
        deliver_at(&mut known, "bob", "carol", -1, update),
        Ok(UpdateOutcome::Changed),
        "by a clock that is behind"
    );
    assert!(!known.members.contains_key(&id("carol")));
    let mut known = swarm();
    assert_eq!(deliver_at(&mut known, "bob", "carol", 5, plain), Ok(UpdateOutcome::Changed));

    known.joined_at = at(3);
    let kicked = |epoch: Option<u64>| json!({ "action": "kicked", "agent_id": "bob", "epoch": epoch });
    assert_eq!(deliver_at(&mut known, "bob", "alice", 9, kicked(Some(3))), Ok(UpdateOutcome::Nothing));
    assert_eq!(deliver_at(&mut known, "bob", "alice", 2, kicked(None)), Ok(UpdateOutcome::Nothing));
    assert_eq!(known.status, MembershipStatus::Active);
    assert_eq!(deliver_at(&mut known, "bob", "alice", 9, kicked(Some(4))), Ok(UpdateOutcome::Changed));
    assert_eq!(known.status, MembershipStatus::Kicked);
    let mut known = swarm();
    let gone = json!({ "action": "member_kicked", "agent_id": "carol" });
    assert_eq!(
        deliver_at(&mut known, "bob", "alice", -1, gone),
        Ok(UpdateOutcome::Nothing),
        "by a master that does not count"
    );
}

/// The master counts a member's own messages, so that a member that missed one notices the gap.
#[test]
fn master_counts_own_messages_of_members() {
    let mut known = swarm();
    assert_eq!(
        deliver_at(&mut known, "alice", "carol", 5, json!({ "action": "member_left" })),
        Ok(UpdateOutcome::Changed)
    );
    assert_eq!((known.epoch, known.announcements.len()), (4, 1));
    let passed_on: serde_json::Value = serde_json::from_str(&known.announcements[0].content).unwrap();
    let mut other = swarm();
    assert_eq!(
        deliver_at(&mut other, "bob", "carol", 6, passed_on.clone()),
        Ok(UpdateOutcome::Changed),
        "its own word"
    );
    let mut other = swarm();
    assert_eq!(deliver_at(&mut other, "bob", "alice", 6, passed_on.clone()), Ok(UpdateOutcome::Changed));
    assert!(!other.members.contains_key(&id("carol")));
    assert_eq!((other.epoch, other.announcements.len()), (4, 0), "members count nothing");
    assert_eq!(deliver_at(&mut other, "bob", "alice", 6, passed_on), Ok(UpdateOutcome::Nothing));
    let for_another = json!({ "action": "member_left", "agent_id": "carol", "epoch": 9 });
    let refused = Err(UpdateError::NotMaster { action: "member_left" });
    assert_eq!(deliver_at(&mut swarm(), "alice", "bob", 6, for_another), refused);

    let mut known = swarm();
    let new = key(9);
    let rotated = json!({ "action": "key_rotated", "public_key": new.public(),
        "proof": prove_key(&new, known.swarm_id, &id("carol")) });
    assert_eq!(deliver_at(&mut known, "alice", "carol", 5, rotated.clone()), Ok(UpdateOutcome::Changed));
    assert_eq!(known.epoch, 4);
    let passed_on: serde_json::Value = serde_json::from_str(&known.announcements[0].content).unwrap();
    let mut other = swarm();
    other.members.get_mut(&id("carol")).unwrap().offered_key = Some(new.public());
    assert_eq!(deliver_at(&mut other, "bob", "alice", 6, passed_on.clone()), Ok(UpdateOutcome::Changed));
    let carol = &other.members[&id("carol")];
    assert_eq!((&carol.public_key, &carol.offered_key, other.epoch), (&new.public(), &None, 4));
    // A hub that already has the new key has nothing to compare any more.
    other.members.get_mut(&id("carol")).unwrap().offered_key = Some(key(8).public());
    assert_eq!(deliver_at(&mut other, "bob", "carol", 7, rotated), Ok(UpdateOutcome::Nothing));
    assert_eq!(other.members[&id("carol")].offered_key, None);

    // A member that left cannot become master.
    let mut known = swarm();
    known.handover = Some(crate::model::Handover { to: id("carol"), asked: Uuid::nil(), asked_at: at(1) });
    assert_eq!(
        deliver_at(&mut known, "alice", "carol", 5, json!({ "action": "member_left" })),
        Ok(UpdateOutcome::Changed)
    );
    assert_eq!((known.epoch, known.handover), (4, None));
}

/// A member left and rejoined, and only the second message arrives.
#[test]
fn rejoined_member_has_new_join_time() {
    let mut known = swarm();
    let mut again = joined("carol", 3, 5);
    again["joined_at"] = timestamp::render(at(7)).into();
    assert_eq!(deliver_at(&mut known, "bob", "alice", 7, again), Ok(UpdateOutcome::Behind));
    assert_eq!(known.members[&id("carol")].joined_at, at(7));
    let of_before = json!({ "action": "member_left", "joined_at": timestamp::render(at(0)) });
    assert_eq!(deliver_at(&mut known, "bob", "carol", 8, of_before), Ok(UpdateOutcome::Nothing));
    let mut other_key = joined("carol", 8, 6);
    other_key["joined_at"] = timestamp::render(at(9)).into();
    assert_eq!(deliver_at(&mut known, "bob", "alice", 9, other_key), Ok(UpdateOutcome::Nothing));
    assert_eq!(known.members[&id("carol")].public_key, key(8).public());
    let mut taken = joined("carol", 2, 7);
    taken["joined_at"] = timestamp::render(at(9)).into();
    assert_eq!(deliver_at(&mut known, "bob", "alice", 9, taken), Err(UpdateError::Taken));
}

/// A member revokes its own invite at the master, even an unused one; no other member can.
#[test]
fn members_revoke_their_own_invites() {
    let mut known = swarm();
    let digest = |n: u8| format!("{n:064x}");
    let revoked = |n: u8| json!({ "action": "invite_revoked", "invite": digest(n) });
    assert_eq!(deliver_at(&mut known, "alice", "carol", 5, revoked(1)), Ok(UpdateOutcome::Changed));
    assert!(known.invites[&digest(1)].revoked);
    assert!(deliver_at(&mut known, "alice", "bob", 5, revoked(1)).is_err());
    let odd = json!({ "action": "invite_revoked", "invite": "A" });
    assert_eq!(deliver_at(&mut known, "alice", "carol", 5, odd), Err(UpdateError::Field { field: "invite" }));
    let taken = (0..200).filter(|n| deliver_at(&mut known, "alice", "carol", 5, revoked(*n)).is_ok()).count();
    assert_eq!(taken, MAX_UNUSED_REVOKED, "nobody fills the list of the master");
    assert_eq!(
        deliver_at(&mut swarm(), "bob", "carol", 5, revoked(1)),
        Ok(UpdateOutcome::Nothing),
        "not the master"
    );
}

/// A proved key belongs to its member; an unproven claim to it blocks no agent.
#[test]
fn announced_members_share_provisional_keys() {
    let named = |name: &str, epoch: Option<u64>| {
        let mut entry = joined(name, 10, 4);
        (entry["epoch"], entry["member"]["provisional"]) = (json!(epoch), json!(epoch.map(|_| true)));
        entry
    };
    for epochs in [[Some(4), Some(5)], [None, None]] {
        let mut known = swarm();
        for (name, epoch) in ["mallory", "dave"].into_iter().zip(epochs) {
            assert_eq!(
                context(&mut known, "alice", false, named(name, epoch)),
                Ok(UpdateOutcome::Changed),
                "{name}"
            );
        }
        assert_eq!(known.rivals(&id("dave")), [&id("mallory")]);
        // Announced as proved, it has to wait until the others are gone.
        assert_eq!(context(&mut known, "alice", false, joined("erin", 10, 6)), Err(UpdateError::Taken));
        // A later roster does not revoke a proof.
        known.settle_key(&id("bob"), &id("dave"), crate::contested_key::KeyProof::Signature);
        let again = named("mallory", epochs[0].map(|_| 7));
        // Without epochs, it is as old as the one before.
        let refused = epochs[0].map_or(Ok(UpdateOutcome::Nothing), |_| Err(UpdateError::Taken));
        assert_eq!(context(&mut known, "alice", false, again), refused);
        assert!(!known.members.contains_key(&id("mallory")));
    }
    for seed in [1, 2] {
        let mut entry = named("mallory", None);
        entry["member"]["public_key"] = json!(key(seed).public());
        assert_eq!(context(&mut swarm(), "alice", false, entry), Err(UpdateError::Taken), "{seed}");
    }
}

#[test]
fn rotation_to_squatted_key_ends_contest() {
    for me in ["alice", "bob"] {
        let (mut known, new) = (swarm(), key(9));
        let squatter = RosterEntry {
            id: id("mallory"),
            endpoint: endpoint("mallory"),
            public_key: new.public(),
            joined_at: at(0),
            provisional: true,
        };
        assert!(known.insert_entry(squatter));
        let rotated = json!({ "action": "key_rotated", "public_key": new.public(),
            "proof": prove_key(&new, known.swarm_id, &id("carol")) });
        assert_eq!(deliver_at(&mut known, me, "carol", 5, rotated), Ok(UpdateOutcome::Changed));
        assert_eq!(known.members[&id("carol")].public_key, new.public());
        assert!(!known.members.contains_key(&id("mallory")), "{me}");
    }
}

/// A member's two rotations arrive before the master announces the first.
#[test]
fn relayed_rotation_restores_no_replaced_key() {
    let mut known = swarm();
    let rotated = |seed: u8, epoch: Option<u64>| {
        json!({ "action": "key_rotated", "agent_id": "carol", "public_key": key(seed).public(), "epoch": epoch,
            "proof": prove_key(&key(seed), swarm().swarm_id, &id("carol")) })
    };
    assert_eq!(deliver_at(&mut known, "bob", "carol", 5, rotated(8, None)), Ok(UpdateOutcome::Changed));
    assert_eq!(deliver_at(&mut known, "bob", "carol", 6, rotated(9, None)), Ok(UpdateOutcome::Changed));
    for (seed, epoch) in [(8, 4), (9, 5)] {
        assert_eq!(
            deliver_at(&mut known, "bob", "alice", 7, rotated(seed, Some(epoch))),
            Ok(UpdateOutcome::Nothing)
        );
        assert_eq!((&known.members[&id("carol")].public_key, known.epoch), (&key(9).public(), epoch));
    }
}
