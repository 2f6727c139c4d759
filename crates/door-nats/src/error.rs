//! What can go wrong with the link.

use std::path::PathBuf;

use switchboard_core::Name;
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

/// What went wrong. Everything but [`NatsError::Credentials`] and a hub that closes may be over at the next try.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The hub could not do what the link asked of it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file of the link could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file that says who this hub is cannot be used.
    #[error("{} cannot be used: {reason}", .path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, without anything that is in it.
        reason: String,
    },
    /// No server could be reached.
    #[error("NATS at {servers} cannot be reached")]
    Unreachable {
        /// Where, without passwords.
        servers: String,
        /// Why.
        source: async_nats::ConnectError,
    },
    /// The thread of a connection cannot be started.
    #[error("no thread for the connection to NATS can be started; raise the limit of processes (ulimit -u)")]
    Thread {
        /// Why.
        source: std::io::Error,
    },
    /// A server did not do what was asked of it.
    #[error("NATS failed to {action}")]
    Server {
        /// What was asked.
        action: &'static str,
        /// Why.
        source: async_nats::Error,
    },
    /// The connection was lost.
    #[error("the connection to NATS was lost")]
    Lost,
    /// A stream of this name exists with other settings.
    #[error(
        "the stream '{stream}' exists and does not take '{subject}'; remove it, or choose another nats.streamPrefix"
    )]
    ForeignStream {
        /// The stream.
        stream: String,
        /// What it should take.
        subject: String,
    },
    /// Another running hub goes by the same name.
    #[error("another hub is called '{hub}' as well; give each its own nats.hub")]
    NameTaken {
        /// The name.
        hub: Name,
    },
}

impl NatsError {
    /// The error for something that a server did not do.
    pub(crate) fn server<E>(action: &'static str) -> impl Fn(E) -> Self
    where
        E: Into<async_nats::Error>,
    {
        move |source| Self::Server { action, source: source.into() }
    }
}

/// An error with its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
