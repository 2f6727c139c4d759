//! Artifacts: files and folders of the workspace that show that a phase was done.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::WorkflowError;

/// More than anyone looks at; a folder stands for all that is in it.
const MAX: usize = 100;

/// A file or folder that shows that a phase was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Where it is: relative to the workspace, or absolute.
    pub path: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An artifact that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingArtifact {
    /// The path as given.
    pub path: String,
    /// Why.
    pub reason: &'static str,
}

impl fmt::Display for MissingArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.escape_debug(), self.reason)
    }
}

/// Looks for every artifact; each must be there, and inside the workspace once links are resolved.
///
/// Returns the paths by which patterns know them, relative to the workspace. `workspace` must be resolved.
pub(crate) fn check(workspace: &Path, phase: i64, given: &[Artifact]) -> Result<Vec<String>, WorkflowError> {
    if given.len() > MAX {
        return Err(WorkflowError::TooManyArtifacts { given: given.len(), limit: MAX });
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for artifact in given {
        match locate(workspace, artifact.path.trim()) {
            Ok(path) => found.push(path),
            Err(reason) => missing.push(MissingArtifact { path: artifact.path.clone(), reason }),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(WorkflowError::MissingArtifacts { phase, missing }) }
}

/// Where a path leads inside the workspace once links are resolved, or why it does not.
pub(crate) fn locate(workspace: &Path, path: &str) -> Result<String, &'static str> {
    if path.is_empty() {
        return Err("the path is empty");
    }
    // An absolute path takes the place of the workspace's here.
    let there = workspace.join(path).canonicalize().map_err(|_| "not found")?;
    match there.strip_prefix(workspace).map(Path::to_str) {
        Ok(Some("")) => Err("the workspace itself shows nothing"),
        Ok(Some(inside)) => Ok(inside.to_owned()),
        Ok(None) => Err("the path is not UTF-8"),
        Err(_) => Err("outside the workspace"),
    }
}

#[cfg(test)]
#[path = "artifacts_tests.rs"]
mod tests;
