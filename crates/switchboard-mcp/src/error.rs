//! What can go wrong with a transport as a whole.

use std::io;

use switchboard_sys::files::FileError;

/// Why a transport could not be served, or its files not be kept.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The chosen port cannot be had.
    #[error("cannot listen on 127.0.0.1:{port}; choose another port, or 0 for any")]
    Bind {
        /// The port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// A standard stream could not be used.
    #[error("cannot use {stream}")]
    Stdio {
        /// `stdin` or `stdout`.
        stream: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no random bytes for a token.
    #[error("cannot draw a token: the system has no random numbers")]
    NoRandomness,
    /// A text that cannot be a token.
    #[error(
        "the token has {length} characters or some that are not letters, digits, '-' or '_'; \
         it needs {least} to {most} of those. Remove the file to have a new one made"
    )]
    BadToken {
        /// How many characters the text has.
        length: usize,
        /// The fewest that a token has.
        least: usize,
        /// The most that a token has.
        most: usize,
    },
    /// `server_info.json` is not what the protocol says.
    #[error("{file} is not valid: {source}. Remove it when no server runs here")]
    BadServerInfo {
        /// The file's name.
        file: &'static str,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A value that the configuration cannot hold.
    #[error("`{value}` cannot be an allowed {field}; write {expected}")]
    BadAllowed {
        /// `host` or `origin`.
        field: &'static str,
        /// The value as given.
        value: String,
        /// What such a value looks like.
        expected: &'static str,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
