//! MCP server of a wrapper. It offers one tool, for questions in plain language.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, ContentBlock, Implementation, InitializeResult, JsonObject, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
    ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::describe_json_error;
use switchboard_sys::reaper::ReaperClient;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conversation::{Conversation, ConversationLog, StopReason};
use super::error::WrapperError;
use super::layout::ROLE;
use super::model::Prompt;
use super::original::{Original, inner_name};
use super::provider::Provider;
use super::role;
use super::settings::{Bounds, WrapperSettings};
use super::toolbox::{ToolPolicy, Toolbox};
use crate::child::{Child, ListKind};
use crate::config::Config;
use crate::expand::Lookup;
use crate::expose::ToolFilter;
use crate::host::Caller;
use crate::paths::SuitePaths;
use crate::pins::Pins;
use crate::trust::TrustStore;

/// Name of the server's only tool.
pub(super) const TOOL: &str = "natural_language";

/// Maximum length of the question and of its context, in bytes each. More text would leave the model no room to work.
const TEXT_LIMIT: usize = 100_000;

/// Maximum size of a role file, in bytes.
const ROLE_LIMIT: u64 = 64 << 10;

/// Maximum number of concurrent questions. Further questions wait while their time limit runs.
const AT_ONCE: usize = 4;

/// Maximum number of queued progress messages. Further messages are dropped until some are read.
const STEPS: usize = 16;

/// MCP server that answers questions about a child by using its tools. Cheap to clone.
#[derive(Clone)]
pub struct Wrapper(Arc<Inner>);

struct Inner {
    original: Original,
    child: Child,
    guard: Option<ReaperClient>,
    paths: SuitePaths,
    trust: TrustStore,
    settings: WrapperSettings,
    bounds: Bounds,
    /// A missing provider is reported with the first question: a server that fails to start is harder to diagnose.
    provider: Result<Provider, String>,
    exposed: ToolFilter,
    turns: Semaphore,
    tool: Tool,
}

/// Ask in plain language.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// The question or task, with every name and value it takes
    query: String,
    /// Background that helps to understand it
    context: Option<String>,
}

impl Wrapper {
    /// Opens the wrapper of a wrapped child. Starts no process.
    pub fn open(
        name: &str,
        config: &Config,
        paths: &SuitePaths,
        guard: Option<ReaperClient>,
        lookup: Lookup<'_>,
    ) -> Result<Self, WrapperError> {
        let original = Original::read(name, config, paths, lookup)?;
        let suite = config.suite(&original.name).cloned().unwrap_or_default();
        let settings = suite.wrapper.unwrap_or_default();
        let bounds = settings.bounds(&original.name)?;
        let (exposed, broken) = ToolFilter::new(suite.expose.allow.as_deref(), &suite.expose.deny);
        for pattern in broken {
            tracing::warn!(
                "suites.{}.expose: '{}' is not a valid pattern",
                original.name,
                pattern.escape_debug()
            );
        }
        let provider = Provider::choose(&original.name, &settings, lookup).map_err(|error| error.to_string());
        Ok(Self(Arc::new(Inner {
            child: original.child(paths, guard.clone()),
            guard,
            tool: describe_tool(&original),
            trust: TrustStore::load(paths),
            paths: paths.clone(),
            turns: Semaphore::new(AT_ONCE),
            original,
            settings,
            bounds,
            provider,
            exposed,
        })))
    }

    /// Stops the original child with all its descendants.
    pub async fn close(&self) {
        self.0.child.stop().await;
    }

