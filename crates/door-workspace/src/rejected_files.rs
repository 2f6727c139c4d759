//! Rejected files: files that could not be ingested.
//!
//! Each rejected file is reported once and stays where it is.

use serde::{Deserialize, Serialize};
use switchboard_core::Door;
use switchboard_hub::{HubError, View};

use crate::error::WorkspaceError;
use crate::workspace::Workspace;

const TOPIC: &str = "problem";

/// A file or folder that could not be ingested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedFile {
    /// Path relative to `.switchboard/`.
    pub path: String,
    /// Reason for the rejection, as a sentence.
    pub reason: String,
    /// Fingerprint of the rejected version of the file.
    ///
    /// The fingerprint is empty if something other than the file may resolve the rejection; each scan then reads the
    /// file again.
    pub(crate) stamp: String,
}

/// Lists the rejected files in a database view, oldest first.
pub(crate) fn list_rejected(view: &View<'_>) -> Result<Vec<RejectedFile>, HubError> {
    let notes = view.notes(Door::Workspace, TOPIC)?;
    Ok(notes.iter().filter_map(|(_, value)| serde_json::from_str(value).ok()).collect())
}

impl Workspace {
    /// Lists the rejected files, oldest first.
    pub async fn rejected_files(&self) -> Result<Vec<RejectedFile>, WorkspaceError> {
        Ok(self.hub().view(list_rejected).await?)
    }

    /// Records and logs a rejected file, unless this version of the file is already recorded.
    pub(crate) async fn report_rejected(&self, rejected: RejectedFile) -> Result<(), HubError> {
        let value = serde_json::to_string(&rejected).unwrap_or_default();
        let known = self.hub().notes(Door::Workspace).all(TOPIC).await?;
        if known.iter().any(|(path, known)| *path == rejected.path && *known == value) {
            return Ok(());
        }
        tracing::warn!(path = %rejected.path, reason = %rejected.reason, "the file was rejected and stays where it is");
        self.hub().notes(Door::Workspace).put(TOPIC, rejected.path, Some(value)).await
    }

    /// Removes the records of rejected files whose path `is_resolved` accepts.
    pub(crate) async fn clear_rejected(&self, is_resolved: impl Fn(&str) -> bool) -> Result<(), HubError> {
        for (path, _) in self.hub().notes(Door::Workspace).all(TOPIC).await? {
            if is_resolved(&path) {
                self.hub().notes(Door::Workspace).put(TOPIC, path, None).await?;
            }
        }
        Ok(())
    }
}
