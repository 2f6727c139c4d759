//! Rules of membership on a served hub: replays, ids, keys, limits, with a peer that checks little.

use serde_json::{Value, json};
use switchboard_sys::clock::Clock;
use test_support::ca::{PrivateCa, Validity};
use test_support::{RunOutput, Sandbox, tools};

use super::owner::{Owner, files};
use super::plain::{Plain, answered};
use crate::BINARY;

/// Public keys without an owner in these tests.
const KEYS: [&str; 2] =
    ["A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=", "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w="];

fn authority() -> PrivateCa {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    ca
}

/// Returns a time this number of seconds from now, in wire format.
fn at(seconds: i64) -> String {
    let moment = Clock::system().now().saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    format!("{moment:.3}")
}

/// A master without a counter and without checks: each announcement counts once, and an older one is stale.
#[test]
fn replayed_announcement_readmits_no_kicked_member() {
    let ca = authority();
    let mut pat = match Plain::start(&ca, "pat", "/swarm") {
        Ok(pat) => pat,
        Err(reason) => return tools::skip("replayed_announcement_readmits_no_kicked_member", &reason),
    };
    let (mut bob, carol, dave) = (Owner::new(&ca, "bob"), Owner::new(&ca, "carol"), Owner::new(&ca, "dave"));
    let swarm = pat.command("create", json!({ "name": "Snakes" }))["swarm_id"].as_str().unwrap().to_owned();
    let link = pat.command("invite", json!({ "swarm_id": swarm }))["invite"].as_str().unwrap().to_owned();
    bob.ok(&["swarm", "join", &link]);
    let url = format!("https://127.0.0.1:{}/swarm/message", bob.port);
    let joined = |owner: &Owner, agent: &str, n: u8, seconds: i64| {
        let endpoint = format!("https://127.0.0.1:{}/swarm", owner.port);
        let content = json!({ "type": "system", "action": "member_joined", "swarm_id": swarm, "agent_id": agent,
            "endpoint": endpoint, "joined_at": at(seconds) });
        json!({ "swarm_id": swarm, "type": "system", "content": content.to_string(), "timestamp": at(seconds),
            "message_id": format!("6f0e3a52-4f0c-4d6e-9a55-6f1d3b8f2f{n:02}") })
    };
    let accepted = (200, String::new());
    let (first, never_heard) = (joined(&carol, "carol", 1, -2), joined(&carol, "carol", 2, -1));
    assert_eq!(pat.forge(&url, first.clone(), json!({})), accepted);
    bob.wait_for_members(&["bob", "carol", "pat"]);
    let kick = json!({ "swarm_id": swarm, "type": "system",
        "content": r#"{"action":"member_kicked","agent_id":"carol","reason":"inactive"}"# });
    assert_eq!(pat.forge(&url, kick, json!({})), accepted);
    bob.wait_for_members(&["bob", "pat"]);
    bob.stop();
    bob.serve();
    for replay in [first, never_heard] {
        assert_eq!(pat.forge(&url, replay, json!({})), accepted);
    }
    // This member would be requested after the kicked one, if that had been requested at all.
    assert_eq!(pat.forge(&url, joined(&dave, "dave", 3, 0), json!({})), accepted);
    bob.wait_for_members(&["bob", "dave", "pat"]);
    // Invited again, it is a member again.
    assert_eq!(pat.forge(&url, joined(&carol, "carol", 4, 1), json!({})), accepted);
    bob.wait_for_members(&["bob", "carol", "dave", "pat"]);
}

/// A roster of a master that admits all.
#[test]
fn unfit_foreign_members_are_omitted() {
    let ca = authority();
    let started = |agent: &str| Plain::start(&ca, agent, "/swarm");
    let (mut pat, mut human) = match (started("commit"), started("human")) {
        (Ok(pat), Ok(human)) => (pat, human),
        (Err(reason), _) | (_, Err(reason)) => {
            return tools::skip("unfit_foreign_members_are_omitted", &reason);
        }
    };
    let swarm = pat.command("create", json!({ "name": "Open" }))["swarm_id"].as_str().unwrap().to_owned();
    let link = pat.command("invite", json!({ "swarm_id": swarm }))["invite"].as_str().unwrap().to_owned();
    assert_eq!(human.command("join", json!({ "link": link }))["status"], 200);
    let bob = Owner::new(&ca, "bob");
    let joined = bob.json(&["swarm", "join", &link]).remove(0);
    assert_eq!(joined["members"], json!(["bob", "commit"]));
    assert!(joined["left_out"]["human"].as_str().unwrap().contains("reserved"), "{joined}");
    bob.wait_for_members(&["bob", "commit"]);
    let shown = bob.sandbox.run(["swarm", "members"]);
    assert!(shown.stderr.contains("'human' is left out"), "{}", shown.stderr);
    assert_eq!(human.send(&swarm, "bob", "hello"), json!([403]));

    // A message to `commit` would be a command for this one.
    let clash = Owner::new(&ca, "commitmessage");
    let refused = clash.sandbox.run(["swarm", "join", &link]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot be told apart"), "{}", refused.stderr);
    assert!(clash.json(&["swarm", "list", "--all"]).is_empty());
}

/// Every request counts for its client, whatever its content is.
#[test]
fn refused_requests_count_for_the_client() {
    let ca = authority();
    let mut mallory = match Plain::start(&ca, "mallory", "/swarm") {
        Ok(mallory) => mallory,
        Err(reason) => return tools::skip("refused_requests_count_for_the_client", &reason),
    };
    let alice = Owner::configured("alice", "https://127.0.0.1:PORT/swarm", |port| {
        let mut section = files(&ca, &ca.file(), port);
        section["limits"] = json!({ "perClient": 10, "joins": 0 });
        json!({ "swarm": section })
    });
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", alice.port);
    let token = json!({ "type": "system", "action": "join_request", "invite_token": "garbage",
        "sender": { "agent_id": "m", "endpoint": "https://127.0.0.1:9/swarm", "public_key": KEYS[0] } });
    let requests = [
        json!({ "url": url("/swarm/message"), "raw": "{" }),
        json!({ "url": url("/swarm/message"), "raw": "{}", "headers": { "Content-Type": "text/plain" } }),
        json!({ "url": url("/nowhere"), "raw": "{}" }),
        json!({ "url": url("/swarm/info"), "raw": "{}" }),
        json!({ "url": url("/swarm/join"), "raw": token.to_string() }),
    ];
    let mut ask = |request: &Value| {
        let mut request = request.clone();
        (request["fields"], request["after"]) = (json!({}), json!({}));
        answered(&mallory.command("forge", request))
    };
    let first: Vec<u64> = requests.iter().map(|request| ask(request).0).collect();
    assert_eq!(first, [400, 400, 404, 405, 400]);
    // Once the limit is reached each of them is refused for it. A new minute admits some more.
    let limited = (429, "RATE_LIMITED".to_owned());
    let is_limited = (0..20).any(|_| requests.iter().filter(|request| ask(request) == limited).count() == 5);
    assert!(is_limited, "no round of requests was limited");
}

#[test]
fn reserved_ids_and_odd_endpoints_are_refused() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let endpoint = "https://alice.example.com/swarm";
    for agent in ["system", "Switchboard", "HUMAN", "all", "me", "root", "Admin", "-x", "broadcaster"] {
        let agent = format!("--agent={agent}");
        let refused = sandbox.run(["swarm", "init", &agent, "--endpoint", endpoint]);
        assert_eq!(refused.code, Some(2), "{agent}: {}", refused.stderr);
        assert!(refused.stderr.contains("agent_id"), "{agent}: {}", refused.stderr);
    }
    for endpoint in [
        "https:alice.example.com/swarm",
        "https:/alice.example.com",
        "HTTPS://alice.example.com",
        "https://alice.example.com./swarm",
        "https://alice.example.com:0/swarm",
        "https://@alice.example.com/swarm",
    ] {
        let refused = sandbox.run(["swarm", "init", "--agent", "alice", "--endpoint", endpoint]);
        assert_eq!(refused.code, Some(2), "{endpoint}: {}", refused.stderr);
        assert!(refused.stderr.contains("endpoint"), "{endpoint}: {}", refused.stderr);
    }
    sandbox.ok(["swarm", "init", "--agent", "alice", "--endpoint", endpoint]);

    let ca = authority();
    let mut admin = match Plain::start(&ca, "Admin", "/swarm") {
        Ok(admin) => admin,
        Err(reason) => return tools::skip("reserved_ids_and_odd_endpoints_are_refused", &reason),
    };
    let alice = Owner::new(&ca, "alice");
    alice.ok(&["swarm", "create", "Research"]);
    let answer = admin.command("join", json!({ "link": alice.ok(&["swarm", "invite"]) }));
    assert_eq!(answered(&answer), (400, "INVALID_FORMAT".to_owned()), "{answer}");
    alice.wait_for_members(&["alice"]);
}

/// Returns the state of an agent that leads a swarm with these members.
fn state(sandbox: &Sandbox, date: &str, members: &[(&str, &str)]) -> String {
    let own = sandbox.json(["swarm", "key"]).remove(0)["public_key"].clone();
    let member = |id: &str, key: &Value| {
        json!({ "agent_id": id, "endpoint": format!("https://{id}.example.com/swarm"), "public_key": key,
            "joined_at": "2026-01-01T00:00:00.000Z" })
    };
    let mut all = vec![member("alice", &own)];
    all.extend(members.iter().map(|(id, key)| member(id, &json!(key))));
    let id = "550e8400-e29b-41d4-a716-446655440000";
    let known = |(id, key): &(&str, &str)| {
        ((*id).to_owned(), json!({ "public_key": key, "fetched_at": date, "endpoint": null }))
    };
    let keys: serde_json::Map<String, Value> = members.iter().map(known).collect();
    let swarm = json!({ "swarm_id": id, "name": "Research", "master": "alice", "members": all,
        "joined_at": "2026-01-01T00:00:00.000Z", "settings": {} });
    json!({ "schema_version": "1.0.0", "agent_id": "alice", "exported_at": date, "swarms": { id: swarm },
        "muted_swarms": [], "muted_agents": [], "public_keys": keys })
    .to_string()
}

fn import(sandbox: &Sandbox, args: &[&str], state: &str) -> RunOutput {
    RunOutput::with_input(&mut sandbox.command([&["swarm", "import", "-"], args].concat()), state.as_bytes())
}

fn members(sandbox: &Sandbox) -> Vec<(String, String)> {
    let text = |member: &Value, field: &str| member[field].as_str().unwrap().to_owned();
    let all = sandbox.json(["swarm", "members"]);
    let others = all.iter().filter(|member| member["agent_id"] != "alice");
    others.map(|member| (text(member, "agent_id"), text(member, "public_key"))).collect()
}

fn owner() -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    sandbox.ok(["swarm", "init", "--agent", "alice", "--endpoint", "https://alice.example.com/swarm"]);
    sandbox
}

/// A pinned key stays until a person changes it, whatever the dates of a file are.
#[test]
fn import_retains_pinned_keys() {
    let sandbox = owner();
    let bob = |key: &str| vec![("bob".to_owned(), key.to_owned())];
    import(&sandbox, &[], &state(&sandbox, "2026-01-01T00:00:00.000Z", &[("bob", KEYS[0])])).ok();
    assert_eq!(members(&sandbox), bob(KEYS[0]));
    let later = state(&sandbox, "2099-01-01T00:00:00.000Z", &[("bob", KEYS[1])]);
    for args in [&["--replace"][..], &[]] {
        let imported = import(&sandbox, args, &later);
        assert_eq!(imported.code, Some(0), "{}", imported.stderr);
        assert_eq!(members(&sandbox), bob(KEYS[0]), "{args:?}");
        if !args.is_empty() {
            assert!(imported.stderr.contains("--accept-key bob"), "{}", imported.stderr);
        }
    }
    let unknown = import(&sandbox, &["--replace", "--accept-key", "carol"], &later);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    import(&sandbox, &["--replace", "--accept-key", "bob"], &later).ok();
    assert_eq!(members(&sandbox), bob(KEYS[1]));
}

#[test]
fn import_omits_unfit_members() {
    let sandbox = owner();
    let date = "2026-01-01T00:00:00.000Z";
    let clash = state(&sandbox, date, &[("alicemessage", KEYS[0])]);
    let refused = import(&sandbox, &[], &clash);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot be told apart"), "{}", refused.stderr);
    let imported = import(&sandbox, &[], &state(&sandbox, date, &[("root", KEYS[0]), ("bob", KEYS[1])]));
    assert!(imported.stderr.contains("'root' is left out"), "{}", imported.stderr);
    assert_eq!(members(&sandbox), [("bob".to_owned(), KEYS[1].to_owned())]);
}
