use super::*;

fn entries(client: Client, agent: &str) -> Entries {
    Entries { client, program: "/opt/switchboard".into(), agent: Some(agent.to_owned()), renames: false }
}

const THEIRS: &str = r#"{
  // my own
  "model": "opus",
  "hooks": {
    "Stop": [
      { "matcher": "*", "hooks": [{ "type": "command", "command": "say done" }] }, // tell me
    ],
    "PreToolUse": [],
  },
}
"#;

#[test]
fn hooks_added_and_removed_without_other_changes() {
    let entries = entries(Client::Claude, "claude");
    let with = add_hooks(THEIRS, &entries).unwrap().unwrap();
    assert!(with.contains("// my own") && with.contains("// tell me") && with.contains("say done"), "{with}");
    assert_eq!(add_hooks(&with, &entries).unwrap(), None, "a second time changes nothing");
    assert_eq!(with.matches("asyncRewake").count(), 2);
    assert!(with.contains("/opt/switchboard hook claude post-tool --agent claude"));
    let without = remove_hooks(&with, Client::Claude).unwrap().unwrap();
    let value = |text: &str| parse(text).unwrap().0.to_serde_value().unwrap();
    assert_eq!(value(&without), value(THEIRS));
    assert!(without.contains("// my own") && without.contains("// tell me"), "{without}");
    assert_eq!(remove_hooks(&without, Client::Claude).unwrap(), None);
}

#[test]
fn hooks_with_old_path_are_replaced() {
    let old = Entries { program: "/old/switchboard".into(), ..entries(Client::Codex, "codex") };
    let text = add_hooks("", &old).unwrap().unwrap();
    let text = add_hooks(&text, &entries(Client::Codex, "codex")).unwrap().unwrap();
    assert!(!text.contains("/old/") && !text.contains("asyncRewake"), "{text}");
    assert_eq!(remove_hooks(&text, Client::Codex).unwrap().unwrap().trim(), "{}");
}

#[test]
fn server_is_added_and_removed() {
    let theirs = r#"{"mcpServers":{"other":{"command":"x"}},"n":1}"#;
    let with = add_server(theirs, &entries(Client::Claude, "claude")).unwrap().unwrap();
    assert_eq!(agent(&with).unwrap().as_deref(), Some("claude"));
    assert_eq!(add_server(&with, &entries(Client::Claude, "another")).unwrap(), None, "it keeps its name");
    let renamed = Entries { renames: true, ..entries(Client::Claude, "another") };
    let renamed = add_server(&with, &renamed).unwrap().unwrap();
    assert_eq!(agent(&renamed).unwrap().as_deref(), Some("another"));
    let without = remove_server(&renamed).unwrap().unwrap();
    let value = |text: &str| parse(text).unwrap().0.to_serde_value().unwrap();
    assert_eq!(value(&without), value(theirs));
}

#[test]
fn unknown_json_is_left_alone() {
    let entries = entries(Client::Claude, "claude");
    for (text, problem) in [
        ("{", "is no JSON"),
        ("[1]", "holds no object"),
        (r#"{"hooks":[]}"#, "'hooks' is no object"),
        (r#"{"hooks":{"Stop":{}}}"#, "'hooks.Stop' is no list"),
    ] {
        let error = add_hooks(text, &entries).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    let another = r#"{"mcpServers":{"switchboard":{"command":"npx","args":["switchboard"]}}}"#;
    assert!(add_server(another, &entries).unwrap_err().contains("another server"));
    assert_eq!(remove_server(another).unwrap(), None);
}
