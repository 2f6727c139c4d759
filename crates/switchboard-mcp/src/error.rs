//! Errors of the MCP transports and their files.

use std::io;

use switchboard_core::describe_json_error;
use switchboard_sys::files::FileError;

/// Error of a transport or of its files.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The port cannot be bound.
    #[error("cannot listen on 127.0.0.1:{port}; choose another port, or 0 for any")]
    Bind {
        /// The port.
        port: u16,
        /// Underlying system error.
        source: io::Error,
    },
    /// A standard stream is unusable.
    #[error("cannot use {stream}")]
    Stdio {
        /// `stdin` or `stdout`.
        stream: &'static str,
        /// Underlying system error.
        source: io::Error,
    },
    /// The system returned no random bytes.
    #[error("cannot generate a token: the system returned no random bytes")]
    NoRandomness,
    /// A text is not a valid token.
    #[error(
        "the token has {length} characters, or some other than letters, digits, '-' and '_'; \
         it must have {least} to {most} of them. Remove the file to generate a new one"
    )]
    BadToken {
        /// Length of the text in characters.
        length: usize,
        /// Minimum length of a token.
        least: usize,
        /// Maximum length of a token.
        most: usize,
    },
    /// `server_info.json` is malformed.
    #[error("{file} is not valid: {}. Remove it when no server runs here", describe_json_error(.problem))]
    BadServerInfo {
        /// File name.
        file: &'static str,
        /// Error of the parser.
        problem: serde_json::Error,
    },
    /// An allowed host or origin is malformed.
    #[error("`{value}` cannot be an allowed {field}; write {expected}")]
    BadAllowed {
        /// `host` or `origin`.
        field: &'static str,
        /// Value from the settings.
        value: String,
        /// Expected format.
        expected: &'static str,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
