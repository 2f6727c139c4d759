//! The handler behind every MCP session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::error::WorkspaceError;
use crate::registration::ChatRegistration;
use crate::snapshot::Snapshot;
use crate::workspace::{Turn, Workspace};

/// What every client is told about the server; models read it before the first call.
const INSTRUCTIONS: &str = "Switchboard: messages between the agents of this workspace. Every result says when you have \
     unread mail; read it with check_inbox, do what it asks, answer with send_message (replyTo), then ack_message. \
     wait_for_message blocks until mail comes.";

/// A sign of life is noted at most this often per session; it costs a look at `state.json`.
const ALIVE_EVERY: Duration = Duration::from_secs(30);

/// How the tools are offered.
#[derive(Debug, Clone, Default)]
pub struct ToolConfig {
    /// Which tools are listed.
    pub profile: Profile,
    /// The agent that the client was configured for. Sessions over HTTP name theirs in a header.
    pub agent: Option<AgentId>,
    /// The key of the session's lease on its agent's name, where the session can move to another process.
    pub lease_key: Option<LeaseKey>,
    /// The connection that the session lasts as long as.
    pub connection: Connection,
}

/// The handler of one MCP session.
pub struct ToolServer {
    workspace: Workspace,
    config: Arc<ToolConfig>,
    session: Session,
    order: tokio::sync::RwLock<()>,
    /// Held by a call that sends until its message is queued: a client that makes several calls at once has its messages
    /// journaled in the order of the calls.
    sending: Arc<tokio::sync::Mutex<()>>,
    /// What the client wants to hear of, by its address, and how to stop telling it.
    watched: Mutex<BTreeMap<String, CancellationToken>>,
    alive: Mutex<Option<Instant>>,
}

impl ToolServer {
    /// A handler for the first session.
    pub fn new(workspace: Workspace, config: ToolConfig) -> Self {
        let owners = SessionOwners::new(workspace.hub().clone());
        Self::with(workspace, Arc::new(config), owners)
    }

    /// A handler for another session of the same process.
    #[must_use]
    pub fn new_session(&self) -> Self {
        Self::with(self.workspace.clone(), self.config.clone(), self.session.owners().clone())
    }

