use super::*;
use crate::config::SwarmLimits;
use crate::endpoint::Endpoint;
use crate::keys::SecretKey;
use crate::members::MemberConflict;
use crate::roster::tests::{at, endpoint, id, key, swarm};

/// Returns a roster that fits into one message.
fn single_part(swarm: &Swarm) -> Roster {
    let mut parts = swarm.roster_parts();
    assert_eq!(parts.len(), 1);
    parts.remove(0)
}

/// A swarm with the maximum number of members, and the longest ids and endpoints.
fn largest() -> Swarm {
    let mut swarm = swarm();
    let path = "p".repeat(2048 - "https://host.example.com/".len());
    for n in swarm.members.len()..MAX_MEMBERS {
        let mut seed = [9; 32];
        seed[..8].copy_from_slice(&n.to_le_bytes());
        let member = id(&format!("{n:04}{}", "x".repeat(124)));
        let endpoint = Endpoint::parse(&format!("https://host.example.com/{path}")).unwrap();
        swarm.insert_member(&member, endpoint, SecretKey::from_seed(&seed).public(), at(0));
    }
    assert_eq!(swarm.members.len(), MAX_MEMBERS);
    swarm.epoch += 1;
    swarm
}

#[test]
fn roster_needs_master_and_newer_epoch() {
    let mut fresh = swarm();
    fresh.remove_member(&id("carol"));
    fresh.insert_member(&id("dave"), endpoint("dave"), key(4).public(), at(0));
    fresh.epoch = 7;
    let (me, alice, carol) = (id("bob"), id("alice"), id("carol"));
    let from = |sender| UpdateContext { me: &me, sender, to_me: true, at: at(1), now: at(1) };
    let mut known = swarm();
    let wrong = known.replace_roster(&from(&carol), &single_part(&fresh));
    assert_eq!(wrong, Err(UpdateError::NotMaster { action: "roster" }));
    assert_eq!(known.replace_roster(&from(&alice), &single_part(&fresh)), Ok(true));
    assert_eq!(known.members.keys().map(PeerId::as_str).collect::<Vec<_>>(), ["alice", "bob", "dave"]);
    assert_eq!(known.replace_roster(&from(&alice), &single_part(&swarm())), Ok(false));
    let mut without_us = fresh.clone();
    without_us.remove_member(&me);
    without_us.epoch = 8;
    assert_eq!(known.replace_roster(&from(&alice), &single_part(&without_us)), Ok(true));
    assert_eq!(known.status, MembershipStatus::Kicked);
}

#[test]
fn largest_roster_round_trips_in_parts() {
    let fresh = largest();
    let (me, alice) = (id("bob"), id("alice"));
    let context = UpdateContext { me: &me, sender: &alice, to_me: true, at: at(1), now: at(1) };
    let mut known = swarm();
    // A member that has left in the meantime, in the middle of the range.
    known.insert_member(&id("0500"), endpoint("gone"), key(77).public(), at(0));
    let parts = fresh.roster_parts();
    assert!(parts.len() > 1);
    for (number, part) in parts.iter().enumerate() {
        // Escaped once as the part and once inside the message.
        let text = serde_json::to_string(&serde_json::to_string(part).unwrap()).unwrap();
        assert!(text.len() + 4096 < SwarmLimits::default().body, "{} bytes", text.len());
        assert_eq!(known.epoch, swarm().epoch, "behind until the last part is there");
        assert_eq!(known.replace_roster(&context, part), Ok(true), "part {number}");
    }
    assert_eq!((&known.members, known.epoch), (&fresh.members, fresh.epoch));
    let all = serde_json::to_vec(&fresh.roster()).unwrap();
    assert!(all.len() < MAX_ROSTER_BYTES, "{} bytes", all.len());
}

#[test]
fn part_changes_only_its_range() {
    let fresh = largest();
    let (me, alice) = (id("bob"), id("alice"));
    let context = UpdateContext { me: &me, sender: &alice, to_me: true, at: at(1), now: at(1) };
    let parts = fresh.roster_parts();
    let outcome = |change: &dyn Fn(&mut Roster)| {
        let mut part = parts[0].clone();
        change(&mut part);
        let mut known = swarm();
        let answer = known.replace_roster(&context, &part);
        if answer.is_err() {
            assert_eq!(known, swarm(), "refused, it changes nothing");
        }
        answer
    };
    let members = Err(UpdateError::Field { field: "members" });
    assert_eq!(outcome(&|_| ()), Ok(true));
    assert_eq!(outcome(&|part| part.members.push(parts[1].members[0].clone())), members, "of another part");
    let others_key = key(3).public().to_wire();
    let twice = outcome(&|part| part.members[0].public_key.clone_from(&others_key));
    assert!(matches!(twice, Err(UpdateError::Conflict(MemberConflict::Key { .. }))), "{twice:?}");
    assert_eq!(
        outcome(&|part| part.until = Some("no id".to_owned())),
        Err(UpdateError::Field { field: "until" })
    );
    // The last part alone does not set the epoch, because earlier ones are missing.
    let last = parts.last().unwrap();
    let mut known = swarm();
    assert_eq!(known.replace_roster(&context, last), Ok(true));
    assert_eq!(known.epoch, swarm().epoch);
    let mut full = fresh.clone();
    full.epoch -= 1;
    let one_more = full.members.keys().next().cloned().unwrap();
    full.remove_member(&one_more);
    full.insert_member(&id("zoe"), endpoint("zoe"), key(78).public(), at(0));
    let mut too_many = parts[0].clone();
    too_many.members.push(RosterMember { agent_id: "0000".to_owned(), ..too_many.members[0].clone() });
    assert_eq!(full.replace_roster(&context, &too_many), members);
}

/// A roster contains contested keys, and revokes no proof that this hub has seen.
#[test]
fn roster_contains_contested_keys() {
    let mut fresh = swarm();
    for name in ["mallory", "dave"] {
        let entry = RosterEntry {
            id: id(name),
            endpoint: endpoint(name),
            public_key: key(10).public(),
            joined_at: at(0),
            provisional: true,
        };
        assert!(fresh.insert_entry(entry));
    }
    fresh.epoch = 5;
    let (me, alice, dave) = (id("bob"), id("alice"), id("dave"));
    let context = UpdateContext { me: &me, sender: &alice, to_me: true, at: at(1), now: at(1) };
    let mut known = swarm();
    assert_eq!(known.replace_roster(&context, &single_part(&fresh)), Ok(true));
    assert_eq!(known.rivals(&dave), [&id("mallory")]);
    known.members.get_mut(&dave).unwrap().signs_envelopes = true;
    known.settle_key(&me, &dave, crate::contested_key::KeyProof::Signature);
    fresh.epoch = 6;
    assert_eq!(known.replace_roster(&context, &single_part(&fresh)), Ok(true));
    assert!(!known.members[&dave].provisional && !known.members.contains_key(&id("mallory")));
    assert!(known.left_out["mallory"].contains("belongs to 'dave'"), "{:?}", known.left_out);
}
