//! Conversation with Claude Code: translates frames to reports, without a process.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::turns::{Owner, Step, Turns};
use crate::wire::command::Decision;
use crate::wire::event::{Question, Tokens, TurnStatus};
use crate::worker::rpc::{number_at, string_at, tail};
use crate::worker::{AgentActivity, MAX_OPEN_QUESTIONS, OwnTurnReport, Report};

/// Maximum size of a tool's output in a report, in bytes.
const MAX_OUTPUT: usize = 16 << 10;

/// State of a conversation with Claude Code: frames come in, reports and answers go out.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) pid: Option<u32>,
    pub(super) session: Option<String>,
    turns: Turns,
    /// Open questions by our keys: the request id and the tool's arguments.
    questions: HashMap<u64, (String, Value)>,
    next: u64,
    /// Descriptions of the running tools, by tool-use id.
    tools: HashMap<String, String>,
    /// The latest text of a turn that the agent started itself.
    own_answer: Option<String>,
}

/// Effects of handling one frame.
#[derive(Debug, Default)]
pub(super) struct FrameEffects {
    pub(super) reports: Vec<Report>,
    /// A frame to send back to Claude Code.
    pub(super) answer: Option<Value>,
}

impl Conversation {
    /// Creates a conversation that resumes this session, if there is one.
    pub(super) fn new(pid: Option<u32>, session: Option<String>) -> Self {
        Self { pid, session, ..Self::default() }
    }

    /// Builds the frame of a prompt.
    pub(super) fn prompt(&mut self, injection: String, content: &str) -> Value {
        let frame = json!({
            "type": "user",
            "message": { "role": "user", "content": content },
            "parent_tool_use_id": null,
            "uuid": injection,
        });
        self.turns.register_prompt(injection);
        frame
    }

    /// Builds the frame that interrupts the running turn and cancels a queued prompt.
    pub(super) fn interrupt(&mut self) -> Value {
        self.next += 1;
        let request_id = format!("switchboard-{}", self.next);
        let request = json!({ "subtype": "interrupt", "cancel_queued": true });
        json!({ "type": "control_request", "request_id": request_id, "request": request })
    }

    /// Builds the frame that answers a question; `None` if the question is no longer open.
    pub(super) fn decide(&mut self, key: u64, decision: Decision) -> Option<Value> {
        let (request_id, input) = self.questions.remove(&key)?;
        Some(answer(&request_id, &input, decision))
    }

