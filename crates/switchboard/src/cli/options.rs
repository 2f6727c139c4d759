//! Options that several verbs share, so that all verbs use the same names and help texts.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};
use switchboard_core::describe_json_error;

use super::values::number;
use crate::failure::{Exit, Failure};

/// The most entries that a verb shows.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Limit<const DEFAULT: usize> {
    /// Show at most this many entries
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = DEFAULT,
        allow_negative_numbers = true,
        value_parser = number::<usize>
    )]
    pub(crate) limit: usize,
}

/// Bodies in full instead of their beginning.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct FullBodies {
    /// Show long bodies in full
    #[arg(long)]
    pub(crate) full: bool,
}

/// The message that a new one answers.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReplyTo {
    /// Reply to this message
    #[arg(long, value_name = "ID")]
    pub(crate) reply_to: Option<String>,
}

/// Data that a message carries beside its text.
#[derive(Debug, Clone, Args)]
pub(crate) struct Metadata {
    /// Attach extra data, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) metadata: Option<String>,
}

impl Metadata {
    /// Parses the metadata as a JSON object; empty if none was given.
    pub(crate) fn parse(&self) -> Result<Map<String, Value>, Failure> {
        let Some(text) = &self.metadata else { return Ok(Map::new()) };
        serde_json::from_str(text).map_err(|error| {
            let problem = describe_json_error(&error);
            Failure::new("bad_metadata", Exit::Usage, format!("--metadata is not a JSON object: {problem}"))
                .hint("for example --metadata '{\"ticket\": 7}'")
        })
    }
}

/// The text of a message.
#[derive(Debug, Clone, Args)]
pub(crate) struct MessageText {
    /// The text; read from stdin if omitted or `-`
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: Option<String>,

    /// Read the text from this file
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
}

impl MessageText {
    /// Reads the text from the argument, the file or stdin.
    pub(crate) fn read(&self) -> Result<String, Failure> {
        let unreadable = |error: std::io::Error, from: &str| {
            Failure::new("unreadable", Exit::Failed, format!("the text cannot be read from {from}: {error}"))
                .hint("a message is UTF-8 text")
        };
        match (&self.file, self.text.as_deref()) {
            (Some(path), _) => {
                std::fs::read_to_string(path).map_err(|e| unreadable(e, &path.display().to_string()))
            }
            (None, Some(text)) if text != "-" => Ok(text.to_owned()),
            (None, text) => {
                if text.is_none() && std::io::stdin().is_terminal() {
                    return Err(Failure::new("no_text", Exit::Usage, "there is no text to send")
                        .hint("give it as an argument, with --file PATH, or on stdin"));
                }
                let mut body = String::new();
                std::io::stdin().read_to_string(&mut body).map_err(|error| unreadable(error, "stdin"))?;
                Ok(body)
            }
        }
    }
}

/// The key that makes a retry harmless.
#[derive(Debug, Clone, Args)]
pub(crate) struct IdempotencyKey {
    /// Set an idempotency key: a retry with the same key is not sent twice
    #[arg(long = "idempotency-key", value_name = "KEY")]
    pub(crate) key: Option<String>,
}
