//! Names of children.

use switchboard_core::{Name, NameError};

use crate::error::SuiteError;

/// Parses a child's name: a single safe path component, like all names in the hub.
///
/// npm package names are accepted: `@scope/pkg` becomes `scope-pkg`.
pub fn child_name(text: &str) -> Result<String, SuiteError> {
    let unscoped = match text.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((scope, package)) if !scope.is_empty() => format!("{scope}-{package}"),
        _ => text.to_owned(),
    };
    match Name::parse(&unscoped) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(error) => Err(SuiteError::BadName { name: text.to_owned(), problem: error.to_string() }),
    }
}

/// Converts a name from a client's settings into a valid one. Returns `None` if nothing valid remains.
pub(crate) fn sanitize_name(text: &str) -> Option<String> {
    let unscoped = text.strip_prefix('@').unwrap_or(text);
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-');
    let name: String = unscoped.chars().take(100).map(|c| if is_fine(c) { c } else { '-' }).collect();
    let name = name.replace("..", "-");
    let name = name.trim_matches([' ', '.', '-']);
    match Name::parse(name) {
        Ok(name) => Some(name.as_str().to_owned()),
        Err(NameError::Reserved { .. } | NameError::Device { .. }) => Some(format!("mcp-{name}")),
        Err(_) => None,
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
