//! Heuristic that detects destructive tools.

use serde::Deserialize;

/// Words in a tool's name that mark the tool as destructive, because they denote irreversible actions.
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

/// Annotations of a tool's effects, as declared by the child.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EffectHints {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
}

/// Returns true if a tool counts as destructive.
///
/// A tool is destructive by its annotations, or by its name unless it is annotated as read-only. In MCP, a tool without
/// annotations counts as destructive. Most tools have no annotations, so that rule would withhold nearly all of them,
/// and users would simply allow everything.
pub(super) fn is_destructive(name: &str, effect: EffectHints) -> bool {
    if effect.destructive_hint == Some(true) {
        return true;
    }
    effect.read_only_hint != Some(true) && split_name(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// Splits a tool name into words: `removeAll_items` becomes `remove`, `all`, `items`.
fn split_name(name: &str) -> Vec<String> {
    let mut split_name = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_small) {
            split_name.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = split_name.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase() || c.is_numeric();
    }
    split_name
}

#[cfg(test)]
mod tests {
    use super::{EffectHints, is_destructive};

    #[test]
    fn destructive_tools_are_detected() {
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
            let effect = EffectHints { read_only_hint, destructive_hint };
            assert_eq!(is_destructive(name, effect), expected, "{name} {effect:?}");
        }
    }
}
