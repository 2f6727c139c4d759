//! Imports servers from the settings of MCP clients.

mod clients;
mod entry;
mod root;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use switchboard_core::suggest_similar;

pub use self::clients::Client;
pub use self::root::{ImportOutcome, RevertOutcome, RootFile, revert};
use crate::edit::{AddOutcome, add_child};
use crate::error::SuiteError;
use crate::expand::Lookup;
use crate::mcp_json::McpFile;
use crate::names::sanitize_name;
use crate::paths::SuitePaths;

/// A server that can be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the server in Switchboard.
    pub name: String,
    /// Name of the server in the client's settings.
    pub original: String,
    /// Description of the server in Switchboard's file format.
    pub file: McpFile,
    /// Notes for the owner of the workspace.
    pub notes: Vec<String>,
    /// True if the server comes from the user's own settings file, not from a file of the workspace.
    pub is_own: bool,
}

/// Servers found in a client's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Servers {
    /// Servers that can be imported, sorted by name.
    pub candidates: Vec<Candidate>,
    /// Servers that cannot be imported, by original name, with the reason.
    pub skipped: BTreeMap<String, String>,
    /// The settings files that were read.
    pub files: Vec<PathBuf>,
}

impl Servers {
    /// Collects the servers of one settings object. If a name occurs twice, the first server wins.
    fn collect(
        &mut self,
        servers: &Map<String, Value>,
        client: Option<Client>,
        is_own: bool,
        workspace: &Path,
    ) {
        for (original, entry) in servers {
            let context = entry::Context { client, workspace };
            let (file, notes) = match entry::read(original, entry, &context) {
                Ok(entry::Entry::Server(file, notes)) => (file, notes),
                Ok(entry::Entry::Switchboard) => continue,
                Err(problem) => {
                    self.skipped.insert(original.clone(), problem);
                    continue;
                }
            };
            let Some(name) = sanitize_name(original) else {
                let problem = "its name has no character that a folder name can have".to_owned();
                self.skipped.insert(original.clone(), problem);
                continue;
            };
            if let Some(other) = self.candidates.iter().find(|other| other.name.eq_ignore_ascii_case(&name)) {
                let problem = format!("'{}' is already called '{name}' here", other.original);
                self.skipped.insert(original.clone(), problem);
                continue;
            }
            let file = McpFile { name: Some(name.clone()), ..*file };
            let original = original.clone();
            self.candidates.push(Candidate { name, original, file, notes, is_own });
        }
        self.candidates.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Returns true if no server was found, including servers that cannot be imported.
    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty() && self.skipped.is_empty()
    }
}

/// Reads the servers of a client's settings without changing them.
///
/// If `file` is `None`, the client's usual paths are read. A file inside the workspace never counts as the user's own
/// settings, whatever its format.
pub fn read_client(
    client: Client,
    file: Option<&Path>,
    paths: &SuitePaths,
    lookup: Lookup<'_>,
) -> Result<Servers, SuiteError> {
    let workspace = PathBuf::from(paths.workspace_key());
    let looked = match file {
        Some(file) => vec![file.to_owned()],
        None => client.files(lookup, &workspace),
    };
    let mut servers = Servers::default();
    for path in &looked {
        let Some(settings) = client.read(path)? else { continue };
        let is_own = !path.canonicalize().unwrap_or_else(|_| path.clone()).starts_with(&workspace);
        for object in client.servers(&settings, &workspace) {
            servers.collect(object, Some(client), is_own, &workspace);
        }
        servers.files.push(path.clone());
    }
    if servers.files.is_empty() {
        return Err(SuiteError::NoClientSettings { client: client.title(), looked });
    }
    Ok(servers)
}

/// Adds an importable server to the workspace.
pub fn import(paths: &SuitePaths, candidate: &Candidate) -> Result<AddOutcome, SuiteError> {
    add_child(paths, &candidate.name, &candidate.file, candidate.is_own)
}

impl std::str::FromStr for Client {
    type Err = SuiteError;

    fn from_str(name: &str) -> Result<Self, SuiteError> {
        let known = Self::ALL.map(Self::as_str);
        Self::ALL.into_iter().find(|client| client.as_str() == name).ok_or_else(|| {
            let near = suggest_similar(name, known);
            let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            SuiteError::Field {
                field: "from".to_owned(),
                problem: format!(
                    "is '{}', but must be one of {}{hint}",
                    name.escape_debug(),
                    known.join(", ")
                ),
            }
        })
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
