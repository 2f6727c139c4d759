//! Input requests inside answers (`input_required`), since 2026-07-28.
//!
//! Without a session, a child cannot send requests of its own. Instead, its answer lists the missing input. Switchboard
//! asks the client, and then repeats the request with the client's responses.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};
use tracing::Instrument as _;

use super::connection::Connection;
use super::envelope::code;
use super::error::ChildError;
use super::meta::Meta;
use super::server_requests::{capability, check_capability};
use super::status::ListKind;
use super::transport::Transport;
use crate::host::{Caller, RpcError};

/// Maximum number of rounds of input requests per call.
const ROUNDS: usize = 16;

/// Maximum number of tool-list pages read for header annotations.
const PAGES: usize = 100;

impl Connection {
    /// Sends a request, and answers input requests until the final answer arrives.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        caller: &Caller,
        limit: Duration,
    ) -> Result<Box<RawValue>, ChildError> {
        let span = tracing::info_span!("child_request", child = self.shared.name(), method);
        self.exchange_untraced(method, params, caller, limit).instrument(span).await
    }

    async fn exchange_untraced(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        caller: &Caller,
        limit: Duration,
    ) -> Result<Box<RawValue>, ChildError> {
        self.check_tool(method, params)?;
        let answer = self.call(method, params, caller, limit).await;
        if self.meta() == Meta::Legacy {
            return answer;
        }
        let mut answer = match answer {
            // The server rejected the call before processing it, because a header is missing that only the tool list
            // announces.
            Err(ChildError::Rpc(error)) if error.code == code::HEADER_MISMATCH && method == "tools/call" => {
                self.refresh_headers(caller, limit).await?;
                self.call(method, params, caller, limit).await?
            }
            answer => answer?,
        };
        if method == ListKind::Tools.method() {
            answer = self.record_tools(&answer).unwrap_or(answer);
        }
        for _ in 0..ROUNDS {
            let Some(missing) = RawObject::parse(&answer).filter(is_input_required) else {
                return Ok(answer);
            };
            let again = self.with_responses(&missing, params, caller).await?;
            answer = self.call(method, Some(&again), caller, limit).await?;
        }
        Err(refusal(
            code::INTERNAL,
            format!("`{}` requested input {ROUNDS} times in one call", self.shared.name()),
        ))
    }

    /// Reads the complete tool list to refresh the header annotations.
    async fn refresh_headers(self: &Arc<Self>, caller: &Caller, limit: Duration) -> Result<(), ChildError> {
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let params = cursor.take().map(|cursor| to_raw(&serde_json::json!({ "cursor": cursor })));
            let page = self.call(ListKind::Tools.method(), params.as_deref(), caller, limit).await?;
            self.record_tools(&page);
            cursor = RawObject::parse(&page).and_then(|page| page.text("nextCursor"));
            if cursor.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn record_tools(&self, list: &RawValue) -> Option<Box<RawValue>> {
        match &self.transport {
            Transport::Http(http) => http.record_tools(list),
            _ => None,
        }
    }

    /// Rejects a call of a tool whose header annotations are invalid.
    fn check_tool(&self, method: &str, params: Option<&RawValue>) -> Result<(), ChildError> {
        let Transport::Http(http) = &self.transport else { return Ok(()) };
        if method != "tools/call" || self.meta() == Meta::Legacy {
            return Ok(());
        }
        let tool =
            params.and_then(RawObject::parse).and_then(|params| params.text("name")).unwrap_or_default();
        if http.is_invalid(&tool) {
            let reason = format!(
                "the tool `{tool}` of `{}` has an `x-mcp-header` that MCP does not allow; report it to its authors",
                self.shared.name()
            );
            return Err(refusal(code::INVALID_PARAMS, reason));
        }
        Ok(())
    }

    /// Asks the client for the missing input, and builds the parameters of the repeated request.
    async fn with_responses(
        &self,
        missing: &RawObject<'_>,
        params: Option<&RawValue>,
        caller: &Caller,
    ) -> Result<Box<RawValue>, ChildError> {
        let mut responses = RawObject::default();
        let requests = missing.get("inputRequests").and_then(RawObject::parse).unwrap_or_default();
        for (key, request) in requests.iter() {
            let response = tokio::select! {
                biased;
                () = caller.cancelled.cancelled() => return Err(ChildError::Cancelled),
                response = self.request_input(request, caller) => response?,
            };
            responses.set(key, response);
        }
        let empty = RawObject::default().to_raw();
        let mut again = RawObject::parse(params.unwrap_or(&empty)).unwrap_or_default();
        if !requests.is_empty() {
            again.set("inputResponses", responses.to_raw());
        }
        if let Some(state) = missing.get("requestState") {
            again.set("requestState", state.to_owned());
        }
        Ok(again.to_raw())
    }

    async fn request_input(&self, request: &RawValue, caller: &Caller) -> Result<Box<RawValue>, ChildError> {
        let name = self.shared.name();
        let request = RawObject::parse(request).unwrap_or_default();
        let method = request.text("method").unwrap_or_default();
        let Some(needed) = capability(&method) else {
            return Err(refusal(
                code::METHOD_NOT_FOUND,
                format!("`{name}` requests `{method}`, which no client supports"),
            ));
        };
        let Some(host) = &caller.host else {
            let reason = format!("`{name}` requests `{method}`, but no client is connected that can answer");
            return Err(refusal(code::MISSING_CAPABILITY, reason));
        };
        check_capability(host, &method, needed)?;
        let params = request.get("params").map(RawValue::to_owned);
        Ok(host.request(name, &method, params).await?)
    }
}

fn is_input_required(answer: &RawObject<'_>) -> bool {
    answer.get("resultType").is_some_and(|kind| *kind.get() == *to_raw(&"input_required").get())
}

fn refusal(code: i64, message: String) -> ChildError {
    ChildError::Rpc(RpcError { code, message, data: None })
}
