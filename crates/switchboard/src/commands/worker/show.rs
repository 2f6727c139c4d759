//! Text output of jobs and events.

use std::fmt::{Display, Write as _};
use std::io::IsTerminal;

use door_workers::Received;
use indicatif::{MultiProgress, ProgressBar};
use serde_json::Value;
use switchboard_core::{clean, quote_lines, reveal_command};

use crate::context::Context;
use crate::show::{Reader, inline, plain};

/// Maximum characters of a line that are shown.
const WIDTH: usize = 200;

/// Prints a response as JSON, or as a line of text.
pub(super) fn print_result(context: &Context, answer: &Value, line: impl Display) {
    if context.printer.is_json() {
        context.printer.object(answer);
    } else {
        context.printer.line(line);
    }
}

pub(super) fn launched(context: &Context, job: &Value) {
    let id = text(job, "job_id");
    let nodes = job["nodes"].as_array().map_or(0, Vec::len);
    let names: Vec<&str> =
        job["nodes"].as_array().into_iter().flatten().map(|node| text(node, "agent_name")).collect();
    print_result(context, job, format_args!("{id}"));
    context.printer.note(format_args!(
        "Launched {} on {nodes} node{}, as {}. Follow with `switchboard worker attach {id}`.",
        text(job, "agent"),
        if nodes == 1 { "" } else { "s" },
        names.join(", ")
    ));
}

/// Prints a job, followed by a line per node.
pub(super) fn job(context: &Context, job: &Value) {
    if context.printer.is_json() {
        context.printer.object(job);
        return;
    }
    context.printer.line(format_args!(
        "{}  {}  {}  {} tokens",
        text(job, "job_id"),
        text(job, "agent"),
        text(job, "status"),
        job["total_tokens"]
    ));
    for node in job["nodes"].as_array().into_iter().flatten() {
        let mut line = format!(
            "  {:<3} {:<10} {} turns, {} waiting",
            node["node_id"],
            text(node, "status"),
            node["turns"],
            node["queued"]
        );
        let _ = write!(line, "  {}", text(node, "agent_name"));
        if let Some(detail) = node["detail"].as_str() {
            let _ = write!(line, "  ({})", short(detail));
        }
        context.printer.line(line);
    }
}

pub(super) fn queue(context: &Context, answer: &Value) {
    let waiting = answer["queue"].as_array().cloned().unwrap_or_default();
    if waiting.is_empty() {
        context.printer.note("Nothing waits.");
    }
    for queued in &waiting {
        let line = format!(
            "{}/{}  {}  {}",
            text(queued, "job_id"),
            queued["node_id"],
            text(queued, "injection_id"),
            inline(text(queued, "title"))
        );
        print_result(context, queued, line);
    }
}

pub(super) fn approvals(context: &Context, answer: &Value) {
    let waiting = answer["approvals"].as_array().cloned().unwrap_or_default();
    if waiting.is_empty() {
        context.printer.note("No agent asks for anything.");
    }
    for ask in &waiting {
        if context.printer.is_json() {
            context.printer.object(ask);
        } else {
            context.printer.line(approval_text(ask));
        }
    }
}

pub(super) fn approval(context: &Context, ask: &Value) {
    context.printer.note(approval_text(ask));
}

/// Renders all parameters of an approval request. Invisible and confusable characters are escaped, because a person
/// must see exactly what they approve.
fn approval_text(ask: &Value) -> String {
    let mut shown = format!(
        "{}/{} asks: {}\n  answer with: switchboard worker approve {} accept|decline|cancel",
        text(ask, "job_id"),
        ask["node_id"],
        indented(text(ask, "title")),
        text(ask, "approval_id")
    );
    if let Some(reason) = ask["reason"].as_str() {
        let _ = write!(shown, "\n  because: {}", indented(reason));
    }
    for (key, word) in [("command", "command"), ("cwd", "in")] {
        if let Some(value) = ask[key].as_str() {
            let _ = write!(shown, "\n  {word}: {}", indented(value));
        }
    }
    if let Some(input) = ask.get("input") {
        let input = serde_json::to_string_pretty(input).unwrap_or_default();
        let _ = write!(shown, "\n  with: {}", indented(&input));
    }
    for change in ask["changes"].as_array().into_iter().flatten() {
        let _ = write!(shown, "\n  {} {}", inline(text(change, "kind")), indented(text(change, "path")));
        for line in text(change, "diff").lines() {
            let _ = write!(shown, "\n    {}", reveal_command(line));
        }
    }
    if let Some(hash) = ask["hash"].as_str() {
        let _ = write!(shown, "\n  sha256: {}", inline(hash));
    }
    shown
}

/// Indents a text below its first line, with all characters made visible.
fn indented(text: &str) -> String {
    reveal_command(text).replace('\n', "\n    ")
}

pub(super) fn accepted(context: &Context, ack: &Value) {
    print_result(context, ack, text(ack, "injection_id"));
}

