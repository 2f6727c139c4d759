//! Administrative verbs of a person: approval, invites, mutes, files, keys and the end.

use serde_json::Value;
use test_support::ca::{PrivateCa, Validity};
use test_support::{RunOutput, poll};

use super::owner::Owner;

fn authority() -> PrivateCa {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    ca
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

#[test]
fn pending_join_is_listed_and_decided() {
    let ca = authority();
    let (alice, bob, carol) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    alice.ok(&["swarm", "create", "Closed", "--approval"]);
    let link = alice.ok(&["swarm", "invite"]);
    for owner in [&bob, &carol] {
        let joined = owner.json(&["swarm", "join", &link]).remove(0);
        assert_eq!(text(&joined, "status"), "pending", "{joined}");
    }
    // The candidate sees that it waits, and the person who decides is notified.
    assert_eq!(text(&bob.json(&["swarm", "list"])[0], "standing"), "pending");
    let notice = poll::until("alice to get a notice", || {
        let inbox = alice.json(&["inbox", "alice"]);
        inbox.into_iter().find(|message| text(message, "body").contains("swarm approve bob"))
    });
    assert_eq!(text(&notice, "kind"), "system");
    assert_eq!(alice.json(&["swarm", "list"])[0]["pending"], serde_json::json!(["bob", "carol"]));
    alice.ok(&["swarm", "approve", "bob", "--yes"]);
    alice.ok(&["swarm", "deny", "carol", "--yes"]);
    // An approved candidate is notified; a second request is harmless.
    poll::until("bob is in", || {
        (text(&bob.json(&["swarm", "list"])[0], "standing") == "active").then_some(())
    });
    bob.ok(&["swarm", "join", &link]);
    bob.wait_for_members(&["alice", "bob"]);
    let denied = carol.sandbox.run(["swarm", "join", &link]);
    assert_eq!(denied.code, Some(4), "{}", denied.stderr);
    assert!(denied.stderr.contains("denied"), "{}", denied.stderr);
    let nobody = alice.sandbox.run(["swarm", "approve", "zoe", "--yes"]);
    assert_eq!(nobody.code, Some(5), "{}", nobody.stderr);
    alice.ok(&["swarm", "dissolve", "--reason", "done", "--yes"]);
    poll::until("bob to get a notice", || {
        (text(&bob.json(&["swarm", "list", "--all"])[0], "standing") == "dissolved").then_some(())
    });
}

#[test]
fn invites_are_listed_and_revoked() {
    let ca = authority();
    let (alice, bob, carol) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"), Owner::new(&ca, "carol"));
    alice.ok(&["swarm", "create", "Open", "--member-invites"]);
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
    let listed = alice.json(&["swarm", "invites"]);
    assert_eq!(listed[0]["used_by"], serde_json::json!(["bob"]));
    for odd in ["", "zz"] {
        let refused = alice.sandbox.run(["swarm", "revoke", odd]);
        assert_eq!(refused.code, Some(5), "{odd:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("swarm invites"), "{}", refused.stderr);
    }
    assert_eq!(alice.json(&["swarm", "invites"])[0]["revoked"], false);

    let made = bob.json(&["swarm", "invite"]).remove(0);
    let revoked = bob.sandbox.run(["swarm", "revoke", &text(&made, "digest")[..12]]);
    assert_eq!(revoked.code, Some(0), "{}", revoked.stderr);
    assert!(revoked.stderr.contains("The master is notified"), "{}", revoked.stderr);
    poll::until("alice to get a notice", || {
        let listed = alice.json(&["swarm", "invites"]);
        listed.iter().any(|i| i["digest"] == made["digest"] && i["revoked"] == true).then_some(())
    });
    let refused = carol.sandbox.run(["swarm", "join", text(&made, "invite")]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("revoked"), "{}", refused.stderr);
    // A new key of the master voids the old signatures, and the command says so.
    let open = alice.ok(&["swarm", "invite"]);
    let rotated = alice.sandbox.run(["swarm", "key", "rotate"]);
    assert!(rotated.stderr.contains("2 open invites have ended"), "{}", rotated.stderr);
    assert_eq!(carol.sandbox.run(["swarm", "join", &open]).code, Some(4));
    carol.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
}

#[test]
fn mute_lists_scope_and_target() {
    let ca = authority();
    let (home, bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    let endpoint = format!("https://127.0.0.1:{}/ann/swarm", home.port);
    home.ok(&["swarm", "init", "--agent", "ann", "--endpoint", &endpoint]);
    bob.ok(&["swarm", "create", "Research"]);
    let link = bob.ok(&["swarm", "invite"]);
    home.ok(&["swarm", "join", &link, "--agent", "alice"]);
    let unclear = home.sandbox.run(["swarm", "mute", "bob"]);
    assert!(unclear.stderr.contains("--agent"), "{}", unclear.stderr);
    // As every list prints it.
    home.ok(&["swarm", "mute", "bob@research", "--agent", "alice"]);
    let muted =
        |agent: &str| home.json(&["swarm", "context", "--agent", agent]).remove(0)["muted_agents"].clone();
    assert_eq!((muted("alice"), muted("ann")), (serde_json::json!(["bob"]), serde_json::json!([])));
    home.ok(&["swarm", "unmute", "bob", "--agent", "alice"]);
    assert_eq!(muted("alice"), serde_json::json!([]));
    let nobody = home.sandbox.run(["swarm", "mute", "nobody-here", "--agent", "ann"]);
    assert_eq!(nobody.code, Some(0));
    assert!(nobody.stderr.contains("No member with the id 'nobody-here'"), "{}", nobody.stderr);
    assert_eq!(home.sandbox.run(["swarm", "mute", "--swarm", "research", "bob"]).code, Some(2));
    assert_eq!(home.sandbox.run(["swarm", "mute"]).code, Some(2));
}

#[test]
fn files_notices_and_pending_mail_arrive() {
    let ca = authority();
    let (alice, bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    alice.ok(&["swarm", "create", "Research"]);
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
    let notes = alice.sandbox.path().join("notes.txt");
    test_support::files::put(&notes, "what was found");
    alice.ok(&["swarm", "send", "notes attached", "--attach", &notes.display().to_string()]);
    bob.wait_for_message("bob", "notes attached");
    let heard = bob.json(&["swarm", "messages"]);
    let got = heard.iter().find(|message| message["content"] == "notes attached").unwrap();
    let attached = &got["signed"]["attachments"][0];
    assert_eq!(
        (text(attached, "mime_type"), text(attached, "content")),
        ("text/plain", "d2hhdCB3YXMgZm91bmQ=")
    );
    alice.ok(&["swarm", "notify", "on it", "--repo", "acme/parser", "--issue", "7", "--action", "claimed"]);
    assert_eq!(bob.wait_for_message("bob", "on it")["kind"], "notification");
    bob.ok(&["swarm", "sync"]);

    // Other mail in the mailbox hides nothing of the swarm.
    for n in 0..25 {
        bob.ok(&["send", "bob", &format!("at home {n}"), "--from", "codex"]);
    }
    alice.ok(&["swarm", "send", "and one more"]);
    poll::until("bob to get a notice", || {
        let heard = bob.json(&["swarm", "messages"]);
        heard.iter().any(|message| message["content"] == "and one more").then_some(())
    });
    let context = bob.json(&["swarm", "context", "--limit", "20"]).remove(0);
    let waiting: Vec<&str> =
        context["pending"].as_array().unwrap().iter().map(|seen| text(seen, "content")).collect();
    assert!(waiting.contains(&"notes attached") && waiting.contains(&"and one more"), "{waiting:?}");
    assert!(!waiting.iter().any(|text| text.starts_with("at home")), "{waiting:?}");

    // Known entries stay unchanged.
    let exported = bob.ok(&["swarm", "export"]);
    let mut import = bob.sandbox.command(["swarm", "import", "-"]);
    let again = RunOutput::with_input(&mut import, exported.as_bytes());
    assert!(again.ok().contains("0 swarms"), "{}", again.stdout);
}

/// A lost key has a successor, which each of the others accepts for itself.
#[test]
fn lost_key_is_replaced_and_accepted() {
    let ca = authority();
    let (alice, mut bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    alice.ok(&["swarm", "create", "Research"]);
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
    bob.stop();
    std::fs::remove_file(bob.sandbox.home().join(".swarm/agent.key")).unwrap();
    let rotated = bob.sandbox.run(["swarm", "key", "rotate", "--json"]);
    assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
    let key: Value = serde_json::from_str(rotated.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&key["was_lost"], &key["ended_invites"]), (&true.into(), &0.into()));
    let accepted =
        alice.json(&["swarm", "key", "accept", "bob", "--key", text(&key, "public_key"), "--yes"]).remove(0);
    assert_eq!(accepted["public_key"], key["public_key"]);
    bob.serve();
    bob.ok(&["swarm", "send", "it is me", "--to", "alice"]);
    alice.wait_for_message("alice", "it is me");
}

/// An error in the settings is reported at once, with the name of the setting.
#[test]
fn unusable_settings_are_named() {
    let ca = authority();
    let mut alice = Owner::new(&ca, "alice");
    alice.stop();
    let with = |field: &str, value: Value| {
        let mut section = super::owner::files(&ca, &ca.file(), alice.port);
        section[field] = value;
        alice.sandbox.configure_user(&serde_json::json!({ "swarm": section }).to_string());
        (alice.sandbox.run(["serve", "--port", "0"]), alice.sandbox.run(["doctor"]))
    };
    let (served, examined) = with("allow", serde_json::json!(["10.0.0.0/99"]));
    assert_eq!(served.code, Some(1), "{}", served.stderr);
    assert!(served.stderr.contains("swarm.allow"), "{}", served.stderr);
    let output = format!("{}{}", examined.stdout, examined.stderr);
    assert!(output.contains("10.0.0.0/99"), "{output}");
    let nowhere = alice.sandbox.path().join("nowhere.pem").display().to_string();
    let (served, examined) = with("ca", nowhere.into());
    assert_eq!(served.code, Some(1), "{}", served.stderr);
    assert!(served.stderr.contains("swarm.ca"), "{}", served.stderr);
    let output = format!("{}{}", examined.stdout, examined.stderr);
    assert!(output.contains("nowhere.pem"), "{output}");
}

/// An agent moves with its swarms; changing another member needs a person's consent.
#[test]
fn address_changes_within_swarms() {
    let sandbox = test_support::Sandbox::with_agents(crate::BINARY, &["codex"]);
    let init = |host: &str| {
        let endpoint = format!("https://{host}.example.com/swarm");
        sandbox.run(["swarm", "init", "--agent", "alice", "--endpoint", &endpoint, "--yes"])
    };
    assert_eq!(init("old").code, Some(0));
    assert_eq!(init("new").code, Some(0));
    sandbox.ok(["swarm", "create", "Research"]);
    let listed = || sandbox.json(["swarm", "members"]).remove(0);
    assert_eq!(text(&listed(), "endpoint"), "https://new.example.com/swarm");
    let moved = init("newer");
    assert_eq!(moved.code, Some(0), "{}", moved.stderr);
    assert!(moved.stderr.contains("Your swarms are told"), "{}", moved.stderr);
    assert_eq!(text(&listed(), "endpoint"), "https://newer.example.com/swarm");
    assert_eq!(text(&listed()["endpoint_change"], "from"), "https://new.example.com/swarm");
    let shown = sandbox.ok(["swarm", "members"]);
    assert!(
        shown.contains("endpoint changed") && shown.contains("from https://new.example.com/swarm"),
        "{shown}"
    );
    let again = init("newer");
    assert_eq!(again.code, Some(1), "{}", again.stderr);
    let own = sandbox.run(["swarm", "endpoint", "alice", "https://x.example.com/swarm", "--yes"]);
    assert_eq!(own.code, Some(2), "{}", own.stderr);
    assert!(own.stderr.contains("swarm init --agent alice"), "{}", own.stderr);
    let unasked = sandbox.run(["swarm", "endpoint", "alice", "https://x.example.com/swarm"]);
    assert_eq!(unasked.code, Some(4), "{}", unasked.stderr);
    sandbox.ok(["swarm", "create", "Second"]);
    let unclear = sandbox.run(["swarm", "invite"]);
    assert_eq!(unclear.code, Some(2), "{}", unclear.stderr);
    assert!(unclear.stderr.contains("research, second"), "{}", unclear.stderr);
}
