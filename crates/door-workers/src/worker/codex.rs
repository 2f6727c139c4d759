//! `codex`: Codex through `codex app-server`, one process and one conversation per node.
//!
//! The injection's id is sent with the prompt and stored in the conversation. After a crash, the conversation therefore
//! shows whether a prompt had arrived.

mod items;

use std::collections::HashMap;

use serde_json::{Value, json};
use switchboard_sys::lineage::NO_SHARED_DAEMON;
use tokio::sync::oneshot;

use self::items::Items;
use super::program::Program;
use super::rpc::{Message, Peer, number_at, string_at};
use super::{MAX_OPEN_QUESTIONS, Order, PromptOutcome, Report, WorkerPipe, WorkerSpec};
use crate::wire::command::Decision;
use crate::wire::event::{Question, Tokens, TurnStatus};

pub(super) async fn run(spec: WorkerSpec, mut pipe: WorkerPipe) -> String {
    let args = ["app-server".into()].into_iter().chain(NO_SHARED_DAEMON.map(Into::into));
    let program = match Program::start(&spec, args.collect()).await {
        Ok(program) => program,
        Err(error) => return error,
    };
    let peer = Peer::new(program, false);
    let mut codex = Codex {
        peer,
        spec,
        thread: String::new(),
        turn: None,
        starting: None,
        has_prompt: false,
        wants_stop: false,
        questions: HashMap::new(),
        next_key: 0,
        steering: HashMap::new(),
        items: Items::default(),
        meter: TokenMeter::default(),
    };
    let opened = tokio::select! {
        opened = codex.open(&pipe) => opened,
        () = pipe.stop.cancelled() => Err("it was stopped".to_owned()),
    };
    if let Err(error) = opened {
        codex.peer.into_program().stop().await;
        return error;
    }
    loop {
        tokio::select! {
            message = codex.peer.next() => {
                let Some(message) = message else {
                    return codex.peer.into_program().wait_exit().await.1;
                };
                if let Err(error) = codex.handle_message(message, &pipe).await {
                    codex.peer.into_program().stop().await;
                    return error;
                }
            }
            order = pipe.orders.recv() => {
                let Some(order) = order else { break };
                if let Err(error) = codex.handle_order(order, &pipe).await {
                    codex.peer.into_program().stop().await;
                    return error;
                }
            }
            () = pipe.stop.cancelled() => break,
        }
    }
    codex.peer.into_program().stop().await
}

struct Codex {
    peer: Peer,
    spec: WorkerSpec,
    thread: String,
    /// Id of the running turn.
    turn: Option<String>,
    /// Id of the request that started the turn, until that request is answered.
    starting: Option<u64>,
    /// True while the turn of a sent prompt has not ended.
    has_prompt: bool,
    /// True if the turn must be interrupted as soon as its id is known.
    wants_stop: bool,
    /// Open questions: Codex's request ids, by our keys.
    questions: HashMap<u64, Value>,
    next_key: u64,
    steering: HashMap<u64, oneshot::Sender<Result<(), String>>>,
    items: Items,
    meter: TokenMeter,
}

/// Token usage of the conversation, now and at the start of the turn.
#[derive(Debug, Default)]
struct TokenMeter {
    total: Option<Tokens>,
    before: Option<Tokens>,
}

impl Codex {
    async fn open(&mut self, pipe: &WorkerPipe) -> Result<(), String> {
        let version = env!("CARGO_PKG_VERSION");
        let client = json!({ "name": "switchboard", "title": "Switchboard", "version": version });
        self.peer.call("initialize", json!({ "clientInfo": client })).await?;
        self.peer.notify("initialized", json!({})).await?;
        let mut params = self.params();
        if let Some(session) = self.spec.session.clone() {
            params["threadId"] = json!(session);
            match self.peer.call("thread/resume", params.clone()).await {
                Ok(resumed) => {
                    if let Some(unconfirmed) = &self.spec.unconfirmed {
                        pipe.report(Report::Reconciled(prompt_outcome(&resumed, unconfirmed))).await;
                    }
                    self.thread = session;
                }
                Err(error) => {
                    let error = format!("the conversation cannot be resumed: {error}");
                    pipe.report(Report::Error { error, will_retry: false }).await;
                }
            }
        }
        if self.thread.is_empty() {
            if let Some(params) = params.as_object_mut() {
                params.remove("threadId");
            }
            let started = self.peer.call("thread/start", params).await?;
            self.thread = string_at(&started, "/thread/id").ok_or("the answer to thread/start has no id")?;
        }
        let session = Some(self.thread.clone());
        pipe.report(Report::Ready { pid: Some(self.peer.pid()), session }).await;
        Ok(())
    }

    fn params(&self) -> Value {
        let launch = &self.spec.launch;
        let mut params = json!({ "cwd": self.spec.cwd.display().to_string() });
        let settings = [
            ("model", &launch.model),
            ("sandbox", &launch.sandbox),
            ("approvalPolicy", &launch.approval_policy),
            ("developerInstructions", &launch.instructions),
        ];
        for (name, value) in settings {
            if let Some(value) = value {
                params[name] = json!(value);
            }
        }
        params
    }