    /// Handles a frame from Claude Code and returns its effects.
    pub(super) fn handle_frame(&mut self, frame: &Value) -> FrameEffects {
        let mut effects = FrameEffects::default();
        match self.turns.update(frame) {
            Step::Same => {}
            Step::Accepted => effects.reports.push(Report::Accepted),
            Step::OwnTurnStarted => effects.reports.push(Report::OwnTurn(OwnTurnReport::Started)),
            Step::Merged => {
                let tokens = Tokens { total_tokens: self.turns.spent(), ..Tokens::default() };
                effects.reports.push(self.own_turn_end(TurnStatus::Completed, None, Some(tokens)));
                effects.reports.push(Report::Accepted);
            }
            Step::Ended(owner) => {
                self.handle_result(frame, owner, &mut effects.reports);
                return effects;
            }
            Step::Cancelled => {
                self.turns.reset(Owner::Injection);
                let reason = "claude cancelled the prompt".to_owned();
                effects.reports.push(Report::Ended { status: TurnStatus::Interrupted, error: Some(reason) });
                effects.reports.push(self.ready());
            }
        }
        let reports = &mut effects.reports;
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "system" => self.session = string_at(frame, "/session_id").or(self.session.take()),
            "user" => self.read_results(frame, reports),
            "stream_event" => self.read_piece(frame, reports),
            "assistant" => self.read_answer(frame, reports),
            "control_request" => effects.answer = self.read_question(frame, reports),
            "control_cancel_request" => {
                let id = string_at(frame, "/request_id").unwrap_or_default();
                let key = self.questions.iter().find(|(_, (known, _))| *known == id).map(|(key, _)| *key);
                if let Some(key) = key {
                    self.questions.remove(&key);
                    reports.push(Report::QuestionClosed { key });
                }
            }
            _ => {}
        }
        effects
    }

    fn ready(&self) -> Report {
        Report::Ready { pid: self.pid, session: self.session.clone() }
    }

    /// Reports text and reasoning deltas of the injection's turn.
    fn read_piece(&mut self, frame: &Value, reports: &mut Vec<Report>) {
        if is_of_subagent(frame) {
            return;
        }
        if let Some(usage) = frame.pointer("/event/usage") {
            self.turns.add_tokens(tokens(usage));
        }
        if self.turns.owner() != Owner::Injection {
            return;
        }
        match frame.pointer("/event/delta/type").and_then(Value::as_str) {
            Some("text_delta") => reports.extend(string_at(frame, "/event/delta/text").map(Report::Delta)),
            Some("thinking_delta") => {
                reports.extend(string_at(frame, "/event/delta/thinking").map(Report::Reasoning));
            }
            _ => reports.push(Report::Started),
        }
    }

    fn read_answer(&mut self, frame: &Value, reports: &mut Vec<Report>) {
        let owner = self.turns.owner();
        let blocks = frame.pointer("/message/content").and_then(Value::as_array);
        for block in blocks.into_iter().flatten() {
            match block.get("type").and_then(Value::as_str) {
                Some("text") if !is_of_subagent(frame) => match (owner, string_at(block, "/text")) {
                    (Owner::Injection, Some(answer)) => reports.push(Report::Answer(answer)),
                    (Owner::Agent, Some(answer)) => self.own_answer = Some(answer),
                    _ => {}
                },
                Some("tool_use") => {
                    let item_id = string_at(block, "/id").unwrap_or_default();
                    let command =
                        describe_tool_use(&string_at(block, "/name").unwrap_or_default(), block.get("input"));
                    self.tools.insert(item_id.clone(), command.clone());
                    let started = AgentActivity::CommandStarted { item_id, command, cwd: None };
                    reports.extend(activity_report(owner, started));
                }
                _ => {}
            }
        }
        if let Some(error) = string_at(frame, "/error") {
            reports.push(Report::Error { error, will_retry: false });
        }
    }

    fn read_results(&mut self, frame: &Value, reports: &mut Vec<Report>) {
        let owner = self.turns.owner();
        let blocks = frame.pointer("/message/content").and_then(Value::as_array);
        for block in blocks.into_iter().flatten() {
            let item_id = string_at(block, "/tool_use_id").unwrap_or_default();
            let Some(command) = self.tools.remove(&item_id) else { continue };
            let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            let output = string_at(block, "/content").or_else(|| string_at(block, "/content/0/text"));
            let completed = AgentActivity::CommandCompleted {
                item_id,
                command,
                status: if is_error { "failed" } else { "completed" }.to_owned(),
                exit_code: None,
                output: output.map(|output| tail(&output, MAX_OUTPUT)),
            };
            reports.extend(activity_report(owner, completed));
        }
    }

    /// Handles a question of the agent.
    ///
    /// Answers it at once if it is not about a tool, or if too many questions are open.
    fn read_question(&mut self, frame: &Value, reports: &mut Vec<Report>) -> Option<Value> {
        let id = string_at(frame, "/request_id").unwrap_or_default();
        if string_at(frame, "/request/subtype").as_deref() != Some("can_use_tool") {
            let error = "it is not supported";
            let response = json!({ "subtype": "error", "request_id": id, "error": error });
            return Some(json!({ "type": "control_response", "response": response }));
        }
        let tool = string_at(frame, "/request/tool_name").unwrap_or_default();
        let input = frame.pointer("/request/input").cloned().unwrap_or_default();
        if self.questions.len() >= MAX_OPEN_QUESTIONS {
            return Some(answer(&id, &input, Decision::Decline));
        }
        let question = Question {
            kind: "tool".to_owned(),
            item_id: string_at(frame, "/request/tool_use_id"),
            title: describe_tool_use(&tool, Some(&input)),
            command: string_at(&input, "/command"),
            input: Some(input.clone()),
            ..Question::default()
        };
        self.next += 1;
        let key = self.next;
        self.questions.insert(key, (id, input));
        reports.push(match self.turns.owner() {
            Owner::Agent => Report::OwnTurn(OwnTurnReport::Question { key, question }),
            _ => Report::Question { key, question },
        });
        None
    }

    fn handle_result(&mut self, frame: &Value, owner: Owner, reports: &mut Vec<Report>) {
        self.tools.clear();
        self.questions.clear();
        self.session = string_at(frame, "/session_id").or(self.session.take());
        let tokens = frame.get("usage").map(tokens);
        let (status, error) = result_status(frame);
        let result = string_at(frame, "/result");
        if owner == Owner::Injection {
            // The agent's own turn merged the prompt at its very end.
            if self.turns.owner() == Owner::Agent {
                reports.push(self.own_turn_end(TurnStatus::Completed, None, None));
            }
            reports.extend(result.map(Report::Answer));
            reports.extend(tokens.map(|tokens| Report::Usage(self.turns.share(tokens))));
            reports.push(Report::Ended { status, error });
            reports.push(self.ready());
        } else {
            self.own_answer = result.or(self.own_answer.take());
            reports.push(self.own_turn_end(status, error, tokens));
        }
        self.turns.reset(owner);
    }

    fn own_turn_end(&mut self, status: TurnStatus, error: Option<String>, tokens: Option<Tokens>) -> Report {
        Report::OwnTurn(OwnTurnReport::Ended { status, error, answer: self.own_answer.take(), tokens })
    }
}

