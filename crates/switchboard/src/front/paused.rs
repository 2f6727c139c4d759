//! Calls that wait for a client to come back.
//!
//! In the newest revision a server cannot ask the client anything while a call runs: it answers that it needs
//! input, and the client calls again with it. The server behind us may know nothing of that and wait for its
//! answer in the middle of the call, so the call is kept until then.

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
use super::host::Asked;

/// How many calls may be paused at once. The one that has waited longest makes room.
const MOST: usize = 256;

/// A client that has not come back by then does not.
const PATIENCE: Duration = Duration::from_mins(10);

/// The key of the one question that is put at a time.
const KEY: &str = "input";

/// A call at work.
pub(super) struct Going {
    work: JoinHandle<Result<Box<RawValue>, RpcError>>,
    asked: mpsc::Receiver<Asked>,
    cancelled: CancellationToken,
}

impl Going {
    pub(super) fn new(
        work: JoinHandle<Result<Box<RawValue>, RpcError>>,
        asked: mpsc::Receiver<Asked>,
        cancelled: CancellationToken,
    ) -> Self {
        Self { work, asked, cancelled }
    }
}

/// Nobody waits for it any more.
impl Drop for Going {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}

/// A call that waits for an answer, and since when.
struct Waiting {
    tool: String,
    /// Whose call it is. Nobody else comes back to it, whatever they know.
    agent: Option<AgentId>,
    going: Going,
    answer: oneshot::Sender<Value>,
    since: Instant,
}

/// The calls that are paused, by what their clients bring back. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Paused {
    calls: Arc<Mutex<HashMap<String, Waiting>>>,
}

impl Paused {
    /// The paused call that a client comes back to, with its answer; `None` where none of ours waits.
    pub(super) fn resume(
        &self,
        request: &CallToolRequestParams,
        agent: Option<&AgentId>,
    ) -> Result<Option<Going>, ErrorData> {
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
        // A child that has gone away in the meantime will say so by its result.
        let _ = waiting.answer.send(answer.clone());
        Ok(Some(waiting.going))
    }

    /// Goes on with a call until it ends or needs an answer.
    pub(super) async fn go_on(
        &self,
        tool: &str,
        agent: Option<AgentId>,
        mut going: Going,
        cancelled: &CancellationToken,
    ) -> Result<CallToolResponse, ErrorData> {
        let asked = tokio::select! {
            biased;
            result = &mut going.work => return match result {
                Ok(result) => result.map_err(error_data).and_then(|raw| call_result(&raw)),
                Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
            },
            Some(asked) = going.asked.recv() => asked,
            () = cancelled.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        let state = self.keep(tool, agent, going, asked.answer)?;
        let needed = json!({
            "resultType": "input_required",
            "inputRequests": { KEY: asked.request },
            "requestState": state,
        });
        serde_json::from_value(needed)
            .map(CallToolResponse::InputRequired)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    fn keep(
        &self,
        tool: &str,
        agent: Option<AgentId>,
        going: Going,
        answer: oneshot::Sender<Value>,
    ) -> Result<String, ErrorData> {
        let state = switchboard_mcp::random_id()
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let mut calls = self.calls.lock();
        calls.retain(|_, waiting| waiting.since.elapsed() < PATIENCE);
        if calls.len() >= MOST
            && let Some(oldest) =
                calls.iter().min_by_key(|(_, call)| call.since).map(|(state, _)| state.clone())
        {
            calls.remove(&oldest);
        }
        let waiting = Waiting { tool: tool.to_owned(), agent, going, answer, since: Instant::now() };
        calls.insert(state.clone(), waiting);
        Ok(state)
    }
}
