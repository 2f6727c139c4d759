//! The keys of `switchboard.config.json` that are about suites, with the defaults that the suite proxy's
//! architecture gives them (section "Configuration Management").

mod expose;
mod keys;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use switchboard_core::in_json_words;

pub use self::expose::{ExposeMode, ExposeSettings};
pub use self::keys::{UnknownKey, unknown_keys};
use crate::error::SuiteError;
use crate::wrapper::WrapperSettings;

/// Most bytes in a tool's name: what hosts and models accept.
const TOOL_NAME_LIMIT: usize = 64;

/// The suites of a workspace, and what holds for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Where the files that describe servers are, as patterns relative to the workspace
    pub discover_globs: Vec<String>,
    /// Settings of single servers, by their names
    pub suites: BTreeMap<String, SuiteSettings>,
    /// How long things may take
    pub timeouts: Timeouts,
    /// How tools are shown
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

/// How long things may take.
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

/// How tools are shown.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Introspection {
    /// Whether `introspect` answers with one line a tool, or with whole schemas
    pub mode: IntrospectionMode,
    /// Most characters of a tool's summary
    #[schemars(range(min = 1))]
    pub summary_max_chars: usize,
}

impl Default for Introspection {
    fn default() -> Self {
        Self { mode: IntrospectionMode::Summary, summary_max_chars: 160 }
    }
}

/// What `introspect` answers with where the call does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IntrospectionMode {
    /// One line a tool.
    #[default]
    Summary,
    /// Whole schemas.
    Full,
}

/// Settings of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SuiteSettings {
    /// The name of its tool; without it `<name>_suite`
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub suite_name: Option<String>,
    /// What a model is told of it, where its own file has no `switchboardDescription`
    pub description: Option<String>,
    /// Which of its tools are offered, and how
    pub expose: ExposeSettings,
    /// Most characters of a tool's summary
    #[schemars(range(min = 1))]
    pub summary_max_chars: Option<usize>,
    /// Whether it is offered at all; it is unless this is false
    pub enabled: Option<bool>,
    /// Stop it when nobody called it for so many milliseconds; 0 means never
    pub idle_ms: Option<u64>,
    /// From its start to its first answer, in milliseconds
    #[schemars(range(min = 1))]
    pub spawn_timeout_ms: Option<u64>,
    /// One request, in milliseconds
    #[schemars(range(min = 1))]
    pub rpc_timeout_ms: Option<u64>,
    /// How many requests it may have at once; more wait
    #[schemars(range(min = 1))]
    pub concurrency: Option<usize>,
    /// How many calls it may get in a span of time; more are refused
    pub rate_limit: Option<RateLimit>,
    /// Keep results of its read-only tools
    pub cache: Option<CacheSettings>,
    /// How questions in plain language are answered, where it is wrapped
    pub wrapper: Option<WrapperSettings>,
}

/// How many calls a server may get in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// So many calls
    #[schemars(range(min = 1))]
    pub calls: u32,
    /// in so many milliseconds
    #[schemars(range(min = 1))]
    pub per_ms: u64,
}

/// Whether results are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheSettings {
    /// For how many milliseconds a result is kept
    #[schemars(range(min = 1))]
    pub ttl_ms: u64,
}

impl Config {
    /// The settings that a file asks for; keys that are not about suites are passed over.
    pub fn from_file(file: &Value) -> Result<Self, SuiteError> {
        let config: Self = serde_path_to_error::deserialize(file).map_err(|error| {
            let key = error.path().to_string();
            bad(key, &format!("does not do: {}", in_json_words(&error.into_inner().to_string())))
        })?;
        config.check()?;
        Ok(config)
    }

    /// The settings of a server; names that differ only in case are the same name.
    pub fn suite(&self, child: &str) -> Option<&SuiteSettings> {
        let is_it = |name: &str| name.eq_ignore_ascii_case(child) || names_package(name, child);
        self.suites.get(child).or_else(|| self.suites.iter().find(|(name, _)| is_it(name)).map(|(_, s)| s))
    }

    /// The name of a server's tool.
    ///
    /// A server's name may hold spaces and dots, which tool names may not: they become underscores.
    pub fn suite_name(&self, child: &str) -> String {
        if let Some(name) = self.suite(child).and_then(|suite| suite.suite_name.clone()) {
            return name;
        }
        let name: String = child.chars().map(|c| if is_tool_character(c) { c } else { '_' }).collect();
        let stem = &name[..name.len().min(TOOL_NAME_LIMIT - "_suite".len())];
        format!("{stem}_suite")
    }

    /// Most characters of the summary of a server's tools.
    pub fn summary_max_chars(&self, child: &str) -> usize {
        let own = self.suite(child).and_then(|suite| suite.summary_max_chars);
        own.unwrap_or(self.introspection.summary_max_chars)
    }

    /// Refuses values that would make no sense later.
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
                        "is '{}', but a tool's name has 1 to {TOOL_NAME_LIMIT} letters, digits, '_' and '-'",
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

/// Whether a key is the scoped package name of which a child got its name.
fn names_package(key: &str, child: &str) -> bool {
    crate::names::child_name(key).is_ok_and(|name| name.eq_ignore_ascii_case(child))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
