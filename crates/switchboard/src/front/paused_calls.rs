//! Calls that wait for their client to call again.
//!
//! In the newest revision a server cannot query the client while a call runs: it answers that it needs input, and
//! the client calls again with it. The server behind us may not support that and wait for its answer within the
//! call, so the call is paused until then.

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

/// Most paused calls. A new one evicts the one that has waited longest.
const MAX_PAUSED: usize = 256;

/// A client that has not called again by then never will.
const PAUSE_TIMEOUT: Duration = Duration::from_mins(10);

/// Key of the one request that is sent at a time.
const KEY: &str = "input";

/// A running call.
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

/// No client waits for it any more.
impl Drop for RunningCall {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}

/// A call that waits for an answer, and since when.
struct PausedCall {
    tool: String,
    /// Agent that made the call. No other agent can resume it, even with its token.
    agent: Option<AgentId>,
    going: RunningCall,
    answer: oneshot::Sender<Value>,
    since: Instant,
}

/// The paused calls, by the token that their clients send back. Clones share them.
#[derive(Clone, Default)]
pub(super) struct PausedCalls {
    calls: Arc<Mutex<HashMap<String, PausedCall>>>,
}

impl PausedCalls {
    /// Resumes a paused call with its client's answer; `None` if none of ours waits.
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
        // A child that ended meanwhile reports it in its result.
        let _ = waiting.answer.send(answer.clone());
        Ok(Some(waiting.going))
    }

    /// Runs a call until it ends or requires an answer.
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
