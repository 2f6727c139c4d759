//! What a suite shows of its tools.

use std::fmt::Write;

use serde_json::json;
use serde_json::value::RawValue;
use switchboard_core::nearest;

use crate::arguments::{Question, shape};
use crate::config::IntrospectionMode;
use crate::ranking;
use crate::raw::raw;
use crate::summary::{first_sentence, summarise};
use crate::tool::Tool;

/// How many tools are shown at once; more are asked for with a cursor or a query.
const PAGE: usize = 50;
/// How many tools a query shows unless it says otherwise.
const FOUND: usize = 8;
/// After so many bytes of schemas a page ends. Fifty tools of real servers have some 40 kB.
const PAGE_BYTES: usize = 256 * 1024;
/// The longest description of a tool that is shown whole. The longest of real servers has some 4,000 letters.
const DESCRIPTION: usize = 20_000;

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

/// Answers a question about the tools of a suite, with a note where there is one. The error is a text for the model.
pub(crate) fn introspect(
    tools: &[Offered<'_>],
    question: &Question,
    style: Style,
    note: Option<&str>,
) -> Result<String, String> {
    let noted = |text: String| match note {
        Some(note) if text.is_empty() => note.to_owned(),
        Some(note) => format!("{text}\n{note}"),
        None => text,
    };
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
            .map(|offered| noted(one(*offered)))
            .ok_or_else(|| unknown(subtool, tools.iter().map(|offered| offered.tool.name.as_str()), note));
    }
    let (chosen, start) = match &question.query {
        Some(query) => {
            let positions = ranking::ranked(query, tools.iter().map(|offered| offered.tool));
            if positions.is_empty() {
                return Ok(noted(format!(
                    "No tool fits \"{}\". Without a query all {} are listed.",
                    summarise(query, 80),
                    tools.len()
                )));
            }
            let limit = question.limit.unwrap_or(FOUND).clamp(1, PAGE);
            (positions.iter().take(limit).map(|&position| tools[position]).collect::<Vec<_>>(), None)
        }
        None => page(tools, question).map(|(chosen, start)| (chosen, Some(start)))?,
    };
    // Where the next page begins, after so many tools of this one.
    let next = |shown: usize| start.map(|start| start + shown).filter(|next| *next < tools.len());
    if mode == IntrospectionMode::Full {
        let shown = full(&chosen, style.summary_max_chars);
        let mut answer = json!({});
        if let Some(next) = next(shown.len()) {
            answer["more"] = json!({ "left": tools.len() - next, "cursor": next.to_string() });
        }
        if let Some(note) = note {
            answer["note"] = json!(note);
        }
        answer["tools"] = json!(shown);
        return Ok(answer.to_string());
    }
    let lines: Vec<String> = chosen.iter().map(|offered| line(*offered, style.summary_max_chars)).collect();
    let mut text = lines.join("\n");
    if let Some(next) = next(lines.len()) {
        let _ = write!(
            text,
            "\n{} more: {{\"action\":\"introspect\",\"cursor\":\"{next}\"}} or \"query\":\"words\"",
            tools.len() - next
        );
    }
    Ok(noted(text))
}

/// Refusal of an unknown or hidden tool; the two look the same. The note says if the tool list was cut.
pub(crate) fn unknown<'a>(
    subtool: &str,
    offered: impl IntoIterator<Item = &'a str>,
    note: Option<&str>,
) -> String {
    let near = nearest(subtool, offered);
    let subtool = summarise(subtool, 80);
    let text = match near.as_slice() {
        [] => format!(
            "The tool '{}' is not available. {{\"action\":\"introspect\"}} lists those that are.",
            subtool.escape_debug()
        ),
        near => format!(
            "The tool '{}' is not available. Did you mean {}?",
            subtool.escape_debug(),
            near.join(" or ")
        ),
    };
    match note {
        Some(note) => format!("{text} {note}"),
        None => text,
    }
}

/// One page, and where it begins.
fn page<'a>(tools: &[Offered<'a>], question: &Question) -> Result<(Vec<Offered<'a>>, usize), String> {
    let start = match &question.cursor {
        None => 0,
        Some(cursor) => {
            cursor.parse::<usize>().ok().filter(|start| *start < tools.len()).ok_or_else(|| {
                format!("'cursor' is not one that was given out: {}. Start without.", cursor.escape_debug())
            })?
        }
    };
    let end = tools.len().min(start + question.limit.unwrap_or(PAGE).clamp(1, PAGE));
    Ok((tools[start..end].to_vec(), start))
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
    let signature = shown.input_schema.signature();
    format!("{}{signature}{}{}{dash}{summary}", tool.name, tool.hints.mark(), flagged(is_flagged))
}

/// `{"name","summary","inputSchema"}` of each tool, until the page is full. There is always one.
fn full(tools: &[Offered<'_>], max_chars: usize) -> Vec<Box<RawValue>> {
    let mut shown = Vec::new();
    let mut bytes = 0;
    for offered in tools {
        let one = if offered.is_blocked {
            raw(&json!({ "name": offered.tool.name, "summary": BLOCKED.trim(), "inputSchema": {} }))
        } else {
            let (shown, is_flagged) = offered.tool.shown();
            let summary = summarise(&shown.description.unwrap_or_default(), max_chars);
            let marks = format!("{}{}", offered.tool.hints.mark(), flagged(is_flagged));
            let schema = shown.input_schema.into_value();
            raw(&json!({ "name": offered.tool.name, "summary": summary + &marks, "inputSchema": schema }))
        };
        bytes += one.get().len();
        if bytes > PAGE_BYTES && !shown.is_empty() {
            break;
        }
        shown.push(one);
    }
    shown
}

/// All about one tool, and how it is called.
fn one(offered: Offered<'_>) -> String {
    let tool = offered.tool;
    if offered.is_blocked {
        return line(offered, 0);
    }
    let (shown, is_flagged) = tool.shown();
    let mut text = format!("{}{}{}\n", tool.name, tool.hints.mark(), flagged(is_flagged));
    if let Some(description) = shown.description.or(shown.title) {
        let mut letters = description.trim().chars();
        text.extend(letters.by_ref().take(DESCRIPTION));
        text.push_str(if letters.next().is_some() { "…\n" } else { "\n" });
    }
    let _ = writeln!(text, "inputSchema: {}", shown.input_schema.into_value());
    if let Some(schema) = shown.output_schema {
        let _ = writeln!(text, "outputSchema: {}", schema.into_value());
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
