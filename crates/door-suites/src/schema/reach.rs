//! How far a schema reaches when its references are followed. It is a child's, and may have been made to reach
//! farther than anybody can follow.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// How many references may lead on to one another. Each takes room on the stack.
const MAX_CHAIN: usize = 64;

/// How far a schema reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Its parts, each counted as often as references lead to it.
    pub(super) parts: usize,
    /// Whether references lead back to where they are.
    pub(super) is_circular: bool,
    /// Whether they do so without anything of the value being used up on the way, so that a check would never end.
    pub(super) is_endless: bool,
}

impl Reach {
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
    known: HashMap<&'a str, Reach>,
    /// The references that are being followed.
    open: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn measure(&mut self, schema: &'a Value) -> Reach {
        let mut reach = Reach { parts: 1, ..Reach::default() };
        match schema {
            Value::Object(members) => {
                for (key, value) in members {
                    reach.add(match reference(key, value) {
                        Some(reference) => self.follow(reference),
                        // From here on references would be relative to something else.
                        None if key == "$id" && value.is_string() && !std::ptr::eq(schema, self.root) => {
                            Reach { parts: usize::MAX, ..Reach::default() }
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

    fn follow(&mut self, reference: &'a str) -> Reach {
        if self.open.contains(&reference) {
            return Reach { parts: 1, is_circular: true, ..Reach::default() };
        }
        if let Some(known) = self.known.get(reference) {
            return *known;
        }
        // What lies beyond an address or an anchor is not followed, so that nobody knows how far it reaches.
        let Some(target) = target(self.root, reference).filter(|_| self.open.len() < MAX_CHAIN) else {
            return Reach { parts: usize::MAX, ..Reach::default() };
        };
        self.open.push(reference);
        let reach = self.measure(target);
        self.open.pop();
        self.known.insert(reference, reach);
        reach
    }
}

/// Whether a reference leads back to itself through nothing but schemas about the same value.
fn is_endless(root: &Value) -> bool {
    let mut done: HashSet<&str> = HashSet::new();
    for first in references(root, false) {
        // What is being followed, each with the references that are left to try.
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

/// The references within a schema; those alone that are about the same value, where that is asked for.
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
                        None if !is_same_value || is_in_place(key) => left.push(value),
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

/// Keys under which a schema is about the same value as the one around it.
fn is_in_place(key: &str) -> bool {
    matches!(key, "anyOf" | "oneOf" | "allOf" | "not" | "if" | "then" | "else")
}

fn reference<'a>(key: &str, value: &'a Value) -> Option<&'a str> {
    matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef").then(|| value.as_str()).flatten()
}

fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
}
