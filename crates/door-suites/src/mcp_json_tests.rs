use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{McpFile, ResolveContext, resolve_spec};
use crate::config::Config;
use crate::spec::{ChildSpec, Framing, Launch};

fn spec(file: &Value, config: &Value) -> Result<ChildSpec, String> {
    let config: Config = serde_json::from_value(config.clone()).unwrap();
    let lookup = |name: &str| (name == "TOKEN").then(|| "t0ken".to_owned());
    let context = ResolveContext {
        file: Path::new("/ws/.switchboard/mcps/x/.mcp.json"),
        folder: ".switchboard/mcps/x",
        config: &config,
        lookup: &lookup,
    };
    let (file, _) = McpFile::parse(file.to_string().as_bytes())?;
    resolve_spec("x".to_owned(), file, &context).map_err(|error| error.to_string())
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn architecture_example_is_parsed() {
    let file = json!({
        "name": "context7",
        "description": "Context7 Documentation MCP",
        "switchboardDescription": "Smart context management",
        "command": {
            "cmd": "npx", "args": ["-y", "@upstash/context7-mcp"], "env": { "DEFAULT_MINIMUM_TOKENS": "6000" },
        },
    });
    let spec = spec(&file, &json!({})).unwrap();
    assert_eq!(spec.switchboard_description.as_deref(), Some("Smart context management"));
    assert_eq!(
        spec.launch,
        Launch::Stdio {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "@upstash/context7-mcp".to_owned()],
            env: texts(&[("DEFAULT_MINIMUM_TOKENS", "6000")]),
            cwd: "/ws/.switchboard/mcps/x".into(),
            framing: Framing::Auto,
        }
    );
    assert_eq!((spec.limits.spawn, spec.limits.rpc), (Duration::from_secs(8), Duration::from_mins(1)));
    assert_eq!(spec.limits.fetch, Duration::from_mins(1));
}

#[test]
fn start_timeout_can_be_set_per_server() {
    let limits = |file: Value, config: Value| {
        let limits = spec(&file, &config).unwrap().limits;
        (limits.spawn.as_millis(), limits.fetch.as_millis())
    };
    let own = json!({ "command": "npx", "spawnTimeoutMs": 5 });
    assert_eq!(limits(own.clone(), json!({})), (5, 5));
    assert_eq!(limits(own, json!({ "suites": { "x": { "spawnTimeoutMs": 9 } } })), (9, 9));
    // The global start timeout only applies to programs that need no download.
    let all = json!({ "timeouts": { "childSpawnMs": 3, "rpcMs": 7 } });
    assert_eq!(limits(json!({ "command": "npx" }), all), (3, 7));
    let long = json!({ "timeouts": { "childSpawnMs": 90_000 } });
    assert_eq!(limits(json!({ "command": "npx", "rpcTimeoutMs": 1 }), long), (90_000, 90_000));
}

#[test]
fn informal_file_is_parsed_and_expanded() {
    let file = json!({
        "command": "./bin/${NONE:-server}", "args": ["--token", "${TOKEN}"], "env": { "T": "${TOKEN}" },
        "cwd": "../../..", "framing": "content-length", "rpcTimeoutMs": 5, "idleMs": 0,
    });
    let spec = spec(&file, &json!({ "suites": { "X": { "rpcTimeoutMs": 7, "concurrency": 2 } } })).unwrap();
    assert_eq!(
        spec.launch,
        Launch::Stdio {
            command: "/ws/./bin/server".to_owned(),
            args: vec!["--token".to_owned(), "t0ken".to_owned()],
            env: texts(&[("T", "t0ken")]),
            cwd: "/ws".into(),
            framing: Framing::ContentLength,
        }
    );
    assert_eq!(spec.template.args, ["--token", "${TOKEN}"]);
    assert_eq!(
        (spec.limits.rpc, spec.limits.idle, spec.limits.concurrency),
        (Duration::from_millis(7), None, 2)
    );
}

