use super::*;
use crate::config::SwarmLimits;
use crate::endpoint::Endpoint;
use crate::keys::SecretKey;
use crate::members::Clash;
use crate::roster::tests::{at, endpoint, id, key, swarm};

/// A roster that fits into one message.
fn whole(swarm: &Swarm) -> Roster {
    let mut parts = swarm.whole_roster();
    assert_eq!(parts.len(), 1);
    parts.remove(0)
}

/// As many members as there may be, with ids and addresses as long as they may be.
fn largest() -> Swarm {
    let mut swarm = swarm();
    let path = "p".repeat(2048 - "https://host.example.com/".len());
    for n in swarm.members.len()..MOST_MEMBERS {
        let mut seed = [9; 32];
        seed[..8].copy_from_slice(&n.to_le_bytes());
        let member = id(&format!("{n:04}{}", "x".repeat(124)));
        let endpoint = Endpoint::parse(&format!("https://host.example.com/{path}")).unwrap();
        swarm.put_member(&member, endpoint, SecretKey::from_seed(&seed).public(), at(0));
    }
    assert_eq!(swarm.members.len(), MOST_MEMBERS);
    swarm.epoch += 1;
    swarm
}

#[test]
fn a_whole_roster_comes_from_the_master_and_is_never_older() {
    let mut fresh = swarm();
    fresh.drop_member(&id("carol"));
    fresh.put_member(&id("dave"), endpoint("dave"), key(4).public(), at(0));
    fresh.epoch = 7;
    let (me, alice, carol) = (id("bob"), id("alice"), id("carol"));
    let from = |sender| Said { me: &me, sender, to_me: true, at: at(1), now: at(1) };
    let mut known = swarm();
    let wrong = known.replace_roster(&from(&carol), &whole(&fresh));
    assert_eq!(wrong, Err(NoAuthority::NotMaster { action: "roster" }));
    assert_eq!(known.replace_roster(&from(&alice), &whole(&fresh)), Ok(true));
    assert_eq!(known.members.keys().map(PeerId::as_str).collect::<Vec<_>>(), ["alice", "bob", "dave"]);
    assert_eq!(known.replace_roster(&from(&alice), &whole(&swarm())), Ok(false));
    let mut without_us = fresh.clone();
    without_us.drop_member(&me);
    without_us.epoch = 8;
    assert_eq!(known.replace_roster(&from(&alice), &whole(&without_us)), Ok(true));
    assert_eq!(known.standing, Standing::Kicked);
}

#[test]
fn the_largest_roster_comes_in_parts_that_fit_and_makes_the_same_swarm() {
    let fresh = largest();
    let (me, alice) = (id("bob"), id("alice"));
    let said = Said { me: &me, sender: &alice, to_me: true, at: at(1), now: at(1) };
    let mut known = swarm();
    // Somebody who has gone since, in the midst of those who come.
    known.put_member(&id("0500"), endpoint("gone"), key(77).public(), at(0));
    let parts = fresh.whole_roster();
    assert!(parts.len() > 1);
    for (number, part) in parts.iter().enumerate() {
        // Once as the text of the part, and once as a text within the message.
        let text = serde_json::to_string(&serde_json::to_string(part).unwrap()).unwrap();
        assert!(text.len() + 4096 < SwarmLimits::default().body, "{} bytes", text.len());
        assert_eq!(known.epoch, swarm().epoch, "behind until the last part is there");
        assert_eq!(known.replace_roster(&said, part), Ok(true), "part {number}");
    }
    assert_eq!((&known.members, known.epoch), (&fresh.members, fresh.epoch));
    let all = serde_json::to_vec(&fresh.roster()).unwrap();
    assert!(all.len() < ROSTER_BYTES, "{} bytes", all.len());
}

#[test]
fn a_part_changes_nobody_else_and_nobody_twice() {
    let fresh = largest();
    let (me, alice) = (id("bob"), id("alice"));
    let said = Said { me: &me, sender: &alice, to_me: true, at: at(1), now: at(1) };
    let parts = fresh.whole_roster();
    let told = |change: &dyn Fn(&mut Roster)| {
        let mut part = parts[0].clone();
        change(&mut part);
        let mut known = swarm();
        let answer = known.replace_roster(&said, &part);
        if answer.is_err() {
            assert_eq!(known, swarm(), "refused, it changes nothing");
        }
        answer
    };
    let members = Err(NoAuthority::Field { field: "members" });
    assert_eq!(told(&|_| ()), Ok(true));
    assert_eq!(told(&|part| part.members.push(parts[1].members[0].clone())), members, "of another part");
    let others_key = key(3).public().to_wire();
    let twice = told(&|part| part.members[0].public_key.clone_from(&others_key));
    assert!(matches!(twice, Err(NoAuthority::Clash(Clash::Key { .. }))), "{twice:?}");
    assert_eq!(
        told(&|part| part.until = Some("no id".to_owned())),
        Err(NoAuthority::Field { field: "until" })
    );
    // The last part alone does not bring the count: those before it are still to come.
    let last = parts.last().unwrap();
    let mut known = swarm();
    assert_eq!(known.replace_roster(&said, last), Ok(true));
    assert_eq!(known.epoch, swarm().epoch);
    let mut full = fresh.clone();
    full.epoch -= 1;
    let one_more = full.members.keys().next().cloned().unwrap();
    full.drop_member(&one_more);
    full.put_member(&id("zoe"), endpoint("zoe"), key(78).public(), at(0));
    let mut too_many = parts[0].clone();
    too_many.members.push(Joined { agent_id: "0000".to_owned(), ..too_many.members[0].clone() });
    assert_eq!(full.replace_roster(&said, &too_many), members);
}

/// A roster brings contested keys, and takes no proof back that was seen here.
#[test]
fn roster_brings_contested_keys() {
    let mut fresh = swarm();
    for name in ["mallory", "dave"] {
        let told = Told {
            id: id(name),
            endpoint: endpoint(name),
            public_key: key(10).public(),
            joined_at: at(0),
            provisional: true,
        };
        assert!(fresh.insert_told(told));
    }
    fresh.epoch = 5;
    let (me, alice, dave) = (id("bob"), id("alice"), id("dave"));
    let said = Said { me: &me, sender: &alice, to_me: true, at: at(1), now: at(1) };
    let mut known = swarm();
    assert_eq!(known.replace_roster(&said, &whole(&fresh)), Ok(true));
    assert_eq!(known.rivals(&dave), [&id("mallory")]);
    known.members.get_mut(&dave).unwrap().signs_envelopes = true;
    known.settle_key(&me, &dave, crate::contest::KeyProof::Signature);
    fresh.epoch = 6;
    assert_eq!(known.replace_roster(&said, &whole(&fresh)), Ok(true));
    assert!(!known.members[&dave].provisional && !known.members.contains_key(&id("mallory")));
    assert!(known.left_out["mallory"].contains("belongs to 'dave'"), "{:?}", known.left_out);
}
