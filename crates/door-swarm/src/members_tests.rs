use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::agent_id::BROADCAST;
use crate::roster::tests::{at, endpoint, id, key, swarm};
use crate::signing::Payload;
use crate::wire::MessageType;

const TYPES: [MessageType; 3] = [MessageType::Message, MessageType::System, MessageType::Notification];

/// Ids that overlap with each other and with the type words.
fn ids() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("bob"),
        Just("b"),
        Just("commit"),
        Just("message"),
        Just("system"),
        Just("notification"),
        Just("syste"),
        Just("notificatio"),
        Just("m"),
        Just("n"),
        Just("essage"),
        Just("-"),
        Just("broadcast"),
    ];
    prop_oneof![
        4 => proptest::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat()),
        1 => "[a-c]{1,3}",
    ]
}

fn roster_entry(name: &str, seed: u8) -> RosterEntry {
    RosterEntry {
        id: id(name),
        endpoint: endpoint("host"),
        public_key: key(seed).public(),
        joined_at: at(i64::from(seed)),
        provisional: false,
    }
}

fn signed(recipient: &str, kind: MessageType, content: &str) -> Vec<u8> {
    let payload = Payload { message_id: "", timestamp: "", swarm_id: "", recipient, kind, content };
    payload.bytes()
}

/// Returns every other reading of signed bytes whose recipient is one of `recipients`.
fn readings<'a>(bytes: &'a str, recipients: &[&'a str]) -> Vec<(&'a str, MessageType, &'a str)> {
    let mut found = Vec::new();
    for recipient in recipients {
        for kind in TYPES {
            let rest = bytes.strip_prefix(recipient).and_then(|rest| rest.strip_prefix(kind.as_str()));
            found.extend(rest.map(|content| (*recipient, kind, content)));
        }
    }
    found
}

proptest! {
    /// Signed bytes have one reading for the ids of any accepted roster.
    #[test]
    fn signed_bytes_have_one_reading(
        names in proptest::collection::vec(ids(), 1..12), to in any::<Index>(), kind in 0..3_usize,
        content in proptest::collection::vec(ids(), 0..4),
    ) {
        let mut swarm = swarm();
        for (seed, name) in names.iter().enumerate() {
            swarm.insert_member(&id(name), endpoint("host"), key(u8::try_from(seed).unwrap() + 10).public(), at(0));
        }
        // After a round trip through the store.
        let swarm: crate::Swarm = serde_json::from_str(&serde_json::to_string(&swarm).unwrap()).unwrap();
        let mut recipients: Vec<&str> = swarm.members.keys().map(PeerId::as_str).collect();
        recipients.push(BROADCAST);
        let (recipient, kind, content) = (*to.get(&recipients), TYPES[kind], content.concat());
        let bytes = String::from_utf8(signed(recipient, kind, &content)).unwrap();
        prop_assert_eq!(readings(&bytes, &recipients), [(recipient, kind, content.as_str())]);
    }

    /// Two ids conflict exactly if two messages have the same signed bytes.
    #[test]
    fn conflicting_ids_are_the_ambiguous_ones(first in ids(), second in ids()) {
        prop_assume!(!first.eq_ignore_ascii_case(&second));
        let common = |one: &str, other: &str| TYPES.iter().any(|a| TYPES.iter().any(|b| {
            let (one, other) = (signed(one, *a, ""), signed(other, *b, ""));
            one.starts_with(&other) || other.starts_with(&one)
        }));
        prop_assert_eq!(id(&first).conflicts_with(&id(&second)), common(&first, &second));
    }

    /// A filtered roster can always be built, and contains our agent and the master.
    #[test]
    fn filtered_rosters_can_be_built(names in proptest::collection::btree_set(ids(), 2..12)) {
        let entries: Vec<RosterEntry> = names.iter().zip(10..).map(|(name, seed)| roster_entry(name, seed)).collect();
        let (me, master) = (entries[0].id.clone(), entries[1].id.clone());
        prop_assume!(me.check_member().is_ok());
        let count = entries.len();
        let Ok((kept, left_out)) = filter_roster(&me, &master, entries) else { return Ok(()) };
        prop_assert_eq!(kept.len() + left_out.len(), count);
        let mut swarm = swarm();
        swarm.members = Members::default();
        for member in kept {
            prop_assert!(swarm.insert_member(&member.id, member.endpoint, member.public_key, member.joined_at));
        }
        prop_assert!(swarm.members.contains_key(&me) && swarm.members.contains_key(&master));
    }
}

