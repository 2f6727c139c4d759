//! Which tools destroy something, as far as that can be told from outside.

use serde::Deserialize;

/// Words that make a tool one that destroys. A tool is named for what it does, and these are not undone.
const WORDS: [&str; 24] = [
    "clean",
    "clear",
    "delete",
    "destroy",
    "discard",
    "drop",
    "erase",
    "flush",
    "force",
    "format",
    "kill",
    "overwrite",
    "prune",
    "purge",
    "remove",
    "reset",
    "revoke",
    "rm",
    "terminate",
    "trash",
    "truncate",
    "uninstall",
    "unlink",
    "wipe",
];

/// What a child says of the effect of a tool.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Effect {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
}

/// Whether a tool counts as one that destroys: the child says so, or its name does and the child does not say that
/// it only reads.
///
/// MCP has every tool that says nothing count as destructive. Most say nothing, so that by this rule nearly all
/// would be withheld, and whoever wants to use them would allow everything.
pub(super) fn is_destructive(name: &str, effect: Effect) -> bool {
    if effect.destructive_hint == Some(true) {
        return true;
    }
    effect.read_only_hint != Some(true) && words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// The words of a name: `removeAll_items` is `remove`, `all`, `items`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_small) {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase() || c.is_numeric();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{Effect, is_destructive};

    #[test]
    fn what_destroys_is_told_by_the_child_or_by_the_name() {
        let (yes, no) = (Some(true), Some(false));
        for (name, read_only_hint, destructive_hint, expected) in [
            ("delete_entities", None, None, true),
            ("deleteEntity", None, None, true),
            ("fs.rm", None, None, true),
            ("git_reset", no, None, true),
            ("delete_entities", None, no, true),
            ("list_deleted", None, None, false),
            ("preview_delete", yes, None, false),
            ("write_file", no, yes, true),
            ("write_file", None, None, false),
            ("read", yes, yes, true),
            ("perform", None, None, false),
        ] {
            let effect = Effect { read_only_hint, destructive_hint };
            assert_eq!(is_destructive(name, effect), expected, "{name} {effect:?}");
        }
    }
}
