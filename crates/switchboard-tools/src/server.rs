//! MCP server: the handler of one session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use door_workspace::ChatRegistration;
use door_workspace::Snapshot;
use door_workspace::WorkspaceError;
use door_workspace::{SendPermit, Workspace};
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams, CompleteResult,
    Implementation, InitializeResult, JsonObject, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use switchboard_core::AgentId;
use switchboard_mcp::{Caller, Connection};
use switchboard_sys::service_lease::LeaseKey;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Answer, Outcome};
use super::resources;
use super::session::{Call, Session};
use super::session_owners::SessionOwners;
use super::tools::{self, Profile, ToolContext};
use super::unread::Unread;

/// Server instructions, which models read before the first call.
const INSTRUCTIONS: &str = "Switchboard: messages between the agents of this workspace. Every result reports your \
     unread mail; read it with check_inbox, do what it asks, answer with send_message (replyTo), then ack_message. \
     wait_for_message blocks until mail arrives.";

/// Minimum interval between the heartbeats of a session, because each reads `state.json`.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Settings of a session's tools.
#[derive(Debug, Clone, Default)]
pub struct ToolConfig {
    /// The profile that selects the listed tools.
    pub profile: Profile,
    /// The agent that the client was configured for. HTTP clients specify the agent in a header instead.
    pub agent: Option<AgentId>,
    /// Key of the session's lease on the agent's name.
    ///
    /// The key is present if the session can move to another process.
    pub lease_key: Option<LeaseKey>,
    /// The client connection on which the session depends.
    pub connection: Connection,
}

/// The handler of one MCP session.
pub struct ToolServer {
    workspace: Workspace,
    config: Arc<ToolConfig>,
    session: Session,
    order: tokio::sync::RwLock<()>,
    /// Lock that a sending call holds until its message is queued.
    ///
    /// Thereby, concurrent calls of a client are journaled in the order of the calls.
    sending: Arc<tokio::sync::Mutex<()>>,
    /// Subscribed resource URIs, each with the token that cancels the subscription.
    subscriptions: Mutex<BTreeMap<String, CancellationToken>>,
    last_heartbeat: Mutex<Option<Instant>>,
}

impl ToolServer {
    /// Creates the handler of the first session in this process.
    pub fn new(workspace: Workspace, config: ToolConfig) -> Self {
        let owners = SessionOwners::new(workspace.hub().clone());
        Self::with(workspace, Arc::new(config), owners)
    }

    /// Creates a handler for another session in the same process.
    #[must_use]
    pub fn new_session(&self) -> Self {
        Self::with(self.workspace.clone(), self.config.clone(), self.session.owners().clone())
    }

    /// Creates a handler for another session in the same process, with different settings.
    #[must_use]
    pub fn new_session_with(&self, config: ToolConfig) -> Self {
        Self::with(self.workspace.clone(), Arc::new(config), self.session.owners().clone())
    }

    fn with(workspace: Workspace, config: Arc<ToolConfig>, owners: SessionOwners) -> Self {
        Self {
            workspace,
            session: Session::new(owners, &config),
            config,
            order: tokio::sync::RwLock::default(),
            sending: Arc::default(),
            subscriptions: Mutex::default(),
            last_heartbeat: Mutex::default(),
        }
    }

    /// Returns true if another session owns the agent.
    #[cfg(test)]
    pub(super) fn has_owner(&self, agent: &str) -> bool {
        let agent = agent.parse().expect("a name");
        matches!(
            self.session.owners().acquire(&agent, self.session.owners().new_session(), true, None),
            Ok(Err(_))
        )
    }

    /// Returns true if the server has a tool of this name.
    pub fn has_tool(&self, name: &str) -> bool {
        tools::find(self.config.profile, name).is_some()
    }

    /// Returns the agent on whose behalf a request is made, for external tools.
    pub fn session_agent(&self, context: &RequestContext<RoleServer>) -> Option<AgentId> {
        self.agent(context)
    }

    /// Returns the agent on whose behalf a request is made.
    pub(super) fn agent(&self, context: &RequestContext<RoleServer>) -> Option<AgentId> {
        self.agent_of(&Caller::of(context))
    }

