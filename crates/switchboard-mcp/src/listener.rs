//! Listening socket of the HTTP server.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use crate::config::PortChoice;
use crate::error::McpError;

/// First of the ports up to [`LAST_PORT`] that clients of the workspace protocol try without `server_info.json`.
const FIRST_PORT: u16 = 3100;
const LAST_PORT: u16 = 3104;

/// Socket bound to the loopback address only.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    port: u16,
}

impl Listener {
    /// Binds a port on 127.0.0.1.
    pub async fn bind(choice: PortChoice) -> Result<Self, McpError> {
        match choice {
            PortChoice::Exactly(port) => {
                Self::bind_one(port).await.map_err(|source| McpError::Bind { port, source })
            }
            PortChoice::Default => {
                for port in FIRST_PORT..=LAST_PORT {
                    match Self::bind_one(port).await {
                        Ok(listener) => return Ok(listener),
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                        Err(source) => return Err(McpError::Bind { port, source }),
                    }
                }
                // If all ports are taken, use any free one: clients of the protocol read `server_info.json` first and
                // find the port there.
                Self::bind_one(0).await.map_err(|source| McpError::Bind { port: 0, source })
            }
        }
    }

    /// Returns the bound port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the socket.
    pub(crate) fn into_socket(self) -> TcpListener {
        self.socket
    }

    async fn bind_one(port: u16) -> io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = socket.local_addr()?.port();
        Ok(Self { socket, port })
    }
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
