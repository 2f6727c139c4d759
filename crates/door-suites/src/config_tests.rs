use serde_json::{Value, json};

use super::{Config, ExposeMode, ExposeSettings, IntrospectionMode, unknown_keys};

fn parse(value: Value) -> Result<Config, String> {
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}

#[test]
fn empty_file_has_default_settings() {
    let config = parse(json!({})).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.discover_globs, [".switchboard/mcps/*/.mcp.json"]);
    assert_eq!((config.timeouts.child_spawn_ms, config.timeouts.rpc_ms), (8000, 60_000));
    assert_eq!(config.introspection.mode, IntrospectionMode::Summary);
    assert_eq!(config.introspection.summary_max_chars, 160);
}

#[test]
fn expose_accepts_string_or_object() {
    let config = parse(json!({ "suites": {
        "a": { "expose": "flat" },
        "b": { "expose": { "allow": ["read_*"], "deny": ["read_all"] } },
        "c": { "expose": { "mode": "flat", "bare": true } },
    }}))
    .unwrap();
    let expose = |name: &str| config.suite(name).unwrap().expose.clone();
    assert_eq!(expose("a"), ExposeSettings { mode: ExposeMode::Flat, ..ExposeSettings::default() });
    assert_eq!(
        expose("B"),
        ExposeSettings {
            allow: Some(vec!["read_*".to_owned()]),
            deny: vec!["read_all".to_owned()],
            ..ExposeSettings::default()
        }
    );
    assert_eq!(
        expose("c"),
        ExposeSettings { mode: ExposeMode::Flat, bare: true, ..ExposeSettings::default() }
    );
}

#[test]
fn wrong_type_error_names_key() {
    for (file, expected) in [
        (json!({ "suites": { "a": { "expose": "flt" } } }), "suites.a.expose: unknown variant `flt`"),
        (
            json!({ "suites": { "a": { "expose": 3 } } }),
            "suites.a.expose: invalid type: integer `3`, expected \"suite\"",
        ),
        (json!({ "suites": { "a": { "expose": { "deny": "x" } } } }), "suites.a.expose.deny: invalid type"),
        (json!({ "timeouts": { "rpcMs": "60" } }), "timeouts.rpcMs: invalid type"),
        (
            json!({ "suites": { "a": { "rateLimit": { "calls": 1 } } } }),
            "suites.a.rateLimit: missing field `perMs`",
        ),
    ] {
        let error = parse(file).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn out_of_range_error_names_key() {
    for (file, expected) in [
        (json!({ "timeouts": { "rpcMs": 0 } }), "the key 'timeouts.rpcMs' is 0, but must be at least 1"),
        (
            json!({ "suites": { "a": { "concurrency": 0 } } }),
            "the key 'suites.a.concurrency' is 0, but must be at least 1",
        ),
        (
            json!({ "suites": { "a": { "cache": { "ttlMs": 0 } } } }),
            "the key 'suites.a.cache.ttlMs' is 0, but must be at least 1",
        ),
        (
            json!({ "suites": { "a": { "suiteName": "a b" } } }),
            "the key 'suites.a.suiteName' is 'a b', but a tool name has 1 to 64 letters, digits, '_' and '-'",
        ),
    ] {
        assert_eq!(parse(file).unwrap().check().unwrap_err().to_string(), expected);
    }
    assert!(Config::default().check().is_ok());
}

#[test]
fn unknown_keys_are_found_at_every_depth() {
    let file = json!({
        "timeouts": { "rpcMS": 1 },
        "introspection": { "mod": "full" },
        "suites": { "memory": { "suitName": "x", "expose": { "alow": [] }, "cache": { "ttl": 1 } }, "b": { "expose": "flat" } },
    });
    let paths: Vec<String> = unknown_keys(&file).into_iter().map(|unknown| unknown.path).collect();
    assert_eq!(
        paths,
        [
            "timeouts.rpcMS",
            "introspection.mod",
            "suites.memory.suitName",
            "suites.memory.expose.alow",
            "suites.memory.cache.ttl"
        ]
    );
}

#[test]
fn schema_keys_match_known_keys() {
    let schema = schemars::schema_for!(Config).to_value();
    let keys = |of: &Value| of["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut top = keys(&schema);
    top.sort_unstable();
    let mut known: Vec<&str> = Config::KEYS.to_vec();
    known.sort_unstable();
    assert_eq!(top, known);
    let suite: serde_json::Map<String, Value> =
        keys(&schema["$defs"]["SuiteSettings"]).into_iter().map(|key| (key, json!({}))).collect();
    assert_eq!(suite.len(), 12);
    assert_eq!(unknown_keys(&json!({ "suites": { "a": suite } })), []);
}

#[test]
fn tool_name_derives_from_server_name() {
    let config =
        parse(json!({ "suites": { "git": { "suiteName": "vcs" }, "@up/ctx": { "summaryMaxChars": 40 } } }))
            .unwrap();
    assert_eq!(config.suite_name("git"), "vcs");
    assert_eq!(config.suite_name("memory"), "memory_suite");
    assert_eq!(config.suite_name("My Server.2"), "My_Server_2_suite");
    assert_eq!(config.suite_name(&"x".repeat(128)).len(), 64);
    assert_eq!(config.summary_max_chars("up-ctx"), 40);
    assert_eq!(config.summary_max_chars("git"), 160);
}
