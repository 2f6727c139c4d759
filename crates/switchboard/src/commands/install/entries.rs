//! What is written into a client's settings.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{json as edit_json, toml};
use crate::commands::hook::{Client, Event};

/// The name of our server in a client's settings.
pub(super) const SERVER: &str = "switchboard";

/// By this variable the server learns whose it is.
pub(super) const AGENT: &str = "SWITCHBOARD_AGENT_NAME";

/// Seconds that a client gives a hook: it takes milliseconds, and a client that waits longer is better off without.
const HOOK_SECONDS: u64 = 15;

/// Seconds that a client lets the one run that waits beside an idle session: a day.
const IDLE_SECONDS: u64 = 24 * 60 * 60;

/// What is to stand in the settings of one client.
pub(super) struct Entries {
    pub(super) client: Client,
    /// Ours: with its whole path in the user's own files, because clients with windows do not have the path of a shell.
    pub(super) program: PathBuf,
    /// The agent, where it is always the same.
    pub(super) agent: Option<String>,
    /// Whether somebody has just chosen that name.
    pub(super) renames: bool,
}

impl Entries {
    /// Puts our server into the text of the settings; nothing where it is there.
    pub(super) fn put_server(&self, text: &str) -> Result<Option<String>, String> {
        match self.client {
            Client::Claude => edit_json::put_server(text, self),
            Client::Codex => toml::put_server(text, self),
        }
    }

    /// The hooks, by what the client calls the event.
    pub(super) fn hooks(&self) -> Vec<(&'static str, Vec<Value>)> {
        let events = [Event::SessionStart, Event::UserPrompt, Event::PostTool, Event::Stop];
        let hooks = events.map(|event| {
            let mut hooks = vec![self.hook(event)];
            // Only Claude Code has hooks that wake a session.
            if self.client == Client::Claude && matches!(event, Event::SessionStart | Event::Stop) {
                hooks.push(self.hook(Event::Idle));
            }
            (event.name(), hooks)
        });
        hooks.into()
    }

    fn hook(&self, event: Event) -> Value {
        let mut command = format!("{} hook {} {}", quoted(&self.program), self.client.word(), event.word());
        if let Some(agent) = &self.agent {
            command.push_str(" --agent ");
            command.push_str(&quoted(Path::new(agent)));
        }
        let mut hook = json!({ "type": "command", "command": command, "timeout": HOOK_SECONDS });
        if event == Event::Idle {
            hook["asyncRewake"] = true.into();
            hook["timeout"] = IDLE_SECONDS.into();
        }
        hook
    }
}

/// Whether a hook's command is one of ours, wherever the program was when it was written.
pub(super) fn is_ours(command: &str, client: Client) -> bool {
    program_of(command, client).is_some()
}

/// The program of a hook's command that is one of ours.
pub(super) fn program_of(command: &str, client: Client) -> Option<String> {
    let (program, rest) = match command.strip_prefix('\'').and_then(|rest| rest.rsplit_once("' hook ")) {
        Some((program, rest)) => (program.replace(r"'\''", "'"), rest),
        None => command.split_once(" hook ").map(|(program, rest)| (program.to_owned(), rest))?,
    };
    (is_program(&program) && rest.split(' ').next() == Some(client.word())).then_some(program)
}

/// Whether a program is not where its path says. One without a path is looked for by whoever starts it.
pub(super) fn is_gone(program: &str) -> bool {
    Path::new(program).is_absolute() && !Path::new(program).exists()
}

/// Whether a path is that of this program.
pub(super) fn is_program(path: &str) -> bool {
    Path::new(path).file_name().is_some_and(|name| name == "switchboard")
}

/// A path as a shell reads it back.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
