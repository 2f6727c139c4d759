//! The `rmcp` bypass for tool calls.

use std::sync::Arc;

use door_suites::{Caller, Suites};
use rmcp::model::{CallToolRequestParams, CallToolResponse, NumberOrString, ServerResult};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use switchboard_core::json::to_raw;
use switchboard_mcp::{RawCall, RawCallHandler, RawList};
use switchboard_tools::ToolServer;

use super::{Session, SwarmTools, convert, lists};

/// Calls of a session that bypass `rmcp`.
#[derive(Clone)]
pub(crate) struct RawBypass {
    pub(super) workspace: Arc<ToolServer>,
    pub(super) suites: Suites,
    pub(super) swarm: SwarmTools,
    pub(super) session: Arc<Session>,
}

impl RawCallHandler for RawBypass {
    fn accepts(&self, tool: &str) -> bool {
        // One of our own tools may notify the client, which requires the client to be initialized.
        self.suites.has_tool(tool) || (self.session.peer.get().is_some() && self.workspace.has_tool(tool))
    }

    fn is_prompt(&self, tool: &str) -> bool {
        !self.suites.has_tool(tool) && switchboard_tools::is_immediate(tool)
    }

    async fn call(&self, call: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        if let Some(peer) = self.session.peer.get().filter(|_| !self.suites.has_tool(&call.tool)) {
            let answer = self.call_ours(call, peer.clone()).await;
            return answer.map_err(|error| to_raw(&error));
        }
        let who = call.caller;
        let is_governed = match self.workspace.admit_external(&who, &call.tool).await {
            Ok(is_governed) => is_governed,
            Err(refusal) => return legacy(refusal.into()).map_err(|error| to_raw(&error)),
        };
        let caller = Caller {
            host: self.session.introduced().await.map(|(_, host)| host),
            progress_token: call.progress_token,
            cancelled: call.cancelled,
            meta: call.meta,
            ..Caller::default()
        };
        // Count unread messages concurrently, while the server works.
        let called = self.suites.call(&call.tool, call.arguments.as_deref(), &caller);
        let (result, unread) = tokio::join!(called, self.workspace.unread_line(&who));
        let result = result.map_err(|error| to_raw(&error))?;
        if is_governed && !convert::is_error(&result) {
            self.workspace.record_external(&who, &call.tool).await;
        }
        Ok(match unread.filter(|_| !self.suites.is_flat(&call.tool)) {
            Some(line) => convert::with_text(result, &line),
            None => result,
        })
    }

    fn handles_list(&self, method: &str) -> bool {
        lists::METHODS.contains(&method) && self.suites.has_flat()
    }

    async fn list(&self, list: RawList) -> Result<Box<RawValue>, Box<RawValue>> {
        self.list_all(list).await.map_err(|error| to_raw(&error))
    }
}

impl RawBypass {
    async fn call_ours(&self, call: RawCall, peer: Peer<RoleServer>) -> Result<Box<RawValue>, ErrorData> {
        let mut request = CallToolRequestParams::new(call.tool);
        if let Some(arguments) = &call.arguments {
            request.arguments = Some(object("arguments", arguments)?);
        }
        // `rmcp` needs the number only to cancel the request; here the token cancels it.
        let mut context = RequestContext::new(NumberOrString::Number(0), peer);
        context.ct = call.cancelled;
        context.extensions.insert(call.caller);
        if let Some(meta) = &call.meta {
            context.meta = object("_meta", meta)?;
        }
        legacy(self.workspace.call_tool(request, context).await?)
    }
}

/// Renders a result for older revisions: only clients with a session bypass `rmcp`, and those use older revisions.
fn legacy(response: CallToolResponse) -> Result<Box<RawValue>, ErrorData> {
    let mut result = ServerResult::from(response);
    result.strip_result_type_for_legacy_peer();
    to_raw_value(&result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Parses a field of a call as an object.
pub(super) fn object<T: DeserializeOwned>(field: &str, raw: &RawValue) -> Result<T, ErrorData> {
    let wrong = |error| ErrorData::invalid_params(format!("'{field}' cannot be read: {error}"), None);
    serde_json::from_str(raw.get()).map_err(wrong)
}
