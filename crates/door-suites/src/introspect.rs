//! What a suite shows of its tools.

use std::fmt::Write;

use serde_json::{Value, json};
use switchboard_core::nearest;

use crate::arguments::{Question, shape};
use crate::config::IntrospectionMode;
use crate::schema::tidy;
use crate::search;
use crate::signature::signature;
use crate::summary::{first_sentence, summarise};
use crate::tool::Tool;

/// How many tools are shown at once; more are asked for with a cursor or a query.
const PAGE: usize = 50;
/// How many tools a query shows unless it says otherwise.
const FOUND: usize = 8;

/// All that is shown of a tool that is no longer what its owner approved: its new text may be what was not to be seen.
pub(crate) const BLOCKED: &str = " [changed: blocked until approved]";

/// A tool that is offered, and whether it may be called.
#[derive(Clone, Copy)]
pub(crate) struct Offered<'a> {
    pub(crate) tool: &'a Tool,
    /// It is no longer what its owner approved.
    pub(crate) is_blocked: bool,
}

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) mode: IntrospectionMode,
    pub(crate) summary_max_chars: usize,
}

/// Answers a question about the tools of a suite. The error is a text for the model.
pub(crate) fn introspect(tools: &[Offered<'_>], question: &Question, style: Style) -> Result<String, String> {
    let mode = match question.mode.as_deref() {
        None => style.mode,
        Some("summary") => IntrospectionMode::Summary,
        Some("full") => IntrospectionMode::Full,
        Some(other) => {
            return Err(format!("There is no mode '{}'. Use summary or full.", other.escape_debug()));
        }
    };
    if let Some(subtool) = &question.subtool {
        let found = tools.iter().find(|offered| offered.tool.name == *subtool);
        return found
            .map(|offered| one(*offered))
            .ok_or_else(|| unknown(subtool, tools.iter().map(|offered| offered.tool.name.as_str())));
    }
    let (chosen, rest) = match &question.query {
        Some(query) => {
            let places = search::ranked(query, tools.iter().map(|offered| offered.tool));
            if places.is_empty() {
                return Ok(format!(
                    "No tool fits \"{}\". Without a query all {} are listed.",
                    query,
                    tools.len()
                ));
            }
            let limit = question.limit.unwrap_or(FOUND).clamp(1, PAGE);
            (places.iter().take(limit).map(|&place| tools[place]).collect::<Vec<_>>(), None)
        }
        None => page(tools, question)?,
    };
    let mut text = match mode {
        IntrospectionMode::Summary => chosen
            .iter()
            .map(|offered| line(*offered, style.summary_max_chars))
            .collect::<Vec<_>>()
            .join("\n"),
        IntrospectionMode::Full => full(&chosen, style.summary_max_chars),
    };
    if let Some(next) = rest {
        let _ = write!(
            text,
            "\n{} more: {{\"action\":\"introspect\",\"cursor\":\"{next}\"}} or \"query\":\"words\"",
            tools.len() - next
        );
    }
    Ok(text)
}

/// What is said of a tool that there is not, or that is not offered: the two look the same.
pub(crate) fn unknown<'a>(subtool: &str, offered: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(subtool, offered);
    let subtool = summarise(subtool, 80);
    match near.as_slice() {
        [] => format!(
            "The tool '{}' is not available. {{\"action\":\"introspect\"}} lists those that are.",
            subtool.escape_debug()
        ),
        near => format!(
            "The tool '{}' is not available. Did you mean {}?",
            subtool.escape_debug(),
            near.join(" or ")
        ),
    }
}

/// One page, and where the next one begins.
fn page<'a>(tools: &[Offered<'a>], question: &Question) -> Result<(Vec<Offered<'a>>, Option<usize>), String> {
    let start = match &question.cursor {
        None => 0,
        Some(cursor) => {
            cursor.parse::<usize>().ok().filter(|start| *start < tools.len()).ok_or_else(|| {
                format!("'cursor' is not one that was given out: {}. Start without.", cursor.escape_debug())
            })?
        }
    };
    let end = tools.len().min(start + question.limit.unwrap_or(PAGE).clamp(1, PAGE));
    Ok((tools[start..end].to_vec(), Some(end).filter(|end| *end < tools.len())))
}

/// `name(arg: type, opt?: type) [read-only] — summary`
pub(crate) fn line(offered: Offered<'_>, max_chars: usize) -> String {
    let tool = offered.tool;
    if offered.is_blocked {
        return format!("{}{BLOCKED}", tool.name);
    }
    let (shown, is_flagged) = tool.shown();
    let description = shown.description.or(shown.title).unwrap_or_default();
    let summary = first_sentence(&description, max_chars);
    let dash = if summary.is_empty() { "" } else { " — " };
    let signature = signature(&shown.input_schema);
    format!("{}{signature}{}{}{dash}{summary}", tool.name, tool.hints.mark(), flagged(is_flagged))
}

/// `{"tools":[{"name","summary","inputSchema"}]}`, as compact as JSON gets.
fn full(tools: &[Offered<'_>], max_chars: usize) -> String {
    let tools: Vec<Value> = tools
        .iter()
        .map(|offered| {
            if offered.is_blocked {
                return json!({ "name": offered.tool.name, "summary": BLOCKED.trim(), "inputSchema": {} });
            }
            let (mut shown, is_flagged) = offered.tool.shown();
            tidy(&mut shown.input_schema);
            let summary = summarise(&shown.description.unwrap_or_default(), max_chars);
            let marks = format!("{}{}", offered.tool.hints.mark(), flagged(is_flagged));
            json!({ "name": offered.tool.name, "summary": summary + &marks, "inputSchema": shown.input_schema })
        })
        .collect();
    json!({ "tools": tools }).to_string()
}

/// All about one tool, and how it is called.
fn one(offered: Offered<'_>) -> String {
    let tool = offered.tool;
    if offered.is_blocked {
        return line(offered, 0);
    }
    let (mut shown, is_flagged) = tool.shown();
    tidy(&mut shown.input_schema);
    let mut text = format!("{}{}{}\n", tool.name, tool.hints.mark(), flagged(is_flagged));
    if let Some(description) = shown.description.or(shown.title) {
        text.push_str(description.trim());
        text.push('\n');
    }
    let _ = writeln!(text, "inputSchema: {}", shown.input_schema);
    if let Some(mut schema) = shown.output_schema {
        tidy(&mut schema);
        let _ = writeln!(text, "outputSchema: {schema}");
    }
    let _ = write!(text, "Call: {}", shape(&tool.name));
    text
}

fn flagged(is_flagged: bool) -> &'static str {
    if is_flagged { " [hidden text removed]" } else { "" }
}

#[cfg(test)]
#[path = "introspect_tests.rs"]
mod tests;
