//! The entries that `install` writes into a client's settings.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{json as edit_json, toml};
use crate::commands::hook::{Client, Event};

/// Name of Switchboard's MCP server in a client's settings.
pub(super) const SERVER: &str = "switchboard";

/// Environment variable that tells the MCP server its agent's name.
pub(super) const AGENT: &str = "SWITCHBOARD_AGENT_NAME";

/// Timeout of a hook in seconds. A hook takes milliseconds, and a client should not wait longer for it.
const HOOK_SECONDS: u64 = 15;

/// Timeout of the idle hook in seconds: a day.
const IDLE_SECONDS: u64 = 24 * 60 * 60;

/// Entries for the settings of one client.
pub(super) struct Entries {
    pub(super) client: Client,
    /// Our program: an absolute path in the user's own files, because graphical clients do not have a shell's
    /// `PATH`.
    pub(super) program: PathBuf,
    /// The agent's name, if it is fixed.
    pub(super) agent: Option<String>,
    /// True if the name was given on this command line.
    pub(super) renames: bool,
}

impl Entries {
    /// Adds our server to the text of the settings; returns `None` if nothing changes.
    pub(super) fn add_server(&self, text: &str) -> Result<Option<String>, String> {
        match self.client {
            Client::Claude => edit_json::add_server(text, self),
            Client::Codex => toml::add_server(text, self),
        }
    }

    /// Returns the hooks, grouped by the client's event names.
    pub(super) fn hooks(&self) -> Vec<(&'static str, Vec<Value>)> {
        let events = [Event::SessionStart, Event::UserPrompt, Event::PostTool, Event::Stop];
        let hooks = events.map(|event| {
            let mut hooks = vec![self.hook(event)];
            // Only Claude Code has hooks that wake a session.
            if self.client == Client::Claude && matches!(event, Event::SessionStart | Event::Stop) {
                hooks.push(self.hook(Event::Idle));
            }
            (event.client_name(), hooks)
        });
        hooks.into()
    }

    fn hook(&self, event: Event) -> Value {
        let mut command =
            format!("{} hook {} {}", quoted(&self.program), self.client.cli_name(), event.cli_name());
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

/// Returns true if a hook's command runs Switchboard, wherever its program was when the hook was written.
pub(super) fn is_ours(command: &str, client: Client) -> bool {
    program_of(command, client).is_some()
}

/// Returns the program in a hook's command if the command runs Switchboard.
pub(super) fn program_of(command: &str, client: Client) -> Option<String> {
    let (program, rest) = match command.strip_prefix('\'').and_then(|rest| rest.rsplit_once("' hook ")) {
        Some((program, rest)) => (program.replace(r"'\''", "'"), rest),
        None => command.split_once(" hook ").map(|(program, rest)| (program.to_owned(), rest))?,
    };
    (is_program(&program) && rest.split(' ').next() == Some(client.cli_name())).then_some(program)
}

/// Returns true if the program's path does not exist. A bare program name is never missing: the client searches its
/// `PATH`.
pub(super) fn is_missing(program: &str) -> bool {
    Path::new(program).is_absolute() && !Path::new(program).exists()
}

/// Returns true if a path names the `switchboard` program.
pub(super) fn is_program(path: &str) -> bool {
    Path::new(path).file_name().is_some_and(|name| name == "switchboard")
}

/// Quotes a path for a shell.
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
