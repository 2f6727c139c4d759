//! What goes for tools that are offered beside ours too: the rules of workflows, and that unread mail is told.

use rmcp::model::CallToolResult;
use switchboard_mcp::Caller;

use super::answer::{self, ToolError};
use super::server::ToolServer;
use super::unread::Unread;
use crate::workflow::is_any_active;

impl ToolServer {
    /// Whether the agent of a request may use a tool that is offered beside these; otherwise what to answer. Says
    /// whether a workflow is active, so that its use has to be noted.
    ///
    /// Mostly none is, and then it costs a look at the stamp of `state.json`.
    pub async fn admit_external(&self, caller: &Caller, tool: &str) -> Result<bool, CallToolResult> {
        let workspace = self.workspace();
        if !is_any_active(&*workspace.read_state_json().await) {
            return Ok(false);
        }
        let agent = self.agent_of(caller);
        match workspace.check_tool_allowed(agent.as_ref().map(|agent| &agent.name), tool).await {
            Ok(()) => Ok(true),
            Err(error) => {
                let unread = Unread::of(workspace.hub(), agent.as_ref()).await;
                Err(answer::result(Err(ToolError::from(error)), unread))
            }
        }
    }

    /// Notes the use of such a tool, where [`ToolServer::admit_external`] said so.
    pub async fn record_external(&self, caller: &Caller, tool: &str) {
        let agent = self.agent_of(caller);
        if let Err(error) =
            self.workspace().record_tool_use(agent.as_ref().map(|agent| &agent.name), tool).await
        {
            tracing::warn!(%error, tool, "the use of a tool was not noted");
        }
    }

    /// A line about the caller's unread mail, where there is any.
    pub async fn unread_line(&self, caller: &Caller) -> Option<String> {
        Unread::of(self.workspace().hub(), self.agent_of(caller).as_ref()).await.line()
    }
}
