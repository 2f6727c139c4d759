//! Personas: a Markdown text per role, written by the people of the workspace.
//!
//! A persona travels in a message's `persona` field; the payload stays as its sender wrote it.

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Name, error_chain};
use switchboard_sys::files::{Dir, FileError};

use crate::error::WorkspaceError;
use crate::roles::{Role, role_of};
use crate::snapshot::Snapshot;
use crate::translate::set_persona;
use crate::workspace::{OutgoingMessage, Workspace, blocking};

/// Maximum size of a persona in bytes.
///
/// The persona is part of every message, so it should not be longer than a few pages.
pub(crate) const LIMIT: u64 = 16 << 10;

/// Folders of persona files below `.agent/personas/`, in search order.
const FOLDERS: [Option<&str>; 2] = [Some("roles"), None];

/// The persona text for a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Persona {
    /// The persona's text. Most workspaces have none, which is not an error.
    pub text: Option<String>,
    /// The reason why an existing persona file was not used. The message is then sent without a persona.
    pub problem: Option<String>,
}

/// Returns the role whose persona a message carries.
///
/// In order of precedence: the role that the sender sets in `metadata.phase_gate.enforce_persona`, the recipient's
/// role, and the role that the recipient is named after.
pub(crate) fn role_for(name: &Name, role: Option<Role>, metadata: &Map<String, Value>) -> Option<Role> {
    let enforced = metadata.get("phase_gate").and_then(|gate| gate.get("enforce_persona"));
    let enforced = enforced.and_then(Value::as_str).and_then(Role::read);
    enforced.or(role).or_else(|| Role::read(name.as_str()))
}

/// Reads the persona of a role.
///
/// Does not follow symbolic links, so that no file outside the workspace is read.
pub(crate) fn find(workspace: &Dir, role: Role) -> Persona {
    let file = role.persona_file();
    for folder in FOLDERS {
        match read(workspace, folder, file) {
            Ok(None) => {}
            Ok(Some(text)) => return Persona { text: Some(text), problem: None },
            Err(problem) => {
                tracing::warn!(file, %problem, "a persona was skipped");
                return Persona { text: None, problem: Some(problem) };
            }
        }
    }
    Persona::default()
}

fn read(workspace: &Dir, folder: Option<&str>, file: &str) -> Result<Option<String>, String> {
    let described = |error: FileError| match error {
        FileError::TooLarge { path, size, limit } => {
            format!("{} has {size} bytes and a persona has at most {limit}: shorten it", path.display())
        }
        other => error_chain(&other),
    };
    let mut dir = workspace.clone();
    for name in [".agent", "personas"].into_iter().chain(folder) {
        match dir.subdir(name).map_err(described)? {
            Some(below) => dir = below,
            None => return Ok(None),
        }
    }
    let Some(found) = dir.read(file, LIMIT).map_err(described)? else { return Ok(None) };
    let text = String::from_utf8(found.bytes)
        .map_err(|_| format!("{} is not UTF-8 text", dir.path().join(file).display()))?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

impl OutgoingMessage {
    /// Attaches the persona of the recipient's role.
    #[must_use]
    pub fn with_persona(mut self, persona: impl Into<String>) -> Self {
        set_persona(&mut self.metadata, persona.into());
        self
    }
}

impl Workspace {
    /// Returns the persona for a message with this metadata to this agent.
    pub async fn persona_for(
        &self,
        recipient: &AgentId,
        metadata: &Map<String, Value>,
    ) -> Result<Persona, WorkspaceError> {
        self.persona_in(&self.snapshot().await?, recipient, metadata).await
    }

    /// Returns the persona for a message to an agent, using a snapshot.
    ///
    /// Otherwise like [`persona_for`](Self::persona_for).
    pub async fn persona_in(
        &self,
        now: &Snapshot,
        recipient: &AgentId,
        metadata: &Map<String, Value>,
    ) -> Result<Persona, WorkspaceError> {
        let id = now.directory.canonical(recipient);
        let role = now.directory.agent(&id).and_then(|agent| role_of(agent, &now.state));
        self.persona_of(role_for(&id.name, role, metadata)).await
    }

    /// Returns the persona of a role.
    pub(crate) async fn persona_of(&self, role: Option<Role>) -> Result<Persona, WorkspaceError> {
        let Some(role) = role else { return Ok(Persona::default()) };
        let tree = self.tree().clone();
        blocking(move || Ok(find(&tree.workspace()?, role))).await
    }
}

#[cfg(test)]
#[path = "personas_tests.rs"]
mod tests;
