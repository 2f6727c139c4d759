//! The file `server_info.json`, by which clients find the server (Switchboard Protocol, "Discovery").

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use switchboard_sys::files::Dir;
use switchboard_sys::platform;

use crate::error::McpError;

/// Name of the file.
const FILE: &str = "server_info.json";

/// Endpoints of the running server, with the field names of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// Port.
    pub port: u16,
    /// Listen address, always loopback.
    pub host: String,
    /// Transport: `sse`, the only transport in the protocol.
    pub transport: String,
    /// Path of the event stream.
    pub sse_endpoint: String,
    /// Path for posted messages.
    pub messages_endpoint: String,
    /// Path of the health endpoint.
    pub health_endpoint: String,
    /// Process id of the server.
    pub pid: u32,
    /// Start time, ISO 8601 with milliseconds.
    pub started_at: String,
}

impl ServerInfo {
    /// Creates the info of this process.
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

    /// Writes the file and replaces that of an earlier server.
    pub fn write(&self, folder: &Dir) -> Result<(), McpError> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|problem| McpError::BadServerInfo { file: FILE, problem })?;
        Ok(folder.replace(FILE, &text, 0o600)?)
    }

    /// Reads the file; returns `None` if it does not exist.
    pub fn read(folder: &Dir) -> Result<Option<Self>, McpError> {
        let Some(contents) = folder.read(FILE, 64 * 1024)? else { return Ok(None) };
        serde_json::from_slice(&contents.bytes)
            .map(Some)
            .map_err(|problem| McpError::BadServerInfo { file: FILE, problem })
    }

    /// Removes the file if this server wrote it; returns true if it was removed.
    ///
    /// Another server may have started in the meantime and written its own file, which stays.
    pub fn remove(&self, folder: &Dir) -> Result<bool, McpError> {
        match Self::read(folder) {
            Ok(Some(found)) if found.pid == self.pid && found.started_at == self.started_at => {
                Ok(folder.remove(FILE)?)
            }
            // A file that cannot be parsed was not written by this program, so it stays.
            Ok(_) | Err(McpError::BadServerInfo { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the server's process has ended.
    ///
    /// The pid may have been reused: if this returns false, only a response of `/health` with the same pid proves that
    /// the server runs.
    pub fn is_stale(&self) -> bool {
        platform::process_started(self.pid).is_none()
    }
}

#[cfg(test)]
#[path = "server_info_tests.rs"]
mod tests;
