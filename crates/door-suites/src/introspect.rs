//! Renders a suite's tools as the answer to `introspect`.

use std::fmt::Write;

use serde_json::json;
use serde_json::value::RawValue;
use switchboard_core::json::to_raw;
use switchboard_core::suggest_similar;

use crate::arguments::{IntrospectQuery, call_example};
use crate::config::IntrospectionMode;
use crate::ranking;
use crate::summary::{first_sentence, summarise};
use crate::tool::Tool;

/// Maximum number of tools per page. Further tools are reachable with a cursor or a query.
const PAGE: usize = 50;
/// Default number of tools returned for a query.
const FOUND: usize = 8;
/// Maximum size of the schemas on one page, in bytes. Fifty tools of real servers take about 40 kB.
const PAGE_BYTES: usize = 256 * 1024;
/// Maximum length of a tool description that is shown in full, in characters. The longest description of real servers
/// has about 4,000.
const DESCRIPTION: usize = 20_000;

/// Replacement for the text of a tool that no longer matches its approved pin.
///
/// The tool's new text is not shown because it was not reviewed.
pub(crate) const BLOCKED: &str = " [changed: blocked until approved]";

/// An offered tool, with a flag that tells whether it is blocked.
#[derive(Clone, Copy)]
pub(crate) struct OfferedTool<'a> {
    pub(crate) tool: &'a Tool,
    /// True if the tool no longer matches its approved pin.
    pub(crate) is_blocked: bool,
}

/// Output format and maximum summary length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) mode: IntrospectionMode,
    pub(crate) summary_max_chars: usize,
}

/// Renders the answer to an introspection request, with an optional note. The error is a message for the model.
pub(crate) fn introspect(
    tools: &[OfferedTool<'_>],
    question: &IntrospectQuery,
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
            return Err(format!("There is no mode '{}'; use summary or full.", other.escape_debug()));
        }
    };
    if let Some(subtool) = &question.subtool {
        let found = tools.iter().find(|offered| offered.tool.name == *subtool);
        return found.map(|offered| noted(render_tool(*offered))).ok_or_else(|| {
            refuse_unknown_tool(subtool, tools.iter().map(|offered| offered.tool.name.as_str()), note)
        });
    }
    let (chosen, start) = match &question.query {
        Some(query) => {
            let positions = ranking::rank_tools(query, tools.iter().map(|offered| offered.tool));
            if positions.is_empty() {
                return Ok(noted(format!(
                    "No tool matches \"{}\". Without a query all {} are listed.",
                    summarise(query, 80),
                    tools.len()
                )));
            }
            let limit = question.limit.unwrap_or(FOUND).clamp(1, PAGE);
            (positions.iter().take(limit).map(|&position| tools[position]).collect::<Vec<_>>(), None)
        }
        None => page(tools, question).map(|(chosen, start)| (chosen, Some(start)))?,
    };
    // Returns the start index of the next page, given the number of tools shown on the current page.
    let next = |shown: usize| start.map(|start| start + shown).filter(|next| *next < tools.len());
    if mode == IntrospectionMode::Full {
        let shown = render_full(&chosen, style.summary_max_chars);
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
    let lines: Vec<String> =
        chosen.iter().map(|offered| render_line(*offered, style.summary_max_chars)).collect();
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

/// Renders the refusal of a call to an unknown tool.
///
/// A tool hidden by the filter is refused with the same text. `note` tells the model if the tool list was truncated.
pub(crate) fn refuse_unknown_tool<'a>(
    subtool: &str,
    offered: impl IntoIterator<Item = &'a str>,
    note: Option<&str>,
) -> String {
    let near = suggest_similar(subtool, offered);
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

/// Returns one page of tools and the index of the page's first tool.
fn page<'a>(
    tools: &[OfferedTool<'a>],
    question: &IntrospectQuery,
) -> Result<(Vec<OfferedTool<'a>>, usize), String> {
    let start = match &question.cursor {
        None => 0,
        Some(cursor) => cursor
            .parse::<usize>()
            .ok()
            .filter(|start| *start < tools.len())
            .ok_or_else(|| format!("'cursor' is invalid: {}. Start without it.", cursor.escape_debug()))?,
    };
    let end = tools.len().min(start + question.limit.unwrap_or(PAGE).clamp(1, PAGE));
    Ok((tools[start..end].to_vec(), start))
}

/// Renders a tool on one line: `name(arg: type, opt?: type) [read-only] — summary`.
pub(crate) fn render_line(offered: OfferedTool<'_>, max_chars: usize) -> String {
    let tool = offered.tool;
    if offered.is_blocked {
        return format!("{}{BLOCKED}", tool.name);
    }
    let (shown, is_flagged) = tool.display();
    let description = shown.description.or(shown.title).unwrap_or_default();
    let summary = first_sentence(&description, max_chars);
    let dash = if summary.is_empty() { "" } else { " — " };
    let signature = shown.input_schema.signature();
    format!("{}{signature}{}{}{dash}{summary}", tool.name, tool.hints.label(), flagged(is_flagged))
}

/// Renders each tool as `{"name","summary","inputSchema"}` until the page is full. Always renders at least one tool.
fn render_full(tools: &[OfferedTool<'_>], max_chars: usize) -> Vec<Box<RawValue>> {
    let mut shown = Vec::new();
    let mut bytes = 0;
    for offered in tools {
        let tool = if offered.is_blocked {
            to_raw(&json!({ "name": offered.tool.name, "summary": BLOCKED.trim(), "inputSchema": {} }))
        } else {
            let (shown, is_flagged) = offered.tool.display();
            let summary = summarise(&shown.description.unwrap_or_default(), max_chars);
            let marks = format!("{}{}", offered.tool.hints.label(), flagged(is_flagged));
            let schema = shown.input_schema.into_value();
            to_raw(&json!({ "name": offered.tool.name, "summary": summary + &marks, "inputSchema": schema }))
        };
        bytes += tool.get().len();
        if bytes > PAGE_BYTES && !shown.is_empty() {
            break;
        }
        shown.push(tool);
    }
    shown
}

/// Renders one tool in full, with an example call.
fn render_tool(offered: OfferedTool<'_>) -> String {
    let tool = offered.tool;
    if offered.is_blocked {
        return render_line(offered, 0);
    }
    let (shown, is_flagged) = tool.display();
    let mut text = format!("{}{}{}\n", tool.name, tool.hints.label(), flagged(is_flagged));
    if let Some(description) = shown.description.or(shown.title) {
        let mut letters = description.trim().chars();
        text.extend(letters.by_ref().take(DESCRIPTION));
        text.push_str(if letters.next().is_some() { "…\n" } else { "\n" });
    }
    let _ = writeln!(text, "inputSchema: {}", shown.input_schema.into_value());
    if let Some(schema) = shown.output_schema {
        let _ = writeln!(text, "outputSchema: {}", schema.into_value());
    }
    let _ = write!(text, "Call: {}", call_example(&tool.name));
    text
}

fn flagged(is_flagged: bool) -> &'static str {
    if is_flagged { " [hidden text removed]" } else { "" }
}

#[cfg(test)]
#[path = "introspect_tests.rs"]
mod tests;
