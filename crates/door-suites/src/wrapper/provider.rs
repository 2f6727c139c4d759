//! Selection of the model provider from settings and environment, in a fixed order.

use std::path::{Path, PathBuf};

use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use switchboard_sys::reaper::ReaperClient;

use super::anthropic::Anthropic;
use super::command::Command;
use super::endpoint::{Key, is_loopback};
use super::error::{ModelError, WrapperError};
use super::model::{Model, Prompt};
use super::openai::OpenAi;
use super::settings::{WrapperSettings, bad};
use crate::expand::Lookup;

/// Default URL of the Messages API.
const ANTHROPIC_URL: &str = "https://api.anthropic.com";

/// Default URL of the Chat Completions API.
const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Default model for Anthropic's API. Both default models are fast ones, since using tools is not hard.
const ANTHROPIC_MODEL: &str = "claude-haiku-4-5";
const OPENAI_MODEL: &str = "gpt-5-mini";

/// Programs that are tried in this order if there is no API key.
///
/// Their flags prevent them from starting MCP servers, which could include this wrapper.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("claude", &["claude", "-p", "--strict-mcp-config"]),
    ("codex", &["codex", "exec", "--sandbox", "read-only", "--skip-git-repo-check", "-"]),
];

/// Environment variables that a wrapper reads and that must therefore be passed to it.
pub(super) const PASSED_VARIABLES: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_MODEL",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_MODEL",
];

/// Kind of model provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Anthropic's Messages API.
    Anthropic,
    /// Chat Completions API of OpenAI or a compatible server.
    OpenAi,
    /// A command-line program.
    Command,
}

/// A model provider with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Provider {
    Anthropic { base: Url, key: Key, model: String },
    OpenAi { base: Url, key: Option<Key>, model: String },
    Command { command: Vec<String> },
}

impl Provider {
    /// Selects the provider: from the settings, else by the available API key, else by the installed program.
    pub(super) fn choose(
        child: &str,
        settings: &WrapperSettings,
        lookup: Lookup<'_>,
    ) -> Result<Self, WrapperError> {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let kind = match settings.provider {
            Some(kind) => kind,
            None if settings.command.is_some() => ProviderKind::Command,
            None if set("ANTHROPIC_API_KEY").is_some() => ProviderKind::Anthropic,
            None if set("OPENAI_API_KEY").is_some() => ProviderKind::OpenAi,
            None => ProviderKind::Command,
        };
        let base = |variable: &str, default: &str| {
            let text = settings.base_url.clone().or_else(|| set(variable));
            let key = if settings.base_url.is_some() { "baseUrl" } else { variable };
            parse_base_url(child, key, text.as_deref().unwrap_or(default))
        };
        let model = |variable: &str, default: &str| {
            settings.model.clone().or_else(|| set(variable)).unwrap_or_else(|| default.to_owned())
        };
        match kind {
            ProviderKind::Anthropic => {
                let key = set("ANTHROPIC_API_KEY").ok_or_else(|| WrapperError::Incomplete {
                    provider: "anthropic",
                    needs: "a key in the variable ANTHROPIC_API_KEY".to_owned(),
                })?;
                let base = base("ANTHROPIC_BASE_URL", ANTHROPIC_URL)?;
                require_tls(&base, "anthropic")?;
                let model = model("ANTHROPIC_MODEL", ANTHROPIC_MODEL);
                Ok(Self::Anthropic { base, key: Key::new(&key), model })
            }
            ProviderKind::OpenAi => {
                let base = base("OPENAI_BASE_URL", OPENAI_URL)?;
                let key = set("OPENAI_API_KEY");
                // Require a key only for OpenAI itself, because local servers often need none.
                if key.is_none() && base.as_str().starts_with(OPENAI_URL) {
                    let needs = "a key in the variable OPENAI_API_KEY, or the address of a server that needs none in \
                                 OPENAI_BASE_URL"
                        .to_owned();
                    return Err(WrapperError::Incomplete { provider: "openai", needs });
                }
                if key.is_some() {
                    require_tls(&base, "openai")?;
                }
                let key = key.map(|key| Key::new(&key));
                Ok(Self::OpenAi { base, key, model: model("OPENAI_MODEL", OPENAI_MODEL) })
            }
            ProviderKind::Command => {
                if let Some(command) = &settings.command {
                    if command.first().is_none_or(|program| program.trim().is_empty()) {
                        return Err(bad(child, "command", "is empty; name the program".to_owned()).into());
                    }
                    return Ok(Self::Command { command: command.clone() });
                }
                let path = lookup("PATH").unwrap_or_default();
                let found = PROGRAMS.iter().find(|(program, _)| find_program(&path, program).is_some());
                let (_, words) = found.ok_or_else(|| WrapperError::NoProvider { child: child.to_owned() })?;
                let mut command: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
                if let Some(model) = &settings.model {
                    let at = command.len() - usize::from(command.last().is_some_and(|word| word == "-"));
                    command.splice(at..at, ["--model".to_owned(), model.clone()]);
                }
                Ok(Self::Command { command })
            }
        }
    }

    /// Returns the provider's name as shown to people.
    pub(super) fn display_name(&self) -> String {
        match self {
            Self::Anthropic { model, .. } | Self::OpenAi { model, .. } => model.clone(),
            Self::Command { command } => command.first().cloned().unwrap_or_default(),
        }
    }

    /// Starts a conversation. A command-line program runs in `folder`, which contains the role file.
    pub(super) fn start_conversation(
        &self,
        task: &Prompt<'_>,
        folder: &Path,
        guard: Option<&ReaperClient>,
    ) -> Result<Model, ModelError> {
        Ok(match self {
            Self::Anthropic { base, key, model } => Model::Anthropic(Anthropic::new(base, key, model, task)?),
            Self::OpenAi { base, key, model } => Model::OpenAi(OpenAi::new(base, key.as_ref(), model, task)?),
            Self::Command { command } => {
                Model::Command(Command::new(command, folder.to_owned(), task, guard.cloned()))
            }
        })
    }
}

/// Parses a base URL from the settings or the environment.
fn parse_base_url(child: &str, key: &str, text: &str) -> Result<Url, WrapperError> {
    let problem = match Url::parse(text.trim()) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => return Ok(url),
        Ok(_) => "must begin with https:// or http://".to_owned(),
        Err(error) => format!("is not a valid URL: {error}; it must begin with https:// or http://"),
    };
    if key == "baseUrl" {
        return Err(bad(child, key, problem).into());
    }
    Err(WrapperError::Incomplete { provider: "address", needs: format!("a correct {key}, which {problem}") })
}

/// Returns an error if a key would be sent over an unencrypted connection.
fn require_tls(base: &Url, provider: &'static str) -> Result<(), WrapperError> {
    if base.scheme() == "https" || is_loopback(base) {
        return Ok(());
    }
    let needs = "an address with https://, because the key would go over the network unencrypted".to_owned();
    Err(WrapperError::Incomplete { provider, needs })
}

/// Finds a program in `path`, a list of folders in the format of the `PATH` variable.
fn find_program(path: &str, program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).map(|folder| folder.join(program)).find(is_program)
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
