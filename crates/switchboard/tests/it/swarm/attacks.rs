//! Requests in the name of others, in many spellings. None of them changes or receives a roster.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::tools;

use super::owner::Owner;
use super::plain::Plain;

/// Prefix of an Ed25519 key in its DER form, before the 32 bytes.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Creates an authority, and peers like the Python implementation; `None` if that is missing.
fn start<const N: usize>(test: &str, names: [&str; N]) -> Option<(PrivateCa, [Plain; N])> {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let started: Result<Vec<Plain>, String> =
        names.iter().map(|name| Plain::start(&ca, name, "/swarm")).collect();
    match started {
        Ok(started) => started.try_into().ok().map(|started| (ca, started)),
        Err(reason) => {
            tools::skip(test, &reason);
            None
        }
    }
}

fn master(ca: &PrivateCa) -> Owner {
    let alice = Owner::configured("alice", "https://127.0.0.1:PORT/swarm", |port| {
        let mut section = super::owner::files(ca, &ca.file(), port);
        section["limits"] = json!({ "joins": 0, "perSender": 0, "perClient": 0 });
        json!({ "swarm": section })
    });
    alice.ok(&["swarm", "create", "Research"]);
    alice
}

/// Returns join requests in the name of a member, at another endpoint, as texts.
fn odd_requests(link: &str, entry: &Value, endpoint: &Value) -> Vec<String> {
    let token = link.split("?token=").nth(1).unwrap();
    let id = entry["agent_id"].as_str().unwrap();
    let key = entry["public_key"].as_str().unwrap();
    let base = json!({ "type": "system", "action": "join_request", "invite_token": token,
        "sender": { "agent_id": id, "endpoint": endpoint, "public_key": key } });
    let with = |pointer: &str, field: &str, value: Value| {
        let mut request = base.clone();
        request.pointer_mut(pointer).unwrap()[field] = value;
        request.to_string()
    };
    let mut requests = vec![base.to_string()];
    for rejoin in [json!("true"), json!(1), json!("yes"), json!([true]), json!({ "is": true })] {
        requests.push(with("", "rejoin", rejoin));
    }
    let more = [
        ("REJOIN", json!(true)),
        ("status", json!("accepted")),
        ("signature", json!("")),
        ("signature", json!(key)),
        ("provisional", json!(false)),
        ("sender", json!([id, endpoint, key])),
        ("action", json!("rejoin_request")),
        ("metadata", json!({ "rejoin": true, "envelope_signature": key })),
    ];
    requests.extend(more.into_iter().map(|(field, value)| with("", field, value)));
    let of_sender =
        [("old_endpoint", entry["endpoint"].clone()), ("rejoin", json!(true)), ("provisional", json!(false))];
    requests.extend(of_sender.into_iter().map(|(field, value)| with("/sender", field, value)));
    let ids = [
        id.to_uppercase(),
        format!("{id}."),
        format!(" {id}"),
        format!("{id}\u{200b}"),
        format!("{id}\0"),
        format!("-{id}"),
    ];
    requests.extend(ids.into_iter().map(|id| with("/sender", "agent_id", json!(id))));
    let der = STANDARD.encode([&SPKI[..], &STANDARD.decode(key).unwrap()].concat());
    for spelling in [der.as_str(), key.trim_end_matches('='), &format!(" {key}")] {
        for name in [id, "marge"] {
            let mut request: Value =
                serde_json::from_str(&with("/sender", "public_key", json!(spelling))).unwrap();
            request["sender"]["agent_id"] = json!(name);
            requests.push(request.to_string());
        }
    }
    // Parsers read a repeated field as the first, or as the last.
    let text = base.to_string();
    let honest = json!({ "agent_id": id, "endpoint": entry["endpoint"], "public_key": key });
    requests.push(text.replacen('{', &format!("{{\"sender\":{honest},"), 1));
    requests.push(text.replacen('{', "{\"rejoin\":true,\"rejoin\":true,", 1));
    requests
}

