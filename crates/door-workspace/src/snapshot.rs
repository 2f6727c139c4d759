//! What a call goes by: who is known, and what `state.json` says.

use std::sync::Arc;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Directory, Name};

use crate::error::WorkspaceError;
use crate::workspace::{Workspace, blocking};

/// The directory and `state.json` as of one moment. Taken once for a whole call.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) directory: Arc<Directory>,
    pub(crate) state: Arc<Map<String, Value>>,
}

impl Snapshot {
    /// The name that an agent goes by now, which is the one its record has.
    pub(crate) fn current_name(&self, agent: Option<&Name>) -> Option<Name> {
        agent.map(|name| self.directory.canonical(&AgentId::local(name.clone())).name)
    }
}

impl Workspace {
    /// Looks at both now.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, WorkspaceError> {
        Ok(Snapshot { directory: self.hub().directory().await?, state: self.read_whole().await })
    }

    /// All of `state.json`. A file that cannot be read says nothing; mail goes on without it.
    pub(crate) async fn read_whole(&self) -> Arc<Map<String, Value>> {
        // Asking a disk of this machine for a file's stamp takes less time than having another thread do it.
        if self.hub().is_local()
            && let Some(state) = self.state().at_hand()
        {
            return state;
        }
        let state = self.state().clone();
        blocking(move || state.whole()).await.unwrap_or_else(|error| {
            tracing::debug!(error = %error, "state.json cannot be read; going on without it");
            Arc::default()
        })
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
