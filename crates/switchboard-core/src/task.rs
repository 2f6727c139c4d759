//! Names of tasks that agents claim.

use std::fmt;
use std::str::FromStr;

/// Name of a task: a word, a ticket or a sentence.
///
/// Names that differ only in ASCII case are the same task.
#[derive(Debug, Clone)]
pub struct TaskName(String);

/// Error of parsing a task name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the task '{}' {problem}", .text.escape_debug())]
pub struct TaskNameError {
    text: String,
    problem: &'static str,
}

impl TaskName {
    /// Maximum length of a task name in characters. A longer text is a description and belongs in a message.
    pub const LONGEST: usize = 200;

    /// Validates a text as a task name and trims it.
    pub fn parse(text: &str) -> Result<Self, TaskNameError> {
        let name = text.trim();
        let problem = if name.is_empty() {
            "has no name"
        } else if name.chars().count() > Self::LONGEST {
            "has a name of more than 200 characters"
        } else if name.chars().any(char::is_control) {
            "has control characters in its name"
        } else {
            return Ok(Self(name.to_owned()));
        };
        let text = text.chars().take(Self::LONGEST).collect();
        Err(TaskNameError { text, problem })
    }

    /// Returns the name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the lower-case spelling, by which task names are compared.
    pub fn key(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl PartialEq for TaskName {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for TaskName {}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TaskName {
    type Err = TaskNameError;

    fn from_str(text: &str) -> Result<Self, TaskNameError> {
        Self::parse(text)
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
