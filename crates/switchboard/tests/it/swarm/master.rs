//! An offline master stops joins and kicks, and nothing else.

use serde_json::Value;
use test_support::ca::{PrivateCa, Validity};
use test_support::poll;

use super::owner::Owner;

#[test]
fn members_continue_without_their_master() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let (mut alice, bob, carol) =
        (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    bob.ok(&["swarm", "join", &link]);
    carol.ok(&["swarm", "join", &link]);
    for owner in [&alice, &bob, &carol] {
        owner.wait_for_members(&["alice", "bob", "carol"]);
    }
    alice.stop();

    // Messages between members need no master.
    let sent = bob.json(&["swarm", "send", "is the master there?"]).remove(0);
    carol.wait_for_message("carol", "is the master there?");
    carol.ok(&["swarm", "send", "--to", "bob", "no"]);
    bob.wait_for_message("bob", "no");
    let receipt = poll::until("carol has it and alice has not", || {
        let receipt = bob.json(&["receipt", sent["id"].as_str().unwrap()]).remove(0);
        let deliveries = receipt["deliveries"].as_array().unwrap().clone();
        let state = |agent: &str| {
            deliveries
                .iter()
                .find(|d| d["agent"] == agent)
                .and_then(|d| d["state"].as_str())
                .unwrap()
                .to_owned()
        };
        (state("carol@research") == "delivered" && state("alice@research") != "delivered").then_some(receipt)
    });
    assert_eq!(receipt["deliveries"].as_array().unwrap().len(), 2);
    // A new key is announced to online members, and is valid at once.
    bob.ok(&["swarm", "key", "rotate"]);
    bob.ok(&["swarm", "send", "--to", "carol", "with a new key"]);
    carol.wait_for_message("carol", "with a new key");

    // No new member gets in, and a candidate is told to retry.
    let dora = Owner::new(&ca, "dora");
    let refused = dora.sandbox.run(["swarm", "join", &link]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    let kicked = bob.sandbox.run(["swarm", "kick", "carol", "--yes"]);
    assert_eq!(kicked.code, Some(4), "{}", kicked.stderr);
    assert!(kicked.stderr.contains("alice"), "{}", kicked.stderr);

    // Back online the master has everything, in order, and admits the candidate.
    alice.serve();
    alice.ok(&["swarm", "send", "--to", "bob", "I was away"]);
    bob.wait_for_message("bob", "I was away");
    alice.wait_for_message("alice", "is the master there?");
    dora.ok(&["swarm", "join", &link]);
    for owner in [&alice, &bob, &carol, &dora] {
        owner.wait_for_members(&["alice", "bob", "carol", "dora"]);
    }
    bob.ok(&["swarm", "send", "--to", "dora", "welcome"]);
    dora.wait_for_message("dora", "welcome");
}

/// Delivery to an offline peer is retried, and a sender that waits for its answer waits on.
#[test]
fn sender_can_wait_for_offline_peer() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let (mut alice, bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    alice.ok(&["swarm", "create", "Research"]);
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
    bob.wait_for_members(&["alice", "bob"]);
    alice.stop();
    // Reported as waiting with exit 3, or accepted with 0: whichever the command sees first.
    let ran = bob.sandbox.run(["--json", "--from", "bob", "send", "alice@research", "hello?"]);
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
    let first: Value = serde_json::from_str(&ran.stdout).unwrap();
    poll::until("the first attempt to fail", || {
        let receipt = bob.json(&["receipt", first["id"].as_str().unwrap()]).remove(0);
        (receipt["deliveries"][0]["state"] == "retrying").then_some(())
    });
    let ask = ["--from", "bob", "send", "alice@research", "are you back?", "--wait", "--timeout", "60s"];
    let mut asking = bob.sandbox.start(ask);
    asking.line();
    poll::until("that one to fail as well", || {
        let sent = bob.json(&["search", "back"]).remove(0);
        let receipt = bob.json(&["receipt", sent["id"].as_str().unwrap()]).remove(0);
        (receipt["deliveries"][0]["state"] == "retrying").then_some(())
    });
    alice.serve();
    let question = alice.wait_for_message("alice", "are you back?");
    let id = question["id"].as_str().unwrap();
    alice.ok(&["--from", "alice", "send", "bob@research", "I am", "--reply-to", id]);
    let (status, lines) = asking.wait_for_rest(poll::TIMEOUT);
    assert!(status.success() && lines.join("\n").contains("I am"), "{lines:?} {}", asking.errors());
}

/// The successor may be offline: the master leads until it has answered, and may leave after that.
#[test]
fn swarm_continues_during_master_transfer() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let (alice, mut bob, carol) =
        (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    bob.ok(&["swarm", "join", &link]);
    bob.stop();
    alice.ok(&["swarm", "transfer", "bob", "--yes"]);
    carol.ok(&["swarm", "join", &link]);
    let known = alice.json(&["swarm", "list"]).remove(0);
    assert_eq!((&known["master"], &known["handing_over_to"]), (&"alice".into(), &"bob".into()));
    bob.serve();
    for owner in [&alice, &bob, &carol] {
        poll::until("bob leads", || (owner.json(&["swarm", "list"])[0]["master"] == "bob").then_some(()));
        owner.wait_for_members(&["alice", "bob", "carol"]);
    }
    alice.ok(&["swarm", "leave"]);
    for owner in [&bob, &carol] {
        owner.wait_for_members(&["bob", "carol"]);
        assert_eq!(owner.json(&["swarm", "list"])[0]["master"], "bob");
    }
}
