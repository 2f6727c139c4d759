use proptest::prelude::*;
use serde_json::{Map, Value, json};
use switchboard_core::AgentId;

use super::{Ignored, merge, rule_of};
use crate::config::file::tests::schema;
use crate::config::{Settings, parse, resolve};

fn merged(user: &Value, workspace: Value) -> (Value, Vec<String>) {
    let mut value = user.clone();
    let ignored = merge(&mut value, workspace);
    (value, ignored.into_iter().map(|Ignored { path, .. }| path).collect())
}

fn settings(value: &Value) -> Settings {
    let suites = door_suites::Config::from_file(value).expect("suites");
    Settings { suites, ..resolve(parse(value).expect("a file")).expect("settings") }
}

#[test]
fn every_setting_has_a_rule() {
    fn visit(schema: &Value, place: &Value, path: &mut Vec<String>, missing: &mut Vec<String>) {
        if rule_of(path).is_some() {
            return;
        }
        let place = match place.get("$ref").and_then(Value::as_str) {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')).expect("a definition"),
            None => place.get("anyOf").and_then(|any| any.get(0)).unwrap_or(place),
        };
        if let (Some(_), true) = (place.get("$ref"), true) {
            return visit(schema, place, path, missing);
        }
        let properties = place.get("properties").and_then(Value::as_object);
        let any = place.get("additionalProperties").filter(|any| any.is_object());
        if properties.is_none() && any.is_none() {
            return missing.push(path.join("."));
        }
        for (key, place) in properties.into_iter().flatten().map(|(key, place)| (key.clone(), place)) {
            path.push(key);
            visit(schema, place, path, missing);
            path.pop();
        }
        if let Some(place) = any {
            path.push("any".to_owned());
            visit(schema, place, path, missing);
            path.pop();
        }
    }
    let mut schema = schema();
    schema["properties"].as_object_mut().expect("properties").remove("$schema");
    let mut missing = Vec::new();
    visit(&schema, &schema, &mut Vec::new(), &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn null_section_sets_nothing() {
    let user = json!({ "budgets": { "messagesPerHour": 5 }, "suites": { "a": { "enabled": false } } });
    for workspace in [
        json!({ "budgets": null, "suites": null }),
        json!({ "budgets": { "messagesPerHour": null, "agents": null }, "suites": { "a": null } }),
        json!({ "suites": { "a": { "enabled": null, "rateLimit": null, "wrapper": null } } }),
    ] {
        let (value, ignored) = merged(&user, workspace);
        assert_eq!(value["budgets"]["messagesPerHour"], 5);
        assert_eq!(value["suites"]["a"]["enabled"], false);
        assert_eq!(ignored, Vec::<String>::new());
    }
}

#[test]
fn suite_names_ignore_case() {
    let user = json!({
        "budgets": { "agents": { "codex": { "messagesPerHour": 5 } } },
        "suites": { "@scope/pkg": { "enabled": false, "expose": { "deny": ["drop_*"] } } },
    });
    let (value, ignored) = merged(
        &user,
        json!({
            "budgets": { "agents": { "CODEX": { "messagesPerHour": 500 } } },
            "suites": { "Scope-Pkg": { "enabled": true, "expose": "flat" } },
        }),
    );
    let settings = settings(&value);
    assert_eq!(settings.budgets.of(&"Codex".parse::<AgentId>().expect("a name")).messages_per_hour, Some(5));
    let suite = settings.suites.suite("scope-pkg").expect("settings");
    assert_eq!(
        (suite.enabled, suite.expose.deny.as_slice()),
        (Some(false), ["drop_*".to_owned()].as_slice())
    );
    assert_eq!(ignored, ["budgets.agents.codex.messagesPerHour", "suites.@scope/pkg.enabled"]);
}

#[test]
fn tool_needs_both_files_to_be_exposed() {
    let user = json!({ "suites": { "a": { "expose": { "allow": ["read_*", "list"] } } } });
    let wish = json!({ "suites": { "a": { "expose": { "allow": ["read_file", "list", "*", "write"] } } } });
    let (value, ignored) = merged(&user, wish);
    assert_eq!(value["suites"]["a"]["expose"]["allow"], json!(["read_file", "list"]));
    assert_eq!(ignored, ["suites.a.expose.allow", "suites.a.expose.allow"]);
}

/// A number as in a file, or none.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), (1_u32..50).prop_map(Value::from), Just(Value::from(u32::MAX))]
}

fn switch() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)]
}

fn patterns() -> impl Strategy<Value = Value> {
    let word = prop_oneof![Just("*"), Just("read_*"), Just("read_a"), Just("write_a"), Just("[rw]*")];
    prop_oneof![Just(Value::Null), prop::collection::vec(word, 0..3).prop_map(Value::from)]
}

prop_compose! {
    fn suite()(
        enabled in switch(), calls in 1_u32..9, per_ms in 1_u32..9, limited in any::<bool>(), concurrency in number(),
        allow in patterns(), deny in patterns(), word in any::<bool>(), tokens in number(),
    ) -> Value {
        let deny = if deny.is_null() { json!([]) } else { deny };
        let expose = if word { json!("flat") } else { json!({ "allow": allow, "deny": deny }) };
        let rate = if limited { json!({ "calls": calls, "perMs": per_ms }) } else { Value::Null };
        json!({ "enabled": enabled, "concurrency": concurrency, "rateLimit": rate, "expose": expose,
                "wrapper": { "maxTokens": tokens } })
    }
}

