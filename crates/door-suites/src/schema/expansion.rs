//! Size of a JSON Schema after expanding its references.
//!
//! A child's schema may expand exponentially or forever.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Maximum length of a chain of references that is followed. Each reference takes stack space.
const MAX_CHAIN: usize = 64;

/// Size of a schema after expanding its references.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expansion {
    /// Number of subschemas; a subschema is counted once per reference to it.
    pub(super) parts: usize,
    /// True if a reference leads back to itself.
    pub(super) is_circular: bool,
    /// True if a reference leads back to itself without descending into the value.
    ///
    /// Validating against such a schema would never end.
    pub(super) is_endless: bool,
}

impl Expansion {
    pub(super) fn of(schema: &Value) -> Self {
        let mut walk = Walk { root: schema, known: HashMap::new(), open: Vec::new() };
        let reach = walk.measure(schema);
        Self { is_endless: reach.is_circular && is_endless(schema), ..reach }
    }

    fn add(&mut self, other: Self) {
        self.parts = self.parts.saturating_add(other.parts);
        self.is_circular |= other.is_circular;
    }
}

struct Walk<'a> {
    root: &'a Value,
    known: HashMap<&'a str, Expansion>,
    /// References that are currently being followed.
    open: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn measure(&mut self, schema: &'a Value) -> Expansion {
        let mut reach = Expansion { parts: 1, ..Expansion::default() };
        match schema {
            Value::Object(members) => {
                for (key, value) in members {
                    reach.add(match reference(key, value) {
                        Some(reference) => self.follow(reference),
                        // References inside a nested `$id` are relative to another base URI, so treat the size as
                        // unbounded.
                        None if key == "$id" && value.is_string() && !std::ptr::eq(schema, self.root) => {
                            Expansion { parts: usize::MAX, ..Expansion::default() }
                        }
                        None => self.measure(value),
                    });
                }
            }
            Value::Array(items) => {
                for item in items {
                    reach.add(self.measure(item));
                }
            }
            _ => {}
        }
        reach
    }

    fn follow(&mut self, reference: &'a str) -> Expansion {
        if self.open.contains(&reference) {
            return Expansion { parts: 1, is_circular: true, ..Expansion::default() };
        }
        if let Some(known) = self.known.get(reference) {
            return *known;
        }
        // References to URLs and anchors are not followed, so treat their size as unbounded.
        let Some(target) = target(self.root, reference).filter(|_| self.open.len() < MAX_CHAIN) else {
            return Expansion { parts: usize::MAX, ..Expansion::default() };
        };
        self.open.push(reference);
        let reach = self.measure(target);
        self.open.pop();
        self.known.insert(reference, reach);
        reach
    }
}

/// Returns true if a reference leads back to itself only through schemas that apply to the same value.
fn is_endless(root: &Value) -> bool {
    let mut done: HashSet<&str> = HashSet::new();
    for first in references(root, false) {
        // Stack of followed references, each with those of its own references that remain to be followed.
        let mut open: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut next = Some(first);
        loop {
            if let Some(reference) = next.take() {
                if open.iter().any(|(open, _)| *open == reference) {
                    return true;
                }
                if done.insert(reference) {
                    let onward = target(root, reference).map(|target| references(target, true));
                    open.push((reference, onward.unwrap_or_default()));
                }
            }
            let Some((_, left)) = open.last_mut() else { break };
            next = left.pop();
            if next.is_none() {
                open.pop();
            }
        }
    }
    false
}

/// Returns the references within a schema. If `is_same_value` is set, returns only those that apply to the same value.
fn references(schema: &Value, is_same_value: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut left = vec![schema];
    while let Some(schema) = left.pop() {
        match schema {
            Value::Object(members) => {
                for (key, value) in members {
                    match reference(key, value) {
                        Some(reference) => found.push(reference),
                        None if key == "dependentSchemas" => {
                            left.extend(value.as_object().into_iter().flatten().map(|(_, value)| value));
                        }
                        None if !is_same_value || applies_to_same_value(key) => left.push(value),
                        None => {}
                    }
                }
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    found
}

/// Returns true for keywords whose subschemas apply to the same value as the schema itself.
fn applies_to_same_value(key: &str) -> bool {
    matches!(key, "anyOf" | "oneOf" | "allOf" | "not" | "if" | "then" | "else")
}

fn reference<'a>(key: &str, value: &'a Value) -> Option<&'a str> {
    matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef").then(|| value.as_str()).flatten()
}

fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
}
