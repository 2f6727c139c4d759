//! `codex-exec`, by `codex exec --json`: one process a turn. No pieces, no questions.

use std::ffi::OsString;

use serde_json::Value;

use super::once::Heard;
use super::program::Program;
use super::rpc::{number, tail, text};
use super::{Happening, Link, Report, Seat};
use crate::wire::event::{Change, Tokens, TurnStatus};

/// How much of a command's output is told.
const OUTPUT: usize = 16 << 10;

/// A conversation, and what it has used: Codex tells that of the whole conversation after each turn. Both are written
/// down together, as `thread#tokens`.
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

pub(super) async fn run(seat: Seat, mut link: Link) -> String {
    let mut session = seat.session.as_deref().map(Session::parse);
    let named = |session: &Option<Session>| session.as_ref().map(Session::to_string);
    link.report(Report::Ready { pid: None, session: named(&session) }).await;
    while let Some(content) = link.prompt().await {
        let (status, error) = turn(&seat, &content, &mut session, &mut link).await;
        link.ended(status, error).await;
        link.report(Report::Ready { pid: None, session: named(&session) }).await;
    }
    "it was stopped".to_owned()
}

fn arguments(seat: &Seat, session: Option<&Session>, content: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["exec".into()];
    if let Some(session) = session {
        args.extend(["resume".into(), OsString::from(&session.thread)]);
    }
    args.extend(["--json".into(), "--skip-git-repo-check".into()]);
    if let Some(model) = &seat.launch.model {
        args.extend(["-m".into(), model.into()]);
    }
    // Going on with a conversation keeps what it may do.
    if let (Some(sandbox), None) = (&seat.launch.sandbox, session) {
        args.extend(["-s".into(), sandbox.into()]);
    }
    // A prompt is a prompt, also when it begins with a dash.
    args.extend(["--".into(), content.into()]);
    args
}

async fn turn(
    seat: &Seat,
    content: &str,
    session: &mut Option<Session>,
    link: &mut Link,
) -> (TurnStatus, Option<String>) {
    let mut program = match Program::start(seat, arguments(seat, session.as_ref(), content)).await {
        Ok(program) => program,
        Err(error) => return (TurnStatus::Failed, Some(error)),
    };
    // With an open stdin it would wait for more of the prompt.
    program.feed(String::new());
    let mut failure = None;
    let mut is_complete = false;
    loop {
        let line = match link.hear(&mut program).await {
            Heard::Line(line) => line,
            Heard::End => break,
            Heard::Stopped => {
                program.stop().await;
                return (TurnStatus::Interrupted, None);
            }
        };
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "thread.started" => {
                let thread = text(&event, "/thread_id").unwrap_or_default();
                let used = session.take().filter(|known| known.thread == thread);
                *session = Some(Session { thread, used: used.map_or(0, |known| known.used) });
                link.report(Report::Accepted).await;
            }
            "turn.started" => link.report(Report::Started).await,
            "turn.completed" => {
                is_complete = true;
                let all = tokens(&event);
                let before = session.as_ref().map_or(0, |session| session.used);
                let total_tokens = all.total_tokens.saturating_sub(before);
                if let Some(session) = session {
                    session.used = all.total_tokens;
                }
                // The parts are told where they are those of this turn.
                let parts = if before == 0 { all } else { Tokens::default() };
                link.report(Report::Usage(Tokens { total_tokens, ..parts })).await;
            }
            "turn.failed" => failure = text(&event, "/error/message"),
            "error" => {
                let error = text(&event, "/message").unwrap_or_default();
                link.report(Report::Error { error, will_retry: true }).await;
            }
            kind @ ("item.started" | "item.completed") => {
                if let Some(report) = item(&event, kind == "item.completed") {
                    link.report(report).await;
                }
            }
            _ => {}
        }
    }
    let (is_well, how) = program.ended().await;
    if is_complete && is_well {
        return (TurnStatus::Completed, None);
    }
    let said = seat.log.take_last().map(|said| format!("; it said: {said}")).unwrap_or_default();
    (TurnStatus::Failed, Some(failure.unwrap_or_else(|| format!("{how}{said}"))))
}

fn tokens(event: &Value) -> Tokens {
    let (input, output) = (number(event, "/usage/input_tokens"), number(event, "/usage/output_tokens"));
    Tokens {
        total_tokens: input.unwrap_or_default().saturating_add(output.unwrap_or_default()),
        input_tokens: input,
        cached_input_tokens: number(event, "/usage/cached_input_tokens"),
        output_tokens: output,
    }
}

fn item(event: &Value, is_over: bool) -> Option<Report> {
    let item = event.get("item")?;
    let item_id = text(item, "/id").unwrap_or_default();
    match item.get("type").and_then(Value::as_str)? {
        "agent_message" if is_over => text(item, "/text").map(Report::Answer),
        "reasoning" if is_over => text(item, "/text").map(Report::Reasoning),
        "command_execution" => {
            let command = text(item, "/command").unwrap_or_default();
            Some(Report::Happened(if is_over {
                Happening::CommandCompleted {
                    item_id,
                    command,
                    status: text(item, "/status").unwrap_or_default(),
                    exit_code: item.get("exit_code").and_then(Value::as_i64),
                    output: text(item, "/aggregated_output").map(|output| tail(&output, OUTPUT)),
                }
            } else {
                Happening::CommandStarted { item_id, command, cwd: None }
            }))
        }
        "file_change" if is_over => {
            let changes = item.get("changes").and_then(Value::as_array)?;
            let change = |change: &Value| Change {
                path: text(change, "/path").unwrap_or_default(),
                kind: text(change, "/kind").unwrap_or_default(),
                diff: None,
            };
            let changes = changes.iter().map(change).collect();
            let status = text(item, "/status").unwrap_or_default();
            Some(Report::Happened(Happening::FileChange { item_id, status, changes }))
        }
        "error" => {
            let error = text(item, "/message").unwrap_or_default();
            Some(Report::Error { error, will_retry: true })
        }
        _ => None,
    }
}
