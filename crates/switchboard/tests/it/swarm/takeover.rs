//! Attempts to take over a member: its endpoint, its id or its key; and the legitimate moves.

use serde_json::{Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::{RunOutput, poll, tools};

use super::owner::Owner;
use super::plain::{Plain, answered};

/// Returns Alice, who leads a swarm, and a peer like the Python implementation; `None` if it is missing.
fn start(test: &str, peer: &str) -> Option<(PrivateCa, Owner, Plain)> {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let plain = match Plain::start(&ca, peer, "/swarm") {
        Ok(plain) => plain,
        Err(reason) => {
            tools::skip(test, &reason);
            return None;
        }
    };
    let alice = Owner::configured("alice", "https://127.0.0.1:PORT/swarm", |port| {
        let mut section = super::owner::files(&ca, &ca.file(), port);
        section["limits"] = json!({ "joins": 0, "perSender": 0 });
        json!({ "swarm": section })
    });
    alice.ok(&["swarm", "create", "Research"]);
    Some((ca, alice, plain))
}

/// Returns a member from an owner's list.
fn member(owner: &Owner, id: &str) -> Value {
    let listed = owner.json(&["swarm", "members"]);
    listed.into_iter().find(|member| member["agent_id"] == id).unwrap_or_default()
}

/// Builds the sender of a join request.
fn sender(member: &Value, endpoint: &Value) -> Value {
    json!({ "agent_id": member["agent_id"], "endpoint": endpoint, "public_key": member["public_key"] })
}

/// Returns the output of `doctor`.
fn examined(owner: &Owner) -> String {
    let ran = owner.sandbox.run(["doctor"]);
    format!("{}{}", ran.stdout, ran.stderr)
}

#[test]
fn kicked_agent_moves_no_member() {
    let Some((ca, alice, mut mallory)) = start("kicked_agent_moves_no_member", "mallory") else { return };
    let bob = Owner::new(&ca, "bob");
    let link = alice.ok(&["swarm", "invite"]);
    assert_eq!(mallory.command("join", json!({ "link": link }))["status"], 200);
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
    alice.ok(&["swarm", "kick", "mallory", "--yes"]);
    let (own, before) = (mallory.command("me", json!({})), alice.json(&["swarm", "members"]));
    let asked_before = mallory.command("requests", json!({}));
    let open = alice.ok(&["swarm", "invite"]);
    let used = alice.ok(&["swarm", "invite", "--max-uses", "1"]);
    let carol = Owner::new(&ca, "carol");
    carol.ok(&["swarm", "join", &used]);
    let revoked = alice.json(&["swarm", "invite"]).remove(0);
    alice.ok(&["swarm", "revoke", revoked["digest"].as_str().unwrap()]);
    let revoked = revoked["invite"].as_str().unwrap().to_owned();
    for victim in ["bob", "alice"] {
        let entry = member(&alice, victim);
        mallory.command("pose", json!({ "agent_id": victim, "public_key": entry["public_key"] }));
        for rejoin in [json!(true), json!(false), json!(null)] {
            for invite in [&link, &open, &used, &revoked] {
                let request =
                    json!({ "link": invite, "sender": sender(&entry, &own["endpoint"]), "rejoin": rejoin });
                let answer = mallory.command("ask_to_join", request);
                assert_eq!(answer["status"], 403, "{victim}: {answer}");
                assert!(answer["answer"].get("members").is_none(), "{answer}");
            }
        }
        // With its own endpoint and key nothing changes, and only holders of a valid invite get the roster.
        for (invite, status) in [(&open, 200), (&link, 403), (&used, 403), (&revoked, 403)] {
            let request =
                json!({ "link": invite, "sender": sender(&entry, &entry["endpoint"]), "rejoin": true });
            let answer = mallory.command("ask_to_join", request);
            assert_eq!(answer["status"], status, "{victim}: {answer}");
            assert_eq!(answer["answer"].get("members").is_some(), status == 200, "{answer}");
        }
        // Its own key is not the victim's.
        let forged =
            json!({ "agent_id": victim, "endpoint": own["endpoint"], "public_key": own["public_key"] });
        let answer =
            mallory.command("ask_to_join", json!({ "link": open, "sender": forged, "signed": true }));
        assert_eq!(answered(&answer), (403, "ALREADY_MEMBER".to_owned()), "{answer}");
        let forged = sender(&entry, &own["endpoint"]);
        let answer =
            mallory.command("ask_to_join", json!({ "link": open, "sender": forged, "signed": true }));
        assert_eq!(answered(&answer), (401, "INVALID_SIGNATURE".to_owned()), "{answer}");
    }
    let asked_after = mallory.command("requests", json!({}));
    let infos =
        |attempt: &Value| attempt.as_array().unwrap().iter().filter(|one| one[1] == "/swarm/info").count();
    assert_eq!(infos(&asked_before), infos(&asked_after), "somebody called mallory");
    let mut after = alice.json(&["swarm", "members"]);
    after.retain(|member| member["agent_id"] != "carol");
    assert_eq!(before, after);
    alice.ok(&["send", "bob@research", "for bob alone", "--from", "alice"]);
    bob.wait_for_message("bob", "for bob alone");
    carol.ok(&["send", "alice@research", "for alice alone", "--from", "carol"]);
    alice.wait_for_message("alice", "for alice alone");
    let heard = mallory.command("inbox", json!({}));
    assert!(!heard.to_string().contains("alone"), "{heard}");
}

#[test]
fn squatted_key_is_restored() {
    let Some((ca, alice, mut mallory)) = start("squatted_key_is_restored", "mallory") else { return };
    let (bob, carol) = (Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    let link = alice.ok(&["swarm", "invite"]);
    carol.ok(&["swarm", "join", &link]);
    let key = bob.json(&["swarm", "key"]).remove(0)["public_key"].clone();
    let own = mallory.command("me", json!({}));
    mallory.command("pose", json!({ "public_key": key }));
    let named = json!({ "agent_id": "mallory", "endpoint": own["endpoint"], "public_key": key });
    let answer = mallory.command("ask_to_join", json!({ "link": link, "sender": named }));
    assert_eq!(answer["status"], 200, "{answer}");
    assert_eq!(member(&alice, "mallory")["provisional"], true);
    assert!(alice.ok(&["swarm", "members"]).contains("provisional"));
    carol.wait_for_members(&["alice", "carol", "mallory"]);
    bob.ok(&["swarm", "join", &link]);
    for owner in [&alice, &bob, &carol] {
        owner.wait_for_members(&["alice", "bob", "carol"]);
    }
    assert_eq!(member(&alice, "bob")["provisional"], false);
    carol.ok(&["send", "bob@research", "welcome", "--from", "carol"]);
    bob.wait_for_message("bob", "welcome");
    // Kicking a squatter kicks no other member. With the owner's own id, too.
    let dora = Owner::new(&ca, "dora");
    let key = dora.json(&["swarm", "key"]).remove(0)["public_key"].clone();
    for id in ["mallory", "dora"] {
        mallory.command("pose", json!({ "agent_id": id, "public_key": key }));
        let named = json!({ "agent_id": id, "endpoint": own["endpoint"], "public_key": key });
        let answer = mallory
            .command("ask_to_join", json!({ "link": alice.ok(&["swarm", "invite"]), "sender": named }));
        assert_eq!(answer["status"], 200, "{answer}");
        if id == "mallory" {
            alice.ok(&["swarm", "kick", "mallory", "--yes"]);
        }
    }
    dora.ok(&["swarm", "join", &link]);
    let entry = member(&alice, "dora");
    assert_eq!(entry["endpoint"], format!("https://127.0.0.1:{}/swarm", dora.port), "{entry}");
    assert_eq!(entry["provisional"], false);
}

/// Moved by the owner, restored by the master's person, and corrected; a program that does not know the action
/// continues.
#[test]
fn moved_endpoint_is_shown_and_restored() {
    let Some((ca, alice, mut pat)) = start("moved_endpoint_is_shown_and_restored", "pat") else { return };
    let (bob, carol) = (Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    let link = alice.ok(&["swarm", "invite"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 200);
    for owner in [&bob, &carol] {
        owner.ok(&["swarm", "join", &link]);
    }
    for owner in [&alice, &bob, &carol] {
        owner.wait_for_members(&["alice", "bob", "carol", "pat"]);
    }
    let old = member(&bob, "bob")["endpoint"].clone();
    let until = |owner: &Owner, endpoint: &Value| {
        poll::until("the endpoint is known", || {
            (member(owner, "bob")["endpoint"] == *endpoint).then_some(())
        });
    };
    // Both are served: one is the other without the `/swarm` of its routes.
    let bare = format!("https://127.0.0.1:{}", bob.port);
    let init = ["swarm", "init", "--agent", "bob", "--endpoint", &bare, "--yes"];
    bob.ok(&init);
    let new = member(&bob, "bob")["endpoint"].clone();
    assert_ne!(old, new);
    for owner in [&alice, &carol] {
        until(owner, &new);
        assert_eq!(member(owner, "bob")["endpoint_change"]["from"], old);
        assert!(owner.ok(&["swarm", "members"]).contains("endpoint changed"));
        assert!(examined(owner).contains("swarm endpoint bob"), "{}", examined(owner));
    }
    carol.ok(&["send", "bob@research", "at the new place", "--from", "carol"]);
    bob.wait_for_message("bob", "at the new place");
    let mentions =
        |message: &Value| message["content"].as_str().unwrap_or_default().contains("endpoint_changed");
    pat.wait_for_message("the news", mentions);

    // The decision of a person: of a member for its own hub, of the master for all.
    let elsewhere = "https://127.0.0.1:9/swarm";
    carol.ok(&["swarm", "endpoint", "bob", elsewhere, "--yes"]);
    assert_eq!(member(&carol, "bob")["endpoint"], elsewhere);
    assert_eq!(member(&alice, "bob")["endpoint"], new);
    alice.ok(&["swarm", "endpoint", "bob", old.as_str().unwrap(), "--yes"]);
    until(&carol, &old);
    until(&alice, &old);
    // Its owner sees that the roster is wrong, and corrects it.
    until(&bob, &old);
    assert!(examined(&bob).contains("the roster of 'research'"), "{}", examined(&bob));
    bob.ok(&init);
    for owner in [&alice, &carol, &bob] {
        until(owner, &new);
    }
}

/// A peer that does not sign the whole request moves with the protocol's own signature, once each.
#[test]
fn signed_rejoin_moves_endpoint_once() {
    let Some((_ca, alice, mut pat)) = start("signed_rejoin_moves_endpoint_once", "pat") else { return };
    let link = alice.ok(&["swarm", "invite"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 200);
    assert_eq!(member(&alice, "pat")["provisional"], true);
    let own = pat.command("me", json!({}));
    let places = ["https://127.0.0.1:9/a", "https://127.0.0.1:9/b"];
    let mut first = Value::Null;
    for place in places {
        let answer = pat.command(
            "ask_to_join",
            json!({ "link": link, "sender": sender(&own, &json!(place)), "signed": true }),
        );
        assert_eq!(answer["status"], 200, "{answer}");
        assert_eq!(member(&alice, "pat")["endpoint"], place);
        if first.is_null() {
            first = answer["body"].clone();
        }
    }
    assert_eq!(member(&alice, "pat")["provisional"], false);
    let url = format!("https://127.0.0.1:{}/swarm/join", alice.port);
    let replayed = pat.command("post", json!({ "url": url, "body": first }));
    assert_eq!(answered(&replayed), (403, "NOT_AUTHORIZED".to_owned()), "{replayed}");
    assert_eq!(member(&alice, "pat")["endpoint"], places[1]);
}

#[test]
fn mute_and_kick_count_when_they_return() {
    let Some((_ca, alice, mut mallory)) = start("mute_and_kick_count_when_they_return", "mallory") else {
        return;
    };
    let link = alice.ok(&["swarm", "invite"]);
    assert_eq!(mallory.command("join", json!({ "link": link }))["status"], 200);
    let swarm = alice.json(&["swarm", "list"]).remove(0)["swarm_id"].as_str().unwrap().to_owned();
    for n in 0..5 {
        alice.ok(&["swarm", "mute", "mallory"]);
        assert_eq!(mallory.send(&swarm, "alice", &format!("muted {n}")), json!([200]));
        alice.ok(&["swarm", "unmute", "mallory"]);
        assert_eq!(mallory.send(&swarm, "alice", &format!("heard {n}")), json!([200]));
        alice.ok(&["swarm", "mute", "--swarm", "research"]);
        assert_eq!(mallory.send(&swarm, "alice", &format!("muted with all {n}")), json!([200]));
        alice.ok(&["swarm", "unmute", "--swarm", "research"]);
    }
    alice.ok(&["swarm", "kick", "mallory", "--yes"]);
    assert_eq!(mallory.send(&swarm, "alice", "after the kick"), json!([403]));
    let heard = alice.json(&["swarm", "messages", "--limit", "100"]);
    let mut heard: Vec<&str> = heard.iter().filter_map(|message| message["content"].as_str()).collect();
    // The list also has the system messages of this hub, which are JSON.
    heard.retain(|text| !text.starts_with('{'));
    heard.sort_unstable();
    assert_eq!(heard, ["heard 0", "heard 1", "heard 2", "heard 3", "heard 4"]);
}

/// A candidate with another program gets a message about it, and is in at its next request.
#[test]
fn approval_is_announced_to_other_programs() {
    let Some((_ca, alice, mut pat)) = start("approval_is_announced_to_other_programs", "pat") else { return };
    alice.ok(&["swarm", "create", "Closed", "--approval"]);
    let link = alice.ok(&["swarm", "invite", "closed"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 202);
    alice.ok(&["swarm", "approve", "pat", "--swarm", "closed", "--yes"]);
    let mentions =
        |message: &Value| message["content"].as_str().unwrap_or_default().contains("join_approved");
    pat.wait_for_message("the approval", mentions);
    let joined = pat.command("join", json!({ "link": link }));
    assert_eq!((&joined["status"], &joined["answer"]["status"]), (&json!(200), &json!("accepted")));
    let swarm = joined["answer"]["swarm_id"].as_str().unwrap().to_owned();
    pat.wait_for_members(&swarm, &["alice", "pat"]);
    assert_eq!(pat.send(&swarm, "alice", "I am in"), json!([200]));
    alice.wait_for_message("alice", "I am in");
}

/// A squatter has the key of an agent whose program signs no request: both are members until the owner writes to the
/// master.
#[test]
fn unsigned_owner_recovers_its_key() {
    let Some((ca, mut alice, mut mallory)) = start("unsigned_owner_recovers_its_key", "mallory") else {
        return;
    };
    let (mut pat, carol) = (Plain::start(&ca, "pat", "/swarm").unwrap(), Owner::new(&ca, "carol"));
    let link = alice.ok(&["swarm", "invite"]);
    carol.ok(&["swarm", "join", &link]);
    let (own, owner) = (mallory.command("me", json!({})), pat.command("me", json!({})));
    mallory.command("pose", json!({ "public_key": owner["public_key"] }));
    let squat =
        json!({ "agent_id": "mallory", "endpoint": own["endpoint"], "public_key": owner["public_key"] });
    let squatted = |mallory: &mut Plain, link: &str| {
        mallory.command("ask_to_join", json!({ "link": link, "sender": squat }))["status"].as_u64().unwrap()
    };
    assert_eq!(squatted(&mut mallory, &link), 200);
    let joined = pat.command("join", json!({ "link": link }));
    assert_eq!(joined["status"], 200, "{joined}");
    let swarm = joined["answer"]["swarm_id"].as_str().unwrap().to_owned();
    for owner in [&alice, &carol] {
        owner.wait_for_members(&["alice", "carol", "mallory", "pat"]);
        let shown = owner.sandbox.run(["swarm", "members"]);
        assert!(shown.stdout.contains("provisional, names the key of mallory"), "{}", shown.stdout);
        for text in [shown.stderr, examined(owner)] {
            assert!(text.contains("'mallory' and 'pat' of 'research' name the same key"), "{text}");
            assert!(text.contains("swarm kick"), "{text}");
        }
    }
    // The same after a restart, and from a file.
    alice.stop();
    alice.serve();
    let exported = alice.ok(&["swarm", "export"]);
    let mut import = alice.sandbox.command(["swarm", "import", "-", "--replace"]);
    RunOutput::with_input(&mut import, exported.as_bytes()).ok();
    assert_eq!(member(&alice, "pat")["contested_with"], json!(["mallory"]));
    assert!(
        alice.json(&["inbox", "alice"]).iter().any(|m| m["body"].to_string().contains("name the same key"))
    );

    // The squatter can resend a broadcast in its own name. That does not confirm its key.
    let url = format!("https://127.0.0.1:{}/swarm/message", alice.port);
    let before = alice.json(&["swarm", "members"]);
    assert_eq!(pat.send(&swarm, "broadcast", "hello to all"), json!([200, 200, 200]));
    let moved = json!({ "action": "endpoint_changed", "endpoint": owner["endpoint"] }).to_string();
    let arguments = json!({ "swarm_id": swarm, "to": "broadcast", "content": moved, "kind": "system" });
    assert_eq!(pat.command("send", arguments)["statuses"], json!([200, 200, 200]));
    for content in ["hello to all", &moved] {
        let mut body = mallory.wait_for_message("the broadcast", |message| message["content"] == content);
        body["sender"] = json!({ "agent_id": "mallory", "endpoint": own["endpoint"] });
        assert_eq!(mallory.command("post", json!({ "url": url, "body": body }))["status"], 200);
    }
    assert_eq!(alice.json(&["swarm", "members"]), before);
    let heard = alice.json(&["inbox", "alice"]);
    let resent: Vec<&Value> = heard.iter().filter(|m| m["body"] == "hello to all").collect();
    assert_eq!(resent.len(), 2, "{heard:?}");
    assert!(resent.iter().all(|message| message["verified"] == false), "{resent:?}");

    assert_eq!(pat.send(&swarm, "alice", "to you alone"), json!([200]));
    assert_eq!(member(&alice, "pat")["provisional"], false);
    for owner in [&alice, &carol] {
        poll::until("the squatter to be removed", || {
            let listed = owner.json(&["swarm", "members"]);
            listed.iter().all(|member| member["agent_id"] != "mallory").then_some(())
        });
    }
    let inbox = alice.json(&["inbox", "alice"]);
    assert!(inbox.iter().any(|m| m["body"].to_string().contains("'pat' has proved")), "{inbox:?}");
    assert_eq!(squatted(&mut mallory, &link), 403);
    let forged = mallory.forge(&url, json!({ "swarm_id": swarm, "recipient": "alice" }), json!({}));
    assert_eq!(forged, (403, "NOT_AUTHORIZED".to_owned()));
    // Its own messages count again, and the other members learn that it is no longer provisional.
    pat.wait_for_members(&swarm, &["alice", "carol", "pat"]);
    assert_eq!(pat.send(&swarm, "broadcast", "all is well"), json!([200, 200]));
    assert_eq!(alice.wait_for_message("alice", "all is well")["verified"], true);
    alice.ok(&["send", "carol@research", "ask for the roster", "--from", "alice"]);
    poll::until("carol knows that pat has proved its key", || {
        (member(&carol, "pat")["provisional"] == false).then_some(())
    });

    // A request that waits for approval does not block the owner either.
    alice.ok(&["swarm", "create", "Closed", "--approval"]);
    let link = alice.ok(&["swarm", "invite", "closed"]);
    assert_eq!(squatted(&mut mallory, &link), 202);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 202);
    alice.ok(&["swarm", "approve", "pat", "--swarm", "closed", "--yes"]);
    let swarm = pat.command("join", json!({ "link": link }))["answer"]["swarm_id"].clone();
    let waiting = || {
        let listed = alice.json(&["swarm", "list"]);
        listed.into_iter().find(|one| one["swarm_id"] == swarm).unwrap()["pending"].clone()
    };
    assert_eq!(waiting(), json!(["mallory"]));
    assert_eq!(pat.send(swarm.as_str().unwrap(), "alice", "here as well"), json!([200]));
    assert_eq!(waiting(), json!([]));
}

/// A master without checks has a squatter on the key of an agent that joins later.
#[test]
fn squatter_at_lenient_master_blocks_none() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let started = |agent: &str| Plain::start(&ca, agent, "/swarm");
    let (mut pat, mut mallory) = match (started("pat"), started("mallory")) {
        (Ok(pat), Ok(mallory)) => (pat, mallory),
        (Err(reason), _) | (_, Err(reason)) => {
            return tools::skip("squatter_at_lenient_master_blocks_none", &reason);
        }
    };
    let (bob, carol) = (Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    let swarm = pat.command("create", json!({ "name": "Snakes" }))["swarm_id"].as_str().unwrap().to_owned();
    let link = pat.command("invite", json!({ "swarm_id": swarm }))["invite"].as_str().unwrap().to_owned();
    let key = bob.json(&["swarm", "key"]).remove(0)["public_key"].clone();
    let own = mallory.command("me", json!({}));
    mallory.command("pose", json!({ "public_key": key }));
    let squat = json!({ "agent_id": "mallory", "endpoint": own["endpoint"], "public_key": key });
    assert_eq!(mallory.command("ask_to_join", json!({ "link": link, "sender": squat }))["status"], 200);
    let joined = bob.json(&["swarm", "join", &link]).remove(0);
    assert_eq!(joined["members"], json!(["bob", "pat"]), "{joined}");
    assert!(joined["left_out"]["mallory"].as_str().unwrap().contains("belongs to 'bob'"), "{joined}");
    // Another member has no proof before bob writes to it.
    carol.ok(&["swarm", "join", &link]);
    assert_eq!(member(&carol, "bob")["contested_with"], json!(["mallory"]));
    bob.wait_for_members(&["bob", "carol", "pat"]);
    bob.ok(&["send", "carol@snakes", "it is me", "--from", "bob"]);
    assert_eq!(carol.wait_for_message("carol", "it is me")["verified"], true);
    carol.wait_for_members(&["bob", "carol", "pat"]);
    assert_eq!(member(&carol, "bob")["provisional"], false);
}
