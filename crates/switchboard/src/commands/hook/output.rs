//! What a client is told in return. Claude Code and Codex take the same; Codex refuses fields that it does not know.

use std::io::Write;

use serde_json::{Value, json};

use super::Event;

/// The answer of a hook that has something to say.
pub(super) struct Answer(Value);

impl Answer {
    /// Puts a text before the model, in the way that an event has for it.
    pub(super) fn new(event: Event, text: &str) -> Self {
        Self(match event {
            // The model goes on, with this as its next instruction.
            Event::Stop | Event::Idle => json!({ "decision": "block", "reason": text }),
            Event::SessionStart | Event::UserPrompt | Event::PostTool => {
                json!({ "hookSpecificOutput": { "hookEventName": event.name(), "additionalContext": text } })
            }
        })
    }

    /// Writes it, whole, or says that nobody reads it.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.0)?;
        out.flush()
    }
}
