//! Taking over the servers that a client's settings name.

mod clients;
mod entry;
mod root;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use switchboard_core::nearest;

pub use self::clients::Client;
pub use self::root::{ImportOutcome, RevertOutcome, RootFile, revert};
use crate::edit::{AddOutcome, add_child};
use crate::error::SuiteError;
use crate::expand::Lookup;
use crate::mcp_json::McpFile;
use crate::names::nearest_name;
use crate::paths::SuitePaths;

/// A server that can be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The name it gets here.
    pub name: String,
    /// The name it had.
    pub original: String,
    /// How it is described here.
    pub file: McpFile,
    /// What its owner should know.
    pub notes: Vec<String>,
    /// Whether it comes from a file of the user rather than one of the workspace.
    pub is_own: bool,
}

/// What was found in a client's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Servers {
    /// Those that can be taken over, by name.
    pub candidates: Vec<Candidate>,
    /// Those that cannot, by the name they had, and why.
    pub skipped: BTreeMap<String, String>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

impl Servers {
    /// Takes in the servers of one object of settings. Of two with one name the first stays.
    fn take(&mut self, servers: &Map<String, Value>, client: Option<Client>, is_own: bool, workspace: &Path) {
        for (original, entry) in servers {
            let context = entry::Context { client, workspace };
            let (file, notes) = match entry::read(original, entry, &context) {
                Ok(entry::Entry::Server(file, notes)) => (file, notes),
                Ok(entry::Entry::Ours) => continue,
                Err(problem) => {
                    self.skipped.insert(original.clone(), problem);
                    continue;
                }
            };
            let Some(name) = nearest_name(original) else {
                let problem = "its name has no letter that a folder's name may have".to_owned();
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

    /// Whether nothing was found, not even something that cannot be taken over.
    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty() && self.skipped.is_empty()
    }
}

/// Reads the servers of a client's settings; nothing of the client's is changed.
///
/// Without `file` the places that the client is known to use are looked at. What a file of the workspace
/// names is not the user's own word, whoever's format it has.
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
            servers.take(object, Some(client), is_own, &workspace);
        }
        servers.files.push(path.clone());
    }
    if servers.files.is_empty() {
        return Err(SuiteError::NoClientSettings { client: client.title(), looked });
    }
    Ok(servers)
}

/// Puts a server into the workspace.
pub fn import(paths: &SuitePaths, candidate: &Candidate) -> Result<AddOutcome, SuiteError> {
    add_child(paths, &candidate.name, &candidate.file, candidate.is_own)
}

impl std::str::FromStr for Client {
    type Err = SuiteError;

    fn from_str(name: &str) -> Result<Self, SuiteError> {
        let known = Self::ALL.map(Self::as_str);
        Self::ALL.into_iter().find(|client| client.as_str() == name).ok_or_else(|| {
            let near = nearest(name, known);
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
