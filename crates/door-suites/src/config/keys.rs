//! Known setting keys, for detecting misspelled keys.

use serde_json::Value;

use crate::wrapper::WrapperSettings;

/// An unknown key, together with the keys that are valid in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// Full path of the key.
    pub path: String,
    /// Last component of the path.
    pub key: String,
    /// Keys that are valid at this place.
    pub known: &'static [&'static str],
}

/// Known top-level keys of the suite settings.
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
    /// Top-level keys of the suite settings.
    pub const KEYS: &'static [&'static str] = TOP;
}

/// Returns the unknown keys inside the known top-level settings of the suites.
pub fn unknown_keys(file: &Value) -> Vec<UnknownKey> {
    let mut unknown = Vec::new();
    collect_unknown(file.get("timeouts"), "timeouts", TIMEOUTS, &mut unknown);
    collect_unknown(file.get("introspection"), "introspection", INTROSPECTION, &mut unknown);
    let suites = file.get("suites").and_then(Value::as_object);
    for (name, suite) in suites.into_iter().flatten() {
        let path = format!("suites.{name}");
        collect_unknown(Some(suite), &path, SUITE, &mut unknown);
        for (key, known) in [
            ("expose", EXPOSE),
            ("rateLimit", RATE_LIMIT),
            ("cache", CACHE),
            ("wrapper", WrapperSettings::KEYS),
        ] {
            collect_unknown(suite.get(key), &format!("{path}.{key}"), known, &mut unknown);
        }
    }
    unknown
}

fn collect_unknown(
    place: Option<&Value>,
    path: &str,
    known: &'static [&'static str],
    unknown: &mut Vec<UnknownKey>,
) {
    let keys = place.and_then(Value::as_object).into_iter().flat_map(|object| object.keys());
    for key in keys.filter(|key| !known.contains(&key.as_str())) {
        unknown.push(UnknownKey { path: format!("{path}.{key}"), key: key.clone(), known });
    }
}
