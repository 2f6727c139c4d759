//! `claude`, by stream-json on both sides and the control protocol: one process a node.
//!
//! A prompt counts as accepted when the agent repeats it with the injection's id, or says anything about it.

use std::collections::HashMap;
use std::ffi::OsString;

use serde_json::{Value, json};

use super::program::Program;
use super::rpc::{number, tail, text};
use super::{ASKS, Happening, Link, Order, Report, Seat};
use crate::wire::command::Decision;
use crate::wire::event::{Ask, Tokens, TurnStatus};

/// How much of a tool's result is told.
const OUTPUT: usize = 16 << 10;

pub(super) async fn run(seat: Seat, mut link: Link) -> String {
    let program = match Program::start(&seat, arguments(&seat)) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let session = seat.session.clone();
    let pid = Some(program.pid());
    let mut claude =
        Claude { program, session, turn: None, asks: HashMap::new(), next: 0, tools: HashMap::new() };
    // It says nothing before its first prompt.
    link.report(Report::Ready { pid, session: claude.session.clone() }).await;
    loop {
        tokio::select! {
            line = claude.program.line() => {
                let Some(line) = line else { return claude.program.ended().await.1 };
                if let Ok(frame) = serde_json::from_slice::<Value>(&line) {
                    claude.hear(&frame, &link).await;
                }
            }
            order = link.orders.recv() => {
                let Some(order) = order else { break };
                if let Err(error) = claude.obey(order).await {
                    claude.program.stop().await;
                    return error;
                }
            }
            () = link.stop.cancelled() => break,
        }
    }
    claude.program.stop().await
}

fn arguments(seat: &Seat) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
        "--replay-user-messages",
        "--permission-prompt-tool",
        "stdio",
    ]
    .map(OsString::from)
    .to_vec();
    let settings = [
        ("--model", &seat.launch.model),
        ("--permission-mode", &seat.launch.approval_policy),
        ("--append-system-prompt", &seat.launch.instructions),
        ("--resume", &seat.session),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            args.extend([name.into(), value.into()]);
        }
    }
    args
}

struct Claude {
    program: Program,
    session: Option<String>,
    /// The injection whose turn runs.
    turn: Option<String>,
    /// The questions that wait: the agent's id and the arguments it asks about.
    asks: HashMap<u64, (String, Value)>,
    next: u64,
    /// The tools in use, by the agent's ids.
    tools: HashMap<String, String>,
}

