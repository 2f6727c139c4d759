//! Errors of the NATS link.

use std::path::PathBuf;

use switchboard_core::Name;
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

/// Error of the link.
///
/// Every error except [`NatsError::Credentials`] and a closing hub may be transient; the link retries.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The hub failed to perform an operation of the link.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file of the link could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The credentials file is unusable.
    #[error("{} cannot be used: {reason}", .path.display())]
    Credentials {
        /// Path of the file.
        path: PathBuf,
        /// The problem with the file, without any of the file's content.
        reason: String,
    },
    /// No server could be reached.
    #[error("NATS at {servers} cannot be reached")]
    Unreachable {
        /// Server addresses, without passwords.
        servers: String,
        /// The error of the client library.
        source: async_nats::ConnectError,
    },
    /// The thread of a connection cannot be started.
    #[error("no thread for the connection to NATS can be started; raise the limit of processes (ulimit -u)")]
    Thread {
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A request to the server failed.
    #[error("NATS failed to {action}")]
    Server {
        /// The action that failed, worded to continue "NATS failed to".
        action: &'static str,
        /// The error of the client library.
        source: async_nats::Error,
    },
    /// The connection was lost.
    #[error("the connection to NATS was lost")]
    Lost,
    /// A stream with this name already exists with other settings.
    #[error(
        "the stream '{stream}' exists without the subject '{subject}'; remove the stream, or choose another nats.streamPrefix"
    )]
    ForeignStream {
        /// Name of the stream.
        stream: String,
        /// Subject that the stream should cover.
        subject: String,
    },
    /// Another running hub uses the same name.
    #[error("another hub is called '{hub}' as well; give each its own nats.hub")]
    NameTaken {
        /// Name that is in use twice.
        hub: Name,
    },
}

impl NatsError {
    /// Returns a function that wraps the error of a failed server request.
    pub(crate) fn server<E>(action: &'static str) -> impl Fn(E) -> Self
    where
        E: Into<async_nats::Error>,
    {
        move |source| Self::Server { action, source: source.into() }
    }
}
