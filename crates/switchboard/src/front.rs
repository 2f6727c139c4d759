//! The MCP server that a client sees: the workspace's own tools and the suites.
//!
//! A call takes one of two paths. Over stdio, calls bypass `rmcp` ([`RawBypass`]): a suite's call is passed through as
//! written, and a call of one of our own tools is parsed directly, because trying all message types of `rmcp` takes
//! longer than most tools run. Over streamable HTTP, our own tools that return promptly take the same path. All other
//! calls, and the results of suites, are deserialized by `rmcp`.

mod convert;
mod host;
mod lists;
mod paused_calls;
mod raw_bypass;
mod swarm;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use door_suites::{Caller, ClientRef, Host, ListKind, Suites, SuitesEvent};
use parking_lot::Mutex;
#[expect(deprecated, reason = "sessions up to 2025-11-25 set levels")]
use rmcp::model::SetLevelRequestParams;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, GetPromptRequestParams, GetPromptResponse, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ResourceUpdatedNotificationParam, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use switchboard_mcp::offer_raw_calls;
use switchboard_tools::{ToolConfig, ToolServer};
use tokio::sync::SetOnce;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::convert::{call_result, error_data, typed, typed_list};
use self::host::{PeerHost, StatelessHost, is_stateless};
use self::paused_calls::{PausedCalls, RunningCall};
pub(crate) use self::raw_bypass::RawBypass;
pub(crate) use self::swarm::SwarmTools;

/// Instructions about the suites, which models read before their first call.
const INSTRUCTIONS: &str = "Each tool named *_suite stands for the tools of one server: action introspect lists them, \
     with query those that fit, and action call uses one (subtool, args).";

/// How long a call waits for the client's `initialize`. The client has sent it before the call, so it only has to be
/// processed.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// URI scheme of the workspace's own resources.
const OURS: &str = "switchboard://";

/// The handler of one MCP session.
pub(crate) struct Front {
    workspace: Arc<ToolServer>,
    suites: Suites,
    swarm: SwarmTools,
    /// Paused calls that wait for input of a client without a session. All sessions share them.
    paused: PausedCalls,
    session: Arc<Session>,
    /// Cancels the session's background tasks when dropped.
    ended: DropGuard,
}

/// State of one MCP session.
#[derive(Default)]
struct Session {
    /// The client, set once it is initialized.
    peer: SetOnce<Peer<RoleServer>>,
    /// The client as servers behind suites see it. All calls of the client share the same value, by which servers
    /// distinguish clients.
    host: OnceLock<Arc<dyn Host>>,
    /// Minimum severity of servers' log messages that are forwarded to the client.
    level: Mutex<Option<convert::Severity>>,
    /// Resources of suites to which the client subscribed.
    watched: Mutex<BTreeSet<String>>,
}

impl Session {
    fn host(&self, make: impl FnOnce() -> PeerHost) -> Arc<dyn Host> {
        self.host.get_or_init(|| Arc::new(make())).clone()
    }

    /// Waits until the client is initialized; returns `None` if it does not initialize in time.
    ///
    /// A call may arrive while `initialize` is still being processed. A client that never initializes cannot be
    /// queried.
    async fn introduced(&self) -> Option<(&Peer<RoleServer>, Arc<dyn Host>)> {
        let peer = match self.peer.get() {
            Some(peer) => peer,
            None => tokio::time::timeout(INTRODUCTION, self.peer.wait()).await.ok()?,
        };
        Some((peer, self.host(|| PeerHost::session(peer))))
    }

    fn is_host(&self, client: &ClientRef) -> bool {
        self.host.get().is_some_and(|host| client.is(host))
    }
}

impl Front {
    pub(crate) fn new(workspace: ToolServer, suites: Suites, swarm: SwarmTools) -> Self {
        Self::with(workspace, suites, swarm, PausedCalls::default())
    }

    /// Creates a handler for another session of the same process.
    pub(crate) fn for_new_session(&self) -> Self {
        let (workspace, swarm) = (self.workspace.new_session(), self.swarm.clone());
        Self::with(workspace, self.suites.clone(), swarm, self.paused.clone())
    }

