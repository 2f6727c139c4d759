use serde_json::{Value, json};

use super::*;
use crate::keys::SecretKey;

fn member(id: &str, seed: u8) -> Value {
    json!({
        "agent_id": id, "endpoint": format!("https://{id}.example.com/swarm"),
        "public_key": SecretKey::from_seed(&[seed; 32]).public().to_wire(), "joined_at": "2026-02-05T14:30:00.000Z",
    })
}

fn state() -> Value {
    json!({
        "schema_version": "1.0.0", "agent_id": "my-agent-id",
        "swarms": { "550e8400-e29b-41d4-a716-446655440000": {
            "swarm_id": "550e8400-e29b-41d4-a716-446655440000", "name": "Research", "master": "alpha",
            "members": [member("alpha", 1), member("my-agent-id", 2)], "joined_at": "2026-02-05T14:30:00.000Z",
            "settings": { "allow_member_invite": false, "require_approval": true },
        }},
        "muted_swarms": ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"], "muted_agents": ["spam-bot-123", "untrusted-agent"],
        "public_keys": { "alpha": {
            "public_key": SecretKey::from_seed(&[1; 32]).public().to_wire(), "fetched_at": "2026-02-05T10:00:00.000Z",
            "endpoint": "https://alpha.example.com/swarm/info",
        }},
    })
}

#[test]
fn state_round_trips() {
    let parsed = MembershipState::parse(state().to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&parsed.to_bytes()).unwrap(), state());
    let exported = parsed.clone().exported("2026-02-05T15:00:00Z".parse().unwrap());
    assert_eq!(exported.exported_at.as_deref(), Some("2026-02-05T15:00:00.000Z"));
    let empty = json!({ "schema_version": "1.0.0", "agent_id": "my-agent-id", "swarms": {}, "muted_swarms": [],
        "muted_agents": [], "public_keys": {} });
    MembershipState::parse(empty.to_string().as_bytes()).unwrap();
}

/// Unsupported versions, hostile members, paths in ids.
#[test]
fn invalid_value_is_refused_with_path() {
    let swarm = "/swarms/550e8400-e29b-41d4-a716-446655440000";
    let table: [(String, Value, &str); 16] = [
        ("/schema_version".into(), json!("2.0.0"), "reads 1.x"),
        ("/schema_version".into(), json!("0.9.0"), "reads 1.x"),
        ("/agent_id".into(), json!("../../etc"), "agent_id"),
        ("/muted_swarms".into(), json!(["x"]), "muted_swarms"),
        ("/muted_agents".into(), json!(["a\nb"]), "muted_agents"),
        ("/public_keys/alpha/public_key".into(), json!("zzz"), "public_keys.alpha.public_key"),
        ("/public_keys/alpha/fetched_at".into(), json!("now"), "public_keys.alpha.fetched_at"),
        (format!("{swarm}/swarm_id"), json!("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), "swarm_id"),
        (format!("{swarm}/name"), json!(""), "name"),
        (format!("{swarm}/name"), json!("x".repeat(300)), "name"),
        (format!("{swarm}/master"), json!("nobody"), "master"),
        (format!("{swarm}/members/0/agent_id"), json!("аlpha"), "members[0].agent_id"),
        (format!("{swarm}/members/0/endpoint"), json!("http://a"), "members[0].endpoint"),
        (format!("{swarm}/members/1/agent_id"), json!("alpha"), "members[1].agent_id"),
        (format!("{swarm}/members/1/public_key"), json!("zzz"), "members[1].public_key"),
        (format!("{swarm}/settings/require_approval"), json!("yes"), "require_approval"),
    ];
    for (path, value, word) in table {
        let mut bad = state();
        *bad.pointer_mut(&path).unwrap() = value;
        let error = MembershipState::parse(bad.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains(word), "{path}: {error}");
    }
    let many: Vec<Value> = (0..1001).map(|n| member(&format!("a{n}"), 1)).collect();
    let mut bad = state();
    bad["swarms"]["550e8400-e29b-41d4-a716-446655440000"]["members"] = many.into();
    assert!(MembershipState::parse(bad.to_string().as_bytes()).is_err());
}

fn schema() -> Value {
    let mut schema = schemars::schema_for!(MembershipState).to_value();
    schema["title"] = json!("Membership state");
    schema["description"] = json!("Memberships of an agent: `~/.swarm/state.json`.");
    schema
}

/// `UPDATE_SCHEMAS=1` regenerates it.
#[test]
fn schema_file_is_current() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/swarm");
    let current = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        let dir = switchboard_sys::files::Dir::open_root(std::path::Path::new(folder)).unwrap();
        dir.replace("membership-state.json", current.as_bytes(), 0o644).unwrap();
    }
    let file = std::fs::read_to_string(format!("{folder}/membership-state.json")).unwrap();
    assert_eq!(file, current, "run the test again with UPDATE_SCHEMAS=1");
}

#[test]
fn schema_and_reader_agree() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    assert!(validator.is_valid(&state()));
    for (path, value) in
        [("/schema_version", json!("2.0.0")), ("/agent_id", json!("")), ("/swarms", json!([]))]
    {
        let mut bad = state();
        *bad.pointer_mut(path).unwrap() = value;
        assert!(!validator.is_valid(&bad), "{path}");
    }
}

#[test]
fn protocol_examples_match_published_schema() {
    let published: Value =
        serde_json::from_str(include_str!("../../../schemas/swarm/membership-state.json")).unwrap();
    let validator = jsonschema::validator_for(&published).unwrap();
    let examples: Value =
        serde_json::from_str(include_str!("../../../fixtures/swarm/examples.json")).unwrap();
    let states = examples["states"].as_array().unwrap();
    assert!(!states.is_empty());
    for example in states {
        assert!(validator.is_valid(example), "{example}");
        MembershipState::parse(example.to_string().as_bytes()).unwrap();
    }
}
