//! What a tool takes, in one line that a model reads like a function.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// How deep the shape of an argument is shown; below, only that it is an object.
const DEPTH: usize = 2;
/// How deep choices and lists are followed. A child's schema may lead in circles through them.
const LEVELS: usize = 8;
/// The most choices of an enumeration that are shown. More would cost more than the schema is worth here.
const CHOICES: usize = 6;
/// The most parts of a schema that are looked at. Twenty arguments of real tools come to some fifty.
const PARTS: usize = 400;
/// The most letters of a line. The longest of real servers has some six hundred.
const ROOM: usize = 2000;
/// The most letters of one name or value.
const WORD: usize = 80;

/// `(path: string, head?: number)`.
pub(crate) fn signature(schema: &Value) -> String {
    let mut line = Line { root: schema, parts: PARTS, room: ROOM };
    let mut text = String::from("(");
    line.members(&mut text, schema, DEPTH, LEVELS);
    text.push(')');
    text
}

/// The names of a tool's arguments.
pub(crate) fn argument_names(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

/// A line in the making. What a child may have written is without bounds, so the line has some: where they are
/// reached, `…` stands for the rest.
struct Line<'a> {
    root: &'a Value,
    parts: usize,
    room: usize,
}

impl Line<'_> {
    /// Whether there is room for another part, which is then taken up.
    fn has_room(&mut self) -> bool {
        let has_room = self.parts > 0 && self.room > 0;
        self.parts = self.parts.saturating_sub(1);
        has_room
    }

    fn push(&mut self, text: &mut String, word: &str) {
        let mut letters = word.chars();
        for letter in letters.by_ref().take(WORD) {
            text.push(letter);
            self.room = self.room.saturating_sub(1);
        }
        if letters.next().is_some() {
            text.push('…');
        }
    }

    /// The required arguments in the order in which the child demands them, then the others by name.
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
        let given =
            required.iter().filter_map(|name| properties.get_key_value(*name)).map(|member| (member, ""));
        let others = properties
            .iter()
            .filter(|(name, _)| !is_required.contains(name.as_str()))
            .map(|member| (member, "?"));
        for (position, ((name, property), mark)) in given.chain(others).enumerate() {
            text.push_str(if position == 0 { "" } else { ", " });
            if !self.has_room() {
                text.push('…');
                return;
            }
            self.push(text, name);
            text.extend([mark, ": "]);
            self.kind(text, property, depth, levels);
        }
    }

    /// The type of a value as a model would write it.
    fn kind(&mut self, text: &mut String, schema: &Value, depth: usize, levels: usize) {
        if levels == 0 || !self.has_room() {
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
                let mut one = String::new();
                self.kind(&mut one, choice, depth, levels - 1);
                if one != "null" && !seen.contains(&one) {
                    seen.push(one);
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

/// Follows a reference within the schema, once: a schema that leads in circles is shown as far as it is straight.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