    /// Creates a handler for another session of the same process, with another tool configuration.
    pub(crate) fn another_for(&self, config: ToolConfig) -> Self {
        let (workspace, swarm) = (self.workspace.new_session_with(config), self.swarm.clone());
        Self::with(workspace, self.suites.clone(), swarm, self.paused.clone())
    }

    fn with(workspace: ToolServer, suites: Suites, swarm: SwarmTools, paused: PausedCalls) -> Self {
        let ended = CancellationToken::new().drop_guard();
        Self { workspace: Arc::new(workspace), suites, swarm, paused, session: Arc::default(), ended }
    }

    /// Returns the `rmcp` bypass of this session.
    pub(crate) fn raw_bypass(&self) -> RawBypass {
        let (workspace, suites) = (self.workspace.clone(), self.suites.clone());
        RawBypass { workspace, suites, swarm: self.swarm.clone(), session: self.session.clone() }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let host = if is_stateless(context) {
            Arc::new(PeerHost::of(context))
        } else {
            self.session.host(|| PeerHost::of(context))
        };
        Caller {
            host: Some(host),
            progress_token: context.meta.get_progress_token().and_then(|token| to_raw_value(&token).ok()),
            cancelled: context.ct.clone(),
            meta: request_meta(context),
            ..Caller::default()
        }
    }

