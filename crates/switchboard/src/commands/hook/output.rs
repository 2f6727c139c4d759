//! The JSON response of a hook. Claude Code and Codex accept the same keys; Codex rejects keys that it does not know.

use std::io::Write;

use serde_json::{Value, json};

use super::Event;

/// Response of a hook that has text for the model.
pub(super) struct Answer(Value);

impl Answer {
    /// Renders a text for the model in the form that the event requires.
    pub(super) fn new(event: Event, text: &str) -> Self {
        Self(match event {
            // The model continues with this text as its next instruction.
            Event::Stop | Event::Idle => json!({ "decision": "block", "reason": text }),
            Event::SessionStart | Event::UserPrompt | Event::PostTool => {
                json!({ "hookSpecificOutput": { "hookEventName": event.client_name(), "additionalContext": text } })
            }
        })
    }

    /// Writes the whole response to stdout; fails if stdout is closed.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.0)?;
        out.flush()
    }
}