prop_compose! {
    fn file()(
        hub in prop::array::uniform4(number()),
        retention in prop::array::uniform3(number()),
        budgets in prop::array::uniform4(number()),
        agent in prop_oneof![Just("codex"), Just("CODEX"), Just("other")],
        switches in prop::array::uniform2(switch()),
        idle in number(),
        profile in prop_oneof![Just("none"), Just("minimal"), Just("messaging"), Just("full")],
        suite_name in prop_oneof![Just("a"), Just("A")],
        suite in suite(),
        left_out in prop::collection::vec(any::<bool>(), 7),
    ) -> Value {
        let all = json!({
            "hub": { "bodyLimitBytes": hub[0], "replyHops": hub[1], "repliesPerMinute": hub[2], "repliesPerThread": hub[3] },
            "workspace": { "retention": { "archiveDays": retention[0], "receiptDays": retention[1], "journalDays": retention[2] } },
            "budgets": { "messagesPerHour": budgets[0], "tokensPerDay": budgets[1],
                         "agents": { agent: { "messagesPerHour": budgets[2], "tokensPerDay": budgets[3] } } },
            "terminals": { "notifyMail": switches[0], "idleMs": idle },
            "nats": { "enabled": switches[1] },
            "tools": { "profile": profile },
            "suites": { suite_name: suite },
        });
        let Value::Object(all) = all else { unreachable!() };
        let kept = all.into_iter().zip(left_out).filter(|(_, out)| !out).map(|(section, _)| section);
        Value::Object(kept.collect::<Map<String, Value>>())
    }
}

/// True if a limit is at most another, where `None` is no limit.
fn at_most<T: PartialOrd>(one: Option<T>, other: Option<T>) -> bool {
    other.is_none_or(|other| one.is_some_and(|one| one <= other))
}

proptest! {
    #[test]
    fn workspace_loosens_nothing(user in file(), workspace in file(), wishes in file()) {
        let mut nats = user.clone();
        nats["nats"]["url"] = json!("nats://127.0.0.1:1");
        let (value, _) = merged(&nats, workspace);
        // A second merge does not bypass the first.
        let (value, _) = merged(&value, wishes);
        let (own, both) = (settings(&nats), settings(&value));
        prop_assert!(both.body_limit.unwrap_or(1 << 20) <= own.body_limit.unwrap_or(1 << 20));
        prop_assert!(both.loops.hops <= own.loops.hops);
        prop_assert!(both.loops.pair_per_minute <= own.loops.pair_per_minute);
        prop_assert!(both.loops.thread <= own.loops.thread);
        for agent in ["codex", "other", "third"] {
            let agent: AgentId = agent.parse().expect("a name");
            let (own, both) = (own.budgets.of(&agent), both.budgets.of(&agent));
            prop_assert!(at_most(both.messages_per_hour, own.messages_per_hour));
            prop_assert!(at_most(both.tokens_per_day, own.tokens_per_day));
        }
        let (kept, keeps) = (own.workspace.retention, both.workspace.retention);
        prop_assert!(at_most(kept.archive, keeps.archive));
        prop_assert!(at_most(kept.receipts, keeps.receipts));
        prop_assert!(at_most(kept.journal, keeps.journal));
        prop_assert!(!both.workspace.terminals.notify_mail || own.workspace.terminals.notify_mail);
        prop_assert!(both.workspace.terminals.idle >= own.workspace.terminals.idle);
        prop_assert!(both.nats.is_none() || own.nats.is_some());
        prop_assert!(rank(&both) <= rank(&own));
        let (own, both) = (own.suites.suite("a").cloned(), both.suites.suite("a").cloned());
        let (own, both) = (own.unwrap_or_default(), both.unwrap_or_default());
        prop_assert!(both.enabled != Some(true) && both.enabled.is_some() || own.enabled != Some(false));
        prop_assert!(both.concurrency.unwrap_or(32) <= own.concurrency.unwrap_or(32));
        if let Some(own) = own.rate_limit {
            let both = both.rate_limit.expect("a limit");
            prop_assert!(both.calls <= own.calls && both.per_ms >= own.per_ms);
        }
        let tokens = |suite: &door_suites::SuiteSettings| {
            suite.wrapper.as_ref().and_then(|wrapper| wrapper.max_tokens).unwrap_or(100_000)
        };
        prop_assert!(tokens(&both) <= tokens(&own));
        for tool in ["read_a", "write_a", "x"] {
            prop_assert!(!offers(&both, tool) || offers(&own, tool), "{tool}: {value}");
        }
    }
}

fn rank(settings: &Settings) -> Option<usize> {
    super::PROFILES.iter().position(|word| *word == settings.profile.name())
}

/// True if a tool is exposed, by the few patterns of [`patterns`].
fn offers(suite: &door_suites::SuiteSettings, tool: &str) -> bool {
    let fits = |pattern: &String| match pattern.as_str() {
        "*" => true,
        "read_*" => tool.starts_with("read_"),
        "[rw]*" => tool.starts_with(['r', 'w']),
        name => name == tool,
    };
    !suite.expose.deny.iter().any(fits)
        && suite.expose.allow.as_ref().is_none_or(|allow| allow.iter().any(fits))
}

#[test]
fn legacy_router_clients_need_user_settings() {
    let on = json!({ "router": { "legacyClients": true, "legacyPort": 9000 } });
    let (value, ignored) = merged(&json!({}), on.clone());
    assert_eq!(settings(&value).legacy_router, None);
    assert_eq!(ignored, ["router.legacyClients", "router.legacyPort"]);
    let (value, _) = merged(&on, json!({ "router": { "legacyClients": false, "legacyPort": 1 } }));
    assert_eq!(settings(&value).legacy_router, Some("127.0.0.1:9000".parse().expect("an address")));
    let (value, _) = merged(&json!({ "router": { "legacyClients": true } }), json!({}));
    assert_eq!(settings(&value).legacy_router, Some("127.0.0.1:8765".parse().expect("an address")));
}
