//! Artifacts: files and folders of the workspace that prove the completion of a phase.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::WorkflowError;

/// Maximum number of artifacts, which is more than a person would review.
///
/// A folder counts as one artifact and covers all its files.
const MAX: usize = 100;

/// A file or folder that proves the completion of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Path of the artifact, relative to the workspace or absolute.
    pub path: String,
    /// Description of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An artifact that was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingArtifact {
    /// The path as given.
    pub path: String,
    /// The reason for the rejection.
    pub reason: &'static str,
}

impl fmt::Display for MissingArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.escape_debug(), self.reason)
    }
}

/// Checks that every artifact exists inside the workspace, after resolving symbolic links.
///
/// Returns the paths relative to the workspace, to be matched against patterns. In `workspace`, symbolic links must
/// already be resolved.
pub(crate) fn check(
    workspace: &Path,
    phase: i64,
    artifacts: &[Artifact],
) -> Result<Vec<String>, WorkflowError> {
    if artifacts.len() > MAX {
        return Err(WorkflowError::TooManyArtifacts { given: artifacts.len(), limit: MAX });
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for artifact in artifacts {
        match locate_artifact(workspace, artifact.path.trim()) {
            Ok(path) => found.push(path),
            Err(reason) => missing.push(MissingArtifact { path: artifact.path.clone(), reason }),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(WorkflowError::MissingArtifacts { phase, missing }) }
}

/// Resolves a path inside the workspace, including symbolic links.
///
/// Returns the reason if the path is refused.
pub fn locate_artifact(workspace: &Path, path: &str) -> Result<String, &'static str> {
    if path.is_empty() {
        return Err("the path is empty");
    }
    // If `path` is absolute, `join` returns `path` alone.
    let resolved = workspace.join(path).canonicalize().map_err(|_| "not found")?;
    match resolved.strip_prefix(workspace).map(Path::to_str) {
        Ok(Some("")) => Err("the workspace itself is no evidence"),
        Ok(Some(inside)) => Ok(inside.to_owned()),
        Ok(None) => Err("the path is not UTF-8"),
        Err(_) => Err("outside the workspace"),
    }
}

#[cfg(test)]
#[path = "artifacts_tests.rs"]
mod tests;
