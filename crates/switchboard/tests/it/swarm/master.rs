//! A master that is down stops joins and kicks, and nothing else.

use test_support::ca::{Life, PrivateCa};
use test_support::poll;

use super::owner::Owner;

#[test]
fn members_go_on_without_their_master() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Life::Long);
    let (mut alice, bob, carol) =
        (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    bob.ok(&["swarm", "join", &link]);
    carol.ok(&["swarm", "join", &link]);
    for owner in [&alice, &bob, &carol] {
        owner.knows(&["alice", "bob", "carol"]);
    }
    alice.stop();

    // What members say to each other needs nobody else.
    let sent = bob.json(&["swarm", "send", "is the master there?"]).remove(0);
    carol.gets("carol", "is the master there?");
    carol.ok(&["swarm", "send", "--to", "bob", "no"]);
    bob.gets("bob", "no");
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
    // A new key is told to those who are there, and counts at once.
    bob.ok(&["swarm", "key", "rotate"]);
    bob.ok(&["swarm", "send", "--to", "carol", "with a new key"]);
    carol.gets("carol", "with a new key");

    // Nobody new gets in, and whoever asks is told to try again.
    let dora = Owner::new(&ca, "dora");
    let refused = dora.sandbox.run(["swarm", "join", &link]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    let kicked = bob.sandbox.run(["swarm", "kick", "carol"]);
    assert_eq!(kicked.code, Some(4), "{}", kicked.stderr);
    assert!(kicked.stderr.contains("alice"), "{}", kicked.stderr);

    // Back again it has everything, in order, and lets in who waits.
    alice.serve();
    alice.ok(&["swarm", "send", "--to", "bob", "I was away"]);
    bob.gets("bob", "I was away");
    alice.gets("alice", "is the master there?");
    dora.ok(&["swarm", "join", &link]);
    for owner in [&alice, &bob, &carol, &dora] {
        owner.knows(&["alice", "bob", "carol", "dora"]);
    }
    bob.ok(&["swarm", "send", "--to", "dora", "welcome"]);
    dora.gets("dora", "welcome");
}