#[test]
fn remote_servers_resolve_by_url() {
    let headers = texts(&[("Authorization", "Bearer t0ken")]);
    let file = json!({ "url": "https://a.example/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } });
    let url = "https://a.example/mcp".to_owned();
    assert_eq!(spec(&file, &json!({})).unwrap().launch, Launch::Http { url, headers });
    for (word, url) in [("sse", "http://a/sse"), ("streamable-http", "http://a/mcp"), ("ws", "wss://a/mcp")] {
        let spec = spec(&json!({ "type": word, "url": url }), &json!({})).unwrap();
        let expected = match word {
            "sse" => Launch::Sse { url: url.to_owned(), headers: BTreeMap::new() },
            "ws" => Launch::Ws { url: url.to_owned(), headers: BTreeMap::new() },
            _ => Launch::Http { url: url.to_owned(), headers: BTreeMap::new() },
        };
        assert_eq!(spec.launch, expected);
    }
}

#[test]
fn invalid_value_error_names_field() {
    let long = vec!["a"; 300];
    for (file, expected) in [
        (json!({}), "the field 'command' is missing, and so is 'url'; one of the two is needed"),
        (
            json!({ "command": "a", "url": "http://b" }),
            "the field 'url' and 'command' exclude each other; remove one of them",
        ),
        (
            json!({ "type": "http", "command": "a" }),
            "the field 'type' is 'http', which needs 'url' instead of 'command'",
        ),
        (
            json!({ "command": 5 }),
            "the field 'command' is the number 5, but must be the name of a program, or an object with 'cmd', 'args' and 'env'",
        ),
        (json!({ "command": "a", "args": "x" }), "the field 'args' is the text \"x\", but must be a list"),
        (json!({ "command": "" }), "the field 'command' is empty; name the program"),
        (
            json!({ "command": "a", "args": ["x\u{0}y"] }),
            "the field 'args[0]' contains the invisible character '\\u{0}'",
        ),
        (
            json!({ "command": "a", "args": ["x", "\u{202e}y"] }),
            "the field 'args[1]' contains the invisible character '\\u{202e}'",
        ),
        (
            json!({ "command": "a\u{1b}[2K" }),
            "the field 'command' contains the invisible character '\\u{1b}'",
        ),
        (
            json!({ "command": "a", "env": { "A B": "x" } }),
            "the field 'env.A B' is not a valid variable name",
        ),
        (
            json!({ "command": "a", "args": long }),
            "the field 'args' has 300 entries, more than the 256 allowed",
        ),
        (json!({ "url": "ftp://a" }), "the field 'url' must begin with http:// or https://"),
        (json!({ "url": "javascript:alert(1)" }), "the field 'url' must begin with http:// or https://"),
        (json!({ "type": "ws", "url": "http://a" }), "the field 'url' must begin with ws:// or wss://"),
        (
            json!({ "url": "http://a", "headers": { "a b": "x" } }),
            "the field 'headers.a b' is not a valid header name",
        ),
        (
            json!({ "url": "http://a", "args": ["x"] }),
            "the field 'args' applies to programs only, not to a server with a 'url'",
        ),
        (
            json!({ "type": "grpc", "url": "http://a" }),
            "the field 'type' is 'grpc', but must be one of: stdio, http, ",
        ),
        (
            json!({ "command": "a", "idleMs": "5" }),
            "the field 'idleMs' is the text \"5\", but must be a whole number, 0 or more",
        ),
        (
            json!({ "command": "a", "spawnTimeoutMs": 0 }),
            "the field 'spawnTimeoutMs' is 0, but must be at least 1",
        ),
        (
            json!({ "command": "a", "rpcTimeoutMs": 0 }),
            "the field 'rpcTimeoutMs' is 0, but must be at least 1",
        ),
    ] {
        let error = spec(&file, &json!({})).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn multiline_key_is_a_valid_value() {
    let file = json!({ "command": "a", "env": { "PEM": "-----BEGIN-----\nabc\n" } });
    assert!(spec(&file, &json!({})).is_ok());
}

#[test]
fn unknown_keys_cause_warnings() {
    let text = r#"{"comand": "a", "command": {"cmd": "b", "arg": []}, "$schema": "s"}"#;
    let (_, warnings) = McpFile::parse(text.as_bytes()).unwrap();
    assert_eq!(
        warnings,
        [
            "the key 'comand' is not known; did you mean 'command'?",
            "the key 'command.arg' is not known; did you mean 'args'?"
        ]
    );
}

#[test]
fn invalid_file_is_rejected() {
    let deep = "[".repeat(100_000);
    for text in ["", "{", "[]", "\"x\"", deep.as_str(), "{\"command\": \"a\"} x", "\u{feff}{}"] {
        assert!(McpFile::parse(text.as_bytes()).is_err(), "{text:.20}");
    }
    let several = McpFile::parse(br#"{"mcpServers": {}}"#).unwrap_err();
    assert!(several.starts_with("describes several servers under 'mcpServers'"), "{several}");
}

#[test]
fn written_file_round_trips() {
    let text = json!({ "name": "x", "command": "npx", "args": ["-y", "p"], "env": { "A": "${B}" }, "cwd": "../../.." });
    let (file, _) = McpFile::parse(text.to_string().as_bytes()).unwrap();
    let (again, warnings) = McpFile::parse(file.to_json().as_bytes()).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let around_template = |file: &McpFile| super::launch_template_of(file, "f").unwrap();
    assert_eq!(around_template(&file), around_template(&again));
    assert_eq!(again.command.unwrap().args, ["-y", "p"]);
}

/// `UPDATE_SCHEMAS=1` rewrites the schema file.
#[test]
fn schema_in_repository_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/mcp.schema.json");
    let mut schema = schemars::schema_for!(McpFile).to_value();
    schema["properties"]["$schema"] = json!({ "type": "string" });
    schema["additionalProperties"] = json!(false);
    let current = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        test_support::files::put(file, &current);
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), current, "run the test again with UPDATE_SCHEMAS=1");
    let properties: Vec<&str> =
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut known = super::KNOWN.to_vec();
    known.sort_unstable();
    assert_eq!(properties, known);
}

#[test]
fn schema_accepts_what_parser_accepts() {
    let schema = schemars::schema_for!(McpFile).to_value();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for file in [
        json!({ "command": { "cmd": "npx", "args": ["-y", "p"], "env": { "A": "b" } }, "name": "x" }),
        json!({ "command": "npx", "args": ["-y"], "framing": "content-length", "idleMs": 0 }),
        json!({ "type": "ws", "url": "wss://a", "headers": { "A": "b" } }),
    ] {
        assert!(validator.is_valid(&file), "{file}");
        assert!(spec(&file, &json!({})).is_ok());
    }
    for file in [json!({ "command": 5 }), json!({ "command": { "args": [] } }), json!({ "type": "grpc" })] {
        assert!(!validator.is_valid(&file), "{file}");
    }
}

#[test]
fn unset_variable_makes_child_unready() {
    for (file, reason) in [
        (
            json!({ "command": "a", "args": ["${MISSING}"] }),
            "the field 'args[0]' needs the variable MISSING, which",
        ),
        (json!({ "url": "https://${MISSING}/mcp" }), "the field 'url' needs the variable MISSING, which"),
        (
            json!({ "url": "https://a", "headers": { "Authorization": "Bearer ${MISSING}" } }),
            "the field 'headers.Authorization' needs the variable MISSING, which",
        ),
    ] {
        let unready = spec(&file, &json!({})).unwrap().unready.unwrap();
        assert!(unready.starts_with(reason), "{unready}");
    }
    assert_eq!(spec(&json!({ "command": "a" }), &json!({})).unwrap().unready, None);
}
