//! Errors of the router as a whole. The error of a single command is a `command_rejected` event.

use std::io;
use std::path::PathBuf;

use serde_json::Value;
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

/// Reason why the router did not start, or why a client could not use it.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The hub returned an error.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The event log could not be read or written.
    #[error("the event log in {folder} could not be {action}")]
    Log {
        /// The folder of the log.
        folder: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The router cannot listen on the address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address as given.
        address: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The address cannot be parsed.
    #[error("'{address}' is not an address; use 127.0.0.1:PORT or unix:PATH")]
    InvalidAddress {
        /// The address as given.
        address: String,
    },
    /// The address is not a loopback address.
    #[error("{address} is reachable from other machines; the router listens on loopback addresses only")]
    NotLoopback {
        /// The address as given.
        address: String,
    },
    /// The endpoint file was not written by a running router of this user.
    #[error("router.json is not used: {issue}")]
    UntrustedEndpoint {
        /// The check that failed.
        issue: String,
    },
    /// No router runs.
    #[error("no router runs in this workspace")]
    NotRunning,
    /// The router's process runs but does not answer.
    #[error("the router does not answer; its process ({pid}) may be stopped")]
    Unresponsive {
        /// The process id.
        pid: u32,
    },
    /// The connection to the router ended.
    #[error("the router closed the connection: {reason}")]
    Disconnected {
        /// The reason, if known.
        reason: String,
    },
    /// The router rejected a command.
    #[error("{reason}")]
    Rejected {
        /// Machine-readable reason.
        code: String,
        /// The invalid field of the command.
        field: Option<String>,
        /// Human-readable reason.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection to the router broke")]
    Connection(#[from] io::Error),
}

impl RouterError {
    /// Converts the data of a `command_rejected` event.
    pub fn from_rejection(data: &Value) -> Self {
        let text = |key| data.get(key).and_then(Value::as_str).map(str::to_owned);
        Self::Rejected {
            code: text("code").unwrap_or_default(),
            field: text("field"),
            reason: text("reason").unwrap_or_default(),
        }
    }
}
