use super::*;
use crate::roster::tests::{at, endpoint, id, swarm};

/// Applies a message to carol's swarm that `sender` signed at this second.
fn apply_at(
    swarm: &mut Swarm,
    sender: &str,
    second: i64,
    content: serde_json::Value,
) -> Result<UpdateOutcome, UpdateError> {
    let (me, sender) = (id("carol"), id(sender));
    let content: SystemContent = serde_json::from_value(content).unwrap();
    let context = UpdateContext { me: &me, sender: &sender, to_me: false, at: at(second), now: at(second) };
    swarm.apply(&context, &content)
}

fn moved(agent: &str, host: &str, epoch: Option<u64>) -> serde_json::Value {
    serde_json::json!({ "action": "endpoint_changed", "agent_id": agent, "endpoint": endpoint(host), "epoch": epoch })
}

#[test]
fn endpoint_change_needs_member_or_master() {
    let mut known = swarm();
    let before = known.clone();
    let refused = apply_at(&mut known, "bob", 1, moved("alice", "evil", Some(9)));
    assert_eq!(refused, Err(UpdateError::NotMaster { action: "endpoint_changed" }));
    let bad = serde_json::json!({ "action": "endpoint_changed", "endpoint": "http://bob.example.com" });
    assert_eq!(apply_at(&mut known, "bob", 1, bad), Err(UpdateError::Field { field: "endpoint" }));
    assert_eq!(known, before);
    assert_eq!(apply_at(&mut known, "bob", 1, moved("bob", "new", None)), Ok(UpdateOutcome::Changed));
    let bob = &known.members[&id("bob")];
    let change = EndpointChange { at: at(1), from: endpoint("bob") };
    assert_eq!((&bob.endpoint, &bob.endpoint_change), (&endpoint("new"), &Some(change)));
    assert_eq!(known.epoch, 3, "a member's own word is not counted");
    // The master has epochs and may correct any endpoint.
    assert_eq!(apply_at(&mut known, "alice", 0, moved("bob", "bob", Some(4))), Ok(UpdateOutcome::Changed));
    assert_eq!(
        apply_at(&mut known, "alice", 9, moved("bob", "evil", Some(4))),
        Ok(UpdateOutcome::Nothing),
        "counted before"
    );
    assert_eq!(known.members[&id("bob")].endpoint, endpoint("bob"));
}

#[test]
fn replayed_endpoint_change_is_ignored() {
    let mut known = swarm();
    assert_eq!(apply_at(&mut known, "bob", 5, moved("bob", "new", None)), Ok(UpdateOutcome::Changed));
    assert_eq!(apply_at(&mut known, "bob", 7, moved("bob", "newer", None)), Ok(UpdateOutcome::Changed));
    for second in [5, 7] {
        assert_eq!(
            apply_at(&mut known, "bob", second, moved("bob", "new", None)),
            Ok(UpdateOutcome::Nothing)
        );
    }
    assert_eq!(known.members[&id("bob")].endpoint, endpoint("newer"));
    // A message from an earlier membership does not count either.
    known.insert_member(&id("bob"), endpoint("bob"), known.members[&id("bob")].public_key.clone(), at(20));
    assert_eq!(apply_at(&mut known, "bob", 10, moved("bob", "new", None)), Ok(UpdateOutcome::Nothing));
}

#[test]
fn master_relays_endpoint_change() {
    let mut known = swarm();
    known.master = id("carol");
    assert_eq!(apply_at(&mut known, "bob", 5, moved("bob", "new", None)), Ok(UpdateOutcome::Changed));
    assert_eq!((known.epoch, known.announcements.len()), (4, 1));
    let content: SystemContent = serde_json::from_str(&known.announcements[0].content).unwrap();
    let apply_at = (content.action.as_str(), content.endpoint, content.epoch);
    assert_eq!(apply_at, ("endpoint_changed", Some(endpoint("new").to_string()), Some(4)));
}
