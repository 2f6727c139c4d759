use super::*;
use crate::keys::SecretKey;
use crate::model::MembershipStatus;
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
    assert_eq!(swarm.admit(&candidate("erin", 11, Some(1)), at(1)), Err(AdmissionError::Exhausted));
    assert_eq!(swarm.announcements.len(), 1);
    assert!(swarm.announcements[0].content.contains("\"agent_id\":\"dave\""));
    assert_eq!(swarm.epoch, 4);
}

#[test]
fn kicked_member_needs_newer_invite() {
    let mut swarm = swarm();
    let (carol, by) = (PeerId::parse("carol").unwrap(), PeerId::parse("alice").unwrap());
    assert!(swarm.kick(&carol, None, &by, at(5)));
    assert_eq!(swarm.admit(&candidate("carol", 3, None), at(6)), Err(AdmissionError::Banned));
    assert_eq!(
        swarm.admit(&candidate("karol", 3, None), at(6)),
        Err(AdmissionError::Banned),
        "the key tells"
    );
    let mut newer = candidate("carol", 3, None);
    newer.invite.iat = at(7).as_second();
    newer.digest = "another".to_owned();
    assert_eq!(swarm.admit(&newer, at(8)), Ok(Admission::Joined));
    assert!(swarm.banned.is_empty());
}

#[test]
fn foreign_invite_needs_permission_and_expiry() {
    let mut swarm = swarm();
    let mut by_member = candidate("dave", 10, None);
    by_member.invite.issuer = Some(PeerId::parse("bob").unwrap());
    assert_eq!(swarm.admit(&by_member, at(1)), Err(AdmissionError::InvitesDisabled));
    swarm.settings.allow_member_invite = true;
    assert_eq!(swarm.admit(&by_member, at(1)), Ok(Admission::Joined));
    let mut endless = candidate("erin", 11, None);
    endless.invite.expires_at = None;
    endless.digest = "endless".to_owned();
    assert_eq!(swarm.admit(&endless, at(1)), Err(AdmissionError::Unknown));
    let mut old = candidate("erin", 11, None);
    old.invite.iat = 1_000;
    old.digest = "old".to_owned();
    assert_eq!(swarm.admit(&old, at(1)), Err(AdmissionError::Unknown), "from before the count began");
}

#[test]
fn full_swarm_and_pending_list_refuse() {
    let mut closed = swarm();
    closed.settings.require_approval = true;
    for n in 0..100_u8 {
        let outcome = closed.admit(&candidate(&format!("agent-{n}"), n + 10, None), at(1));
        assert_eq!(outcome, Ok(Admission::Pending));
    }
    assert_eq!(closed.admit(&candidate("late", 200, None), at(1)), Err(AdmissionError::TooManyPending));
    assert_eq!(
        closed.admit(&candidate("agent-5", 15, None), at(2)),
        Ok(Admission::Pending),
        "asking again is no harm"
    );
    assert_eq!(closed.admit(&candidate("agent-5", 201, None), at(2)), Err(AdmissionError::IdTaken));
    assert_eq!(closed.status, MembershipStatus::Active);
    assert_eq!(closed.members.len(), 3);
}

#[test]
fn kick_revokes_used_invite() {
    let mut swarm = swarm();
    assert_eq!(swarm.admit(&candidate("dave", 10, None), at(1)), Ok(Admission::Joined));
    let by = PeerId::parse("alice").unwrap();
    assert!(swarm.kick(&PeerId::parse("dave").unwrap(), None, &by, at(5)));
    let other_name = candidate("david", 11, None);
    assert_eq!(swarm.admit(&other_name, at(6)), Err(AdmissionError::Revoked), "another name and another key");
}

/// The member that was asked may take its time: the master leads until then.
#[test]
fn joins_continue_during_transfer() {
    let mut swarm = swarm();
    let (to, request_id) = (PeerId::parse("bob").unwrap(), Uuid::nil());
    swarm.handover = Some(crate::model::Handover { to, asked: request_id, asked_at: at(0) });
    assert_eq!(swarm.admit(&candidate("dave", 10, None), at(1)), Ok(Admission::Joined));
    assert_eq!(swarm.epoch, 4);
    // A removed member cannot become master.
    assert!(swarm.kick(&PeerId::parse("bob").unwrap(), None, &PeerId::parse("alice").unwrap(), at(2)));
    assert_eq!(swarm.handover, None);
}