    /// A handler for another session of the same process, whose client is configured otherwise.
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
            watched: Mutex::default(),
            alive: Mutex::default(),
        }
    }

    /// Whether another session has an agent.
    #[cfg(test)]
    pub(super) fn is_taken(&self, agent: &str) -> bool {
        let agent = agent.parse().expect("a name");
        matches!(
            self.session.owners().take(&agent, self.session.owners().new_session(), true, None),
            Ok(Err(_))
        )
    }

    /// Whether a tool of this name is offered.
    pub fn has_tool(&self, name: &str) -> bool {
        tools::find(self.config.profile, name).is_some()
    }

    /// The agent that a request is made for, for tools that are offered beside these.
    pub fn session_agent(&self, context: &RequestContext<RoleServer>) -> Option<AgentId> {
        self.agent(context)
    }

    /// The agent that a request is made for.
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
        // Calls of a session run side by side, but none before a registration that came before it.
        let _registering = if tools::registers_agent(&request.name) {
            Some(self.order.write().await)
        } else {
            drop(self.order.read().await);
            None
        };
        let call = match self.session.begin(&caller) {
            Ok(call) => call,
            // A session that lost its agent is told nothing of that agent's mail.
            Err(problem) => return (Err(problem), Unread::default()),
        };
        let name = request.name.as_ref();
        let (lists_inbox, only_sends) = (tools::lists_inbox(name), tools::only_sends(name));
        let turn = if only_sends { Some(self.sending.clone().lock_owned().await) } else { None };
        let now = match self.moment(&call, lists_inbox, &caller, context).await {
            Ok(now) => now,
            Err(problem) => return (Err(problem), Unread::default()),
        };
        let (hub, work) =
            (self.workspace.hub(), self.work(&call, &now, turn, (name, request.arguments), &caller, context));
        let (outcome, known) = if only_sends {
            // Even a message to oneself is unread only once it is delivered, so that it can be counted while the disk is
            // waited for.
            let (outcome, unread) = tokio::join!(work, Unread::of(hub, call.agent()));
            (outcome, Some(unread))
        } else {
            let outcome = work.await;
            let leaves_mail_alone = outcome.as_ref().is_ok_and(Answer::leaves_mail_alone);
            (outcome, now.mailbox.as_ref().filter(|_| leaves_mail_alone).map(Unread::as_of))
        };
        // Whom the session speaks for may have been decided just now.
        let agent = self.session.agent(&caller);
        if outcome.is_ok() {
            let still_holds = lists_inbox || only_sends;
            let now = if still_holds { Ok(now) } else { self.workspace.snapshot().await };
            self.note_use(now, agent.as_ref(), name).await;
        }
        let unread = match known {
            Some(unread) => unread,
            None => Unread::of(hub, agent.as_ref()).await,
        };
        (outcome, unread)
    }

    /// What a call goes by. From now on its agent is known.
    async fn moment(
        &self,
        call: &Call<'_>,
        lists_inbox: bool,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<Snapshot, answer::ToolError> {
        let look = async || match call.agent().filter(|_| lists_inbox) {
            Some(agent) => self.workspace.snapshot_with_inbox(agent).await,
            None => self.workspace.snapshot().await,
        };
        let now = look().await?;
        match call.agent() {
            Some(agent) if self.make_known(&now, agent, caller, context).await? => Ok(look().await?),
            _ => Ok(now),
        }
    }

    /// Does what a call asks for, where that is allowed.
    async fn work(
        &self,
        call: &Call<'_>,
        now: &Snapshot,
        turn: Option<Turn>,
        (name, arguments): (&str, Option<JsonObject>),
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Outcome {
        let agent = call.agent();
        if tools::find(self.config.profile, name).is_none() {
            return Err(tools::unknown(self.config.profile, name));
        }
        for tool in [Some(name), tools::does_the_same(name, arguments.as_ref())].into_iter().flatten() {
            self.workspace.check_tool_allowed_in(now, agent.map(|agent| &agent.name), tool).await?;
        }
        let (workspace, session) = (&self.workspace, &self.session);
        let ctx = ToolContext { workspace, session, caller, context, agent, now, turn: Mutex::new(turn) };
        tools::call(&ctx, name, arguments).await
    }

    /// An agent that its client is configured for is known from its first call on. Says whether that is now.
    async fn make_known(
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
            // What needs no registration works all the same.
            Err(error) if error.is_disk() => Ok(false),
            registered => registered.map(|_| true).map_err(Into::into),
        }
    }

    /// The agent that reads resources. It is known from then on, as from a call: whoever waits for news of its mailbox has to
    /// be one that can be written to.
    async fn reader(&self, context: &RequestContext<RoleServer>) -> Option<AgentId> {
        let caller = Caller::of(context);
        let agent = self.agent_of(&caller)?;
        let known = match self.workspace.snapshot().await {
            Ok(now) => self.make_known(&now, &agent, &caller, context).await.map(drop),
            Err(error) => Err(error.into()),
        };
        if let Err(problem) = known {
            tracing::warn!(problem = problem.into_text(), %agent, "the agent of a session could not be registered");
        }
        Some(agent)
    }

    /// Evidence for workflows, and a sign of life. Neither may spoil what was done.
    async fn note_use(&self, now: Result<Snapshot, WorkspaceError>, agent: Option<&AgentId>, tool: &str) {
        let name = agent.map(|agent| &agent.name);
        let noted = match now {
            Ok(now) => self.workspace.record_tool_use_in(&now, name, tool).await,
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, tool, "the use of a tool was not noted");
        }
        let Some(agent) = agent else { return };
        let due = {
            let mut alive = self.alive.lock();
            let due = alive.is_none_or(|at| at.elapsed() > ALIVE_EVERY);
            if due {
                *alive = Some(Instant::now());
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
        Ok(ListToolsResult::with_all_items(tools::list(self.config.profile)))
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
        let trouble = self.workspace.hub().disk_trouble();
        Ok(CallToolResponse::Complete(answer::note_disk(answer::result(outcome, unread), trouble)))
    }

    /// There are none, and a server that says so must not answer as if it had a list of them.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    /// As with prompts.
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
        let reader = self.reader(&context).await;
        let result = resources::read(&self.workspace, reader.as_ref(), &request.uri).await?;
        Ok(ReadResourceResponse::Complete(result))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let reader = self.reader(&context).await;
        let watch = resources::Watch::new(&self.workspace, reader.as_ref(), &request.uri).await?;
        let stop = CancellationToken::new();
        if let Some(before) = self.watched.lock().insert(request.uri.clone(), stop.clone()) {
            before.cancel();
        }
        let peer = context.peer.clone();
        tokio::spawn(async move {
            let told = watch.tell(|uri| {
                let peer = peer.clone();
                async move { resources::notify(&peer, uri).await }
            });
            tokio::select! {
                () = told => {}
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
        if let Some(stop) = self.watched.lock().remove(&request.uri) {
            stop.cancel();
        }
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(resources::accepted(requested))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let agent = self.reader(subscription.request_context()).await;
        resources::listen(&self.workspace, agent.as_ref(), &subscription).await
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        for stop in self.watched.get_mut().values() {
            stop.cancel();
        }
    }
}
