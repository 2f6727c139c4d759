//! Files that could not be taken in. Each is reported once and left where it is.

use serde::{Deserialize, Serialize};
use switchboard_core::Door;
use switchboard_hub::HubError;

use crate::error::WorkspaceError;
use crate::workspace::Workspace;

const TOPIC: &str = "problem";

/// A file or folder that could not be taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where it is, below `.switchboard/`.
    pub path: String,
    /// What is wrong with it, in a sentence.
    pub reason: String,
    /// Which state of the file this is about.
    pub(crate) stamp: String,
}

impl Workspace {
    /// What is known to be wrong, oldest first.
    pub async fn problems(&self) -> Result<Vec<Problem>, WorkspaceError> {
        let notes = self.hub().notes(Door::Workspace, TOPIC).await?;
        Ok(notes.iter().filter_map(|(_, value)| serde_json::from_str(value).ok()).collect())
    }

    /// Reports a problem, unless that was done for this state of the file before.
    pub(crate) async fn report(&self, problem: Problem) -> Result<(), HubError> {
        let value = serde_json::to_string(&problem).unwrap_or_default();
        let known = self.hub().notes(Door::Workspace, TOPIC).await?;
        if known.iter().any(|(path, known)| *path == problem.path && *known == value) {
            return Ok(());
        }
        tracing::warn!(path = %problem.path, reason = %problem.reason, "left where it is: it could not be taken in");
        self.hub().note(Door::Workspace, TOPIC, problem.path, Some(value)).await
    }

    /// Forgets problems of a mailbox whose files are no longer there, or were taken in after all.
    pub(crate) async fn forget_problems(&self, folder: &str, still: &[String]) -> Result<(), HubError> {
        for (path, _) in self.hub().notes(Door::Workspace, TOPIC).await? {
            let gone = path.strip_prefix(folder).is_some_and(|name| !still.iter().any(|still| still == name));
            if gone {
                self.hub().note(Door::Workspace, TOPIC, path, None).await?;
            }
        }
        Ok(())
    }
}
