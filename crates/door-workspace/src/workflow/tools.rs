//! Records the use of tools in workflows, and enforces prohibited tools.

use switchboard_core::Name;

use super::rules;
use super::workflow_state::WorkflowState;
use crate::error::WorkspaceError;
use crate::snapshot::Snapshot;
use crate::state::Change;
use crate::translate::iso;
use crate::workspace::{Workspace, blocking};

impl Workspace {
    /// Records that an agent used a tool, as evidence for the agent's governing workflow.
    ///
    /// Without an active workflow, this only reads the metadata of `state.json`.
    pub async fn record_tool_use(&self, agent: Option<&Name>, tool: &str) -> Result<(), WorkspaceError> {
        self.record_tool_use_in(&self.snapshot().await?, agent, tool).await
    }

    /// Records the use of a tool, using a snapshot that shows whether a workflow is active.
    pub async fn record_tool_use_in(
        &self,
        now: &Snapshot,
        agent: Option<&Name>,
        tool: &str,
    ) -> Result<(), WorkspaceError> {
        let agent = now.current_name(agent);
        if WorkflowState::governing(&now.state, agent.as_ref()).is_none() {
            return Ok(());
        }
        let (file, at, tool) = (self.state().clone(), iso(self.hub().now()), tool.to_owned());
        blocking(move || {
            file.change(|state| {
                let governing = WorkflowState::governing(state, agent.as_ref());
                let Some(mut node) = governing else { return Ok(Change::Keep(())) };
                node.record_tool(&tool, at);
                node.put(state)?;
                Ok(Change::Write(()))
            })
        })
        .await
    }

    /// Checks whether an agent's governing workflow allows a tool.
    pub async fn check_tool_allowed(&self, agent: Option<&Name>, tool: &str) -> Result<(), WorkspaceError> {
        self.check_tool_allowed_in(&self.snapshot().await?, agent, tool).await
    }

    /// Checks a tool against the governing workflow in a snapshot.
    pub async fn check_tool_allowed_in(
        &self,
        now: &Snapshot,
        agent: Option<&Name>,
        tool: &str,
    ) -> Result<(), WorkspaceError> {
        let agent = now.current_name(agent);
        let Some(node) = WorkflowState::governing(&now.state, agent.as_ref()) else { return Ok(()) };
        let library = self.workflow_library().await?;
        match node.active().and_then(|active| library.named(active)) {
            Some(workflow) => Ok(rules::check_tool(&node, workflow, tool)?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
