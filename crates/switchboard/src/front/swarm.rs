//! Tools of the swarms, offered only if an agent of the workspace is a member of one.

use door_swarm::{Swarms, ToolAnswer, tools};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::json;
use switchboard_core::AgentId;
use switchboard_mcp::validate_arguments;

/// Tools of the swarms. None are listed if no agent is a member of a swarm, because every conversation pays tokens for
/// listed tools.
#[derive(Clone, Default)]
pub(crate) struct SwarmTools {
    swarms: Option<Swarms>,
}

impl SwarmTools {
    /// Creates the tools for these swarms.
    pub(crate) fn new(swarms: Swarms) -> Self {
        Self { swarms: Some(swarms) }
    }

    fn offered(&self) -> Option<&Swarms> {
        self.swarms.as_ref().filter(|swarms| !swarms.identities().is_empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.offered().is_some() && tools().iter().any(|tool| tool.name == name)
    }

    pub(super) fn list(&self) -> Vec<Tool> {
        let listed = self.offered().map(|_| tools()).unwrap_or_default();
        let tool = |spec: door_swarm::ToolSpec| {
            let tool = Tool::new(spec.name, spec.description, spec.schema);
            let annotations = ToolAnnotations::new();
            tool.with_annotations(if spec.reads {
                annotations.read_only(true)
            } else {
                annotations.destructive(false)
            })
        };
        listed.into_iter().map(tool).collect()
    }

    pub(super) async fn call(
        &self,
        caller: Option<&AgentId>,
        name: &str,
        arguments: Option<JsonObject>,
    ) -> CallToolResult {
        let mut arguments = arguments.unwrap_or_default();
        let spec = tools().into_iter().find(|tool| tool.name == name);
        let invalid = spec.and_then(|tool| validate_arguments(&tool.schema, &mut arguments).err());
        let answer = match (self.offered(), invalid) {
            (Some(_), Some(invalid)) => Err(format!("{}. {}", invalid.problem, invalid.next)),
            (Some(swarms), None) => swarms.call_tool(caller, name, arguments).await,
            (None, _) => Err("No agent of this workspace takes part in swarms.".to_owned()),
        };
        let (text, data, failed) = match answer {
            Ok(ToolAnswer { text, data }) => (text, data, false),
            Err(problem) => (problem.clone(), json!({ "error": { "message": problem } }), true),
        };
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(data);
        result.is_error = Some(failed);
        result
    }
}