    /// Answers a question. The log is filled in even on failure.
    async fn answer(
        &self,
        question: &Question,
        log: &mut ConversationLog,
        steps: mpsc::Sender<String>,
        cancelled: &CancellationToken,
    ) -> Result<(), String> {
        let inner = &*self.0;
        let until = Instant::now() + inner.bounds.time;
        let provider = inner.provider.as_ref().map_err(Clone::clone)?;
        inner.original.check_trust(&inner.trust).map_err(|error| error.to_string())?;
        let turn = tokio::select! {
            biased;
            () = cancelled.cancelled() => {
                log.stopped = StopReason::Cancelled;
                return Ok(());
            }
            turn = tokio::time::timeout_at(until, inner.turns.acquire()) => turn,
        };
        let Ok(Ok(_turn)) = turn else {
            log.stopped = StopReason::Time;
            return Ok(());
        };
        let _ = steps.try_send(format!("looks at the tools of {}", inner.original.name));
        let caller = Caller { cancelled: cancelled.clone(), ..Caller::default() };
        let listed = tokio::time::timeout_at(until, inner.child.list(ListKind::Tools, &caller)).await;
        let Ok(listed) = listed else {
            log.stopped = StopReason::Time;
            return Ok(());
        };
        let listed = listed.map_err(|error| error.to_string())?;
        let changed = self.changed_tools(listed.clone()).await?;
        let allowed =
            ToolPolicy { exposed: &inner.exposed, destructive: inner.settings.allow_destructive, changed };
        let toolbox = Toolbox::new(&listed, &allowed);
        let folder = &inner.original.folder;
        let own = folder.read(ROLE, ROLE_LIMIT).map_err(|error| error.to_string())?;
        let role = match own {
            Some(found) => String::from_utf8_lossy(&found.bytes).into_owned(),
            None => role::generated(
                &inner.original.name,
                inner.original.spec.description.as_deref().unwrap_or("its tools"),
            ),
        };
        let task = Prompt {
            system: &role::system(&inner.original.name, &role, &toolbox),
            tools: &toolbox.definitions,
            question: &role::question(&question.query, question.context.as_deref()),
        };
        let model = provider
            .start_conversation(&task, folder.path(), inner.guard.as_ref())
            .map_err(|error| error.to_string())?;
        let _ = steps.try_send(format!("asks {}", provider.display_name()));
        let conversation =
            Conversation { model, child: &inner.child, toolbox: &toolbox, bounds: inner.bounds, steps };
        conversation.run(log, until, cancelled).await.map_err(|error| error.to_string())
    }

    /// Pins new tools, and returns the tools that no longer match their pins.
    async fn changed_tools(&self, listed: Vec<Box<RawValue>>) -> Result<BTreeSet<String>, String> {
        let (paths, name) = (self.0.paths.clone(), inner_name(&self.0.original.name));
        let check = move || {
            let mut pins = Pins::load(&paths, &name)?;
            let changed = pins.check(&listed)?;
            let fresh: Vec<String> = pins.new_tools().iter().cloned().collect();
            for tool in fresh {
                pins.pin_new(&tool)?;
            }
            Ok::<_, crate::error::SuiteError>(changed.into_iter().collect())
        };
        let checked = tokio::task::spawn_blocking(check).await.map_err(|error| error.to_string())?;
        checked.map_err(|error| error.to_string())
    }

    async fn call(&self, question: &Question, context: &RequestContext<RoleServer>) -> CallToolResult {
        let mut log = ConversationLog::default();
        let (steps, mut progress_steps) = mpsc::channel(STEPS);
        let work = self.answer(question, &mut log, steps, &context.ct);
        let relay_progress = async {
            let mut count = 0.0;
            while let Some(step) = progress_steps.recv().await {
                count += 1.0;
                if let Some(token) = context.meta.get_progress_token() {
                    let progress = ProgressNotificationParam::new(token, count).with_message(step);
                    // Ignore the error: if the client has disconnected, the call is cancelled anyway.
                    let _ = context.peer.notify_progress(progress).await;
                }
            }
        };
        let (outcome, ()) = tokio::join!(work, relay_progress);
        result(outcome, log, self.0.bounds)
    }
}