#[test]
fn odd_join_requests_change_nothing() {
    let Some((ca, [mut mallory, mut pat])) = start("odd_join_requests_change_nothing", ["mallory", "pat"])
    else {
        return;
    };
    let (alice, bob) = (master(&ca), Owner::new(&ca, "bob"));
    let link = alice.ok(&["swarm", "invite"]);
    assert_eq!(pat.command("join", json!({ "link": link }))["status"], 200);
    bob.ok(&["swarm", "join", &link]);
    let own = mallory.command("me", json!({}));
    let before = alice.json(&["swarm", "members"]);
    let url = format!("https://127.0.0.1:{}/swarm/join", alice.port);
    for entry in &before {
        mallory.command("pose", json!({ "agent_id": entry["agent_id"], "public_key": entry["public_key"] }));
        for request in odd_requests(&link, entry, &own["endpoint"]) {
            let answer =
                mallory.command("forge", json!({ "url": url, "fields": {}, "after": {}, "raw": request }));
            let status = answer["status"].as_u64().unwrap();
            assert!((400..500).contains(&status), "{request}: {answer}");
            assert!(answer["answer"].get("members").is_none(), "{request}: {answer}");
        }
    }
    assert_eq!(alice.json(&["swarm", "members"]), before);
}

/// Only members receive the roster, whatever name a request uses.
#[test]
fn roster_is_disclosed_to_members_only() {
    let Some((ca, [mut mallory, mut kim, mut wanda])) =
        start("roster_is_disclosed_to_members_only", ["mallory", "kim", "wanda"])
    else {
        return;
    };
    let alice = master(&ca);
    let bob = Owner::new(&ca, "bob");
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);
    assert_eq!(kim.command("join", json!({ "link": alice.ok(&["swarm", "invite"]) }))["status"], 200);
    let swarm = alice.json(&["swarm", "list"]).remove(0)["swarm_id"].clone();
    alice.ok(&["swarm", "kick", "kim", "--yes"]);
    alice.ok(&["swarm", "create", "Closed", "--approval"]);
    let link = alice.ok(&["swarm", "invite", "closed"]);
    assert_eq!(wanda.command("join", json!({ "link": link }))["status"], 202);
    let listed = alice.json(&["swarm", "list"]);
    let closed = listed.iter().find(|one| one["swarm_id"] != swarm).unwrap()["swarm_id"].clone();
    let url = format!("https://127.0.0.1:{}/swarm/message", alice.port);
    let question = r#"{"action":"roster_request","epoch":0}"#;
    let roster_request = |swarm: &Value| json!({ "swarm_id": swarm, "recipient": "alice", "type": "system", "content": question });
    let as_bob = json!({ "sender": { "agent_id": "bob", "endpoint": "https://127.0.0.1:9/swarm" } });
    assert_eq!(mallory.forge(&url, roster_request(&swarm), json!({})), (403, "NOT_AUTHORIZED".to_owned()));
    assert_eq!(
        mallory.forge(&url, roster_request(&swarm), as_bob.clone()),
        (401, "INVALID_SIGNATURE".to_owned())
    );
    assert_eq!(kim.forge(&url, roster_request(&swarm), json!({})), (403, "NOT_AUTHORIZED".to_owned()));
    assert_eq!(kim.forge(&url, roster_request(&swarm), as_bob), (401, "INVALID_SIGNATURE".to_owned()));
    assert_eq!(wanda.forge(&url, roster_request(&closed), json!({})), (403, "NOT_AUTHORIZED".to_owned()));
    alice.ok(&["swarm", "deny", "wanda", "--swarm", "closed", "--yes"]);
    let again = wanda.command("join", json!({ "link": link }));
    assert_eq!(again["status"], 403, "{again}");
    assert!(again["answer"].get("members").is_none(), "{again}");
    assert_eq!(wanda.forge(&url, roster_request(&closed), json!({})), (403, "NOT_AUTHORIZED".to_owned()));
    // A member's own request is answered after all the others, so an answer to one of those would be here by now.
    bob.ok(&["swarm", "sync"]);
    alice.ok(&["send", "bob@research", "after the roster", "--from", "alice"]);
    bob.wait_for_message("bob", "after the roster");
    for other in [&mut mallory, &mut kim, &mut wanda] {
        let heard = other.command("inbox", json!({})).to_string();
        assert!(!heard.contains("public_key"), "{heard}");
    }
}