    pub(super) fn agent_of(&self, caller: &Caller) -> Option<AgentId> {
        self.session.agent(caller)
    }

    pub(super) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> (Outcome, Unread) {
        let caller = Caller::of(context);
        // Calls of a session run concurrently, but must not overtake a registration.
        let _registering = if tools::registers_agent(&request.name) {
            Some(self.order.write().await)
        } else {
            drop(self.order.read().await);
            None
        };
        let call = match self.session.start_call(&caller) {
            Ok(call) => call,
            // A session that lost its agent must not report the unread count of that agent.
            Err(problem) => return (Err(problem), Unread::default()),
        };
        let name = request.name.as_ref();
        let (lists_inbox, only_sends) = (tools::lists_inbox(name), tools::only_sends(name));
        let permit = if only_sends { Some(self.sending.clone().lock_owned().await) } else { None };
        let now = match self.snapshot_for_call(&call, lists_inbox, &caller, context).await {
            Ok(now) => now,
            Err(problem) => return (Err(problem), Unread::default()),
        };
        let (hub, dispatch) = (
            self.workspace.hub(),
            self.dispatch(&call, &now, permit, (name, request.arguments), &caller, context),
        );
        let (outcome, known) = if only_sends {
            // A message that an agent sends to itself is unread only after its delivery, so the unread count can be
            // read while the send waits for the disk.
            let (outcome, unread) = tokio::join!(dispatch, Unread::of(hub, call.agent()));
            (outcome, Some(unread))
        } else {
            let outcome = dispatch.await;
            let is_mail_unchanged = outcome.as_ref().is_ok_and(Answer::is_mail_unchanged);
            (outcome, now.mailbox.as_ref().filter(|_| is_mail_unchanged).map(Unread::as_of))
        };
        // The call may have changed the session's agent.
        let agent = self.session.agent(&caller);
        if outcome.is_ok() {
            let still_holds = lists_inbox || only_sends;
            let now = if still_holds { Ok(now) } else { self.workspace.snapshot().await };
            self.record_use(now, agent.as_ref(), name).await;
        }
        let unread = match known {
            Some(unread) => unread,
            None => Unread::of(hub, agent.as_ref()).await,
        };
        (outcome, unread)
    }