impl Claude {
    async fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Turn { injection, content } => {
                let frame = user(&content, &injection);
                self.turn = Some(injection);
                self.write(frame).await
            }
            Order::Steer { answer, .. } => {
                // A second prompt is kept for the next turn: that would be an injection nobody knows of.
                let _ = answer.send(Err("claude takes nothing while it runs; inject instead".to_owned()));
                Ok(())
            }
            Order::Interrupt => {
                self.next += 1;
                let request_id = format!("switchboard-{}", self.next);
                let request = json!({ "subtype": "interrupt" });
                let frame =
                    json!({ "type": "control_request", "request_id": request_id, "request": request });
                self.write(frame).await
            }
            Order::Decide { key, decision } => {
                let Some((request_id, input)) = self.asks.remove(&key) else { return Ok(()) };
                self.answer(&request_id, &input, decision).await
            }
        }
    }

    async fn answer(&mut self, request_id: &str, input: &Value, decision: Decision) -> Result<(), String> {
        let response = if decision.is_yes() {
            json!({ "behavior": "allow", "updatedInput": input })
        } else {
            let interrupt = decision == Decision::Cancel;
            json!({ "behavior": "deny", "message": "It was declined.", "interrupt": interrupt })
        };
        let response = json!({ "subtype": "success", "request_id": request_id, "response": response });
        self.write(json!({ "type": "control_response", "response": response })).await
    }

    async fn write(&mut self, frame: Value) -> Result<(), String> {
        self.program.write(format!("{frame}\n").as_bytes()).await
    }

    async fn hear(&mut self, frame: &Value, link: &Link) {
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "system" => self.session = text(frame, "/session_id").or(self.session.take()),
            "user" => {
                let is_repeated = frame.get("isReplay").and_then(Value::as_bool) == Some(true);
                if is_repeated && text(frame, "/uuid") == self.turn {
                    link.report(Report::Accepted).await;
                } else {
                    self.results(frame, link).await;
                }
            }
            "stream_event" => match frame.pointer("/event/delta/type").and_then(Value::as_str) {
                Some("text_delta") => {
                    if let Some(piece) = text(frame, "/event/delta/text") {
                        link.report(Report::Delta(piece)).await;
                    }
                }
                Some("thinking_delta") => {
                    if let Some(piece) = text(frame, "/event/delta/thinking") {
                        link.report(Report::Reasoning(piece)).await;
                    }
                }
                _ => link.report(Report::Started).await,
            },
            "assistant" => self.said(frame, link).await,
            "control_request" => self.asked(frame, link).await,
            "control_cancel_request" => {
                let id = text(frame, "/request_id").unwrap_or_default();
                let key = self.asks.iter().find(|(_, (known, _))| *known == id).map(|(key, _)| *key);
                if let Some(key) = key {
                    self.asks.remove(&key);
                    link.report(Report::AskGone { key }).await;
                }
            }
            "result" => self.over(frame, link).await,
            _ => {}
        }
    }

    async fn said(&mut self, frame: &Value, link: &Link) {
        let blocks = frame.pointer("/message/content").and_then(Value::as_array);
        for block in blocks.into_iter().flatten() {
            match block.get("type").and_then(Value::as_str) {
                Some("text") => {
                    if let Some(answer) = text(block, "/text") {
                        link.report(Report::Answer(answer)).await;
                    }
                }
                Some("tool_use") => {
                    let item_id = text(block, "/id").unwrap_or_default();
                    let command = in_words(&text(block, "/name").unwrap_or_default(), block.get("input"));
                    self.tools.insert(item_id.clone(), command.clone());
                    let started = Happening::CommandStarted { item_id, command, cwd: None };
                    link.report(Report::Happened(started)).await;
                }
                _ => {}
            }
        }
        if let Some(error) = text(frame, "/error") {
            link.report(Report::Error { error, will_retry: false }).await;
        }
    }

    async fn results(&mut self, frame: &Value, link: &Link) {
        let blocks = frame.pointer("/message/content").and_then(Value::as_array);
        for block in blocks.into_iter().flatten() {
            let item_id = text(block, "/tool_use_id").unwrap_or_default();
            let Some(command) = self.tools.remove(&item_id) else { continue };
            let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            let output = text(block, "/content").or_else(|| text(block, "/content/0/text"));
            link.report(Report::Happened(Happening::CommandCompleted {
                item_id,
                command,
                status: if is_error { "failed" } else { "completed" }.to_owned(),
                exit_code: None,
                output: output.map(|output| tail(&output, OUTPUT)),
            }))
            .await;
        }
    }

    async fn asked(&mut self, frame: &Value, link: &Link) {
        let id = text(frame, "/request_id").unwrap_or_default();
        if text(frame, "/request/subtype").as_deref() != Some("can_use_tool") {
            let error = "it is not supported";
            let response = json!({ "subtype": "error", "request_id": id, "error": error });
            let answered = self.write(json!({ "type": "control_response", "response": response })).await;
            if let Err(error) = answered {
                tracing::debug!(error, "claude does not listen");
            }
            return;
        }
        let tool = text(frame, "/request/tool_name").unwrap_or_default();
        let input = frame.pointer("/request/input").cloned().unwrap_or_default();
        let ask = Ask {
            kind: "tool".to_owned(),
            item_id: text(frame, "/request/tool_use_id"),
            title: in_words(&tool, Some(&input)),
            command: text(&input, "/command"),
            input: Some(input.clone()),
            ..Ask::default()
        };
        if self.asks.len() >= ASKS {
            if let Err(error) = self.answer(&id, &input, Decision::Decline).await {
                tracing::debug!(error, "claude does not listen");
            }
            return;
        }
        self.next += 1;
        self.asks.insert(self.next, (id, input));
        link.report(Report::Ask { key: self.next, ask }).await;
    }

    async fn over(&mut self, frame: &Value, link: &Link) {
        if self.turn.take().is_none() {
            return;
        }
        self.tools.clear();
        self.asks.clear();
        if let Some(answer) = text(frame, "/result") {
            link.report(Report::Answer(answer)).await;
        }
        if let Some(usage) = frame.get("usage") {
            link.report(Report::Usage(tokens(usage))).await;
        }
        let is_error = frame.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        let subtype = text(frame, "/subtype").unwrap_or_default();
        let (status, error) = match subtype.as_str() {
            "success" if !is_error => (TurnStatus::Completed, None),
            _ => (TurnStatus::Failed, Some(text(frame, "/result").unwrap_or(subtype))),
        };
        self.session = text(frame, "/session_id").or(self.session.take());
        link.ended(status, error).await;
        link.report(Report::Ready { pid: Some(self.program.pid()), session: self.session.clone() }).await;
    }
}

fn user(content: &str, injection: &str) -> Value {
    json!({
        "type": "user",
        "message": { "role": "user", "content": content },
        "parent_tool_use_id": null,
        "uuid": injection,
    })
}

/// A tool and what it is used on, in a line.
fn in_words(tool: &str, input: Option<&Value>) -> String {
    let on = |key: &str| input.and_then(|input| input.get(key)).and_then(Value::as_str);
    match on("command").or(on("file_path")).or(on("path")).or(on("url")) {
        Some(on) => format!("{tool}: {on}"),
        None => tool.to_owned(),
    }
}

fn tokens(usage: &Value) -> Tokens {
    let part = |key| number(usage, key);
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
