//! Markup that a model may mistake for text of its host: tags and control tokens.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Flag;
use super::lookalike::fold;

/// Names that have a meaning for hosts and models, in lower case and without separators.
const NAMES: [&str; 40] = [
    "admin",
    "assistant",
    "attention",
    "caution",
    "commandmessage",
    "commandname",
    "context",
    "critical",
    "developer",
    "endofturn",
    "example",
    "functioncall",
    "functioncalls",
    "functionresult",
    "functionresults",
    "hidden",
    "human",
    "imend",
    "important",
    "importantinstructions",
    "imstart",
    "inst",
    "instruction",
    "instructions",
    "invoke",
    "mandatory",
    "override",
    "prompt",
    "priority",
    "secret",
    "startofturn",
    "sys",
    "system",
    "systemprompt",
    "systemreminder",
    "tasknotification",
    "toolcall",
    "toolresult",
    "user",
    "warning",
];

/// Prefix of the name of Switchboard's own frames. The random nonce follows the prefix.
const FRAME: &str = "untrusted";

/// Maximum number of characters of a tag that are searched for its name.
const LONGEST: usize = 200;

/// Returns true for `<` and its look-alikes.
pub(super) fn is_angle(c: char) -> bool {
    matches!(
        c,
        '<' | '\u{02c2}'
            | '\u{1438}'
            | '\u{16b2}'
            | '\u{2039}'
            | '\u{226e}'
            | '\u{2329}'
            | '\u{276c}'
            | '\u{276e}'
            | '\u{2770}'
            | '\u{27e8}'
            | '\u{29fc}'
            | '\u{3008}'
            | '\u{fe3f}'
            | '\u{fe64}'
            | '\u{ff1c}'
            | '\u{1d236}'
    )
}

/// Disarms everything that could start a tag. Hidden characters must have been removed.
pub(super) fn disarm_all(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.chars().any(|c| is_angle(c) || is_bracket(c)) {
        return text;
    }
    let disarmed = disarm(&text, |_| true, &mut BTreeSet::new());
    if disarmed == text { text } else { Cow::Owned(disarmed) }
}

/// Disarms tags whose names have a meaning for hosts. Hidden characters must have been removed.
pub(super) fn disarm_named(text: &str, flags: &mut BTreeSet<Flag>) -> String {
    disarm(text, |inside| inside.is_some_and(|inside| is_token(inside) || is_known(&name_of(inside))), flags)
}

/// Replaces `<` by `&lt;` if `is_tag` is true for the text up to `>`; `[INST]` becomes `(INST)`.
fn disarm(text: &str, is_tag: impl Fn(Option<&str>) -> bool, flags: &mut BTreeSet<Flag>) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let last_close = text.rfind(is_close);
    // The loop continues within the brackets of a control token, so that text there is disarmed like any other.
    let mut is_in_token = false;
    while let Some(at) = rest.find(|c| is_angle(c) || is_bracket(c) || (is_in_token && is_closing_bracket(c)))
    {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let mut chars = from.chars();
        let Some(open) = chars.next() else { break };
        rest = chars.as_str();
        if is_closing_bracket(open) {
            is_in_token = false;
            out.push(')');
        } else if is_bracket(open) {
            if inside_brackets(rest).is_some_and(is_bracket_token) {
                flags.insert(Flag::Markup);
                is_in_token = true;
                out.push('(');
            } else {
                out.push(open);
            }
        } else {
            let is_closed = last_close.is_some_and(|last| last >= text.len() - rest.len());
            if is_tag(is_closed.then(|| beginning(rest))) {
                flags.insert(Flag::Markup);
                out.push_str("&lt;");
            } else {
                out.push(open);
            }
        }
    }
    out.push_str(rest);
    out
}

/// Returns true for `>` and its look-alikes.
fn is_close(c: char) -> bool {
    matches!(c, '>' | '\u{203a}' | '\u{226f}' | '\u{fe65}' | '\u{ff1e}')
}

fn is_bracket(c: char) -> bool {
    matches!(c, '[' | '\u{ff3b}')
}

fn is_closing_bracket(c: char) -> bool {
    matches!(c, ']' | '\u{ff3d}')
}

/// Returns a tag's text up to the end of the tag, at most [`LONGEST`] characters.
///
/// The limit is needed because attributes may have any length.
fn beginning(text: &str) -> &str {
    let end = text.char_indices().enumerate().find(|(count, (_, c))| *count == LONGEST || is_close(*c));
    &text[..end.map_or(text.len(), |(_, (end, _))| end)]
}

/// Returns the text before the closing bracket, if it is within [`LONGEST`] characters.
fn inside_brackets(text: &str) -> Option<&str> {
    let (end, _) = text.char_indices().take(LONGEST).find(|(_, c)| is_closing_bracket(*c))?;
    Some(&text[..end])
}

/// Returns true if the text within brackets is a control token, such as `INST` or `/INST`.
///
/// A word with punctuation, such as `(INST)`, is not a token.
fn is_bracket_token(inside: &str) -> bool {
    let has_brackets = tag_token(inside)
        .contains(|c| matches!(c, '(' | ')' | '&') || is_angle(c) || is_close(c) || is_bracket(c));
    !has_brackets && matches!(&*name_of(inside), "inst" | "sys")
}

/// Returns true for a control token such as `|im_start|`, whatever its name.
fn is_token(inside: &str) -> bool {
    let is_bar = |c: char| matches!(c, '|' | '\u{ff5c}');
    inside.starts_with(is_bar) && inside.len() > 1 && inside.ends_with(is_bar)
}

/// Returns the name of a tag without separators: the last part of `x:invoke`, without attributes.
fn name_of(inside: &str) -> String {
    let last = tag_token(inside).rsplit(':').next().unwrap_or_default();
    last.chars().map(fold).filter(char::is_ascii_alphanumeric).collect()
}

fn tag_token(inside: &str) -> &str {
    let word = inside.trim_matches(|c: char| matches!(c, '/' | '|' | '!') || c.is_whitespace());
    word.split(|c: char| c.is_whitespace() || c == '=').next().unwrap_or_default()
}

fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(FRAME)
}