/// Renders a worker's output. For a model every line is quoted, so that no line can pass as one of ours.
pub(super) fn worker_text(context: &Context, content: &str) -> String {
    match context.reader() {
        Ok(Reader::Person) => plain(content),
        // Treat the reader as a model, also if its name is invalid.
        Ok(Reader::Model) | Err(_) => quote_lines(&clean(content)),
    }
}

/// Shortens and sanitizes a worker's text to fit into a line of ours.
fn short(text: &str) -> String {
    inline(text).chars().take(WIDTH).collect()
}

/// Prints an answer; with `many`, each line is prefixed with the number of its node.
pub(super) fn answer(context: &Context, data: &Value, many: bool) {
    if context.printer.is_json() {
        return context.printer.object(data);
    }
    for line in worker_text(context, text(data, "content")).lines() {
        if many {
            context.printer.line(format_args!("[{}] {line}", data["node_id"]));
        } else {
            context.printer.line(line);
        }
    }
}

/// Describes in one line how a turn ended.
pub(super) fn ending(data: &Value) -> String {
    let reason = data["error"].as_str().map(|error| format!(": {}", inline(error))).unwrap_or_default();
    format!("{}/{} {}{reason}", text(data, "job_id"), data["node_id"], text(data, "status"))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Prints the events of a job one after the other, and on a terminal a status line per node below them.
pub(super) struct Follower<'c> {
    context: &'c Context,
    nodes: usize,
    below: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl<'c> Follower<'c> {
    pub(super) fn new(context: &'c Context, job: &Value) -> Self {
        let nodes = job["nodes"].as_array().cloned().unwrap_or_default();
        let below = MultiProgress::new();
        let is_watched = !context.printer.is_json() && std::io::stderr().is_terminal();
        let bars = nodes.iter().filter(|_| is_watched).map(|node| {
            let bar = below.add(ProgressBar::new_spinner());
            bar.set_message(progress(node));
            bar
        });
        let bars = bars.collect();
        Self { context, nodes: nodes.len(), below, bars }
    }

    pub(super) fn show(&mut self, event: &Received) {
        if self.context.printer.is_json() {
            self.context.printer.json_line(&event.line);
            return;
        }
        let node = event.data.get("node_id").and_then(Value::as_u64);
        let bar = node.and_then(|node| usize::try_from(node).ok()).and_then(|node| self.bars.get(node));
        if let Some(bar) = bar {
            match event.event.as_str() {
                "node_status" => bar.set_message(progress(&event.data)),
                _ => bar.tick(),
            }
        }
        let Some(line) = line(self.context, event) else { return };
        self.below.suspend(|| {
            for line in line.lines() {
                match node.filter(|_| self.nodes > 1) {
                    Some(node) => self.context.printer.line(format_args!("[{node}] {line}")),
                    None => self.context.printer.line(line),
                }
            }
        });
    }
}

/// Describes the state of a node in one line.
fn progress(node: &Value) -> String {
    let detail = node["detail"].as_str().map(|detail| format!(": {}", inline(detail))).unwrap_or_default();
    format!("[{}] {}, {} waiting{detail}", node["node_id"], text(node, "status"), node["queued"])
}

/// Renders an event for a person; returns `None` if it would only repeat parts of an answer.
fn line(context: &Context, event: &Received) -> Option<String> {
    let data = &event.data;
    Some(match event.event.as_str() {
        "turn_started" => "· a turn begins".to_owned(),
        "assistant" => worker_text(context, text(data, "content")),
        "usage" => format!("· {} tokens, {} in all", data["total_tokens"], data["job_total_tokens"]),
        "turn_complete" => format!("· {}", ending(data)),
        "inject_failed" => format!("· not delivered: {}", short(text(data, "error"))),
        "command_started" => format!("$ {}", short(text(data, "command"))),
        "command_completed" => {
            let code = data["exit_code"].as_i64().map(|code| format!(" ({code})")).unwrap_or_default();
            format!("$ {}: {}{code}", short(text(data, "command")), text(data, "status"))
        }
        "file_change" => {
            let changes = data["changes"].as_array().into_iter().flatten();
            let paths: Vec<_> = changes.map(|change| inline(text(change, "path"))).collect();
            format!("± {} {}", text(data, "status"), paths.join(", "))
        }
        "approval_required" => approval_text(data),
        "approval_resolved" => format!("· {} by {}", text(data, "decision"), inline(text(data, "by"))),
        "agent_error" => format!("! {}", short(text(data, "error"))),
        "worker_exited" => format!("! the worker is gone: {}", short(text(data, "reason"))),
        "budget_exceeded" => format!("! {} of {} tokens are used", data["total_tokens"], data["limit"]),
        "job_terminated" => format!("· the job has ended, {} tokens", data["total_tokens"]),
        _ => return None,
    })
}
