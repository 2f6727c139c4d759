//! Plain descriptions of `serde_json` errors, for people who write JSON and not Rust.

use serde_json::error::Category;

/// Messages of `serde_json` about text that is not JSON, each with a plain description.
const SYNTAX: [(&str, &str); 18] = [
    ("EOF while parsing a list", "the text ends within a list; a ']' is missing"),
    ("EOF while parsing an object", "the text ends within an object; a '}' is missing"),
    ("EOF while parsing a string", "the text ends within a string; a '\"' is missing"),
    ("EOF while parsing a value", "the text ends where a value is expected"),
    ("expected `:`", "a ':' is missing after a key"),
    ("expected `,` or `]`", "a ',' or ']' is missing"),
    ("expected `,` or `}`", "a ',' or '}' is missing"),
    ("expected ident", "a word is neither true, false nor null"),
    ("expected value", "a value is missing, or a string is not in double quotes"),
    ("expected `\"`", "a '\"' is missing"),
    ("invalid escape", "a string contains a '\\' that starts no escape sequence"),
    ("invalid number", "a number is not written as JSON numbers are"),
    ("number out of range", "a number is too large"),
    ("control character", "a string contains a line break or another control character; write \\n"),
    ("key must be a string", "a key is not in double quotes"),
    ("trailing comma", "a comma has nothing after it"),
    ("trailing characters", "there is more text after the value"),
    ("recursion limit exceeded", "it is nested too deeply"),
];

/// Names of types in serde's messages, each with its JSON equivalent.
///
/// A name that ends in a space matches as a prefix; every other name matches exactly.
const TYPES: [(&str, &str); 19] = [
    ("floating point ", "the number "),
    ("integer ", "the number "),
    ("boolean ", ""),
    ("string ", "the text "),
    ("map", "an object"),
    ("sequence", "a list"),
    ("unit value", "null"),
    ("a sequence", "a list"),
    ("a map", "an object"),
    ("a boolean", "true or false"),
    ("a string", "a text in double quotes"),
    ("u8", "a whole number, 0 or more"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number, 0 or more"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("path string", "a path"),
];

/// Describes the problem in a JSON text and its position.
pub fn describe_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (problem, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    let problem = describe_message(problem);
    match (error.classify(), error.line(), error.column()) {
        // For a value of the wrong type, `serde_json` reports the position where the value ends, which does not help.
        (Category::Data, ..) if is_of_serde(&text) => problem,
        (_, _, 0) => problem,
        (_, 1, column) => format!("{problem} (at character {column})"),
        (_, line, column) => format!("{problem} (line {line}, character {column})"),
    }
}

/// Describes the problem of a field as the rest of a sentence: "is a list, but must be an object".
pub fn describe_field_error(error: &serde_json::Error) -> String {
    let problem = describe_json_error(error);
    if let Some(rest) = problem.strip_prefix("it ") {
        return rest.to_owned();
    }
    match problem.strip_prefix("the field ") {
        Some(rest) if rest.ends_with(" is missing") => {
            format!("lacks the field {}", rest.trim_end_matches(" is missing"))
        }
        // The caller names the path of an unknown field, which already ends with the field itself.
        Some(rest) => {
            rest.split_once("' ").map_or_else(|| problem.clone(), |(_, unknown)| unknown.to_owned())
        }
        None => format!("is refused: {problem}"),
    }
}

/// Returns true if serde itself wrote the message, and not a custom `Deserialize` implementation.
fn is_of_serde(message: &str) -> bool {
    ["invalid ", "missing field ", "unknown "].iter().any(|start| message.starts_with(start))
}

/// Describes a message of serde or `serde_json` without its position.
fn describe_message(problem: &str) -> String {
    if let Some((_, plain)) = SYNTAX.iter().find(|(message, _)| problem.starts_with(message)) {
        return (*plain).to_owned();
    }
    let in_ticks = |text: &str| text.replace('`', "'");
    if let Some(field) = problem.strip_prefix("missing field ") {
        return format!("the field {} is missing", in_ticks(field));
    }
    if let Some(rest) = problem.strip_prefix("unknown field ") {
        let (field, known) = rest.split_once(", expected ").unwrap_or((rest, ""));
        return format!("the field {} is unknown; {}", in_ticks(field), known_values(known));
    }
    if let Some(rest) = problem.strip_prefix("unknown variant ") {
        let (value, known) = rest.split_once(", expected ").unwrap_or((rest, ""));
        return format!("it is {}, but must be {}", in_ticks(value), known_values(known));
    }
    if problem.starts_with("invalid length") && problem.contains("expected struct ") {
        return "it is a list, but must be an object".to_owned();
    }
    let invalid = ["invalid type: ", "invalid value: "];
    let found = invalid.iter().find_map(|start| problem.strip_prefix(start));
    match found.and_then(|rest| rest.split_once(", expected ")) {
        Some((found, expected)) => {
            format!("it is {}, but must be {}", plain_type(found).replace('`', ""), plain_type(expected))
        }
        None => in_ticks(problem),
    }
}

/// Formats the list of known names that follows "expected" in a message.
fn known_values(known: &str) -> String {
    known.replace("one of ", "one of: ").replace('`', "")
}

/// Translates a type or value, as serde names it, into the words of JSON.
fn plain_type(name: &str) -> String {
    if name.starts_with("struct ") {
        return "an object".to_owned();
    }
    let exact = TYPES.iter().find(|(serde, _)| *serde == name).map(|(_, plain)| (*plain).to_owned());
    let prefixed = || {
        let (start, plain) = TYPES
            .iter()
            .filter(|(serde, _)| serde.ends_with(' '))
            .find(|(serde, _)| name.starts_with(serde))?;
        Some(format!("{plain}{}", &name[start.len()..]))
    };
    exact.or_else(prefixed).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
#[path = "json_error_tests.rs"]
mod tests;
