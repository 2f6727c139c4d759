//! Several agents of one hub, each in its own swarms.

use serde_json::Value;
use test_support::ca::{PrivateCa, Validity};

use super::owner::Owner;

#[test]
fn agents_of_one_hub_are_separate_members() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let (home, bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    let endpoint = format!("https://127.0.0.1:{}/ann/swarm", home.port);
    let made = home.json(&["swarm", "init", "--agent", "ann", "--endpoint", &endpoint]).remove(0);
    assert_eq!(made["home"].as_str().unwrap(), home.sandbox.home().join(".swarm/ann").display().to_string());
    // The command needs an agent, and the error lists the candidates.
    let unclear = home.sandbox.run(["swarm", "create", "Own"]);
    assert_eq!(unclear.code, Some(2), "{}", unclear.stderr);
    assert!(
        unclear.stderr.contains("alice, ann") && unclear.stderr.contains("--agent"),
        "{}",
        unclear.stderr
    );

    bob.ok(&["swarm", "create", "Research"]);
    let link = bob.ok(&["swarm", "invite"]);
    home.ok(&["swarm", "join", &link, "--agent", "alice"]);
    home.ok(&["swarm", "join", &link, "--agent", "ann", "--as", "lab"]);
    bob.wait_for_members(&["alice", "ann", "bob"]);
    bob.ok(&["send", "ann@research", "for ann alone", "--from", "bob"]);
    home.wait_for_message("ann", "for ann alone");
    bob.ok(&["send", "all@research", "for both", "--from", "bob"]);
    home.wait_for_message("ann", "for both");
    home.wait_for_message("alice", "for both");
    let of_alice: Vec<Value> = home.json(&["inbox", "alice"]);
    assert!(of_alice.iter().all(|message| message["body"] != "for ann alone"), "{of_alice:?}");
    home.ok(&["send", "bob@lab", "from ann", "--from", "ann"]);
    assert_eq!(bob.wait_for_message("bob", "from ann")["from"], "ann@research");
    home.ok(&["send", "bob@research", "from alice", "--from", "alice"]);
    assert_eq!(bob.wait_for_message("bob", "from alice")["from"], "alice@research");
}
