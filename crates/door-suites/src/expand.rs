//! Expansion of the variable references `${VAR}` and `${VAR:-default}`.

/// Function that looks up the value of a variable.
pub type Lookup<'l> = &'l dyn Fn(&str) -> Option<String>;

/// Error of an expansion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A variable is not set and has no default.
    #[error("needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}")]
    Unset {
        /// Name of the variable.
        name: String,
    },
    /// The text between the braces is not a variable reference.
    #[error("has '${{{}}}', which is not a variable reference; write ${{NAME}} or ${{NAME:-default}}", .inside.escape_debug())]
    NoVariable {
        /// The text between the braces.
        inside: String,
    },
}

/// Expands every `${VAR}` and `${VAR:-default}` in a text.
///
/// As in a shell, a default also replaces an empty value. A `$` that is not followed by a brace is kept.
pub fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, ExpandError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let after = &rest[at + 2..];
        let Some(end) = after.find('}') else {
            return Err(ExpandError::NoVariable { inside: after.chars().take(40).collect() });
        };
        let inside = &after[..end];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_variable(name) {
            return Err(ExpandError::NoVariable { inside: inside.chars().take(40).collect() });
        }
        match (lookup(name), default) {
            (Some(value), None) => out.push_str(&value),
            (Some(value), Some(_)) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (None, None) => return Err(ExpandError::Unset { name: name.to_owned() }),
        }
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns the variables that a text references. The flag is true if the variable is required, that is, has no default.
pub(crate) fn variables_in(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.split("${").skip(1).filter_map(|rest| {
        let inside = rest.split_once('}')?.0;
        let (name, is_required) = inside.split_once(":-").map_or((inside, true), |(name, _)| (name, false));
        is_variable(name).then_some((name, is_required))
    })
}

/// Returns true if the text is a valid variable name.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Looks up a variable in the environment of this process.
pub(crate) fn from_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
