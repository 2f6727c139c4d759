//! The settings `suites.<name>.wrapper` in `switchboard.config.json`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::provider::ProviderKind;
use crate::error::SuiteError;

/// Upper limit for `maxTurns`. A question that a model can answer needs fewer turns.
const MOST_TURNS: u32 = 100;

/// Upper limit for the time of one question. The request timeout that `wrap` writes is slightly longer.
pub(super) const LONGEST: Duration = Duration::from_mins(10);

/// Settings of a wrapper, which answers questions in plain language.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WrapperSettings {
    /// Model provider; by default the first available of ANTHROPIC_API_KEY, OPENAI_API_KEY, `claude`, `codex`
    pub provider: Option<ProviderKind>,
    /// Model name
    pub model: Option<String>,
    /// Base URL of the API; only read from the user's own settings
    pub base_url: Option<String>,
    /// Most turns of the model per question; default 12
    #[schemars(range(min = 1, max = 100))]
    pub max_turns: Option<u32>,
    /// Most tokens per question, input and output; default 100000
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Most time per question, in milliseconds; default 120000
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: Option<u64>,
    /// Whether the model may use destructive tools; only read from the user's own settings
    pub allow_destructive: bool,
    /// Program that answers, with its arguments; only read from the user's own settings
    pub command: Option<Vec<String>>,
}

/// Bounds of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) turns: u32,
    pub(super) tokens: u64,
    pub(super) time: Duration,
}

impl WrapperSettings {
    /// Known keys, for detecting misspelled keys.
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

    /// Default of `maxTurns`.
    pub const MAX_TURNS: u32 = 12;

    /// Default of `maxTokens`.
    pub const MAX_TOKENS: u64 = 100_000;

    /// Default of `timeoutMs`.
    pub const TIMEOUT_MS: u64 = 120_000;

    /// Returns an error if a value is out of range.
    pub(crate) fn check(&self, child: &str) -> Result<(), SuiteError> {
        self.bounds(child).map(drop)
    }

    /// Resolves the bounds that apply to one question to this child.
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

/// Builds the error for an invalid wrapper setting.
pub(super) fn bad(child: &str, key: &str, problem: String) -> SuiteError {
    SuiteError::Config { key: format!("suites.{child}.wrapper.{key}"), problem }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
