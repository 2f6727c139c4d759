//! Panic isolation: a request whose handler panics is answered with an internal error.
//!
//! Without it, `rmcp` never answers such a request, and a panic in a raw call ends the session. With it, the session,
//! the other requests and the process continue; `switchboard_request_panics_total` counts the panics.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
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

/// A handler whose requests are isolated from each other's panics.
pub(crate) struct Isolated<H>(pub(crate) H);

/// Forwards requests and catches their panics.
macro_rules! isolated {
    ($($method:ident($params:ty) -> $result:ty;)*) => {
        $(async fn $method(
            &self,
            params: $params,
            context: RequestContext<RoleServer>,
        ) -> Result<$result, ErrorData> {
            catch_panic(stringify!($method), self.0.$method(params, context)).await
        })*
    };
}

/// Forwards notifications and catches their panics.
macro_rules! isolated_notifications {
    ($($method:ident($params:ty);)*) => {
        $(async fn $method(&self, params: $params, context: NotificationContext<RoleServer>) {
            let handled = async {
                self.0.$method(params, context).await;
                Ok(())
            };
            let _ = catch_panic(stringify!($method), handled).await;
        })*
    };
}

#[expect(deprecated, reason = "sessions up to 2025-11-25 subscribe and set levels this way")]
impl<H: ServerHandler> ServerHandler for Isolated<H> {
    isolated! {
        initialize(InitializeRequestParams) -> InitializeResult;
        complete(CompleteRequestParams) -> CompleteResult;
        set_level(SetLevelRequestParams) -> ();
        get_prompt(GetPromptRequestParams) -> GetPromptResponse;
        list_prompts(Option<PaginatedRequestParams>) -> ListPromptsResult;
        list_resources(Option<PaginatedRequestParams>) -> ListResourcesResult;
        list_resource_templates(Option<PaginatedRequestParams>) -> ListResourceTemplatesResult;
        read_resource(ReadResourceRequestParams) -> ReadResourceResponse;
        subscribe(SubscribeRequestParams) -> ();
        unsubscribe(UnsubscribeRequestParams) -> ();
        call_tool(CallToolRequestParams) -> CallToolResponse;
        list_tools(Option<PaginatedRequestParams>) -> ListToolsResult;
        on_custom_request(CustomRequest) -> CustomResult;
        get_task(GetTaskParams) -> GetTaskResult;
        update_task(UpdateTaskParams) -> ();
        cancel_task(CancelTaskParams) -> ();
    }

    isolated_notifications! {
        on_cancelled(CancelledNotificationParam);
        on_progress(ProgressNotificationParam);
        on_custom_notification(CustomNotification);
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        catch_panic("ping", self.0.ping(context)).await
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        catch_panic("discover", self.0.discover(context)).await
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        catch_panic("listen", self.0.listen(context)).await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let handled = async {
            self.0.on_initialized(context).await;
            Ok(())
        };
        let _ = catch_panic("on_initialized", handled).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        let handled = async {
            self.0.on_roots_list_changed(context).await;
            Ok(())
        };
        let _ = catch_panic("on_roots_list_changed", handled).await;
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.0.negotiate_initialize(request)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.0.accepted_subscription_filter(requested)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.get_tool(name)
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }
}

#[cfg(test)]
#[path = "panics_tests.rs"]
mod tests;
