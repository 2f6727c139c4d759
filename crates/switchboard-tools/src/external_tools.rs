//! Hooks for external tools: workflow rules and the unread note.
//!
//! Suites and swarms provide these tools, which the same server offers.

use door_workspace::is_any_workflow_active;
use rmcp::model::CallToolResult;
use switchboard_mcp::Caller;

use super::answer::{self, ToolError};
use super::server::ToolServer;
use super::unread::Unread;

impl ToolServer {
    /// Checks whether the workflow rules allow the caller to use an external tool.
    ///
    /// Returns true if a workflow is active, so that the use must be recorded, or the refusal as an error. If no
    /// workflow is active, as is usual, this only reads the metadata of `state.json`.
    pub async fn admit_external(&self, caller: &Caller, tool: &str) -> Result<bool, CallToolResult> {
        let workspace = self.workspace();
        if !is_any_workflow_active(&*workspace.read_state_json().await) {
            return Ok(false);
        }
        let agent = self.agent_of(caller);
        match workspace.check_tool_allowed(agent.as_ref().map(|agent| &agent.name), tool).await {
            Ok(()) => Ok(true),
            Err(error) => {
                let unread = Unread::of(workspace.hub(), agent.as_ref()).await;
                Err(answer::to_call_result(Err(ToolError::from(error)), unread))
            }
        }
    }

    /// Records the use of an external tool. Call this if [`ToolServer::admit_external`] returned true.
    pub async fn record_external(&self, caller: &Caller, tool: &str) {
        let agent = self.agent_of(caller);
        if let Err(error) =
            self.workspace().record_tool_use(agent.as_ref().map(|agent| &agent.name), tool).await
        {
            tracing::warn!(%error, tool, "the use of a tool was not recorded");
        }
    }

    /// Returns a line about the caller's unread messages; `None` if there are none.
    pub async fn unread_line(&self, caller: &Caller) -> Option<String> {
        Unread::of(self.workspace().hub(), self.agent_of(caller).as_ref()).await.line()
    }
}
