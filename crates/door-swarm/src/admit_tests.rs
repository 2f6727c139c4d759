use super::*;
use crate::keys::SecretKey;
use crate::ledger::Standing;
use crate::roster::tests::swarm;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_770_000_000 + second).unwrap()
}

fn candidate(agent: &str, seed: u8, max_uses: Option<u32>) -> Candidate {
    let swarm = swarm();
    let invite = Invite {
        swarm_id: swarm.swarm_id,
        master: swarm.master,
        endpoint: Endpoint::parse("https://alice.example.com/swarm").unwrap(),
        iat: at(0).as_second(),
        expires_at: Some("2099-01-01T00:00:00.000Z".to_owned()),
        exp: None,
        max_uses,
        master_key: None,
        issuer: None,
    };
    Candidate {
        agent: PeerId::parse(agent).unwrap(),
        endpoint: Endpoint::parse(&format!("https://{agent}.example.com/swarm")).unwrap(),
        public_key: SecretKey::from_seed(&[seed; 32]).public(),
        invite,
        digest: "digest".to_owned(),
        has_left: false,
        proof: None,
    }
}

#[test]
fn uses_are_counted_per_agent_and_end() {
    let mut swarm = swarm();
    assert_eq!(swarm.admit(&candidate("dave", 10, Some(1)), at(1)), Ok(Admission::Joined));
    assert_eq!(swarm.admit(&candidate("dave", 10, Some(1)), at(1)), Ok(Admission::AlreadyMember));
    assert_eq!(swarm.admit(&candidate("erin", 11, Some(1)), at(1)), Err(NotAdmitted::Exhausted));
    assert_eq!(swarm.announcements.len(), 1);
    assert!(swarm.announcements[0].content.contains("\"agent_id\":\"dave\""));
    assert_eq!(swarm.epoch, 4);
}

#[test]
fn whoever_was_kicked_needs_a_newer_invite() {
    let mut swarm = swarm();
    let (carol, by) = (PeerId::parse("carol").unwrap(), PeerId::parse("alice").unwrap());
    assert!(swarm.kick(&carol, None, &by, at(5)));
    assert_eq!(swarm.admit(&candidate("carol", 3, None), at(6)), Err(NotAdmitted::Banned));
    assert_eq!(swarm.admit(&candidate("karol", 3, None), at(6)), Err(NotAdmitted::Banned), "the key tells");
    let mut newer = candidate("carol", 3, None);
    newer.invite.iat = at(7).as_second();
    newer.digest = "another".to_owned();
    assert_eq!(swarm.admit(&newer, at(8)), Ok(Admission::Joined));
    assert!(swarm.banned.is_empty());
}

#[test]
fn members_invite_where_they_may_and_endless_strangers_do_not_count() {
    let mut swarm = swarm();
    let mut by_member = candidate("dave", 10, None);
    by_member.invite.issuer = Some(PeerId::parse("bob").unwrap());
    assert_eq!(swarm.admit(&by_member, at(1)), Err(NotAdmitted::InvitesDisabled));
    swarm.settings.allow_member_invite = true;
    assert_eq!(swarm.admit(&by_member, at(1)), Ok(Admission::Joined));
    let mut endless = candidate("erin", 11, None);
    endless.invite.expires_at = None;
    endless.digest = "endless".to_owned();
    assert_eq!(swarm.admit(&endless, at(1)), Err(NotAdmitted::Unknown));
    let mut old = candidate("erin", 11, None);
    old.invite.iat = 1_000;
    old.digest = "old".to_owned();
    assert_eq!(swarm.admit(&old, at(1)), Err(NotAdmitted::Unknown), "from before the count began");
}

#[test]
fn a_full_swarm_and_a_full_waiting_room_take_nobody() {
    let mut closed = swarm();
    closed.settings.require_approval = true;
    for n in 0..100_u8 {
        let asked = closed.admit(&candidate(&format!("agent-{n}"), n + 10, None), at(1));
        assert_eq!(asked, Ok(Admission::Pending));
    }
    assert_eq!(closed.admit(&candidate("late", 200, None), at(1)), Err(NotAdmitted::TooManyPending));
    assert_eq!(
        closed.admit(&candidate("agent-5", 15, None), at(2)),
        Ok(Admission::Pending),
        "asking again is no harm"
    );
    assert_eq!(closed.admit(&candidate("agent-5", 201, None), at(2)), Err(NotAdmitted::IdTaken));
    assert_eq!(closed.standing, Standing::Active);
    assert_eq!(closed.members.len(), 3);
}

#[test]
fn a_kick_ends_the_invite_by_which_the_kicked_came() {
    let mut swarm = swarm();
    assert_eq!(swarm.admit(&candidate("dave", 10, None), at(1)), Ok(Admission::Joined));
    let by = PeerId::parse("alice").unwrap();
    assert!(swarm.kick(&PeerId::parse("dave").unwrap(), None, &by, at(5)));
    let other_name = candidate("david", 11, None);
    assert_eq!(swarm.admit(&other_name, at(6)), Err(NotAdmitted::Revoked), "another name and another key");
}

/// Whoever was asked to lead may take its time: the master leads until then.
#[test]
fn others_come_in_while_somebody_is_asked_to_lead() {
    let mut swarm = swarm();
    let (to, asked) = (PeerId::parse("bob").unwrap(), Uuid::nil());
    swarm.handover = Some(crate::ledger::Handover { to, asked, asked_at: at(0) });
    assert_eq!(swarm.admit(&candidate("dave", 10, None), at(1)), Ok(Admission::Joined));
    assert_eq!(swarm.epoch, 4);
    // Whoever is gone will not lead.
    assert!(swarm.kick(&PeerId::parse("bob").unwrap(), None, &PeerId::parse("alice").unwrap(), at(2)));
    assert_eq!(swarm.handover, None);
}

/// The master was away when somebody left, and others have heard of it.
#[test]
fn whoever_says_that_it_left_is_announced_anew() {
    let mut swarm = swarm();
    let again = Candidate { has_left: true, ..candidate("carol", 3, None) };
    assert_eq!(swarm.admit(&again, at(9)), Ok(Admission::Joined));
    assert_eq!((swarm.epoch, swarm.announcements.len()), (4, 1));
    assert_eq!(swarm.members[&again.agent].joined_at, at(9));
    let other_key = Candidate { has_left: true, ..candidate("carol", 77, None) };
    assert_eq!(swarm.admit(&other_key, at(9)), Err(NotAdmitted::IdTaken));
}
