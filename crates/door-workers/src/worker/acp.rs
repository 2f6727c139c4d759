//! `acp`: any program that speaks the Agent Client Protocol, version 1, over stdin and stdout.
//!
//! Only the few messages that a client without an editor needs are implemented, as JSON values. The protocol's crates
//! are not used: `agent-client-protocol` and, since 0.13.7, `agent-client-protocol-schema` enable `preserve_order` of
//! serde_json for the whole program, which changes what is hashed and signed elsewhere. The last version without that
//! feature knows fewer kinds of updates than agents send, and fails on updates that this module ignores.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::program::Program;
use super::rpc::{Message, Peer, number_at, string_at, tail};
use super::{AgentActivity, MAX_OPEN_QUESTIONS, Order, Report, WorkerPipe, WorkerSpec};
use crate::wire::command::Decision;
use crate::wire::event::{Change, Question, Tokens, TurnStatus};

/// The supported protocol version.
const VERSION: u64 = 1;

/// Maximum size of a tool's output in a report, in bytes.
const MAX_OUTPUT: usize = 16 << 10;

pub(super) async fn run(spec: WorkerSpec, mut pipe: WorkerPipe) -> String {
    let program = match Program::start(&spec, Vec::new()).await {
        Ok(program) => program,
        Err(error) => return error,
    };
    let peer = Peer::new(program, true);
    let (session, prompting) = (String::new(), None);
    let mut acp = Acp { peer, session, prompting, questions: HashMap::new(), next: 0, tools: HashMap::new() };
    let opened = tokio::select! {
        opened = acp.open(&spec) => opened,
        () = pipe.stop.cancelled() => Err("it was stopped".to_owned()),
    };
    if let Err(error) = opened {
        acp.peer.into_program().stop().await;
        return error;
    }
    pipe.report(Report::Ready { pid: Some(acp.peer.pid()), session: Some(acp.session.clone()) }).await;
    loop {
        let handled = tokio::select! {
            message = acp.peer.next() => match message {
                Some(message) => acp.handle_message(message, &pipe).await,
                None => return acp.peer.into_program().wait_exit().await.1,
            },
            order = pipe.orders.recv() => match order {
                Some(order) => acp.handle_order(order).await,
                None => break,
            },
            () = pipe.stop.cancelled() => break,
        };
        if let Err(error) = handled {
            acp.peer.into_program().stop().await;
            return error;
        }
    }
    acp.peer.into_program().stop().await
}

struct Acp {
    peer: Peer,
    session: String,
    /// The request id of the running turn.
    prompting: Option<u64>,
    /// Open questions by our keys: the agent's request id and the options by kind.
    questions: HashMap<u64, (Value, Vec<(String, String)>)>,
    next: u64,
    /// Titles of the running tools, by tool-call id.
    tools: HashMap<String, String>,
}

