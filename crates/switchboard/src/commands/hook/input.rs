//! What a client says on its hook's stdin. Claude Code and Codex use the same words.

use std::io::Read;

use serde::Deserialize;

use super::Event;
use crate::failure::{Exit, Failure};

/// Most bytes that are read. A tool's answer is part of what a client says, and may be long.
const LIMIT: u64 = 64 << 20;

/// What matters of it; clients say much more, and may say less.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Input {
    /// Where the session is at work.
    pub(super) cwd: Option<String>,
    /// Which session.
    pub(super) session_id: Option<String>,
    /// Whether the model has been kept from stopping already, in this turn.
    #[serde(default)]
    pub(super) stop_hook_active: bool,
    hook_event_name: Option<String>,
    agent_id: Option<String>,
}

impl Input {
    /// Reads all of stdin.
    pub(super) fn read(event: Event) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(LIMIT).read_to_end(&mut bytes).map_err(anyhow::Error::from)?;
        Self::parse(&bytes, event)
    }

    fn parse(bytes: &[u8], event: Event) -> Result<Self, Failure> {
        let bad = |problem: String| {
            Failure::new("bad_input", Exit::Failed, format!("stdin is not what a hook is told: {problem}"))
                .hint("this is called by a client's hook; `switchboard install` writes the call")
        };
        let input: Self = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        match input.hook_event_name.as_deref() {
            // An idle session may have stopped or just begun.
            Some("SessionStart") if event == Event::Idle => {}
            Some(name) if name != event.name() => {
                let name = name.escape_debug();
                return Err(bad(format!(
                    "hook_event_name is '{name}', but `{}` is for {}",
                    event.word(),
                    event.name()
                )));
            }
            _ => {}
        }
        Ok(input)
    }

    /// Whether a model that the session's own model has put to work is meant.
    pub(super) fn is_of_a_subagent(&self) -> bool {
        self.agent_id.is_some()
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
