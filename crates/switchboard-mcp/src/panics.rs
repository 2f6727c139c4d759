//! Panic isolation: a request whose handler panics is answered with an internal error.
//!
//! Without it, `rmcp` never answers such a request, and a panic in a raw call ends the session. With it, the session,
//! the other requests and the process continue; `switchboard_request_panics_total` counts the panics.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
#[expect(deprecated, reason = "sessions up to 2025-11-25 set levels")]
use rmcp::model::SetLevelRequestParams;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CustomNotification, CustomRequest, CustomResult, DiscoverResult,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, InitializeRequestParams,
    InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

type Context = RequestContext<RoleServer>;

#[expect(deprecated, reason = "sessions up to 2025-11-25 set levels")]
type SetLevelParams = SetLevelRequestParams;

/// Catches a panic of the request and answers with an internal error.
pub(crate) async fn catch_panic<T>(
    method: &str,
    request: impl Future<Output = Result<T, ErrorData>> + Send,
) -> Result<T, ErrorData> {
    match AssertUnwindSafe(request).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => Err(report_panic(method)),
    }
}

/// Counts and logs a panic; returns the error for the client.
pub(crate) fn report_panic(method: &str) -> ErrorData {
    metrics::counter!("switchboard_request_panics_total").increment(1);
    tracing::error!(method, "a request panicked; the session continues");
    let message = "the server failed to process this request; see its log. The session continues";
    ErrorData::internal_error(message, None)
}

/// A handler whose requests are isolated from each other's panics. Clones share the handler.
///
/// It erases the handler's type, so that the transports, and `rmcp`'s service behind them, are compiled once and not
/// once for each type of handler.
#[derive(Clone)]
pub(crate) struct Isolated(Arc<dyn Handler>);

impl Isolated {
    pub(crate) fn new(handler: impl ServerHandler) -> Self {
        Self(Arc::new(handler))
    }
}

/// Declares the object-safe form of [`ServerHandler`]. [`Isolated`] forwards to it and catches panics of requests and
/// notifications.
macro_rules! isolated {
    (
        requests { $($request:ident($($param:ident: $of:ty),+) -> $answer:ty;)* }
        notifications { $($notification:ident($($content:ident: $type:ty),+);)* }
        plain { $($plain:ident($($argument:ident: $given:ty)?) -> $value:ty;)* }
    ) => {
        trait Handler: Send + Sync + 'static {
            $(fn $request(&self, $($param: $of),+) -> BoxFuture<'_, Result<$answer, ErrorData>>;)*
            $(fn $notification(&self, $($content: $type),+) -> BoxFuture<'_, Result<(), ErrorData>>;)*
            $(fn $plain(&self $(, $argument: $given)?) -> $value;)*
        }

        #[expect(deprecated, reason = "sessions up to 2025-11-25 subscribe and set levels this way")]
        impl<H: ServerHandler> Handler for H {
            $(fn $request(&self, $($param: $of),+) -> BoxFuture<'_, Result<$answer, ErrorData>> {
                Box::pin(ServerHandler::$request(self, $($param),+))
            })*
            $(fn $notification(&self, $($content: $type),+) -> BoxFuture<'_, Result<(), ErrorData>> {
                Box::pin(ServerHandler::$notification(self, $($content),+).map(Ok))
            })*
            $(fn $plain(&self $(, $argument: $given)?) -> $value {
                ServerHandler::$plain(self $(, $argument)?)
            })*
        }

        impl ServerHandler for Isolated {
            $(async fn $request(&self, $($param: $of),+) -> Result<$answer, ErrorData> {
                catch_panic(stringify!($request), self.0.$request($($param),+)).await
            })*
            $(async fn $notification(&self, $($content: $type),+) {
                let _ = catch_panic(stringify!($notification), self.0.$notification($($content),+)).await;
            })*
            $(fn $plain(&self $(, $argument: $given)?) -> $value {
                self.0.$plain($($argument)?)
            })*
        }
    };
}

isolated! {
    requests {
        ping(context: Context) -> ();
        initialize(params: InitializeRequestParams, context: Context) -> InitializeResult;
        discover(context: Context) -> DiscoverResult;
        complete(params: CompleteRequestParams, context: Context) -> CompleteResult;
        set_level(params: SetLevelParams, context: Context) -> ();
        get_prompt(params: GetPromptRequestParams, context: Context) -> GetPromptResponse;
        list_prompts(params: Option<PaginatedRequestParams>, context: Context) -> ListPromptsResult;
        list_resources(params: Option<PaginatedRequestParams>, context: Context) -> ListResourcesResult;
        list_resource_templates(params: Option<PaginatedRequestParams>, context: Context)
            -> ListResourceTemplatesResult;
        read_resource(params: ReadResourceRequestParams, context: Context) -> ReadResourceResponse;
        listen(context: SubscriptionContext) -> ();
        subscribe(params: SubscribeRequestParams, context: Context) -> ();
        unsubscribe(params: UnsubscribeRequestParams, context: Context) -> ();
        call_tool(params: CallToolRequestParams, context: Context) -> CallToolResponse;
        list_tools(params: Option<PaginatedRequestParams>, context: Context) -> ListToolsResult;
        on_custom_request(request: CustomRequest, context: Context) -> CustomResult;
        get_task(params: GetTaskParams, context: Context) -> GetTaskResult;
        update_task(params: UpdateTaskParams, context: Context) -> ();
        cancel_task(params: CancelTaskParams, context: Context) -> ();
    }
    notifications {
        on_cancelled(params: CancelledNotificationParam, context: NotificationContext<RoleServer>);
        on_progress(params: ProgressNotificationParam, context: NotificationContext<RoleServer>);
        on_custom_notification(params: CustomNotification, context: NotificationContext<RoleServer>);
        on_initialized(context: NotificationContext<RoleServer>);
        on_roots_list_changed(context: NotificationContext<RoleServer>);
    }
    plain {
        negotiate_initialize(request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData>;
        supported_protocol_versions() -> Cow<'static, [ProtocolVersion]>;
        accepted_subscription_filter(requested: &SubscriptionFilter) -> Option<SubscriptionFilter>;
        get_tool(name: &str) -> Option<Tool>;
        get_info() -> ServerConfig;
    }
}

#[cfg(test)]
#[path = "panics_tests.rs"]
mod tests;
