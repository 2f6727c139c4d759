use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{Provider, WrapperSettings};

/// Returns the selected provider, or the error.
fn choose(settings: serde_json::Value, variables: &[(&str, &str)]) -> String {
    let settings: WrapperSettings = serde_json::from_value(settings).expect("settings");
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let lookup = |name: &str| variables.get(name).map(|&value| value.to_owned());
    match Provider::choose("notes", &settings, &lookup) {
        Ok(provider) => format!("{provider:?}"),
        Err(error) => error.to_string(),
    }
}

fn bases(text: &str) -> String {
    let url = reqwest::Url::parse(text).expect("an address");
    format!("{url:?}")
}

#[test]
fn first_available_provider_is_selected() {
    let both = [("ANTHROPIC_API_KEY", "sk-ant"), ("OPENAI_API_KEY", "sk-oai")];
    let anthropic = format!(
        "Anthropic {{ base: {}, key: Key(…), model: \"claude-haiku-4-5\" }}",
        bases("https://api.anthropic.com")
    );
    assert_eq!(choose(json!({}), &both), anthropic);
    let openai = format!(
        "OpenAi {{ base: {}, key: Some(Key(…)), model: \"gpt-5-mini\" }}",
        bases("https://api.openai.com/v1")
    );
    assert_eq!(choose(json!({}), &[("ANTHROPIC_API_KEY", ""), both[1]]), openai);
    assert_eq!(choose(json!({ "provider": "openai" }), &both), openai);
    let command = "Command { command: [\"mine\", \"-q\"] }";
    assert_eq!(choose(json!({ "command": ["mine", "-q"] }), &both), command);
    let own = [("OPENAI_BASE_URL", "http://192.168.1.7:11434/v1"), ("OPENAI_MODEL", "qwen3")];
    assert_eq!(
        choose(json!({ "provider": "openai" }), &own),
        format!("OpenAi {{ base: {}, key: None, model: \"qwen3\" }}", bases(own[0].1))
    );
}

#[test]
fn missing_setting_is_named() {
    assert_eq!(
        choose(json!({}), &[]),
        "no model is configured: set ANTHROPIC_API_KEY or OPENAI_API_KEY, install `claude` or `codex`, or set \
         'suites.notes.wrapper.command' in ~/.config/switchboard/config.json"
    );
    assert_eq!(
        choose(json!({ "provider": "anthropic" }), &[]),
        "the provider 'anthropic' needs a key in the variable ANTHROPIC_API_KEY"
    );
    assert_eq!(
        choose(json!({ "provider": "openai" }), &[]),
        "the provider 'openai' needs a key in the variable OPENAI_API_KEY, or the address of a server that needs none \
         in OPENAI_BASE_URL"
    );
    assert_eq!(
        choose(json!({ "command": [] }), &[]),
        "the key 'suites.notes.wrapper.command' is empty; name the program"
    );
    assert_eq!(
        choose(json!({ "baseUrl": "ftp://x" }), &[("ANTHROPIC_API_KEY", "k")]),
        "the key 'suites.notes.wrapper.baseUrl' must begin with https:// or http://"
    );
    let plain = [("ANTHROPIC_API_KEY", "sk-ant-secret"), ("ANTHROPIC_BASE_URL", "http://proxy.example")];
    assert_eq!(
        choose(json!({}), &plain),
        "the provider 'anthropic' needs an address with https://, because the key would go over the network unencrypted"
    );
}

#[test]
fn installed_program_is_the_fallback_provider() {
    let temp = tempfile::tempdir().expect("a folder");
    let file = temp.path().join("codex");
    std::fs::File::options().create_new(true).write(true).open(&file).expect("a file");
    let path = [("PATH", temp.path().to_str().expect("a path"))];
    assert!(choose(json!({}), &path).starts_with("no model is configured"), "it cannot be run");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    assert_eq!(
        choose(json!({ "model": "m" }), &path),
        "Command { command: [\"codex\", \"exec\", \"--sandbox\", \"read-only\", \"--skip-git-repo-check\", \
         \"--model\", \"m\", \"-\"] }"
    );
}
