//! The JSON that a client passes to its hook on stdin. Claude Code and Codex use the same keys.

use std::io::Read;

use serde::Deserialize;
use switchboard_core::describe_json_error;

use super::Event;
use crate::failure::{Exit, Failure};

/// Maximum bytes to read from stdin. The input contains a tool's result, which may be long.
const LIMIT: u64 = 64 << 20;

/// The fields that matter here; clients send many more, and may send fewer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Input {
    /// Working folder of the session.
    pub(super) cwd: Option<String>,
    /// Id of the session.
    pub(super) session_id: Option<String>,
    /// True if a stop hook already blocked the model in this turn.
    #[serde(default)]
    pub(super) stop_hook_active: bool,
    hook_event_name: Option<String>,
    agent_id: Option<String>,
}

impl Input {
    /// Reads and parses all of stdin.
    pub(super) fn read(event: Event) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(LIMIT).read_to_end(&mut bytes).map_err(anyhow::Error::from)?;
        Self::parse(&bytes, event)
    }

    fn parse(bytes: &[u8], event: Event) -> Result<Self, Failure> {
        let bad = |problem: String| {
            Failure::new("bad_input", Exit::Failed, format!("stdin is not the JSON of a hook: {problem}"))
                .hint("this is called by a client's hook; `switchboard install` writes the call")
        };
        let input: Self = serde_json::from_slice(bytes).map_err(|error| bad(describe_json_error(&error)))?;
        match input.hook_event_name.as_deref() {
            // A session becomes idle when it stops, and also when it starts.
            Some("SessionStart") if event == Event::Idle => {}
            Some(name) if name != event.client_name() => {
                let name = name.escape_debug();
                return Err(bad(format!(
                    "hook_event_name is '{name}', but `{}` is for {}",
                    event.cli_name(),
                    event.client_name()
                )));
            }
            _ => {}
        }
        Ok(input)
    }

    /// Returns true if the event comes from a subagent rather than from the session's main model.
    pub(super) fn is_of_a_subagent(&self) -> bool {
        self.agent_id.is_some()
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
