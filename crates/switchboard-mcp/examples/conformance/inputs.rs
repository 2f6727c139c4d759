//! Requests that need input from the client before they are answered (2026-07-28, "input required").

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, InputResponses};
use serde_json::{Map, Value, json};
use switchboard_mcp::Token;

/// Issued request states and their rounds. A modified state is unknown and rejected.
#[derive(Clone, Default)]
pub(crate) struct States(Arc<Mutex<HashMap<String, u8>>>);

/// Next step of a request.
pub(crate) enum Round {
    /// It needs this input from the client.
    Ask(Value),
    /// It is done, with this text.
    Done(String),
}

impl States {
    /// Returns the next step after the client's input; `None` for a name that needs no input.
    pub(crate) fn next(
        &self,
        name: &str,
        answers: Option<&InputResponses>,
        state: Option<&str>,
        capabilities: &ClientCapabilities,
    ) -> Option<Result<Round, ErrorData>> {
        let round = match state.map(|state| self.round(state)).transpose() {
            Ok(round) => round,
            Err(error) => return Some(Err(error)),
        };
        let name_form = || form("What is your name?", "name", "string");
        let (keys, asks, has_state) = match name {
            "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
                (vec!["user_name"], vec![name_form()], false)
            }
            "test_input_required_result_prompt" => {
                let question = "What context should the prompt use?";
                (vec!["user_context"], vec![form(question, "context", "string")], false)
            }
            "test_input_required_result_sampling" => {
                (vec!["capital_question"], vec![sampling("What is the capital of France?", 100)], false)
            }
            "test_input_required_result_list_roots" => (vec!["client_roots"], vec![roots()], false),
            "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
                (vec!["confirm"], vec![form("Please confirm", "ok", "boolean")], true)
            }
            "test_input_required_result_multiple_inputs" => (
                vec!["user_name", "greeting", "client_roots"],
                vec![name_form(), sampling("Generate a greeting", 50), roots()],
                true,
            ),
            "test_input_required_result_multi_round" => match round {
                None | Some(0) => {
                    (vec!["step1"], vec![form("Step 1: What is your name?", "name", "string")], true)
                }
                Some(_) => {
                    let question = "Step 2: What is your favorite color?";
                    (vec!["step2"], vec![form(question, "color", "string")], true)
                }
            },
            "test_input_required_result_capabilities" => {
                let asks = [
                    (capabilities.elicitation.is_some(), "user_name", name_form()),
                    (declares(capabilities, "sampling"), "greeting", sampling("Generate a greeting", 50)),
                    (declares(capabilities, "roots"), "client_roots", roots()),
                ];
                let asks = asks.into_iter().filter(|(is_known, ..)| *is_known);
                let (keys, asks) = asks.map(|(_, key, ask)| (key, ask)).unzip();
                (keys, asks, false)
            }
            _ => return None,
        };
        let answered: Option<Vec<_>> =
            keys.iter().map(|key| answers?.get(*key).filter(|answer| is_answer(answer))).collect();
        let is_known = !has_state || round.is_some();
        let is_last = name != "test_input_required_result_multi_round" || round == Some(1);
        Some(Ok(match answered {
            Some(answered) if is_known && is_last && !answered.is_empty() => {
                let texts: Vec<_> = answered.into_iter().map(text_of).collect();
                let mark = if has_state { " state-ok" } else { "" };
                Round::Done(format!("Hello, {}!{mark}", texts.join(", ")))
            }
            // The first of several rounds is answered; the next one follows.
            Some(_) if is_known && !is_last => return self.next_round(name, capabilities),
            _ => {
                let input_requests: Map<_, _> = keys.into_iter().map(str::to_owned).zip(asks).collect();
                let mut result = json!({ "resultType": "input_required", "inputRequests": input_requests });
                if has_state {
                    result["requestState"] = self.issue(round.unwrap_or(0)).into();
                }
                Round::Ask(result)
            }
        }))
    }

    fn next_round(&self, name: &str, capabilities: &ClientCapabilities) -> Option<Result<Round, ErrorData>> {
        let state = self.issue(1);
        self.next(name, None, Some(&state), capabilities)
    }

    fn round(&self, state: &str) -> Result<u8, ErrorData> {
        let round = self.0.lock().get(state).copied();
        round.ok_or_else(|| ErrorData::invalid_params("`requestState` is none that was handed out", None))
    }

    fn issue(&self, round: u8) -> String {
        let state = Token::generate().map(|token| token.reveal().to_owned()).unwrap_or_default();
        self.0.lock().insert(state.clone(), round);
        state
    }
}

fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } })
}

fn sampling(question: &str, most: u32) -> Value {
    let messages = json!([{ "role": "user", "content": { "type": "text", "text": question } }]);
    json!({ "method": "sampling/createMessage", "params": { "messages": messages, "maxTokens": most } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// The SDK has deprecated some fields of the capabilities; on the wire they are equal.
pub(crate) fn declares(capabilities: &ClientCapabilities, name: &str) -> bool {
    serde_json::to_value(capabilities).is_ok_and(|capabilities| capabilities.get(name).is_some())
}

/// True if an input has a valid shape: a completed form, a sample, or roots.
fn is_answer(answer: &Value) -> bool {
    answer.get("action").is_some_and(Value::is_string)
        || answer.get("content").is_some_and(Value::is_object)
        || answer.get("roots").is_some_and(Value::is_array)
}

/// Formats an input as text.
fn text_of(answer: &Value) -> String {
    let content = answer.get("content").unwrap_or(answer);
    match ["name", "text", "context", "color", "ok"].iter().find_map(|field| content.get(*field)) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => content.to_string(),
    }
}