/// The master was down when a member left, and other members know of it.
#[test]
fn departed_member_is_announced_again() {
    let mut swarm = swarm();
    let again = Candidate { has_left: true, ..candidate("carol", 3, None) };
    assert_eq!(swarm.admit(&again, at(9)), Ok(Admission::AlreadyMember), "its word alone changes nothing");
    assert_eq!((swarm.epoch, swarm.announcements.len()), (3, 0));
    let again = signed(again, 9);
    assert_eq!(swarm.admit(&again, at(9)), Ok(Admission::Joined));
    assert_eq!((swarm.epoch, swarm.announcements.len()), (4, 1));
    assert_eq!(swarm.members[&again.agent].joined_at, at(9));
    let other_key = Candidate { has_left: true, ..candidate("carol", 77, None) };
    assert_eq!(swarm.admit(&signed(other_key, 10), at(10)), Err(AdmissionError::IdTaken));
}

/// The same request, signed as a whole with the key that it names.
fn signed(candidate: Candidate, second: i64) -> Candidate {
    Candidate { proof: Some(Proof { at: at(second), is_whole: true }), ..candidate }
}

fn at_host(candidate: Candidate, host: &str) -> Candidate {
    Candidate {
        endpoint: Endpoint::parse(&format!("https://{host}.example.com/swarm")).unwrap(),
        ..candidate
    }
}

#[test]
fn endpoint_change_needs_current_key() {
    let mut swarm = swarm();
    let bob = PeerId::parse("bob").unwrap();
    swarm.members.get_mut(&bob).unwrap().signs_envelopes = true;
    let moved = at_host(candidate("bob", 2, None), "elsewhere");
    let partly = Candidate { proof: Some(Proof { at: at(1), is_whole: false }), ..moved.clone() };
    let refused = [
        (moved.clone(), AdmissionError::NotProven),
        (Candidate { has_left: true, ..moved.clone() }, AdmissionError::NotProven),
        (partly, AdmissionError::NotProven),
        (signed(at_host(candidate("bob", 9, None), "elsewhere"), 1), AdmissionError::IdTaken),
        (at_host(candidate("alice", 1, None), "elsewhere"), AdmissionError::NotProven),
        (signed(at_host(candidate("alice", 1, None), "elsewhere"), 1), AdmissionError::Replayed),
    ];
    for (request, expected) in refused {
        let mut tried = swarm.clone();
        assert_eq!(tried.admit(&request, at(1)), Err(expected), "{request:?}");
        assert_eq!(tried, swarm, "{request:?}");
    }
    assert_eq!(swarm.admit(&signed(moved.clone(), 2), at(2)), Ok(Admission::Moved));
    assert_eq!(swarm.members[&bob].endpoint, moved.endpoint);
    assert!(swarm.announcements[0].content.contains("endpoint_changed"));
    // A retry, and a replay from before it has moved back.
    assert_eq!(swarm.admit(&signed(candidate("bob", 2, None), 4), at(4)), Ok(Admission::Moved));
    for second in [2, 3, 4] {
        assert_eq!(swarm.admit(&signed(moved.clone(), second), at(5)), Err(AdmissionError::Replayed));
    }
    // A person's decision counts from its own time.
    swarm.change_endpoint(&bob, moved.endpoint.clone(), at(8));
    assert_eq!(swarm.admit(&signed(candidate("bob", 2, None), 6), at(9)), Err(AdmissionError::Replayed));
    assert_eq!(swarm.members[&bob].endpoint, moved.endpoint);
}