fn filtered(me: &str, names: &[&str]) -> Result<(Vec<String>, Vec<String>), MemberConflict> {
    let all = names.iter().zip(10..).map(|(name, seed)| roster_entry(name, seed)).collect();
    let (kept, left_out) = filter_roster(&id(me), &id("alice"), all)?;
    Ok((kept.iter().map(|member| member.id.to_string()).collect(), left_out.into_keys().collect()))
}

#[test]
fn invalid_members_are_excluded() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (kept, left_out) =
        filtered("bob", &["commit", "human", "bob", "commitmessage", "-x", "alice"]).unwrap();
    assert_eq!(kept, names(&["bob", "alice", "commit"]));
    assert_eq!(left_out, names(&["-x", "commitmessage", "human"]));
    // The later one is excluded, unless it is the master.
    let (_, left_out) = filtered("bob", &["alicesystem", "alice", "bob"]).unwrap();
    assert_eq!(left_out, ["alicesystem"]);
    let (_, left_out) = filtered("bob", &["alice", "bob", "Bob"]).unwrap();
    assert_eq!(left_out, ["Bob"]);
}

/// A text that was signed for the other id could be delivered to our agent as a roster update.
#[test]
fn rosters_ambiguous_with_us_are_refused() {
    for (me, other) in [("commitmessage", "commit"), ("commit", "commitmessage")] {
        let refused = filtered(me, &["alice", me, other]).unwrap_err();
        assert_eq!(refused, MemberConflict::Ids { id: id(other), other: id(me) });
    }
    let entries = vec![roster_entry("bob", 1), roster_entry("admin", 2)];
    assert!(matches!(filter_roster(&id("bob"), &id("admin"), entries), Err(MemberConflict::Id(_))));
}

/// A roster that was stored by a program without the check: the later one is excluded.
#[test]
fn stored_ambiguous_ids_are_excluded() {
    let mut swarm = swarm();
    let carol = swarm.members[&id("carol")].clone();
    let mut stored: BTreeMap<PeerId, Member> = swarm.members.clone().into();
    stored.insert(id("carolmessage"), Member { joined_at: at(5), ..carol });
    swarm.members = stored.into();
    assert_eq!(swarm.members.keys().map(PeerId::as_str).collect::<Vec<_>>(), ["alice", "bob", "carol"]);
}

/// In a roster of a master that checks no proofs, only our agent and the master have proved their keys.
#[test]
fn provisional_members_may_share_a_key() {
    let member =
        |name: &str, seed: u8, provisional: bool| RosterEntry { provisional, ..roster_entry(name, seed) };
    let roster = [
        member("mallory", 5, true),
        member("dave", 5, true),
        member("copy", 2, true),
        member("other", 1, true),
        member("erin", 6, false),
        member("late", 6, true),
        member("bob", 2, true),
        member("alice", 1, true),
    ];
    let (kept, left_out) = filter_roster(&id("bob"), &id("alice"), roster.to_vec()).unwrap();
    let kept: Vec<(&str, bool)> =
        kept.iter().map(|member| (member.id.as_str(), member.provisional)).collect();
    let expected = [("bob", false), ("alice", false), ("erin", false), ("mallory", true), ("dave", true)];
    assert_eq!(kept, expected);
    assert_eq!(left_out.keys().collect::<Vec<_>>(), ["copy", "late", "other"]);
    assert!(left_out["copy"].contains("public_key of 'copy' belongs to 'bob' as well"), "{left_out:?}");
    let twice = vec![
        roster_entry("bob", 2),
        roster_entry("alice", 1),
        roster_entry("dave", 5),
        roster_entry("erin", 5),
    ];
    assert!(matches!(filter_roster(&id("bob"), &id("alice"), twice), Err(MemberConflict::Key { .. })));
}