    async fn handle_order(&mut self, order: Order, pipe: &WorkerPipe) -> Result<(), String> {
        match order {
            Order::Turn { injection, content } => {
                self.meter.start_turn();
                self.items = Items::default();
                self.has_prompt = true;
                self.wants_stop = false;
                let params = json!({
                    "threadId": self.thread,
                    "input": [{ "type": "text", "text": content }],
                    "clientUserMessageId": injection,
                });
                self.starting = Some(self.peer.request("turn/start", params).await?);
            }
            Order::Steer { content, answer } => {
                let Some(turn) = &self.turn else {
                    let _ = answer.send(Err("no turn runs".to_owned()));
                    return Ok(());
                };
                let params = json!({
                    "threadId": self.thread,
                    "input": [{ "type": "text", "text": content }],
                    "expectedTurnId": turn,
                });
                let id = self.peer.request("turn/steer", params).await?;
                self.steering.insert(id, answer);
            }
            Order::Interrupt => {
                self.wants_stop = true;
                self.interrupt().await?;
            }
            Order::Decide { key, decision } => {
                if let Some(id) = self.questions.remove(&key) {
                    let word = match decision {
                        Decision::Accept => "accept",
                        Decision::AcceptForSession => "acceptForSession",
                        Decision::Decline => "decline",
                        Decision::Cancel => "cancel",
                    };
                    self.peer.respond(&id, json!({ "decision": word })).await?;
                }
            }
        }
        let _ = pipe;
        Ok(())
    }

    async fn interrupt(&mut self) -> Result<(), String> {
        if let Some(turn) = self.turn.clone() {
            let params = json!({ "threadId": self.thread, "turnId": turn });
            self.peer.request("turn/interrupt", params).await?;
        }
        Ok(())
    }

    async fn handle_message(&mut self, message: Message, pipe: &WorkerPipe) -> Result<(), String> {
        match message {
            Message::Response { id, result } => self.handle_response(id, result, pipe).await,
            Message::Request { id, method, params } => self.handle_request(id, &method, &params, pipe).await,
            Message::Notification { method, params } => {
                let is_ours = params.get("threadId").is_none_or(|thread| thread == self.thread.as_str());
                if is_ours {
                    self.handle_notification(&method, &params, pipe).await;
                }
                Ok(())
            }
        }
    }

    async fn handle_response(
        &mut self,
        id: u64,
        result: Result<Value, String>,
        pipe: &WorkerPipe,
    ) -> Result<(), String> {
        if let Some(answer) = self.steering.remove(&id) {
            let _ = answer.send(result.map(|_| ()));
        } else if self.starting == Some(id) {
            self.starting = None;
            match result {
                Ok(result) => {
                    self.turn = string_at(&result, "/turn/id");
                    pipe.report(Report::Accepted).await;
                    if self.wants_stop {
                        self.interrupt().await?;
                    }
                }
                Err(error) => {
                    self.has_prompt = false;
                    pipe.report_end(TurnStatus::Failed, Some(error)).await;
                }
            }
        }
        Ok(())
    }

    async fn handle_request(
        &mut self,
        id: Value,
        method: &str,
        params: &Value,
        pipe: &WorkerPipe,
    ) -> Result<(), String> {
        let is_known =
            matches!(method, "item/commandExecution/requestApproval" | "item/fileChange/requestApproval");
        if is_known && (self.questions.len() >= MAX_OPEN_QUESTIONS || self.is_of_other_turn(params)) {
            return self.peer.respond(&id, json!({ "decision": "decline" })).await;
        }
        let question = match method {
            "item/commandExecution/requestApproval" => Question {
                kind: "command".to_owned(),
                title: string_at(params, "/command").unwrap_or_else(|| "run a command".to_owned()),
                command: string_at(params, "/command"),
                cwd: string_at(params, "/cwd"),
                ..Question::default()
            },
            "item/fileChange/requestApproval" => {
                // The question does not contain the changes, but the item that started before it does.
                let item = string_at(params, "/itemId").unwrap_or_default();
                let changes = self.items.changes(&item);
                let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
                Question {
                    kind: "file_change".to_owned(),
                    title: format!("change {}", paths.join(", ")),
                    changes,
                    ..Question::default()
                }
            }
            // Any other request is rejected (fail closed).
            _ => return self.peer.reject_method(&id, method).await,
        };
        let question = Question {
            item_id: string_at(params, "/itemId"),
            reason: string_at(params, "/reason"),
            ..question
        };
        self.next_key += 1;
        self.questions.insert(self.next_key, id);
        pipe.report(Report::Question { key: self.next_key, question }).await;
        Ok(())
    }

    /// Returns true if a message is about a turn that another client of the conversation has started.
    fn is_of_other_turn(&self, params: &Value) -> bool {
        let Some(id) = string_at(params, "/turnId").or_else(|| string_at(params, "/turn/id")) else {
            return false;
        };
        match &self.turn {
            Some(ours) => *ours != id,
            None => !self.has_prompt || self.starting.is_some(),
        }
    }

