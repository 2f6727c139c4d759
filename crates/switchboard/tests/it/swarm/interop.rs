//! Agents of another program: joins without a signature, rosters in the flat form, HTTP/1.1 alone, and few checks.

use serde_json::{Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::{poll, tools};

use super::owner::{Owner, id};
use super::plain::{Plain, answered};

fn authority() -> PrivateCa {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    ca
}

/// Returns the content of a system message.
fn system_content(message: &Value) -> Value {
    serde_json::from_str(message["content"].as_str().unwrap()).unwrap_or_default()
}

#[test]
fn swarm_led_by_another_program() {
    let ca = authority();
    let mut pat = match Plain::start(&ca, "pat", "/swarm") {
        Ok(pat) => pat,
        Err(reason) => return tools::skip("swarm_led_by_another_program", &reason),
    };
    let (bob, carol) = (Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    let swarm = pat.command("create", json!({ "name": "Snakes" }))["swarm_id"].as_str().unwrap().to_owned();
    let link = pat.command("invite", json!({ "swarm_id": swarm }))["invite"].as_str().unwrap().to_owned();
    let joined = bob.json(&["swarm", "join", &link]).remove(0);
    assert_eq!((&joined["name"], &joined["address"]), (&json!("Snakes"), &json!("all@snakes")));
    // The announcement of a member has no key: its endpoint provides it.
    carol.ok(&["swarm", "join", &link]);
    for owner in [&bob, &carol] {
        owner.wait_for_members(&["bob", "carol", "pat"]);
    }
    pat.wait_for_members(&swarm, &["bob", "carol", "pat"]);

    // In both directions, to all members and to one.
    bob.ok(&["send", "all@snakes", "Grüße an alle", "--from", "codex"]);
    pat.wait_for_message("a broadcast", |message| message["content"] == "Grüße an alle");
    assert_eq!(carol.wait_for_message("carol", "Grüße an alle")["from"], "bob@snakes");
    assert_eq!(pat.send(&swarm, "broadcast", "hello back"), json!([200, 200]));
    let got = bob.wait_for_message("bob", "hello back");
    assert_eq!((&got["from"], &got["verified"]), (&json!("pat@snakes"), &json!(true)));
    carol.wait_for_message("carol", "hello back");
    bob.ok(&["send", "pat@snakes", "to you alone", "--reply-to", id(&got), "--from", "bob"]);
    let reply = pat.wait_for_message("a reply", |message| message["content"] == "to you alone");
    assert_eq!((&reply["recipient"], &reply["protocol_version"]), (&json!("pat"), &json!("0.1.0")));
    assert!(reply["in_reply_to"].is_string(), "{reply}");

    // It answers with a date to retry at, not with a delay. An unreadable header ends the delivery.
    pat.command("answer_instead", json!({ "statuses": [429] }));
    bob.ok(&["swarm", "send", "--to", "pat", "take your time"]);
    pat.wait_for_message("what it put off", |message| message["content"] == "take your time");
    pat.command("answer_instead", json!({ "statuses": [422] }));
    let sent = bob.json(&["swarm", "send", "--to", "pat", "unreadable"]).remove(0);
    let delivery = poll::until("it is refused", || {
        let delivery = bob.json(&["receipt", id(&sent)]).remove(0)["deliveries"][0].clone();
        (delivery["state"] == "refused").then_some(delivery)
    });
    assert!(delivery.to_string().contains("422"), "{delivery}");
    let answer = pat.command("requests", json!({}));
    assert!(answer.as_array().unwrap().iter().all(|request| request[3] == "1.1"), "{answer}");

    // A reason with quotes makes its JSON invalid, although it is signed: it is shown, and changes nothing.
    let broken = r#"{"action":"member_kicked","agent_id":"carol","reason":"too "loud""}"#;
    let arguments = json!({ "swarm_id": swarm, "to": "broadcast", "content": broken, "kind": "system" });
    assert_eq!(pat.command("send", arguments)["statuses"], json!([200, 200]));
    poll::until("bob to receive it", || {
        let heard = bob.json(&["swarm", "messages"]);
        heard.iter().any(|message| message["content"] == broken).then_some(())
    });
    bob.wait_for_members(&["bob", "carol", "pat"]);
    let kicked = pat.command("kick", json!({ "swarm_id": swarm, "agent": "carol", "reason": "inactive" }));
    assert_eq!(kicked["statuses"], json!([200, 200]));
    bob.wait_for_members(&["bob", "pat"]);
    assert_eq!(carol.json(&["swarm", "list", "--all"])[0]["standing"], "kicked");
    // Actions that it does not know cannot make it lead or follow, and the swarm retains its master.
    assert_eq!(bob.sandbox.run(["swarm", "kick", "pat", "--yes"]).code, Some(4));
    bob.ok(&["swarm", "leave"]);
    pat.wait_for_members(&swarm, &["pat"]);
}

#[test]
fn other_program_joins_our_swarm() {
    let ca = authority();
    // Its address lacks the `/swarm` that its routes have.
    let mut pat = match Plain::start(&ca, "pat", "") {
        Ok(pat) => pat,
        Err(reason) => return tools::skip("other_program_joins_our_swarm", &reason),
    };
    let (alice, bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    let swarm =
        alice.json(&["swarm", "create", "Research"]).remove(0)["swarm_id"].as_str().unwrap().to_owned();
    let link = alice.ok(&["swarm", "invite"]);
    let joined = pat.command("join", json!({ "link": link }));
    assert_eq!(joined["status"], 200, "{joined}");
    bob.ok(&["swarm", "join", &link]);
    alice.wait_for_members(&["alice", "bob", "pat"]);
    bob.wait_for_members(&["alice", "bob", "pat"]);
    pat.wait_for_members(&swarm, &["alice", "bob", "pat"]);
    let announced = pat
        .wait_for_message("the news of bob", |message| system_content(message)["action"] == "member_joined");
    let (told_of, flat) =
        (system_content(&announced), |field: &str| system_content(&announced)[field].clone());
    assert_eq!((flat("agent_id"), flat("swarm_id")), (json!("bob"), json!(swarm)));
    assert_eq!(told_of["member"]["agent_id"], "bob", "nested as well");

    alice.ok(&["send", "all@research", "who is there?", "--from", "codex"]);
    let got = pat.wait_for_message("a broadcast", |message| message["content"] == "who is there?");
    assert_eq!((&got["recipient"], &got["sender"]["agent_id"]), (&json!("broadcast"), &json!("alice")));
    let answer = pat.command("requests", json!({}));
    let paths: Vec<&Value> = answer.as_array().unwrap().iter().map(|request| &request[1]).collect();
    assert!(paths.contains(&&json!("/message")) && paths.contains(&&json!("/swarm/message")), "{answer}");
    assert_eq!(pat.send(&swarm, "broadcast", "I am"), json!([200, 200]));
    assert_eq!(alice.wait_for_message("alice", "I am")["from"], "pat@research");
    bob.wait_for_message("bob", "I am");

    // It accepts the request to lead as any message, and does not become the master by that.
    alice.ok(&["swarm", "transfer", "pat", "--yes"]);
    poll::until("the refusal of pat to be reported", || {
        let inbox = alice.json(&["inbox", "alice"]);
        inbox.iter().any(|m| m["body"].as_str().unwrap_or_default().contains("transfer_ended")).then_some(())
    });
    for owner in [&alice, &bob] {
        assert_eq!(owner.json(&["swarm", "list"])[0]["master"], "alice");
    }

    // Kicked, and rejoined with a new invite; the old invite is refused with the code that its client reads.
    alice.ok(&["swarm", "kick", "pat", "--reason", "too \"loud\"", "--yes"]);
    let kicked =
        pat.wait_for_message("that it was removed", |message| system_content(message)["action"] == "kicked");
    assert_eq!(
        (&system_content(&kicked)["agent_id"], &system_content(&kicked)["reason"]),
        (&json!("pat"), &json!("too \"loud\""))
    );
    bob.wait_for_members(&["alice", "bob"]);
    assert_eq!(pat.send(&swarm, "alice", "still here?"), json!([403]));
    let refused = pat.command("join", json!({ "link": link }));
    assert_eq!(answered(&refused), (403, "NOT_AUTHORIZED".to_owned()));
    assert!(refused["answer"]["error"]["message"].as_str().unwrap().contains("new invite"), "{refused}");
    let link = alice.ok(&["swarm", "invite"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 200);
    bob.wait_for_members(&["alice", "bob", "pat"]);
    let left = pat.command("leave", json!({ "swarm_id": swarm }));
    // Bob may already know it from alice, and then refuses a message of a stranger.
    assert!([json!([200, 200]), json!([200, 403])].contains(&left["statuses"]), "{left}");
    alice.wait_for_members(&["alice", "bob"]);
    bob.wait_for_members(&["alice", "bob"]);

    // A candidate for approval learns that it must wait.
    alice.ok(&["swarm", "create", "Closed", "--approval"]);
    let link = alice.ok(&["swarm", "invite", "closed"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 202);
    alice.ok(&["swarm", "approve", "pat", "--swarm", "closed", "--yes"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 200);
}
