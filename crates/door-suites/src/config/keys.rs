//! The keys that the settings know, so that a mistyped one is noticed.

use serde_json::Value;

use crate::wrapper::WrapperSettings;

/// A key nobody knows, and those that are known in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// Where it stands.
    pub path: String,
    /// The key itself.
    pub key: String,
    /// What is known there.
    pub known: &'static [&'static str],
}

/// The keys at the top of the file that are about suites.
pub(super) const TOP: &[&str] = &["discoverGlobs", "suites", "timeouts", "introspection"];

const TIMEOUTS: &[&str] = &["childSpawnMs", "rpcMs"];
const INTROSPECTION: &[&str] = &["mode", "summaryMaxChars"];
const SUITE: &[&str] = &[
    "suiteName",
    "description",
    "expose",
    "summaryMaxChars",
    "enabled",
    "idleMs",
    "spawnTimeoutMs",
    "rpcTimeoutMs",
    "concurrency",
    "rateLimit",
    "cache",
    "wrapper",
];
const EXPOSE: &[&str] = &["mode", "bare", "allow", "deny"];
const RATE_LIMIT: &[&str] = &["calls", "perMs"];
const CACHE: &[&str] = &["ttlMs"];

impl super::Config {
    /// The keys at the top of the file that are about suites.
    pub const KEYS: &'static [&'static str] = TOP;
}

/// The keys below those of the suites that no setting has.
pub fn unknown_keys(file: &Value) -> Vec<UnknownKey> {
    let mut unknown = Vec::new();
    look(file.get("timeouts"), "timeouts", TIMEOUTS, &mut unknown);
    look(file.get("introspection"), "introspection", INTROSPECTION, &mut unknown);
    let suites = file.get("suites").and_then(Value::as_object);
    for (name, suite) in suites.into_iter().flatten() {
        let path = format!("suites.{name}");
        look(Some(suite), &path, SUITE, &mut unknown);
        for (key, known) in [
            ("expose", EXPOSE),
            ("rateLimit", RATE_LIMIT),
            ("cache", CACHE),
            ("wrapper", WrapperSettings::KEYS),
        ] {
            look(suite.get(key), &format!("{path}.{key}"), known, &mut unknown);
        }
    }
    unknown
}

fn look(place: Option<&Value>, path: &str, known: &'static [&'static str], unknown: &mut Vec<UnknownKey>) {
    let keys = place.and_then(Value::as_object).into_iter().flat_map(|object| object.keys());
    for key in keys.filter(|key| !known.contains(&key.as_str())) {
        unknown.push(UnknownKey { path: format!("{path}.{key}"), key: key.clone(), known });
    }
}
