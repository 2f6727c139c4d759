//! Text of a settings file: JSON that may have comments and trailing commas.

use std::path::PathBuf;

use jsonc_parser::ast;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;
use switchboard_core::describe_json_error;

use crate::failure::{Exit, Failure};

/// Extensions of strict JSON that the parser accepts.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
};

/// A settings file that was read and parsed.
#[derive(Debug, Clone)]
pub(super) struct Source {
    path: PathBuf,
    text: String,
    pub(super) value: Value,
}

impl Source {
    /// Parses the content of the file at `path`.
    pub(super) fn parse(path: PathBuf, bytes: Vec<u8>) -> Result<Self, Failure> {
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(refusal(&path.display().to_string(), "it is not UTF-8 text"));
        };
        match parse(&text) {
            Ok(value) => Ok(Self { path, text, value }),
            Err((line, problem)) => Err(refusal(&format!("{}:{line}", path.display()), &problem)),
        }
    }

    /// Builds the failure for a problem of this file. It names the line of the setting that the problem quotes first.
    pub(super) fn refuse(&self, problem: &str) -> Failure {
        let path = self.path.display();
        match problem.split('\'').nth(1).and_then(|key| self.line(key)) {
            Some(line) => refusal(&format!("{path}:{line}"), problem),
            None => refusal(&path.to_string(), problem),
        }
    }

    /// Returns the line of a setting, or else of its nearest ancestor that is found.
    fn line(&self, key: &str) -> Option<usize> {
        let parsed = parse_to_ast(&self.text, &CollectOptions::default(), &OPTIONS).ok()?;
        let mut value = &parsed.value?;
        let mut start = None;
        for part in key.split('.') {
            let (name, index) = part.split_once('[').unwrap_or((part, ""));
            let Some(property) = value.as_object().and_then(|object| object.get(name)) else { break };
            (start, value) = (Some(property.range.start), &property.value);
            if let Some(element) = element(value, index) {
                value = element;
            }
        }
        start.map(|start| self.text[..start].lines().count().max(1))
    }
}

/// Returns the list element that `index` selects: the rest of `name[index]`.
fn element<'v, 'a>(list: &'v ast::Value<'a>, index: &str) -> Option<&'v ast::Value<'a>> {
    list.as_array()?.elements.get(index.strip_suffix(']')?.parse::<usize>().ok()?)
}

/// Builds the failure for a settings file.
pub(super) fn refusal(file: &str, problem: &str) -> Failure {
    Failure::new("bad_config", Exit::Failed, format!("{file}: {problem}"))
        .hint("correct the file; docs/configuration.md lists its keys")
}

/// Parses strict JSON; if that fails, JSON with comments and trailing commas.
fn parse(text: &str) -> Result<Value, (usize, String)> {
    let strict = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match parse_to_ast(text, &CollectOptions::default(), &OPTIONS) {
        Ok(parsed) => parsed.value.map(Value::from).ok_or_else(|| (1, describe_json_error(&strict))),
        Err(error) => Err((error.line_display(), describe_syntax(error.kind()))),
    }
}

/// Describes a syntax error in plain words.
fn describe_syntax(error: &ParseErrorKind) -> String {
    let plain = match error {
        ParseErrorKind::ExpectedStringObjectProperty => "a key is not in double quotes",
        ParseErrorKind::ExpectedColonAfterObjectKey => "a ':' is missing after a key",
        ParseErrorKind::ExpectedObjectValue => "a value is missing after a ':'",
        ParseErrorKind::ExpectedComma => "a ',' is missing",
        ParseErrorKind::UnterminatedObject => "a '}' is missing",
        ParseErrorKind::UnterminatedArray => "a ']' is missing",
        ParseErrorKind::SingleQuotedStringsNotAllowed => "a text is not in double quotes",
        ParseErrorKind::UnexpectedWord => "a word is neither true, false nor null, nor in double quotes",
        ParseErrorKind::MultipleRootJsonValues => "there is more text after the value",
        ParseErrorKind::NestingDepthExceeded => "it is nested too deeply",
        other => {
            let text = other.to_string();
            return text.chars().next().map_or_else(String::new, |c| c.to_lowercase().collect())
                + text.get(1..).unwrap_or_default();
        }
    };
    plain.to_owned()
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
