//! Files that could not be taken in. Each is reported once and left where it is.

use serde::{Deserialize, Serialize};
use switchboard_core::Door;
use switchboard_hub::{HubError, View};

use crate::error::WorkspaceError;
use crate::workspace::Workspace;

const TOPIC: &str = "problem";

/// A file or folder that could not be taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedFile {
    /// Where it is, below `.switchboard/`.
    pub path: String,
    /// What is wrong with it, in a sentence.
    pub reason: String,
    /// Which state of the file this is about; empty where the cure may lie elsewhere, so that the file
    /// is looked at again each time.
    pub(crate) stamp: String,
}

/// What is known to be wrong as of a moment, oldest first.
pub(crate) fn list_rejected(view: &View<'_>) -> Result<Vec<RejectedFile>, HubError> {
    let notes = view.notes(Door::Workspace, TOPIC)?;
    Ok(notes.iter().filter_map(|(_, value)| serde_json::from_str(value).ok()).collect())
}

impl Workspace {
    /// What is known to be wrong, oldest first.
    pub async fn rejected_files(&self) -> Result<Vec<RejectedFile>, WorkspaceError> {
        Ok(self.hub().view(list_rejected).await?)
    }

    /// Reports a problem, unless that was done for this state of the file before.
    pub(crate) async fn report_rejected(&self, rejected: RejectedFile) -> Result<(), HubError> {
        let value = serde_json::to_string(&rejected).unwrap_or_default();
        let known = self.hub().notes(Door::Workspace, TOPIC).await?;
        if known.iter().any(|(path, known)| *path == rejected.path && *known == value) {
            return Ok(());
        }
        tracing::warn!(path = %rejected.path, reason = %rejected.reason, "left where it is: it could not be taken in");
        self.hub().put_note(Door::Workspace, TOPIC, rejected.path, Some(value)).await
    }

    /// Forgets every problem of which `is_over` says so, by its path.
    pub(crate) async fn clear_rejected(&self, is_over: impl Fn(&str) -> bool) -> Result<(), HubError> {
        for (path, _) in self.hub().notes(Door::Workspace, TOPIC).await? {
            if is_over(&path) {
                self.hub().put_note(Door::Workspace, TOPIC, path, None).await?;
            }
        }
        Ok(())
    }
}
