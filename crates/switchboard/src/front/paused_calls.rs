//! Paused calls, which wait for their client to call again with an answer.
//!
//! In the newest revision a server cannot query the client during a call: it returns a result that requires input, and
//! the client calls again with the input. A server behind us may not support that and wait for the answer within the
//! call, so its call is paused until the client calls again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use door_suites::RpcError;
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::AgentId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::convert::{call_result, error_data};
use super::host::PendingRequest;

/// Maximum number of paused calls. Beyond it, the call that has waited longest is evicted.
const MAX_PAUSED: usize = 256;

/// Timeout of a paused call. After it, the client is assumed not to call again.
const PAUSE_TIMEOUT: Duration = Duration::from_mins(10);

/// Key of the input request. Only one is sent at a time.
const KEY: &str = "input";

/// A running call of a suite.
pub(super) struct RunningCall {
    work: JoinHandle<Result<Box<RawValue>, RpcError>>,
    asked: mpsc::Receiver<PendingRequest>,
    cancelled: CancellationToken,
}

impl RunningCall {
    pub(super) fn new(
        work: JoinHandle<Result<Box<RawValue>, RpcError>>,
        requests: mpsc::Receiver<PendingRequest>,
        cancelled: CancellationToken,
    ) -> Self {
        Self { work, asked: requests, cancelled }
    }
}

/// Cancels the call, because no client waits for it any more.
impl Drop for RunningCall {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}

/// A call that waits for an answer of its client.
struct PausedCall {
    tool: String,
    /// Agent that made the call. No other agent can resume the call, even with its token.
    agent: Option<AgentId>,
    going: RunningCall,
    answer: oneshot::Sender<Value>,
    since: Instant,
}

/// The paused calls, keyed by the token that their clients send back. Clones share the same map.
#[derive(Clone, Default)]
pub(super) struct PausedCalls {
    calls: Arc<Mutex<HashMap<String, PausedCall>>>,
}

impl PausedCalls {
    /// Resumes the paused call that waits for a client's answer; returns `None` if there is none.
    pub(super) fn resume(
        &self,
        request: &CallToolRequestParams,
        agent: Option<&AgentId>,
    ) -> Result<Option<RunningCall>, ErrorData> {
        let Some(state) = &request.request_state else { return Ok(None) };
        let mut calls = self.calls.lock();
        match calls.get(state) {
            Some(waiting) if waiting.agent.as_ref() != agent => {
                let message = "requestState belongs to another agent's call; call the tool again without it";
                return Err(ErrorData::invalid_params(message, None));
            }
            Some(waiting) if waiting.tool == request.name => {}
            _ => return Ok(None),
        }
        let answer = request.input_responses.as_ref().and_then(|answers| answers.get(KEY));
        let Some(answer) = answer else {
            let message = format!("inputResponses: '{KEY}' is missing; answer the request of that name");
            return Err(ErrorData::invalid_params(message, None));
        };
        let Some(waiting) = calls.remove(state) else { return Ok(None) };
        // If the server has ended meanwhile, the result of the call reports it.
        let _ = waiting.answer.send(answer.clone());
        Ok(Some(waiting.going))
    }

    /// Runs a call until it ends or requires input of the client.
    pub(super) async fn run_until_paused(
        &self,
        tool: &str,
        agent: Option<AgentId>,
        mut going: RunningCall,
        cancelled: &CancellationToken,
    ) -> Result<CallToolResponse, ErrorData> {
        let pending = tokio::select! {
            biased;
            result = &mut going.work => return match result {
                Ok(result) => result.map_err(error_data).and_then(|raw| call_result(&raw)),
                Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
            },
            Some(pending) = going.asked.recv() => pending,
            () = cancelled.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        let state = self.retain(tool, agent, going, pending.answer)?;
        let needed = json!({
            "resultType": "input_required",
            "inputRequests": { KEY: pending.request },
            "requestState": state,
        });
        serde_json::from_value(needed)
            .map(CallToolResponse::InputRequired)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    fn retain(
        &self,
        tool: &str,
        agent: Option<AgentId>,
        going: RunningCall,
        answer: oneshot::Sender<Value>,
    ) -> Result<String, ErrorData> {
        let state = switchboard_mcp::random_id()
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let mut calls = self.calls.lock();
        calls.retain(|_, waiting| waiting.since.elapsed() < PAUSE_TIMEOUT);
        if calls.len() >= MAX_PAUSED
            && let Some(oldest) =
                calls.iter().min_by_key(|(_, call)| call.since).map(|(state, _)| state.clone())
        {
            calls.remove(&oldest);
        }
        let waiting = PausedCall { tool: tool.to_owned(), agent, going, answer, since: Instant::now() };
        calls.insert(state.clone(), waiting);
        Ok(state)
    }
}
