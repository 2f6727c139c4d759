//! MCP handler for the fixtures.

// The suite tests logging, sampling and subscriptions, which 2026-07-28 has deprecated.
#![expect(deprecated, reason = "older revisions have them")]

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    CreateMessageRequestParams, ElicitRequestParams, ErrorCode, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::sleep;

use crate::fixtures;
use crate::inputs::{Round, States, declares};

/// Interval between two progress notifications, as the suite suggests.
const REST: Duration = Duration::from_millis(50);

/// One handler for all sessions and requests. Clones share state.
#[derive(Clone)]
pub(crate) struct Fixture {
    states: States,
    changes: broadcast::Sender<Change>,
}

/// Change that a tool of the suite triggers.
#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { states: States::default(), changes: broadcast::channel(16).0 }
    }

    async fn run(
        &self,
        tool: &str,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(result) = fixtures::content(tool) {
            return Ok(CallToolResponse::Complete(decode_complete(result)?));
        }
        let capabilities = context.client_capabilities().unwrap_or_default();
        let (answers, state) = (request.input_responses.as_ref(), request.request_state.as_deref());
        if let Some(round) = self.states.next(tool, answers, state, &capabilities) {
            return match round? {
                Round::Ask(result) => {
                    Ok(CallToolResponse::InputRequired(decode::<InputRequiredResult>(result)?))
                }
                Round::Done(text) => text_result(&text),
            };
        }
        let argument = |name: &str| {
            let arguments = request.arguments.as_ref();
            arguments.and_then(|arguments| arguments.get(name)).and_then(Value::as_str).unwrap_or_default()
        };
        match tool {
            "test_tool_with_logging" | "test_logging_tool" => {
                for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    log(context, text).await;
                    sleep(REST).await;
                }
                text_result("Logged")
            }
            "test_tool_with_progress" => {
                for step in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, step).with_total(100.0);
                        let _ = context.peer.notify_progress(progress).await;
                    }
                    sleep(REST).await;
                }
                text_result("Done in three steps")
            }
            "test_reconnection" => {
                sleep(REST).await;
                text_result("Still here")
            }
            // Runs until the client cancels it.
            "test_wait" => {
                context.ct.cancelled().await;
                text_result("Cancelled")
            }
            "test_sampling" => {
                let content = fixtures::text(argument("prompt"));
                let params =
                    json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 100 });
                let params: CreateMessageRequestParams = decode(params)?;
                let sample = context.peer.create_message(params).await.map_err(failed)?;
                let sample = serde_json::to_value(sample).map_err(failed)?;
                text_result(&format!(
                    "LLM response: {}",
                    sample["content"]["text"].as_str().unwrap_or_default()
                ))
            }
            "test_missing_capability" if declares(&capabilities, "sampling") => text_result("Declared"),
            "test_missing_capability" => {
                let required = decode(json!({ "sampling": {} }))?;
                Err(ErrorData::missing_required_client_capability(required))
            }
            "test_trigger_tool_change" => self.change(Change::Tools),
            "test_trigger_prompt_change" => self.change(Change::Prompts),
            tool => {
                let Some(form) = fixtures::form(tool) else {
                    return Err(ErrorData::invalid_params(format!("there is no tool `{tool}`"), None));
                };
                let message = if tool == "test_elicitation" { argument("message") } else { "Please fill in" };
                let params = json!({ "mode": "form", "message": message, "requestedSchema": form });
                let params: ElicitRequestParams = decode(params)?;
                let answer = context.peer.create_elicitation(params).await.map_err(failed)?;
                let answer = serde_json::to_value(answer).map_err(failed)?;
                text_result(&format!(
                    "Elicitation completed: action={}, content={}",
                    answer["action"], answer["content"]
                ))
            }
        }
    }

    fn change(&self, change: Change) -> Result<CallToolResponse, ErrorData> {
        // Not an error without subscribers.
        let _ = self.changes.send(change);
        text_result("Changed")
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let config = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "completions": {},
                "logging": {},
                "prompts": { "listChanged": true },
                "resources": { "subscribe": true },
                "tools": { "listChanged": true },
            },
            "serverInfo": { "name": "switchboard-conformance", "version": env!("CARGO_PKG_VERSION") },
        });
        decode(config).unwrap_or_default()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        decode_complete(json!({ "tools": fixtures::tools() }))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools: Vec<Tool> = decode(fixtures::tools()).ok()?;
        tools.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.run(&request.name, &request, &context).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        decode_complete(json!({ "resources": fixtures::resources() }))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        decode_complete(json!({ "resourceTemplates": fixtures::templates() }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match fixtures::resource(&request.uri) {
            Some(contents) => Ok(decode_complete::<ReadResourceResult>(contents)?.into()),
            None => {
                Err(ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": request.uri }))))
            }
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        decode_complete(json!({ "prompts": fixtures::prompts() }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let capabilities = context.client_capabilities().unwrap_or_default();
        let (answers, state) = (request.input_responses.as_ref(), request.request_state.as_deref());
        if let Some(round) = self.states.next(&request.name, answers, state, &capabilities) {
            return match round? {
                Round::Ask(result) => Ok(GetPromptResponse::InputRequired(decode(result)?)),
                Round::Done(text) => {
                    Ok(decode_complete::<GetPromptResult>(fixtures::messages(vec![fixtures::text(&text)]))?
                        .into())
                }
            };
        }
        let arguments = serde_json::to_value(&request.arguments).map_err(failed)?;
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        match fixtures::prompt(&request.name, argument) {
            Some(prompt) => Ok(decode_complete::<GetPromptResult>(prompt)?.into()),
            None => Err(ErrorData::invalid_params(format!("there is no prompt `{}`", request.name), None)),
        }
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        decode_complete(
            json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }),
        )
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        legacy_only(&context, "logging/setLevel")
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // Clients that subscribed to other changes are not notified, which is not an error.
            let _ = match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }
}

/// Deserializes a result of the SDK and marks it as complete, which the SDK does not do itself.
fn decode_complete<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["resultType"] = json!("complete");
    decode(result)
}

/// Deserializes a value of the SDK from its wire format.
fn decode<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn text_result(text: &str) -> Result<CallToolResponse, ErrorData> {
    Ok(decode_complete::<CallToolResult>(json!({ "content": [fixtures::text(text)] }))?.into())
}

/// Sends a log message to clients that requested it: as of 2026-07-28, each request does.
async fn log(context: &RequestContext<RoleServer>, text: &str) {
    let is_legacy = context.protocol_version().is_none_or(|version| version.has_initialize());
    if is_legacy || context.meta.log_level().is_some() {
        let entry = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
        let _ = context.peer.notify_logging_message(entry).await;
    }
}

fn legacy_only(context: &RequestContext<RoleServer>, method: &str) -> Result<(), ErrorData> {
    if context.protocol_version().is_none_or(|version| version.has_initialize()) {
        Ok(())
    } else {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None))
    }
}