    /// Takes the snapshot for a call.
    ///
    /// If the call's agent is configured but not registered, the agent is registered first.
    async fn snapshot_for_call(
        &self,
        call: &Call<'_>,
        lists_inbox: bool,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<Snapshot, answer::ToolError> {
        let snapshot = async || match call.agent().filter(|_| lists_inbox) {
            Some(agent) => self.workspace.snapshot_with_inbox(agent).await,
            None => self.workspace.snapshot().await,
        };
        let now = snapshot().await?;
        match call.agent() {
            Some(agent) if self.register_configured(&now, agent, caller, context).await? => {
                Ok(snapshot().await?)
            }
            _ => Ok(now),
        }
    }

    /// Checks the workflow rules and calls the tool.
    async fn dispatch(
        &self,
        call: &Call<'_>,
        now: &Snapshot,
        permit: Option<SendPermit>,
        (name, arguments): (&str, Option<JsonObject>),
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Outcome {
        let agent = call.agent();
        if tools::find(self.config.profile, name).is_none() {
            return Err(tools::unknown_tool(self.config.profile, name));
        }
        for tool in [Some(name), tools::equivalent_tool(name, arguments.as_ref())].into_iter().flatten() {
            self.workspace.check_tool_allowed_in(now, agent.map(|agent| &agent.name), tool).await?;
        }
        let (workspace, session) = (&self.workspace, &self.session);
        let ctx = ToolContext {
            workspace,
            session,
            caller,
            request: context,
            agent,
            now,
            permit: Mutex::new(permit),
        };
        tools::call(&ctx, name, arguments).await
    }

    /// Registers the agent that the client is configured for, on the client's first call.
    ///
    /// Returns true if this call registered the agent.
    async fn register_configured(
        &self,
        now: &Snapshot,
        agent: &AgentId,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<bool, answer::ToolError> {
        if !self.session.is_configured(caller) || agent.is_human() || now.directory.agent(agent).is_some() {
            return Ok(false);
        }
        let interface = tools::client_name(context).unwrap_or_else(|| "unknown".to_owned());
        let registration = ChatRegistration::new(agent.name.clone(), interface);
        match self.workspace.register_chat_agent(registration).await {
            // If the disk fails, tools that need no registration still work.
            Err(error) if error.is_disk() => Ok(false),
            registered => registered.map(|_| true).map_err(Into::into),
        }
    }

    /// Returns the agent that reads resources, and registers the agent if it is configured.
    ///
    /// Other agents must be able to write to an agent that watches its mailbox.
    async fn resource_reader(&self, context: &RequestContext<RoleServer>) -> Option<AgentId> {
        let caller = Caller::of(context);
        let agent = self.agent_of(&caller)?;
        let known = match self.workspace.snapshot().await {
            Ok(now) => self.register_configured(&now, &agent, &caller, context).await.map(drop),
            Err(error) => Err(error.into()),
        };
        if let Err(problem) = known {
            tracing::warn!(problem = problem.into_text(), %agent, "a session's agent could not be registered");
        }
        Some(agent)
    }

    /// Records the use of a tool for workflows, and a heartbeat. A failure does not fail the call.
    async fn record_use(&self, now: Result<Snapshot, WorkspaceError>, agent: Option<&AgentId>, tool: &str) {
        let name = agent.map(|agent| &agent.name);
        let noted = match now {
            Ok(now) => self.workspace.record_tool_use_in(&now, name, tool).await,
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, tool, "the use of a tool was not recorded");
        }
        let Some(agent) = agent else { return };
        let due = {
            let mut last_heartbeat = self.last_heartbeat.lock();
            let due = last_heartbeat.is_none_or(|at| at.elapsed() > HEARTBEAT_INTERVAL);
            if due {
                *last_heartbeat = Some(Instant::now());
            }
            due
        };
        if due {
            let (workspace, agent) = (self.workspace.clone(), agent.clone());
            tokio::spawn(async move { workspace.record_heartbeat(&agent).await });
        }
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        let info = InitializeResult::new(capabilities)
            .with_server_info(Implementation::new("switchboard", env!("CARGO_PKG_VERSION")));
        match self.config.profile {
            Profile::None => info,
            _ => info.with_instructions(INSTRUCTIONS),
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list_tools(self.config.profile)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(self.config.profile, name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (outcome, unread) = self.call(request, &context).await;
        let trouble = self.workspace.hub().database().disk_trouble();
        Ok(CallToolResponse::Complete(answer::add_degraded_note(
            answer::to_call_result(outcome, unread),
            trouble,
        )))
    }

    /// Rejects the request, because the server declares no prompts.
    ///
    /// For an undeclared capability, a server must not answer with an empty list.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    /// Rejects the request, because the server declares no completions.
    ///
    /// For an undeclared capability, a server must not answer with an empty list.
    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(self.agent(&context).as_ref())))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let resource_reader = self.resource_reader(&context).await;
        let result = resources::read(&self.workspace, resource_reader.as_ref(), &request.uri).await?;
        Ok(ReadResourceResponse::Complete(result))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let resource_reader = self.resource_reader(&context).await;
        let subscription =
            resources::Subscription::new(&self.workspace, resource_reader.as_ref(), &request.uri).await?;
        let stop = CancellationToken::new();
        if let Some(before) = self.subscriptions.lock().insert(request.uri.clone(), stop.clone()) {
            before.cancel();
        }
        let peer = context.peer.clone();
        tokio::spawn(async move {
            let notified = subscription.notify_changes(|uri| {
                let peer = peer.clone();
                async move { resources::notify(&peer, uri).await }
            });
            tokio::select! {
                () = notified => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(stop) = self.subscriptions.lock().remove(&request.uri) {
            stop.cancel();
        }
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(resources::accepted(requested))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let agent = self.resource_reader(subscription.request_context()).await;
        resources::listen(&self.workspace, agent.as_ref(), &subscription).await
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        for stop in self.subscriptions.get_mut().values() {
            stop.cancel();
        }
    }
}