fn activity_report(owner: Owner, activity: AgentActivity) -> Option<Report> {
    match owner {
        Owner::Injection => Some(Report::Activity(activity)),
        Owner::Agent => Some(Report::OwnTurn(OwnTurnReport::Activity(activity))),
        Owner::Unknown => None,
    }
}

/// Returns true if the frame comes from a subagent.
fn is_of_subagent(frame: &Value) -> bool {
    frame.get("parent_tool_use_id").is_some_and(|parent| !parent.is_null())
}

fn result_status(result: &Value) -> (TurnStatus, Option<String>) {
    let is_error = result.get("is_error").and_then(Value::as_bool).unwrap_or(false);
    let subtype = string_at(result, "/subtype").unwrap_or_default();
    match subtype.as_str() {
        "success" if !is_error => (TurnStatus::Completed, None),
        _ => (TurnStatus::Failed, Some(string_at(result, "/result").unwrap_or(subtype))),
    }
}

fn answer(request_id: &str, input: &Value, decision: Decision) -> Value {
    let response = if decision.is_approval() {
        json!({ "behavior": "allow", "updatedInput": input })
    } else {
        let interrupt = decision == Decision::Cancel;
        json!({ "behavior": "deny", "message": "It was declined.", "interrupt": interrupt })
    };
    let response = json!({ "subtype": "success", "request_id": request_id, "response": response });
    json!({ "type": "control_response", "response": response })
}

/// Describes a tool and its main argument in one line.
fn describe_tool_use(tool: &str, input: Option<&Value>) -> String {
    let on = |key: &str| input.and_then(|input| input.get(key)).and_then(Value::as_str);
    match on("command").or(on("file_path")).or(on("path")).or(on("url")) {
        Some(on) => format!("{tool}: {on}"),
        None => tool.to_owned(),
    }
}

fn tokens(usage: &Value) -> Tokens {
    let part = |key| number_at(usage, key);
    let cached = part("/cache_read_input_tokens");
    let read = [part("/input_tokens"), part("/cache_creation_input_tokens"), cached];
    let input = read.into_iter().flatten().fold(0_u64, u64::saturating_add);
    let output = part("/output_tokens");
    Tokens {
        total_tokens: input.saturating_add(output.unwrap_or_default()),
        input_tokens: Some(input),
        cached_input_tokens: cached,
        output_tokens: output,
    }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