/// Builds the MCP result, with the answer as text and the log as structured content.
fn result(outcome: Result<(), String>, mut log: ConversationLog, bounds: Bounds) -> CallToolResult {
    let problem = match (outcome, log.stopped) {
        (Err(problem), _) => Some(problem),
        (Ok(()), StopReason::Answered) if log.answer.is_empty() => {
            "(the model said nothing)".clone_into(&mut log.answer);
            None
        }
        (Ok(()), StopReason::Answered) => None,
        (Ok(()), StopReason::Turns) => Some(format!("No answer within {} turns (maxTurns)", bounds.turns)),
        (Ok(()), StopReason::Tokens) => {
            Some(format!("No answer within {} tokens (maxTokens)", bounds.tokens))
        }
        (Ok(()), StopReason::Time) => {
            Some(format!("No answer within {} ms (timeoutMs)", bounds.time.as_millis()))
        }
        (Ok(()), StopReason::Length) => Some("The answer was truncated: it is too long".to_owned()),
        (Ok(()), StopReason::Declined) => Some("The model declined to answer".to_owned()),
        (Ok(()), StopReason::Cancelled) => Some("The question was cancelled".to_owned()),
        (Ok(()), StopReason::Failed) => Some("There is no answer".to_owned()),
    };
    let text = match &problem {
        None => log.answer.clone(),
        Some(problem) => {
            let mut text = format!("{}.", problem.trim_end_matches('.'));
            if !log.calls.is_empty() {
                let calls: Vec<String> = log
                    .calls
                    .iter()
                    .map(|call| format!("- {} {}", call.tool, if call.ok { "worked" } else { "failed" }))
                    .collect();
                text = format!("{text} These calls were made and were not undone:\n{}", calls.join("\n"));
            }
            if !log.answer.is_empty() {
                text = format!("{text}\nThe model's last words: {}", log.answer);
            }
            text
        }
    };
    let data = serde_json::to_value(&log).unwrap_or_default();
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(data);
    result.is_error = Some(problem.is_some());
    result
}

fn describe_tool(original: &Original) -> Tool {
    let what = original.spec.switchboard_description.as_deref().or(original.spec.description.as_deref());
    let what = what.map(|what| format!(": {}", what.trim().trim_end_matches('.'))).unwrap_or_default();
    let description = format!(
        "Ask {} in plain language{what}. Its tools are used for you; the result lists every call.",
        original.name
    );
    let schema = serde_json::to_value(schemars::schema_for!(Question)).unwrap_or_default();
    let schema = match schema {
        Value::Object(mut schema) => {
            for noise in ["$schema", "title", "description"] {
                schema.remove(noise);
            }
            schema
        }
        _ => JsonObject::new(),
    };
    Tool::new(TOOL, description, schema)
}

/// Parses and validates a question.
fn parse_question(arguments: Option<JsonObject>) -> Result<Question, String> {
    let example = "call it with {\"query\": \"…\"}";
    let question: Question = serde_path_to_error::deserialize(Value::Object(arguments.unwrap_or_default()))
        .map_err(|error| format!("{}; {example}", describe_json_error(error.inner())))?;
    for (field, text) in [("query", Some(&question.query)), ("context", question.context.as_ref())] {
        if text.is_some_and(|text| text.len() > TEXT_LIMIT) {
            return Err(format!(
                "the field '{field}' is longer than {TEXT_LIMIT} bytes; ask for less at once"
            ));
        }
    }
    if question.query.trim().is_empty() {
        return Err(format!("the field 'query' is empty; {example}"));
    }
    Ok(question)
}

impl ServerHandler for Wrapper {
    fn get_info(&self) -> ServerConfig {
        InitializeResult::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("switchboard-wrapper", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![self.0.tool.clone()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == TOOL).then(|| self.0.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != TOOL {
            let message =
                format!("there is no tool '{}'; the only one is '{TOOL}'", request.name.escape_debug());
            return Err(ErrorData::invalid_params(message, None));
        }
        let result = match parse_question(request.arguments) {
            Ok(question) => Box::pin(self.call(&question, &context)).await,
            Err(problem) => CallToolResult::error(vec![ContentBlock::text(problem)]),
        };
        Ok(CallToolResponse::Complete(result))
    }

    /// Answers "method not found", as required of a server without prompts. An empty list would be wrong.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    /// Answers "method not found", as required of a server without resources.
    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    /// Answers "method not found", as required of a server without resources.
    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    /// Answers "method not found", as required of a server without completion.
    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}
