//! `codex-exec`: Codex through `codex exec --json`, one process per turn, without deltas or questions.

use std::ffi::OsString;

use serde_json::Value;

use super::per_turn::ProgramEvent;
use super::program::Program;
use super::rpc::{number_at, string_at, tail};
use super::{AgentActivity, Report, WorkerPipe, WorkerSpec};
use crate::wire::event::{Change, Tokens, TurnStatus};

/// Maximum size of a command's output in a report, in bytes.
const MAX_OUTPUT: usize = 16 << 10;

/// A conversation and its token usage, stored together as `thread#tokens`.
///
/// The usage is stored because Codex reports the usage of the whole conversation after each turn.
#[derive(Debug, Clone)]
struct Session {
    thread: String,
    used: u64,
}

impl Session {
    fn parse(text: &str) -> Self {
        let (thread, used) = text.rsplit_once('#').unwrap_or((text, "0"));
        Self { thread: thread.to_owned(), used: used.parse().unwrap_or(0) }
    }
}

impl std::fmt::Display for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}", self.thread, self.used)
    }
}

pub(super) async fn run(spec: WorkerSpec, mut pipe: WorkerPipe) -> String {
    let mut session = spec.session.as_deref().map(Session::parse);
    let named = |session: &Option<Session>| session.as_ref().map(Session::to_string);
    pipe.report(Report::Ready { pid: None, session: named(&session) }).await;
    while let Some(content) = pipe.next_prompt().await {
        let (status, error) = turn(&spec, &content, &mut session, &mut pipe).await;
        pipe.report_end(status, error).await;
        pipe.report(Report::Ready { pid: None, session: named(&session) }).await;
    }
    "it was stopped".to_owned()
}

fn arguments(spec: &WorkerSpec, session: Option<&Session>, content: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["exec".into()];
    if let Some(session) = session {
        args.extend(["resume".into(), OsString::from(&session.thread)]);
    }
    args.extend(["--json".into(), "--skip-git-repo-check".into()]);
    if let Some(model) = &spec.launch.model {
        args.extend(["-m".into(), model.into()]);
    }
    // A resumed conversation already has its sandbox mode.
    if let (Some(sandbox), None) = (&spec.launch.sandbox, session) {
        args.extend(["-s".into(), sandbox.into()]);
    }
    // The `--` prevents Codex from parsing a prompt that starts with a dash as an option.
    args.extend(["--".into(), content.into()]);
    args
}

async fn turn(
    spec: &WorkerSpec,
    content: &str,
    session: &mut Option<Session>,
    pipe: &mut WorkerPipe,
) -> (TurnStatus, Option<String>) {
    let mut program = match Program::start(spec, arguments(spec, session.as_ref(), content)).await {
        Ok(program) => program,
        Err(error) => return (TurnStatus::Failed, Some(error)),
    };
    // Stdin is closed, because Codex would otherwise wait for more of the prompt.
    program.send_prompt(String::new());
    let mut failure = None;
    let mut is_complete = false;
    loop {
        let line = match pipe.next_event(&mut program).await {
            ProgramEvent::Line(line) => line,
            ProgramEvent::End => break,
            ProgramEvent::Stopped => {
                program.stop().await;
                return (TurnStatus::Interrupted, None);
            }
        };
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "thread.started" => {
                let thread = string_at(&event, "/thread_id").unwrap_or_default();
                let used = session.take().filter(|known| known.thread == thread);
                *session = Some(Session { thread, used: used.map_or(0, |known| known.used) });
                pipe.report(Report::Accepted).await;
            }
            "turn.started" => pipe.report(Report::Started).await,
            "turn.completed" => {
                is_complete = true;
                let all = tokens(&event);
                let before = session.as_ref().map_or(0, |session| session.used);
                let total_tokens = all.total_tokens.saturating_sub(before);
                if let Some(session) = session {
                    session.used = all.total_tokens;
                }
                // The breakdown is only known for the first turn of a conversation.
                let parts = if before == 0 { all } else { Tokens::default() };
                pipe.report(Report::Usage(Tokens { total_tokens, ..parts })).await;
            }
            "turn.failed" => failure = string_at(&event, "/error/message"),
            "error" => {
                let error = string_at(&event, "/message").unwrap_or_default();
                pipe.report(Report::Error { error, will_retry: true }).await;
            }
            kind @ ("item.started" | "item.completed") => {
                if let Some(report) = item(&event, kind == "item.completed") {
                    pipe.report(report).await;
                }
            }
            _ => {}
        }
    }
    let (is_well, how) = program.wait_exit().await;
    if is_complete && is_well {
        return (TurnStatus::Completed, None);
    }
    let last_line =
        spec.log.drain_last_line().map(|last_line| format!("; it said: {last_line}")).unwrap_or_default();
    (TurnStatus::Failed, Some(failure.unwrap_or_else(|| format!("{how}{last_line}"))))
}

fn tokens(event: &Value) -> Tokens {
    let (input, output) = (number_at(event, "/usage/input_tokens"), number_at(event, "/usage/output_tokens"));
    Tokens {
        total_tokens: input.unwrap_or_default().saturating_add(output.unwrap_or_default()),
        input_tokens: input,
        cached_input_tokens: number_at(event, "/usage/cached_input_tokens"),
        output_tokens: output,
    }
}

fn item(event: &Value, is_over: bool) -> Option<Report> {
    let item = event.get("item")?;
    let item_id = string_at(item, "/id").unwrap_or_default();
    match item.get("type").and_then(Value::as_str)? {
        "agent_message" if is_over => string_at(item, "/text").map(Report::Answer),
        "reasoning" if is_over => string_at(item, "/text").map(Report::Reasoning),
        "command_execution" => {
            let command = string_at(item, "/command").unwrap_or_default();
            Some(Report::Activity(if is_over {
                AgentActivity::CommandCompleted {
                    item_id,
                    command,
                    status: string_at(item, "/status").unwrap_or_default(),
                    exit_code: item.get("exit_code").and_then(Value::as_i64),
                    output: string_at(item, "/aggregated_output").map(|output| tail(&output, MAX_OUTPUT)),
                }
            } else {
                AgentActivity::CommandStarted { item_id, command, cwd: None }
            }))
        }
        "file_change" if is_over => {
            let changes = item.get("changes").and_then(Value::as_array)?;
            let change = |change: &Value| Change {
                path: string_at(change, "/path").unwrap_or_default(),
                kind: string_at(change, "/kind").unwrap_or_default(),
                diff: None,
            };
            let changes = changes.iter().map(change).collect();
            let status = string_at(item, "/status").unwrap_or_default();
            Some(Report::Activity(AgentActivity::FileChange { item_id, status, changes }))
        }
        "error" => {
            let error = string_at(item, "/message").unwrap_or_default();
            Some(Report::Error { error, will_retry: true })
        }
        _ => None,
    }
}
