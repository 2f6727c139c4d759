//! Lists that bypass `rmcp`, so that no field of a server's tools, prompts and resources is lost.

use door_suites::{Caller, ListKind};
use rmcp::model::{ListPromptsResult, NumberOrString, ServerResult};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, ServerHandler};
use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};
use switchboard_mcp::RawList;

use super::RawBypass;
use super::raw_bypass::object;

/// MCP methods that list tools, prompts and resources.
pub(super) const METHODS: [&str; 4] =
    ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];

impl RawBypass {
    /// Lists our own items, and those of the servers whose items are listed one by one.
    pub(super) async fn list_all(&self, list: RawList) -> Result<Box<RawValue>, ErrorData> {
        let Some((peer, host)) = self.session.introduced().await else {
            return Err(ErrorData::invalid_request(
                "the session has not begun: send `initialized` first",
                None,
            ));
        };
        let request = list.params.as_deref().map(|params| object("params", params)).transpose()?;
        let mut context = RequestContext::new(NumberOrString::Number(0), peer.clone());
        context.ct = list.cancelled.clone();
        let caller = Caller { host: Some(host), cancelled: list.cancelled, ..Caller::default() };
        match list.method.as_str() {
            "tools/list" => {
                let mut ours = self.workspace.list_tools(request, context).await?;
                ours.tools.extend(self.swarm.list());
                with_theirs(ours, "tools", self.suites.list_tools(&caller).await)
            }
            "prompts/list" => {
                let theirs = self.suites.list(ListKind::Prompts, &caller).await;
                with_theirs(ListPromptsResult::default(), "prompts", theirs)
            }
            "resources/list" => {
                let theirs = self.suites.list(ListKind::Resources, &caller).await;
                with_theirs(self.workspace.list_resources(request, context).await?, "resources", theirs)
            }
            _ => {
                let theirs = self.suites.list(ListKind::ResourceTemplates, &caller).await;
                let ours = self.workspace.list_resource_templates(request, context).await?;
                with_theirs(ours, "resourceTemplates", theirs)
            }
        }
    }
}

/// Appends the items of the servers behind us, as written, to a list of our own.
fn with_theirs(
    ours: impl Into<ServerResult>,
    member: &str,
    theirs: Vec<Box<RawValue>>,
) -> Result<Box<RawValue>, ErrorData> {
    let mut ours = ours.into();
    // Only clients with a session use this path, and those use older revisions.
    ours.strip_result_type_for_legacy_peer();
    let add = || -> serde_json::Result<Box<RawValue>> {
        let ours = serde_json::to_string(&ours)?;
        let mut list: RawObject<'_> = serde_json::from_str(&ours)?;
        let mut items: Vec<Box<RawValue>> = match list.get(member) {
            Some(items) => serde_json::from_str(items.get())?,
            None => Vec::new(),
        };
        items.extend(theirs);
        list.set(member, to_raw(&items));
        Ok(list.to_raw())
    };
    add().map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
