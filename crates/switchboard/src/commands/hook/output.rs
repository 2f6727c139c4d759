//! The JSON that a hook returns to its client. Claude Code and Codex accept the same keys; Codex refuses keys that
//! it does not know.

use std::io::Write;

use serde_json::{Value, json};

use super::Event;

/// Response of a hook that has text for the model.
pub(super) struct Answer(Value);

impl Answer {
    /// Renders a text for the model in the form of the event.
    pub(super) fn new(event: Event, text: &str) -> Self {
        Self(match event {
            // The model continues, with this as its next instruction.
            Event::Stop | Event::Idle => json!({ "decision": "block", "reason": text }),
            Event::SessionStart | Event::UserPrompt | Event::PostTool => {
                json!({ "hookSpecificOutput": { "hookEventName": event.client_name(), "additionalContext": text } })
            }
        })
    }

    /// Writes the whole response, or fails if no process reads it.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.0)?;
        out.flush()
    }
}
