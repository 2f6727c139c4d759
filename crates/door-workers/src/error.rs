//! What can go wrong in the router as a whole. What goes wrong with a command is a `command_rejected`.

use std::io;
use std::path::PathBuf;

use serde_json::Value;
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

/// Why the router did not start, or a client of it did not get through.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The hub said no.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The event log could not be read or written.
    #[error("the event log in {folder} could not be {action}")]
    Log {
        /// Where it is.
        folder: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The address is none to listen on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address as given.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The address is no address.
    #[error("'{address}' is no address: use 127.0.0.1:PORT or unix:PATH")]
    InvalidAddress {
        /// As given.
        address: String,
    },
    /// Only the machine itself may be listened to.
    #[error("{address} is reachable from other machines; the router listens on loopback addresses alone")]
    NotLoopback {
        /// As given.
        address: String,
    },
    /// The file that leads to the router was not written by a router of this user.
    #[error("router.json is not believed: {issue}")]
    UntrustedEndpoint {
        /// What is wrong with it.
        issue: String,
    },
    /// No router runs.
    #[error("no router runs in this workspace")]
    NotRunning,
    /// The router's process runs and does not answer.
    #[error("the router does not answer; its process ({pid}) may be stopped")]
    Unresponsive {
        /// The process.
        pid: u32,
    },
    /// The connection to the router ended.
    #[error("the router hung up: {reason}")]
    Disconnected {
        /// Why, as far as it is known.
        reason: String,
    },
    /// The router rejected a command.
    #[error("{reason}")]
    Rejected {
        /// Why, for programs.
        code: String,
        /// Which field of the command is wrong.
        field: Option<String>,
        /// Why, for people.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection to the router broke")]
    Connection(#[from] io::Error),
}

impl RouterError {
    /// What a `command_rejected` says.
    pub fn from_rejection(data: &Value) -> Self {
        let text = |key| data.get(key).and_then(Value::as_str).map(str::to_owned);
        Self::Rejected {
            code: text("code").unwrap_or_default(),
            field: text("field"),
            reason: text("reason").unwrap_or_default(),
        }
    }
}