#[test]
fn invite_is_checked_before_membership() {
    let mut known = swarm();
    assert_eq!(known.admit(&candidate("dave", 10, Some(1)), at(1)), Ok(Admission::Joined));
    // The only use is dave's: no other agent gets it by taking its id.
    let other = at_host(candidate("dave", 10, Some(1)), "elsewhere");
    assert_eq!(known.admit(&other, at(2)), Err(AdmissionError::Exhausted));
    assert_eq!(known.admit(&candidate("dave", 11, Some(1)), at(2)), Err(AdmissionError::Exhausted));
    assert_eq!(known.admit(&candidate("bob", 2, Some(1)), at(2)), Err(AdmissionError::Exhausted));
    assert_eq!(known.admit(&signed(other, 3), at(3)), Ok(Admission::Moved));
    known.remove_member(&PeerId::parse("dave").unwrap());
    assert_eq!(known.admit(&candidate("dave", 10, Some(1)), at(4)), Err(AdmissionError::Exhausted));
    assert_eq!(
        known.admit(&signed(candidate("dave", 10, Some(1)), 3), at(4)),
        Err(AdmissionError::Exhausted)
    );
    assert_eq!(known.admit(&signed(candidate("dave", 10, Some(1)), 4), at(4)), Ok(Admission::Joined));
    known.invites.get_mut("digest").unwrap().revoked = true;
    for request in [candidate("dave", 10, Some(1)), signed(candidate("bob", 2, None), 5)] {
        assert_eq!(known.admit(&request, at(5)), Err(AdmissionError::Revoked));
    }
}

/// An id with a new key is a new use.
#[test]
fn reused_id_counts_as_a_use() {
    let mut swarm = swarm();
    for (seed, expected) in
        [(10, Ok(Admission::Joined)), (11, Ok(Admission::Joined)), (12, Err(AdmissionError::Exhausted))]
    {
        assert_eq!(swarm.admit(&candidate("dave", seed, Some(2)), at(1)), expected, "{seed}");
        swarm.remove_member(&PeerId::parse("dave").unwrap());
    }
}

#[test]
fn squatter_yields_to_key_owner() {
    let mut known = swarm();
    let (mallory, bob) = (PeerId::parse("mallory").unwrap(), PeerId::parse("dave").unwrap());
    assert_eq!(known.admit(&candidate("mallory", 10, Some(1)), at(1)), Ok(Admission::Joined));
    assert!(known.members[&mallory].provisional);
    assert_eq!(known.admit(&candidate("dave", 10, None), at(2)), Err(AdmissionError::Exhausted));
    assert_eq!(known.admit(&signed(candidate("dave", 10, None), 2), at(2)), Ok(Admission::Joined));
    assert!(!known.members.contains_key(&mallory) && !known.members[&bob].provisional);
    assert!(known.banned.is_empty());
    let is_mentioned: Vec<bool> = ["member_joined", "member_left", "member_joined"]
        .map(str::to_owned)
        .iter()
        .zip(&known.announcements)
        .map(|(action, announcement)| announcement.content.contains(action))
        .collect();
    assert_eq!(is_mentioned, [true; 3], "{:?}", known.announcements);
    // Once proved, it stays, even against an agent that signs with the same key under another id.
    assert_eq!(known.admit(&signed(candidate("erin", 10, None), 9), at(9)), Err(AdmissionError::Exhausted));

    // The owner corrects the endpoint under its own id.
    let mut known = swarm();
    let squat = at_host(candidate("dave", 10, None), "mallory");
    assert_eq!(known.admit(&squat, at(1)), Ok(Admission::Joined));
    assert_eq!(known.admit(&signed(candidate("dave", 10, None), 2), at(2)), Ok(Admission::Moved));
    assert_eq!(known.members[&bob].endpoint, candidate("dave", 10, None).endpoint);
    // A different key does not get the id of a provisional member.
    assert_eq!(known.admit(&signed(candidate("dave", 11, None), 3), at(3)), Err(AdmissionError::IdTaken));
}

#[test]
fn ban_of_squatter_spares_key_owner() {
    let mut known = swarm();
    let (mallory, by) = (PeerId::parse("mallory").unwrap(), PeerId::parse("alice").unwrap());
    assert_eq!(known.admit(&candidate("mallory", 10, None), at(1)), Ok(Admission::Joined));
    assert!(known.kick(&mallory, None, &by, at(5)));
    let other = |candidate: Candidate| Candidate { digest: "other".to_owned(), ..candidate };
    assert_eq!(known.admit(&other(candidate("marge", 10, None)), at(6)), Err(AdmissionError::Banned));
    assert_eq!(
        known.admit(&signed(other(candidate("mallory", 10, None)), 6), at(6)),
        Err(AdmissionError::Banned),
        "the kick names the id"
    );
    assert_eq!(known.admit(&signed(other(candidate("dave", 10, None)), 6), at(6)), Ok(Admission::Joined));
}