    async fn handle_notification(&mut self, method: &str, params: &Value, pipe: &WorkerPipe) {
        // The token meter must also count the usage of other turns.
        if method != "thread/tokenUsage/updated" && self.is_of_other_turn(params) {
            return;
        }
        match method {
            "turn/started" => pipe.report(Report::Started).await,
            "item/agentMessage/delta" => {
                if let Some(delta) = string_at(params, "/delta") {
                    pipe.report(Report::Delta(delta)).await;
                }
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                if let Some(delta) = string_at(params, "/delta") {
                    pipe.report(Report::Reasoning(delta)).await;
                }
            }
            "item/started" | "item/completed" => {
                if let Some(report) = self.items.handle_item(params, method == "item/completed") {
                    pipe.report(report).await;
                }
            }
            "thread/tokenUsage/updated" => {
                if let Some(tokens) = self.meter.update(params, self.turn.as_deref()) {
                    pipe.report(Report::Usage(tokens)).await;
                }
            }
            "serverRequest/resolved" => {
                let id = params.get("requestId");
                let key = self.questions.iter().find(|(_, known)| Some(*known) == id).map(|(key, _)| *key);
                if let Some(key) = key {
                    self.questions.remove(&key);
                    pipe.report(Report::QuestionClosed { key }).await;
                }
            }
            "error" => {
                let error = string_at(params, "/error/message").unwrap_or_else(|| "it failed".to_owned());
                let will_retry = params.get("willRetry").and_then(Value::as_bool).unwrap_or(false);
                pipe.report(Report::Error { error, will_retry }).await;
            }
            "turn/completed" if self.starting.is_none() => {
                self.turn = None;
                self.has_prompt = false;
                self.questions.clear();
                for (_, answer) in self.steering.drain() {
                    let _ = answer.send(Err("the turn ended before the input arrived".to_owned()));
                }
                let error = string_at(params, "/turn/error/message");
                let status = match params.pointer("/turn/status").and_then(Value::as_str) {
                    Some("completed") => TurnStatus::Completed,
                    Some("interrupted") => TurnStatus::Interrupted,
                    _ => TurnStatus::Failed,
                };
                pipe.report_end(status, error).await;
            }
            _ => {}
        }
    }
}

impl TokenMeter {
    /// Marks the start of a turn for the meter.
    fn start_turn(&mut self) {
        self.before = self.total;
    }

    /// Updates the meter and returns the usage of the turn.
    ///
    /// The usage of the turn is the usage of the conversation minus its usage at the start of the turn.
    fn update(&mut self, params: &Value, turn: Option<&str>) -> Option<Tokens> {
        let usage = params.get("tokenUsage")?;
        let total = tokens(usage.get("total")?);
        self.total = Some(total);
        // A resumed conversation repeats the usage of its last turn, even after the next turn was requested.
        let of = params.get("turnId").and_then(Value::as_str);
        if turn.is_none() || of.is_some_and(|of| Some(of) != turn) {
            self.before = Some(total);
            return None;
        }
        // If the usage before this turn is unknown, it is the total minus the usage of the last turn.
        let last = usage.get("last").map(tokens).unwrap_or_default();
        let before = *self.before.get_or_insert_with(|| subtract(total, last));
        Some(subtract(total, before))
    }
}

fn tokens(usage: &Value) -> Tokens {
    Tokens {
        total_tokens: number_at(usage, "/totalTokens").unwrap_or_default(),
        input_tokens: number_at(usage, "/inputTokens"),
        cached_input_tokens: number_at(usage, "/cachedInputTokens"),
        output_tokens: number_at(usage, "/outputTokens"),
    }
}

fn subtract(all: Tokens, before: Tokens) -> Tokens {
    let part = |all: Option<u64>, before: Option<u64>| Some(all?.saturating_sub(before.unwrap_or_default()));
    Tokens {
        total_tokens: all.total_tokens.saturating_sub(before.total_tokens),
        input_tokens: part(all.input_tokens, before.input_tokens),
        cached_input_tokens: part(all.cached_input_tokens, before.cached_input_tokens),
        output_tokens: part(all.output_tokens, before.output_tokens),
    }
}

/// Reads the outcome of a prompt from a resumed conversation.
fn prompt_outcome(resumed: &Value, injection: &str) -> PromptOutcome {
    let Some(turns) = resumed.pointer("/thread/turns").and_then(Value::as_array) else {
        return PromptOutcome::Unknown;
    };
    let items = |turn: &Value| turn.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    let has = |turn: &&Value| {
        items(turn).iter().any(|item| string_at(item, "/clientId").as_deref() == Some(injection))
    };
    let Some(turn) = turns.iter().rev().find(has) else { return PromptOutcome::NotReceived };
    if turn.get("status").and_then(Value::as_str) != Some("completed") {
        return PromptOutcome::Incomplete;
    }
    let is_answer = |item: &&Value| string_at(item, "/type").as_deref() == Some("agentMessage");
    let answer = items(turn).iter().rev().find(is_answer).and_then(|item| string_at(item, "/text"));
    PromptOutcome::Answered { answer }
}

#[cfg(test)]
#[path = "codex_tests.rs"]
mod tests;
