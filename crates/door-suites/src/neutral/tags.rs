//! Markup that poses as an instruction.

use std::collections::BTreeSet;

use super::Flag;

/// What such markup is called, in lower case and without separators. Hosts and models give these a meaning.
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

/// Longer than any tag that is meant.
const LONGEST: usize = 200;

/// The text with such markup made plain: `<IMPORTANT>` becomes `‹IMPORTANT›`.
pub(super) fn inert(text: &str, flags: &mut BTreeSet<Flag>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['<', '\u{ff1c}', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((inside, len)) = tag(rest) {
            flags.insert(Flag::Markup);
            out.extend(["‹", inside, "›"]);
            rest = &rest[len..];
        } else {
            let mut chars = rest.chars();
            out.extend(chars.next());
            rest = chars.as_str();
        }
    }
    out.push_str(rest);
    out
}

/// What stands in a tag of that kind at the start of the text, and how long the tag is.
fn tag(text: &str) -> Option<(&str, usize)> {
    let open = text.chars().next()?;
    let close: &[char] = if open == '[' { &[']'] } else { &['>', '\u{ff1e}'] };
    let after = &text[open.len_utf8()..];
    let end = after.char_indices().take(LONGEST).find(|(_, c)| close.contains(c));
    let (end, closing) = end?;
    let inside = &after[..end];
    let word = inside.trim_matches(|c: char| c == '/' || c == '|' || c == '!' || c.is_whitespace());
    // Of a name with a prefix, such as `x:invoke`, the last part counts; attributes do not.
    let name = word.split(|c: char| c.is_whitespace() || c == '=').next()?.rsplit(':').next()?;
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // In square brackets only what chat templates use: `[INST]` is markup, `[context]` is a placeholder.
    let is_one =
        if open == '[' { matches!(name.as_str(), "inst" | "sys") } else { NAMES.contains(&name.as_str()) };
    is_one.then_some((inside, open.len_utf8() + end + closing.len_utf8()))
}
