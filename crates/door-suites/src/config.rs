//! Suite settings of `switchboard.config.json`.
//!
//! The defaults are those of the suite proxy's architecture (section "Configuration Management").

mod expose;
mod keys;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use switchboard_core::describe_field_error;

pub use self::expose::{ExposeMode, ExposeSettings};
pub use self::keys::{UnknownKey, unknown_keys};
use crate::error::SuiteError;
use crate::wrapper::WrapperSettings;

/// Maximum length of a tool name that hosts and models accept, in bytes.
const TOOL_NAME_LIMIT: usize = 64;

/// Suite settings of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Globs of files that describe servers, relative to the workspace
    pub discover_globs: Vec<String>,
    /// Settings of single servers, by name
    pub suites: BTreeMap<String, SuiteSettings>,
    /// Timeouts
    pub timeouts: Timeouts,
    /// Format of introspection
    pub introspection: Introspection,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            discover_globs: vec![".switchboard/mcps/*/.mcp.json".to_owned()],
            suites: BTreeMap::new(),
            timeouts: Timeouts::default(),
            introspection: Introspection::default(),
        }
    }
}

/// Timeouts of all servers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// From the start of a server to its first answer, in milliseconds
    #[schemars(range(min = 1))]
    pub child_spawn_ms: u64,
    /// One request, in milliseconds
    #[schemars(range(min = 1))]
    pub rpc_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { child_spawn_ms: 8000, rpc_ms: 60_000 }
    }
}

/// Format of introspection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Introspection {
    /// Whether `introspect` returns one line per tool, or full schemas
    pub mode: IntrospectionMode,
    /// Longest summary of a tool, in characters
    #[schemars(range(min = 1))]
    pub summary_max_chars: usize,
}

impl Default for Introspection {
    fn default() -> Self {
        Self { mode: IntrospectionMode::Summary, summary_max_chars: 160 }
    }
}

/// Default format of `introspect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IntrospectionMode {
    /// One line per tool.
    #[default]
    Summary,
    /// Full schemas.
    Full,
}

/// Settings of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SuiteSettings {
    /// Name of its tool; `<name>_suite` by default
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub suite_name: Option<String>,
    /// Description for models, unless its own file has `switchboardDescription`
    pub description: Option<String>,
    /// Which of its tools are offered, and how
    pub expose: ExposeSettings,
    /// Longest summary of a tool, in characters
    #[schemars(range(min = 1))]
    pub summary_max_chars: Option<usize>,
    /// Whether it is offered; true by default
    pub enabled: Option<bool>,
    /// Idle time after which it is stopped, in milliseconds; 0 means never
    pub idle_ms: Option<u64>,
    /// From its start to its first answer, in milliseconds
    #[schemars(range(min = 1))]
    pub spawn_timeout_ms: Option<u64>,
    /// One request, in milliseconds
    #[schemars(range(min = 1))]
    pub rpc_timeout_ms: Option<u64>,
    /// Most concurrent requests; others wait
    #[schemars(range(min = 1))]
    pub concurrency: Option<usize>,
    /// Rate limit of its calls; calls above it are refused
    pub rate_limit: Option<RateLimit>,
    /// Cache for results of its read-only tools
    pub cache: Option<CacheSettings>,
    /// Settings of its wrapper, which answers questions in plain language
    pub wrapper: Option<WrapperSettings>,
}

/// Rate limit: calls per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// Number of calls
    #[schemars(range(min = 1))]
    pub calls: u32,
    /// Interval, in milliseconds
    #[schemars(range(min = 1))]
    pub per_ms: u64,
}

/// Cache for results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheSettings {
    /// Lifetime of a cached result, in milliseconds
    #[schemars(range(min = 1))]
    pub ttl_ms: u64,
}

