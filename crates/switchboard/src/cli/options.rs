//! Options that several verbs share: one name, one value name, one help sentence.

use clap::Args;

use super::values::number;

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