#[test]
fn pending_squatter_yields_to_key_owner() {
    let mut closed = swarm();
    closed.settings.require_approval = true;
    let (mallory, dave) = (PeerId::parse("mallory").unwrap(), PeerId::parse("dave").unwrap());
    assert_eq!(closed.admit(&candidate("mallory", 10, None), at(1)), Ok(Admission::Pending));
    assert_eq!(closed.admit(&candidate("dave", 10, None), at(1)), Ok(Admission::Pending));
    assert_eq!(closed.pending.len(), 2, "none of them has proved the key");
    assert_eq!(closed.admit(&signed(candidate("dave", 10, None), 1), at(1)), Ok(Admission::Pending));
    assert!(closed.pending.keys().eq([&dave]), "{:?}", closed.pending);
    // Under its own id, even after another agent's request under it was denied.
    let mut closed = swarm();
    closed.settings.require_approval = true;
    assert_eq!(closed.admit(&at_host(candidate("dave", 10, None), "mallory"), at(1)), Ok(Admission::Pending));
    closed.pending.get_mut(&dave).unwrap().denied = true;
    assert_eq!(closed.admit(&candidate("dave", 10, None), at(2)), Err(AdmissionError::Denied));
    assert_eq!(closed.admit(&signed(candidate("dave", 10, None), 2), at(2)), Ok(Admission::Pending));
    assert_eq!(closed.pending[&dave].endpoint, candidate("dave", 10, None).endpoint);
    // An approved squatter gives way to an approved owner.
    assert_eq!(closed.approve(&mallory, at(3)), Err(AdmissionError::Unknown));
    closed.insert_member(
        &mallory,
        closed.pending[&dave].endpoint.clone(),
        closed.pending[&dave].public_key.clone(),
        at(3),
    );
    assert_eq!(closed.clone().approve(&dave, at(4)), Err(AdmissionError::KeyTaken));
    closed.members.get_mut(&mallory).unwrap().provisional = true;
    assert_eq!(closed.approve(&dave, at(4)), Ok(()));
    assert!(closed.members.contains_key(&dave) && !closed.members.contains_key(&mallory));
}

/// Both squatter and owner join by unsigned requests.
#[test]
fn unsigned_owner_joins_beside_squatter() {
    let mut known = swarm();
    let (alice, mallory, dave) =
        (known.master.clone(), PeerId::parse("mallory").unwrap(), PeerId::parse("dave").unwrap());
    for agent in ["mallory", "dave"] {
        assert_eq!(known.admit(&candidate(agent, 10, None), at(1)), Ok(Admission::Joined), "{agent}");
    }
    assert!(known.members[&mallory].provisional && known.members[&dave].provisional);
    // Proved keys, including the master's, cannot be contested.
    for (agent, seed) in [("erin", 1), ("erin", 2)] {
        assert_eq!(
            known.admit(&candidate(agent, seed, None), at(1)),
            Err(AdmissionError::KeyTaken),
            "{seed}"
        );
    }
    assert_eq!(known.settle_key(&alice, &dave, KeyProof::Message), [mallory]);
    assert_eq!(known.admit(&candidate("mallory", 10, None), at(2)), Err(AdmissionError::KeyTaken));
    // A signed request covers more than a message does, so it wins, even under another id.
    assert_eq!(known.admit(&signed(candidate("erin", 10, None), 3), at(3)), Ok(Admission::Joined));
    assert!(!known.members.contains_key(&dave));
    assert_eq!(known.admit(&signed(candidate("frank", 10, None), 4), at(4)), Err(AdmissionError::KeyTaken));
}

/// One of several members that name a key sends a signed request.
#[test]
fn signed_request_ends_contest() {
    for has_left in [false, true] {
        let mut known = swarm();
        for agent in ["mallory", "marge", "dave"] {
            assert_eq!(known.admit(&candidate(agent, 10, None), at(1)), Ok(Admission::Joined), "{agent}");
        }
        let request = Candidate { has_left, ..signed(candidate("dave", 10, None), 2) };
        let expected = if has_left { Admission::Joined } else { Admission::AlreadyMember };
        assert_eq!(known.admit(&request, at(2)), Ok(expected));
        let ids: Vec<&str> = known.members.keys().map(PeerId::as_str).collect();
        assert_eq!(ids, ["alice", "bob", "carol", "dave"], "{has_left}");
        assert!(known.banned.is_empty() && !known.members[&request.agent].provisional);
    }
}

