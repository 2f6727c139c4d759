//! Files that could not be taken in. Each is reported once and left where it is.

use serde::{Deserialize, Serialize};
use switchboard_core::Door;
use switchboard_hub::{HubError, View};

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
    /// Which state of the file this is about; empty where the cure may lie elsewhere, so that the file
    /// is looked at again each time.
    pub(crate) stamp: String,
}

/// What is known to be wrong as of a moment, oldest first.
pub(crate) fn known_problems(view: &View<'_>) -> Result<Vec<Problem>, HubError> {
    let notes = view.notes(Door::Workspace, TOPIC)?;
    Ok(notes.iter().filter_map(|(_, value)| serde_json::from_str(value).ok()).collect())
}

impl Workspace {
    /// What is known to be wrong, oldest first.
    pub async fn problems(&self) -> Result<Vec<Problem>, WorkspaceError> {
        Ok(self.hub().view(known_problems).await?)
    }

    /// Reports a problem, unless that was done for this state of the file before.
    pub(crate) async fn report(&self, problem: Problem) -> Result<(), HubError> {
        let value = serde_json::to_string(&problem).unwrap_or_default();
        let known = self.hub().notes(Door::Workspace, TOPIC).await?;
        if known.iter().any(|(path, known)| *path == problem.path && *known == value) {
            return Ok(());
        }
        tracing::warn!(path = %problem.path, reason = %problem.reason, "left where it is: it could not be taken in");
        self.hub().put_note(Door::Workspace, TOPIC, problem.path, Some(value)).await
    }

    /// Forgets every problem of which `is_over` says so, by its path.
    pub(crate) async fn forget_problems(&self, is_over: impl Fn(&str) -> bool) -> Result<(), HubError> {
        for (path, _) in self.hub().notes(Door::Workspace, TOPIC).await? {
            if is_over(&path) {
                self.hub().put_note(Door::Workspace, TOPIC, path, None).await?;
            }
        }
        Ok(())
    }
}