impl Config {
    /// Parses and validates the suite settings of a configuration file. Unrelated keys are ignored.
    pub fn from_file(file: &Value) -> Result<Self, SuiteError> {
        let config: Self = serde_path_to_error::deserialize(file).map_err(|error| {
            let key = error.path().to_string();
            bad(key, &describe_field_error(error.inner()))
        })?;
        config.check()?;
        Ok(config)
    }

    /// Returns the settings of a server, if there are any. Names are case-insensitive.
    pub fn suite(&self, child: &str) -> Option<&SuiteSettings> {
        let is_it = |name: &str| name.eq_ignore_ascii_case(child) || names_package(name, child);
        self.suites.get(child).or_else(|| self.suites.iter().find(|(name, _)| is_it(name)).map(|(_, s)| s))
    }

    /// Returns the name of a server's suite tool.
    ///
    /// Characters that are not valid in a tool name, such as spaces and dots, are replaced by underscores.
    pub fn suite_name(&self, child: &str) -> String {
        if let Some(name) = self.suite(child).and_then(|suite| suite.suite_name.clone()) {
            return name;
        }
        let name: String = child.chars().map(|c| if is_tool_character(c) { c } else { '_' }).collect();
        let stem = &name[..name.len().min(TOOL_NAME_LIMIT - "_suite".len())];
        format!("{stem}_suite")
    }

    /// Returns the maximum length of a tool summary of this server, in characters.
    pub fn summary_max_chars(&self, child: &str) -> usize {
        let own = self.suite(child).and_then(|suite| suite.summary_max_chars);
        own.unwrap_or(self.introspection.summary_max_chars)
    }

    /// Returns an error if a value is out of range.
    pub fn check(&self) -> Result<(), SuiteError> {
        let positive = |key: String, value: Option<u64>| match value {
            Some(0) => Err(bad(key, "is 0, but must be at least 1")),
            _ => Ok(()),
        };
        let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        positive("timeouts.childSpawnMs".to_owned(), Some(self.timeouts.child_spawn_ms))?;
        positive("timeouts.rpcMs".to_owned(), Some(self.timeouts.rpc_ms))?;
        let chars = self.introspection.summary_max_chars;
        positive("introspection.summaryMaxChars".to_owned(), Some(count(chars)))?;
        for (name, suite) in &self.suites {
            let key = |key: &str| format!("suites.{name}.{key}");
            positive(key("summaryMaxChars"), suite.summary_max_chars.map(count))?;
            positive(key("spawnTimeoutMs"), suite.spawn_timeout_ms)?;
            positive(key("rpcTimeoutMs"), suite.rpc_timeout_ms)?;
            positive(key("concurrency"), suite.concurrency.map(count))?;
            positive(key("rateLimit.calls"), suite.rate_limit.map(|limit| u64::from(limit.calls)))?;
            positive(key("rateLimit.perMs"), suite.rate_limit.map(|limit| limit.per_ms))?;
            positive(key("cache.ttlMs"), suite.cache.map(|cache| cache.ttl_ms))?;
            if let Some(wrapper) = &suite.wrapper {
                wrapper.check(name)?;
            }
            if let Some(tool) = &suite.suite_name {
                let is_one =
                    !tool.is_empty() && tool.len() <= TOOL_NAME_LIMIT && tool.chars().all(is_tool_character);
                if !is_one {
                    let problem = format!(
                        "is '{}', but a tool name has 1 to {TOOL_NAME_LIMIT} letters, digits, '_' and '-'",
                        tool.escape_debug()
                    );
                    return Err(bad(key("suiteName"), &problem));
                }
            }
        }
        Ok(())
    }
}

fn bad(key: String, problem: &str) -> SuiteError {
    SuiteError::Config { key, problem: problem.to_owned() }
}

fn is_tool_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns true if `key` is the scoped package name from which the child's name was derived.
fn names_package(key: &str, child: &str) -> bool {
    crate::names::child_name(key).is_ok_and(|name| name.eq_ignore_ascii_case(child))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