mod arbitrary_requests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];

    #[derive(Debug, Clone)]
    enum Step {
        Ask {
            agent: usize,
            key: u8,
            host: usize,
            has_left: bool,
            invite: usize,
            signed_at: Option<i64>,
            whole: bool,
        },
        Kick(usize),
        Revoke(usize),
        Leave(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let ask = (
            0..5_usize,
            1..6_u8,
            0..5_usize,
            any::<bool>(),
            0..3_usize,
            prop::option::of(0..40_i64),
            any::<bool>(),
        );
        let ask = ask.prop_map(|(agent, key, host, has_left, invite, signed_at, whole)| Step::Ask {
            agent,
            key,
            host,
            has_left,
            invite,
            signed_at,
            whole,
        });
        prop_oneof![
            12 => ask,
            1 => (1..5_usize).prop_map(Step::Kick),
            1 => (0..3_usize).prop_map(Step::Revoke),
            1 => (1..5_usize).prop_map(Step::Leave),
        ]
    }

    fn request(step: &Step) -> Option<Candidate> {
        let Step::Ask { agent, key, host, has_left, invite, signed_at, whole } = step else { return None };
        let max_uses = [None, Some(1), Some(2)][*invite];
        let join_request = at_host(candidate(NAMES[*agent], *key, max_uses), NAMES[*host]);
        let proof = signed_at.map(|second| Proof { at: at(second), is_whole: *whole });
        Some(Candidate { has_left: *has_left, digest: format!("invite-{invite}"), proof, ..join_request })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Unsigned requests change no entry; signed ones change the entry of their own key, once each.
        #[test]
        fn entries_change_by_their_own_key(steps in prop::collection::vec(step(), 1..40), approval in any::<bool>()) {
            let mut swarm = swarm();
            swarm.settings.require_approval = approval;
            for (now, step) in (1_i64..).zip(&steps) {
                let before = swarm.clone();
                match step {
                    Step::Kick(n) => {
                        swarm.kick(&PeerId::parse(NAMES[*n]).unwrap(), None, &before.master, at(now));
                    }
                    Step::Leave(n) => { swarm.remove_member(&PeerId::parse(NAMES[*n]).unwrap()); }
                    Step::Revoke(n) => {
                        if let Some(invite) = swarm.invites.get_mut(&format!("invite-{n}")) { invite.revoked = true; }
                    }
                    Step::Ask { .. } => {
                        let join_request = request(step).unwrap();
                        let mut admitting = swarm.clone();
                        let Ok(admission) = admitting.admit(&join_request, at(now)) else { continue };
                        swarm = admitting;
                        let record = before.invites.get(&join_request.digest);
                        prop_assert!(!record.is_some_and(|record| record.revoked), "{admission:?} by a revoked invite");
                        for record in swarm.invites.values() {
                            let uses = record.used_by.len() + record.reused as usize;
                            prop_assert!(record.max_uses.is_none_or(|most| uses <= most as usize), "{record:?}");
                        }
                        for (id, member) in &before.members {
                            let is_own = join_request.proof.is_some() && member.public_key == join_request.public_key;
                            let Some(after) = swarm.members.get(id) else {
                                prop_assert!(is_own && member.provisional, "{id} was removed by {join_request:?}");
                                continue;
                            };
                            prop_assert_eq!(&after.public_key, &member.public_key);
                            if after.endpoint != member.endpoint {
                                prop_assert!(is_own && *id != before.master, "{id} was moved by {join_request:?}");
                                let newer = member.signed_at.is_none_or(|last| join_request.proof.unwrap().at > last);
                                prop_assert!(newer, "{id} was moved by a replay");
                            }
                        }
                    }
                }
                for (id, member) in &swarm.members {
                    let others = swarm.members.iter().filter(|(other, _)| *other != id);
                    let has_key = others.filter(|(_, other)| other.public_key == member.public_key).count() > 0;
                    prop_assert!(!has_key || member.provisional, "a proven key twice: {id}");
                }
            }
        }
    }
}