impl Acp {
    async fn open(&mut self, spec: &WorkerSpec) -> Result<(), String> {
        let files = json!({ "readTextFile": false, "writeTextFile": false });
        let params = json!({
            "protocolVersion": VERSION,
            "clientCapabilities": { "fs": files, "terminal": false },
            "clientInfo": { "name": "switchboard", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = self.peer.call("initialize", params).await?;
        let version = number_at(&answer, "/protocolVersion");
        if version != Some(VERSION) {
            return Err(format!(
                "it uses version {version:?} of the protocol, but switchboard needs {VERSION}"
            ));
        }
        let cwd = spec.cwd.display().to_string();
        let can_load =
            answer.pointer("/agentCapabilities/loadSession").and_then(Value::as_bool) == Some(true);
        if let Some(session) = spec.session.clone().filter(|_| can_load) {
            let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
            if self.peer.call("session/load", params).await.is_ok() {
                self.session = session;
                return self.set_mode(spec).await;
            }
        }
        let created = self.peer.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        let created = created.map_err(|error| format!("{error}; sign in with the program itself first"))?;
        self.session = string_at(&created, "/sessionId").ok_or("the answer to session/new has no id")?;
        self.set_mode(spec).await
    }

    /// Sets the session mode, which determines when the agent asks for permission.
    async fn set_mode(&mut self, spec: &WorkerSpec) -> Result<(), String> {
        if let Some(mode) = &spec.launch.approval_policy {
            let params = json!({ "sessionId": self.session, "modeId": mode });
            self.peer.call("session/set_mode", params).await?;
        }
        Ok(())
    }

    async fn handle_order(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Turn { content, .. } => {
                let prompt = json!([{ "type": "text", "text": content }]);
                let params = json!({ "sessionId": self.session, "prompt": prompt });
                self.prompting = Some(self.peer.request("session/prompt", params).await?);
                Ok(())
            }
            Order::Steer { answer, .. } => {
                // The agent would abort the running prompt if it received a second one.
                let reason = "the Agent Client Protocol cannot add to a running turn; inject instead";
                let _ = answer.send(Err(reason.to_owned()));
                Ok(())
            }
            Order::Interrupt => {
                let params = json!({ "sessionId": self.session });
                self.peer.notify("session/cancel", params).await?;
                // The protocol requires a client that cancels a prompt to answer all open requests.
                for (_, (id, _)) in self.questions.drain() {
                    let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
                    self.peer.respond(&id, cancelled).await?;
                }
                Ok(())
            }
            Order::Decide { key, decision } => {
                let Some((id, options)) = self.questions.remove(&key) else { return Ok(()) };
                self.answer(&id, &options, decision).await
            }
        }
    }

    /// Returns true if a message is about our session and not about another session of the agent.
    fn is_of_session(&self, params: &Value) -> bool {
        string_at(params, "/sessionId").is_none_or(|session| session == self.session)
    }

    async fn answer(
        &mut self,
        id: &Value,
        options: &[(String, String)],
        decision: Decision,
    ) -> Result<(), String> {
        let outcome = match choose_option(options, decision) {
            Some(option) => json!({ "outcome": "selected", "optionId": option }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.peer.respond(id, json!({ "outcome": outcome })).await
    }

    async fn handle_message(&mut self, message: Message, pipe: &WorkerPipe) -> Result<(), String> {
        match message {
            Message::Response { id, result } if self.prompting == Some(id) => {
                self.prompting = None;
                self.finish_turn(result, pipe).await;
                Ok(())
            }
            Message::Response { .. } => Ok(()),
            Message::Notification { method, params } => {
                // A resumed session replays its history, whose updates belong to no turn.
                if method == "session/update" && self.prompting.is_some() && self.is_of_session(&params) {
                    self.update(&params, pipe).await;
                }
                Ok(())
            }
            Message::Request { id, method, params } => {
                let is_ours = self.prompting.is_some() && self.is_of_session(&params);
                if method != "session/request_permission" || !is_ours {
                    return self.peer.reject_method(&id, &method).await;
                }
                let options = params.get("options").and_then(Value::as_array);
                let option =
                    |option: &Value| Some((string_at(option, "/kind")?, string_at(option, "/optionId")?));
                let options: Vec<_> = options.into_iter().flatten().filter_map(option).collect();
                if self.questions.len() >= MAX_OPEN_QUESTIONS {
                    return self.answer(&id, &options, Decision::Decline).await;
                }
                self.next += 1;
                self.questions.insert(self.next, (id, options));
                pipe.report(Report::Question { key: self.next, question: build_question(&params) }).await;
                Ok(())
            }
        }
    }

    async fn finish_turn(&mut self, result: Result<Value, String>, pipe: &WorkerPipe) {
        self.tools.clear();
        self.questions.clear();
        let (status, error) = match result {
            Err(error) => (TurnStatus::Failed, Some(error)),
            Ok(answer) => {
                pipe.report(Report::Accepted).await;
                if let Some(tokens) = tokens(&answer) {
                    pipe.report(Report::Usage(tokens)).await;
                }
                match string_at(&answer, "/stopReason").as_deref() {
                    Some("cancelled") => (TurnStatus::Interrupted, None),
                    Some("end_turn") | None => (TurnStatus::Completed, None),
                    Some(reason) => (TurnStatus::Failed, Some(format!("it stopped: {reason}"))),
                }
            }
        };
        pipe.report_end(status, error).await;
    }

    /// Reports an update of the running turn.
    ///
    /// The protocol has no event for the start of a turn, so the first update counts as the start.
    async fn update(&mut self, params: &Value, pipe: &WorkerPipe) {
        let Some(update) = params.get("update") else { return };
        let content = || string_at(update, "/content/text");
        match string_at(update, "/sessionUpdate").unwrap_or_default().as_str() {
            "agent_message_chunk" => {
                if let Some(piece) = content() {
                    pipe.report(Report::Delta(piece)).await;
                }
            }
            "agent_thought_chunk" => {
                if let Some(piece) = content() {
                    pipe.report(Report::Reasoning(piece)).await;
                }
            }
            "tool_call" => {
                let item_id = string_at(update, "/toolCallId").unwrap_or_default();
                let command = string_at(update, "/title").unwrap_or_default();
                self.tools.insert(item_id.clone(), command.clone());
                let started = AgentActivity::CommandStarted { item_id, command, cwd: None };
                pipe.report(Report::Activity(started)).await;
                self.report_progress(update, pipe).await;
            }
            "tool_call_update" => self.report_progress(update, pipe).await,
            _ => pipe.report(Report::Started).await,
        }
    }

    async fn report_progress(&mut self, update: &Value, pipe: &WorkerPipe) {
        let item_id = string_at(update, "/toolCallId").unwrap_or_default();
        let status = string_at(update, "/status").unwrap_or_default();
        let changes = changes(update);
        if !changes.is_empty() {
            let (item_id, status) = (item_id.clone(), status.clone());
            pipe.report(Report::Activity(AgentActivity::FileChange { item_id, status, changes })).await;
        }
        if matches!(status.as_str(), "completed" | "failed")
            && let Some(command) = self.tools.remove(&item_id)
        {
            let output = string_at(update, "/content/0/content/text").map(|output| tail(&output, MAX_OUTPUT));
            let done = AgentActivity::CommandCompleted { item_id, command, status, exit_code: None, output };
            pipe.report(Report::Activity(done)).await;
        }
    }
}

/// Returns the option that best matches a decision; `None` cancels the question.
fn choose_option(options: &[(String, String)], decision: Decision) -> Option<&str> {
    let kinds: &[&str] = match decision {
        Decision::Accept => &["allow_once", "allow_always"],
        Decision::AcceptForSession => &["allow_always", "allow_once"],
        Decision::Decline => &["reject_once", "reject_always"],
        Decision::Cancel => &[],
    };
    let of = |kind: &&str| options.iter().find(|(known, _)| known == kind).map(|(_, option)| option.as_str());
    kinds.iter().find_map(of)
}

fn build_question(params: &Value) -> Question {
    let call = params.get("toolCall").cloned().unwrap_or_default();
    Question {
        kind: "permission".to_owned(),
        item_id: string_at(&call, "/toolCallId"),
        title: string_at(&call, "/title").unwrap_or_else(|| "use a tool".to_owned()),
        command: string_at(&call, "/rawInput/command"),
        changes: changes(&call),
        input: call.get("rawInput").cloned(),
        ..Question::default()
    }
}

/// Returns the files that a tool changes, with diffs if the agent sends any.
fn changes(call: &Value) -> Vec<Change> {
    let blocks = call.get("content").and_then(Value::as_array);
    let diffs =
        blocks.into_iter().flatten().filter(|block| string_at(block, "/type").as_deref() == Some("diff"));
    let change = |block: &Value| Change {
        path: string_at(block, "/path").unwrap_or_default(),
        kind: if string_at(block, "/oldText").is_some() { "update" } else { "add" }.to_owned(),
        diff: string_at(block, "/newText"),
    };
    diffs.map(change).collect()
}

/// Returns the tokens of the turn.
///
/// The protocol has no field for them yet, and agents use different ones.
fn tokens(answer: &Value) -> Option<Tokens> {
    let quota = answer.pointer("/_meta/quota/token_count");
    let usage = answer.get("usage").or(quota)?;
    let part = |names: [&str; 2]| names.into_iter().find_map(|name| number_at(usage, name));
    let input_tokens = part(["/inputTokens", "/input_tokens"]);
    let output_tokens = part(["/outputTokens", "/output_tokens"]);
    let sum = input_tokens.unwrap_or_default().saturating_add(output_tokens.unwrap_or_default());
    let total_tokens = part(["/totalTokens", "/total_tokens"]).unwrap_or(sum);
    Some(Tokens { total_tokens, input_tokens, cached_input_tokens: None, output_tokens })
}
