//! Markup that a model may take for the words of its host.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Flag;

/// Names of such markup, in lower case and without separators. Hosts and models give these a meaning.
const NAMES: [&str; 30] = [
    "admin",
    "assistant",
    "attention",
    "caution",
    "context",
    "critical",
    "developer",
    "example",
    "functioncall",
    "functioncalls",
    "hidden",
    "human",
    "important",
    "importantinstructions",
    "inst",
    "instruction",
    "instructions",
    "invoke",
    "mandatory",
    "override",
    "prompt",
    "priority",
    "secret",
    "sys",
    "system",
    "systemprompt",
    "systemreminder",
    "toolcall",
    "user",
    "warning",
];

/// The beginning of the name of our own frames; the random mark follows.
const FRAME: &str = "untrusted";

/// Longer than any tag that is meant.
const LONGEST: usize = 200;

/// True for `<` and every character that is drawn like it.
pub(super) fn is_angle(c: char) -> bool {
    matches!(
        c,
        '<' | '\u{02c2}'
            | '\u{1438}'
            | '\u{16b2}'
            | '\u{2039}'
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

/// Disarms everything that could begin a tag, of a text without hidden characters.
pub(super) fn disarm_all(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.chars().any(|c| is_angle(c) || c == '[') {
        return text;
    }
    let disarmed = disarm(&text, |_| true, &mut BTreeSet::new());
    if disarmed == text { text } else { Cow::Owned(disarmed) }
}

/// Disarms tags whose names have a meaning for hosts, of a text without hidden characters.
pub(super) fn disarm_named(text: &str, flags: &mut BTreeSet<Flag>) -> String {
    disarm(text, |inside| inside.is_some_and(|inside| is_known(&name_of(inside))), flags)
}

/// Replaces `<` by `&lt;` where `is_tag` says so of the text up to `>`; `[INST]` becomes `(INST)`.
fn disarm(text: &str, is_tag: impl Fn(Option<&str>) -> bool, flags: &mut BTreeSet<Flag>) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(|c| is_angle(c) || c == '[') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let mut chars = from.chars();
        let Some(open) = chars.next() else { break };
        rest = chars.as_str();
        if open == '[' {
            match inside(rest, |c| c == ']').filter(|word| matches!(&*name_of(word), "inst" | "sys")) {
                Some(word) => {
                    flags.insert(Flag::Markup);
                    out.extend(["(", word, ")"]);
                    rest = &rest[word.len() + 1..];
                }
                None => out.push('['),
            }
        } else if is_tag(inside(rest, |c| matches!(c, '>' | '\u{203a}' | '\u{fe65}' | '\u{ff1e}'))) {
            flags.insert(Flag::Markup);
            out.push_str("&lt;");
        } else {
            out.push(open);
        }
    }
    out.push_str(rest);
    out
}

/// The text before the first closing character, where that is near.
fn inside(text: &str, is_close: impl Fn(char) -> bool) -> Option<&str> {
    let (end, _) = text.char_indices().take(LONGEST).find(|(_, c)| is_close(*c))?;
    Some(&text[..end])
}

/// The name of a tag without separators. Of `x:invoke` the last part counts; attributes do not.
fn name_of(inside: &str) -> String {
    let word = inside.trim_matches(|c: char| matches!(c, '/' | '|' | '!') || c.is_whitespace());
    let first = word.split(|c: char| c.is_whitespace() || c == '=').next().unwrap_or_default();
    let last = first.rsplit(':').next().unwrap_or_default();
    last.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(FRAME)
}
