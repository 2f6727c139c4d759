//! `server_info.json`, by which clients find the server: Switchboard Protocol, "Discovery".

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use switchboard_sys::files::Dir;
use switchboard_sys::platform;

use crate::error::McpError;

/// The file's name.
const FILE: &str = "server_info.json";

/// Where the running server is, in the words of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// The port.
    pub port: u16,
    /// The address, always the loopback one.
    pub host: String,
    /// `sse`, the only transport that the protocol knows.
    pub transport: String,
    /// The path of the event stream.
    pub sse_endpoint: String,
    /// The path that messages are posted to.
    pub messages_endpoint: String,
    /// The path that says whether the server is well.
    pub health_endpoint: String,
    /// The server's process.
    pub pid: u32,
    /// When the server started, ISO 8601 with milliseconds.
    pub started_at: String,
}

impl ServerInfo {
    /// What this process says of itself.
    pub fn new(port: u16, started_at: Timestamp) -> Self {
        Self {
            port,
            host: "127.0.0.1".to_owned(),
            transport: "sse".to_owned(),
            sse_endpoint: "/sse".to_owned(),
            messages_endpoint: "/messages".to_owned(),
            health_endpoint: "/health".to_owned(),
            pid: std::process::id(),
            started_at: format!("{started_at:.3}"),
        }
    }

    /// Writes the file, in place of one that an earlier server left.
    pub fn write(&self, folder: &Dir) -> Result<(), McpError> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| McpError::BadServerInfo { file: FILE, source })?;
        Ok(folder.replace(FILE, &text, 0o600)?)
    }

    /// Reads the file; `None` when no server has left one.
    pub fn read(folder: &Dir) -> Result<Option<Self>, McpError> {
        let Some(contents) = folder.read(FILE, 64 * 1024)? else { return Ok(None) };
        serde_json::from_slice(&contents.bytes)
            .map(Some)
            .map_err(|source| McpError::BadServerInfo { file: FILE, source })
    }

    /// Removes the file if it is this server's, and says whether it did.
    ///
    /// Another server may have started meanwhile and written its own: that one stays.
    pub fn remove(&self, folder: &Dir) -> Result<bool, McpError> {
        match Self::read(folder) {
            Ok(Some(found)) if found.pid == self.pid && found.started_at == self.started_at => {
                Ok(folder.remove(FILE)?)
            }
            // What cannot be read was not written by us.
            Ok(_) | Err(McpError::BadServerInfo { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the server's process is gone.
    ///
    /// A process with that number may be another one by now: when this says `false`, only an answer from
    /// `/health` with the same pid shows that the server runs.
    pub fn is_stale(&self) -> bool {
        platform::process_started(self.pid).is_none()
    }
}

#[cfg(test)]
#[path = "server_info_tests.rs"]
mod tests;
