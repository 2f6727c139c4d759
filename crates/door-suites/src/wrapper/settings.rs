//! `suites.<name>.wrapper` in `switchboard.config.json`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::provider::ProviderKind;
use crate::error::SuiteError;

/// More turns than any question takes that a model is able to answer.
const MOST_TURNS: u32 = 100;

/// The longest time for one question; the outer limit that `wrap` writes is a little more.
pub(super) const LONGEST: Duration = Duration::from_mins(10);

/// How a wrapped server's questions are answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WrapperSettings {
    /// Who answers; without it the first of a key in ANTHROPIC_API_KEY, one in OPENAI_API_KEY, `claude`, `codex`
    pub provider: Option<ProviderKind>,
    /// The model
    pub model: Option<String>,
    /// The address of the API; counts in the user's own settings alone
    pub base_url: Option<String>,
    /// Most turns of the model for one question; 12 unless told
    #[schemars(range(min = 1, max = 100))]
    pub max_turns: Option<u32>,
    /// Most tokens for one question, read and written; 100000 unless told
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Most time for one question, in milliseconds; 120000 unless told
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: Option<u64>,
    /// Whether tools that destroy something are given to the model; counts in the user's own settings alone
    pub allow_destructive: bool,
    /// The program that answers, with its arguments; counts in the user's own settings alone
    pub command: Option<Vec<String>>,
}

/// What one question may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) turns: u32,
    pub(super) tokens: u64,
    pub(super) time: Duration,
}

impl WrapperSettings {
    /// All keys, so that a mistyped one is noticed.
    pub const KEYS: &'static [&'static str] = &[
        "provider",
        "model",
        "baseUrl",
        "maxTurns",
        "maxTokens",
        "timeoutMs",
        "allowDestructive",
        "command",
    ];

    /// Most turns of the model for one question, unless told.
    pub const MAX_TURNS: u32 = 12;

    /// Most tokens for one question, unless told.
    pub const MAX_TOKENS: u64 = 100_000;

    /// Most milliseconds for one question, unless told.
    pub const TIMEOUT_MS: u64 = 120_000;

    /// Refuses values that would make no sense later.
    pub(crate) fn check(&self, child: &str) -> Result<(), SuiteError> {
        self.bounds(child).map(drop)
    }

    /// What one question to this child may cost.
    pub(super) fn bounds(&self, child: &str) -> Result<Bounds, SuiteError> {
        let longest = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
        let within = |key: &str, value: u64, most: u64| match value {
            0 => Err(bad(child, key, "is 0, but must be at least 1".to_owned())),
            value if value > most => Err(bad(child, key, format!("is {value}, but may be at most {most}"))),
            value => Ok(value),
        };
        let turns = self.max_turns.unwrap_or(Self::MAX_TURNS);
        within("maxTurns", turns.into(), MOST_TURNS.into())?;
        let tokens = within("maxTokens", self.max_tokens.unwrap_or(Self::MAX_TOKENS), u64::MAX)?;
        let time = within("timeoutMs", self.timeout_ms.unwrap_or(Self::TIMEOUT_MS), longest)?;
        Ok(Bounds { turns, tokens, time: Duration::from_millis(time) })
    }
}

/// The error of a key of a child's wrapper.
pub(super) fn bad(child: &str, key: &str, problem: String) -> SuiteError {
    SuiteError::Config { key: format!("suites.{child}.wrapper.{key}"), problem }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
