//! Three owners from the first invite to the end, and the errors on the way.

use serde_json::Value;
use test_support::ca::{PrivateCa, Validity};
use test_support::{Sandbox, poll};

use super::owner::{Owner, id};
use crate::BINARY;

#[test]
fn three_processes_join_talk_and_leave() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let (alice, mut bob, carol) =
        (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    assert!(link.starts_with("swarm://"), "{link}");
    bob.ok(&["swarm", "join", &link]);
    carol.ok(&["swarm", "join", &link, "--as", "lab"]);
    for owner in [&alice, &bob, &carol] {
        owner.wait_for_members(&["alice", "bob", "carol"]);
    }

    // From any door to all members, and the reply to the sender.
    let sent = alice.json(&["send", "all@research", "who is there?", "--from", "codex"]);
    assert_eq!(sent[0]["deliveries"].as_array().unwrap().len(), 2, "{sent:?}");
    let got = bob.wait_for_message("bob", "who is there?");
    assert_eq!((got["from"].as_str(), got["verified"].as_bool()), (Some("alice@research"), Some(true)));
    carol.wait_for_message("carol", "who is there?");
    bob.ok(&["send", "alice@research", "I am", "--reply-to", id(&got), "--from", "bob"]);
    let reply = alice.wait_for_message("codex", "I am");
    assert_eq!(reply["from"], "bob@research");

    // The sender can read the state of the message, for each of them.
    let receipt = poll::until("both have it", || {
        let receipt = alice.json(&["receipt", id(&sent[0])]).remove(0);
        let is_delivered = |d: &Value| d["state"] == "delivered";
        receipt["deliveries"].as_array().unwrap().iter().all(is_delivered).then_some(receipt)
    });
    assert_eq!(receipt["deliveries"].as_array().unwrap().len(), 2);

    // Muted by a command, while the hub runs.
    bob.ok(&["swarm", "mute", "carol"]);
    poll::until("the mute is in force", || {
        let text = format!("psst {}", fastrand::u32(..));
        carol.ok(&["swarm", "send", &text, "--to", "bob"]);
        carol.ok(&["swarm", "send", &format!("mark {text}"), "--to", "alice"]);
        alice.wait_for_message("alice", &format!("mark {text}"));
        let heard = bob.json(&["swarm", "messages", "--limit", "100"]);
        (!heard.iter().any(|message| message["content"] == text.as_str())).then_some(())
    });

    // Offline for a while, then everything arrives in order; the roster, too.
    bob.stop();
    for n in 0..3 {
        alice.ok(&["swarm", "send", &format!("while away {n}"), "--to", "bob"]);
    }
    alice.ok(&["swarm", "kick", "carol", "--reason", "too \"loud\"", "--yes"]);
    bob.serve();
    bob.wait_for_message("bob", "while away 2");
    bob.wait_for_members(&["alice", "bob"]);
    let heard: Vec<Value> = bob.json(&["swarm", "messages", "--limit", "100"]);
    let away: Vec<&str> = heard
        .iter()
        .filter_map(|m| m["content"].as_str())
        .filter(|text| text.starts_with("while away"))
        .collect();
    assert_eq!(away, ["while away 0", "while away 1", "while away 2"]);
    poll::until("carol to get a notice", || {
        let listed = carol.json(&["swarm", "list", "--all"]);
        (listed[0]["standing"] == "kicked").then_some(())
    });

    // A new key, the role, and the end.
    let key = bob.json(&["swarm", "key", "rotate"]).remove(0);
    bob.ok(&["swarm", "send", "with a new key", "--to", "alice"]);
    alice.wait_for_message("alice", "with a new key");
    let known = alice.json(&["swarm", "members"]);
    assert!(known.iter().any(|member| member["public_key"] == key["public_key"]), "{known:?}");
    alice.ok(&["swarm", "transfer", "bob", "--yes"]);
    poll::until("bob leads", || (bob.json(&["swarm", "list"])[0]["master"] == "bob").then_some(()));
    poll::until("alice knows", || (alice.json(&["swarm", "list"])[0]["master"] == "bob").then_some(()));
    alice.ok(&["swarm", "leave"]);
    bob.wait_for_members(&["bob"]);
    assert_ne!(alice.port, bob.port);
}

#[test]
fn failures_name_the_next_step() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let fails = |args: &[&str], code: i32, word: &str| {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{args:?}: {}", ran.stderr);
    };
    fails(&["swarm", "create", "x"], 5, "swarm init");
    fails(&["swarm", "init", "--agent", "a b", "--endpoint", "https://a.example.com/swarm"], 2, "agent_id");
    fails(&["swarm", "init", "--agent", "a", "--endpoint", "http://a.example.com"], 2, "https://");
    sandbox.ok(["swarm", "init", "--agent", "a", "--endpoint", "https://a.example.com/swarm"]);
    fails(&["swarm", "init", "--agent", "a", "--endpoint", "https://a.example.com/swarm"], 1, "already");
    fails(&["swarm", "leave"], 5, "swarm list");
    fails(&["swarm", "join", "swarm://x"], 4, "swarm://SWARM_ID");
    sandbox.ok(["swarm", "create", "Team"]);
    fails(&["swarm", "leave", "taem"], 5, "did you mean 'team'");
    fails(&["swarm", "leave"], 4, "transfer");
    fails(&["swarm", "kick", "bob", "--yes"], 5, "not a member");
    fails(&["swarm", "send", "hello", "--reference", "{\"type\":\"github_issue\"}"], 2, "repo");
    fails(&["swarm", "invite", "--max-uses", "0"], 2, "max_uses");
    let exported: Value = serde_json::from_str(&sandbox.ok(["swarm", "export"])).unwrap();
    assert_eq!(exported["agent_id"], "a");
    assert!(exported["exported_at"].is_string());
}