    /// Forwards a request to the servers whose tools are listed one by one; returns `None` if none of them handles it.
    async fn ask(
        &self,
        method: &str,
        params: &impl Serialize,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<Box<RawValue>, ErrorData>> {
        let mut params = serde_json::to_value(params).ok()?;
        if let Some(meta) = request_meta(context) {
            params["_meta"] = serde_json::to_value(&meta).ok()?;
        }
        let params = to_raw_value(&params).ok();
        let answer = self.suites.request(method, params, &self.caller(context)).await?;
        Some(answer.map_err(error_data))
    }

    /// Calls a tool that is not the workspace's own.
    async fn call_other(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.suites.has_tool(&request.name) {
            return self.call_suite(request, context).await;
        }
        let caller = self.workspace.session_agent(&context);
        let result = self.swarm.call(caller.as_ref(), &request.name, request.arguments).await;
        Ok(CallToolResponse::Complete(result))
    }

    /// Calls a suite, or resumes a paused call.
    async fn call_suite(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !is_stateless(&context) {
            let arguments = request.arguments.as_ref().and_then(|arguments| to_raw_value(arguments).ok());
            let caller = self.caller(&context);
            let result = self.suites.call(&request.name, arguments.as_deref(), &caller).await;
            return result.map_err(error_data).and_then(|raw| call_result(&raw));
        }
        // A client without a session cannot be queried during a call: the call is paused, and resumed when the client
        // calls again with the answer.
        let tool = request.name.clone();
        let agent = self.workspace.session_agent(&context);
        let going = match self.paused.resume(&request, agent.as_ref())? {
            Some(going) => going,
            None => self.start_call(request, &context),
        };
        self.paused.run_until_paused(&tool, agent, going, &context.ct).await
    }

    fn start_call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> RunningCall {
        let (host, requests) = StatelessHost::new(context);
        let cancelled = CancellationToken::new();
        let caller = Caller {
            host: Some(Arc::new(host)),
            cancelled: cancelled.clone(),
            // Pass on answers that match no paused call of ours: they belong to a server behind us that implements the
            // newest revision itself.
            input_responses: request.input_responses.as_ref().and_then(|answers| to_raw_value(answers).ok()),
            request_state: request.request_state.as_ref().and_then(|state| to_raw_value(state).ok()),
            ..self.caller(context)
        };
        let suites = self.suites.clone();
        let work = tokio::spawn(async move {
            let arguments = request.arguments.as_ref().and_then(|arguments| to_raw_value(arguments).ok());
            suites.call(&request.name, arguments.as_deref(), &caller).await
        });
        RunningCall::new(work, requests, cancelled)
    }

    /// Notifies the client of changes in the suites until its session ends.
    fn notify_changes(&self, peer: Peer<RoleServer>) {
        let (mut events, session) = (self.suites.events(), self.session.clone());
        let relay = async move {
            loop {
                let event = match events.recv().await {
                    Ok(event) => event,
                    // After missed events, notify the client that the tools changed, so that it lists everything again.
                    Err(RecvError::Lagged(_)) => SuitesEvent::ToolsChanged,
                    Err(RecvError::Closed) => return,
                };
                if notify_client(&peer, &session, event).await.is_err() {
                    return;
                }
            }
        };
        let ended = self.ended.token().clone();
        tokio::spawn(async move { ended.run_until_cancelled(relay).await });
    }
}

async fn notify_client(
    peer: &Peer<RoleServer>,
    session: &Session,
    event: SuitesEvent,
) -> Result<(), rmcp::ServiceError> {
    match event {
        SuitesEvent::ToolsChanged => peer.notify_tool_list_changed().await,
        SuitesEvent::ResourcesChanged => peer.notify_resource_list_changed().await,
        SuitesEvent::PromptsChanged => peer.notify_prompt_list_changed().await,
        SuitesEvent::ResourceUpdated(params) => match updated(&params) {
            Some(params) if session.watched.lock().contains(&params.uri) => {
                peer.notify_resource_updated(params).await
            }
            _ => Ok(()),
        },
        SuitesEvent::Notification { method, params, to } => {
            let is_for_it = session.is_host(&to) && !convert::is_below(&params, *session.level.lock());
            match convert::notification(method, Some(&params)).filter(|_| is_for_it) {
                Some(notification) => peer.send_notification(notification).await,
                None => Ok(()),
            }
        }
    }
}

/// Returns the `_meta` that the client sent with a request, to pass it on to the server behind us.
fn request_meta(context: &RequestContext<RoleServer>) -> Option<Box<RawValue>> {
    let mut meta = serde_json::to_value(&context.meta).ok()?;
    let fields = meta.as_object_mut()?;
    // Progress notifications of the server behind us use a progress token of their own.
    fields.remove("progressToken");
    if fields.is_empty() { None } else { to_raw_value(fields).ok() }
}

fn updated(params: &RawValue) -> Option<ResourceUpdatedNotificationParam> {
    serde_json::from_str(params.get()).ok()
}

#[expect(deprecated, reason = "sessions up to 2025-11-25 subscribe and set levels this way")]
impl ServerHandler for Front {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.workspace.get_info();
        let has_suites = !self.suites.children().is_empty();
        convert::declare(&mut info.capabilities, self.suites.has_flat(), has_suites);
        if has_suites {
            let ours = info.instructions.take().map(|ours| format!("{ours} ")).unwrap_or_default();
            info.instructions = Some(format!("{ours}{INSTRUCTIONS}"));
        }
        info
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.session.peer.set(context.peer.clone()).is_ok() {
            offer_raw_calls(&context.extensions, self.raw_bypass());
            self.notify_changes(context.peer);
        }
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        if let Some(host) = self.session.host.get() {
            self.suites.roots_changed(host);
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(&context);
        let mut list = self.workspace.list_tools(request, context).await?;
        list.tools.extend(self.swarm.list());
        list.tools.extend(typed_list::<Tool>(&self.suites.list_tools(&caller).await));
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let ours = self
            .workspace
            .get_tool(name)
            .or_else(|| self.swarm.list().into_iter().find(|tool| tool.name == name));
        ours.or_else(|| self.suites.tool(name).and_then(|raw| typed(&raw).ok()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.suites.has_tool(&request.name) && !self.swarm.has(&request.name) {
            if !self.workspace.has_tool(&request.name)
                && let Some(text) = self.suites.suggest_tool(&request.name)
            {
                let refusal = CallToolResult::error(vec![ContentBlock::text(text)]);
                return Ok(CallToolResponse::Complete(refusal));
            }
            return self.workspace.call_tool(request, context).await;
        }
        let (caller, tool) = (switchboard_mcp::Caller::of(&context), request.name.clone());
        let is_governed = match self.workspace.admit_external(&caller, &tool).await {
            Ok(is_governed) => is_governed,
            Err(refusal) => return Ok(CallToolResponse::Complete(refusal)),
        };
        let called = self.call_other(request, context);
        let (done, unread) = tokio::join!(called, self.workspace.unread_line(&caller));
        let mut done = done?;
        if let CallToolResponse::Complete(result) = &mut done {
            if is_governed && result.is_error != Some(true) {
                self.workspace.record_external(&caller, &tool).await;
            }
            if let Some(line) = unread.filter(|_| !self.suites.is_flat(&tool)) {
                result.content.push(ContentBlock::text(line));
            }
        }
        Ok(done)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        if !self.suites.has_flat() {
            return self.workspace.list_prompts(request, context).await;
        }
        let prompts = self.suites.list(ListKind::Prompts, &self.caller(&context)).await;
        Ok(ListPromptsResult::with_all_items(typed_list(&prompts)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match self.ask("prompts/get", &request, &context).await {
            Some(answer) => {
                let answer = answer?;
                match convert::input_required(&answer)? {
                    Some(needed) => Ok(GetPromptResponse::InputRequired(needed)),
                    None => convert::result(&answer).map(GetPromptResponse::Complete),
                }
            }
            None => self.workspace.get_prompt(request, context).await,
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match self.ask("completion/complete", &request, &context).await {
            Some(answer) => convert::result(&answer?),
            None => self.workspace.complete(request, context).await,
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.ask("logging/setLevel", &request, &context).await {
            Some(answer) => {
                answer?;
                *self.session.level.lock() = convert::severity(&request.level);
                Ok(())
            }
            None => self.workspace.set_level(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let theirs = self.suites.list(ListKind::Resources, &self.caller(&context)).await;
        let mut list = self.workspace.list_resources(request, context).await?;
        list.resources.extend(typed_list(&theirs));
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let theirs = self.suites.list(ListKind::ResourceTemplates, &self.caller(&context)).await;
        let mut list = self.workspace.list_resource_templates(request, context).await?;
        list.resource_templates.extend(typed_list(&theirs));
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if !request.uri.starts_with(OURS)
            && let Some(answer) = self.ask("resources/read", &request, &context).await
        {
            let answer = answer?;
            return match convert::input_required(&answer)? {
                Some(needed) => Ok(ReadResourceResponse::InputRequired(needed)),
                None => convert::result(&answer).map(ReadResourceResponse::Complete),
            };
        }
        self.workspace.read_resource(request, context).await
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !request.uri.starts_with(OURS)
            && let Some(answer) = self.ask("resources/subscribe", &request, &context).await
        {
            answer?;
            self.session.watched.lock().insert(request.uri);
            return Ok(());
        }
        self.workspace.subscribe(request, context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.session.watched.lock().remove(&request.uri) {
            // Another session may still be subscribed to the resource, so the server behind us stays subscribed.
            return Ok(());
        }
        self.workspace.unsubscribe(request, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let ours = self.workspace.accepted_subscription_filter(requested)?;
        Some(convert::accepted(ours, requested, self.suites.has_flat()))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut events = self.suites.events();
        let sink = subscription.sink().clone();
        let theirs = async {
            loop {
                let Ok(event) = events.recv().await else { continue };
                // The sink filters out notifications that the client did not request.
                let _ = match event {
                    SuitesEvent::ToolsChanged => sink.notify_tool_list_changed().await,
                    SuitesEvent::ResourcesChanged => sink.notify_resource_list_changed().await,
                    SuitesEvent::PromptsChanged => sink.notify_prompt_list_changed().await,
                    SuitesEvent::ResourceUpdated(params) => match updated(&params) {
                        Some(params) => sink.notify_resource_updated(params.uri).await,
                        None => Ok(()),
                    },
                    SuitesEvent::Notification { .. } => Ok(()),
                };
            }
        };
        tokio::select! {
            ended = self.workspace.listen(subscription) => ended,
            () = theirs => Ok(()),
        }
    }
}
