//! Rendering of a tool's arguments as a one-line signature.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Nesting depth to which object arguments are shown. Deeper objects appear as `object`.
const DEPTH: usize = 2;
/// Depth to which alternatives and arrays are followed, because a child's schema may be circular through them.
const LEVELS: usize = 8;
/// Maximum number of enum values shown. More values would not be worth their tokens here.
const CHOICES: usize = 6;
/// Maximum number of subschemas visited. Twenty arguments of real tools have about fifty subschemas.
const PARTS: usize = 400;
/// Maximum length of a signature, in characters. The longest signature of real servers has about six hundred.
const ROOM: usize = 2000;
/// Maximum length of a single name or value, in characters.
const WORD: usize = 80;

/// Renders a signature such as `(path: string, head?: number)`.
pub(crate) fn signature(schema: &Value) -> String {
    let mut line = SignatureWriter { root: schema, parts: PARTS, room: ROOM };
    let mut text = String::from("(");
    line.members(&mut text, schema, DEPTH, LEVELS);
    text.push(')');
    text
}

/// Returns the names of a tool's arguments.
pub(crate) fn argument_names(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

/// Writer for a signature of bounded size.
///
/// A child's schema may be unbounded. Where a bound is reached, `…` replaces the rest.
struct SignatureWriter<'a> {
    root: &'a Value,
    parts: usize,
    room: usize,
}

impl SignatureWriter<'_> {
    /// Takes one subschema from the budget; returns false if the budget is used up.
    fn claim_part(&mut self) -> bool {
        let claim_part = self.parts > 0 && self.room > 0;
        self.parts = self.parts.saturating_sub(1);
        claim_part
    }

    fn push(&mut self, text: &mut String, word: &str) {
        let mut letters = word.chars();
        for character in letters.by_ref().take(WORD) {
            text.push(character);
            self.room = self.room.saturating_sub(1);
        }
        if letters.next().is_some() {
            text.push('…');
        }
    }

    /// Writes the arguments of an object.
    ///
    /// The required arguments come first, in the child's order, then the optional ones by name.
    fn members(&mut self, text: &mut String, schema: &Value, depth: usize, levels: usize) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let is_required: HashSet<&str> = required.iter().copied().collect();
        let required_members =
            required.iter().filter_map(|name| properties.get_key_value(*name)).map(|member| (member, ""));
        let others = properties
            .iter()
            .filter(|(name, _)| !is_required.contains(name.as_str()))
            .map(|member| (member, "?"));
        for (position, ((name, property), mark)) in required_members.chain(others).enumerate() {
            text.push_str(if position == 0 { "" } else { ", " });
            if !self.claim_part() {
                text.push('…');
                return;
            }
            self.push(text, name);
            text.extend([mark, ": "]);
            self.kind(text, property, depth, levels);
        }
    }

    /// Writes the type of a value.
    fn kind(&mut self, text: &mut String, schema: &Value, depth: usize, levels: usize) {
        if levels == 0 || !self.claim_part() {
            text.push('…');
            return;
        }
        let schema = resolve(schema, self.root);
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            for (position, choice) in choices.iter().take(CHOICES).enumerate() {
                text.push_str(if position == 0 { "" } else { "|" });
                self.push(text, &choice.to_string());
            }
            if choices.len() > CHOICES {
                text.push_str("|…");
            }
            return;
        }
        if let Some(only) = schema.get("const") {
            self.push(text, &only.to_string());
            return;
        }
        let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)).and_then(Value::as_array);
        if let Some(choices) = choices {
            let mut seen: Vec<String> = Vec::new();
            for choice in choices {
                if self.parts == 0 {
                    break;
                }
                let mut variant = String::new();
                self.kind(&mut variant, choice, depth, levels - 1);
                if variant != "null" && !seen.contains(&variant) {
                    seen.push(variant);
                }
            }
            text.push_str(&seen.join("|"));
            return;
        }
        match type_name(schema) {
            "array" => match schema.get("items") {
                Some(items) => {
                    self.kind(text, items, depth, levels - 1);
                    text.push_str("[]");
                }
                None => self.push(text, "array"),
            },
            "object"
                if depth > 0
                    && schema
                        .get("properties")
                        .is_some_and(|members| members != &Value::Object(Map::new())) =>
            {
                text.push('{');
                self.members(text, schema, depth - 1, levels);
                text.push('}');
            }
            name => self.push(text, name),
        }
    }
}

fn type_name(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "any",
    }
}

/// Resolves one local reference.
///
/// A circular reference terminates, because the reference in the resolved schema is not followed.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
