//! Configuration of the HTTP server: port, admission, limits and timeouts.

use std::time::Duration;

/// Port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortChoice {
    /// Port 3100, or the first free port up to 3104, as clients of the workspace protocol expect. Any free port if all
    /// five are taken.
    #[default]
    Default,
    /// Only this port; 0 lets the system choose.
    Exactly(u16),
}

/// Limits and timeouts of the HTTP server. The defaults suit one developer's machine.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Port to listen on.
    pub port: PortChoice,
    /// Values of `Host` that are accepted in addition to the loopback names, as `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are accepted in addition to our own, as `scheme://host[:port]`. Pages of any other
    /// origin are rejected, even with a valid token.
    pub allowed_origins: Vec<String>,
    /// True if each route except `/health` requires the token. Only tests disable it.
    pub require_token: bool,
    /// Maximum size of a request body in bytes. The MCP SDKs accept 4 MiB.
    pub body_limit: usize,
    /// Maximum size of a request header in bytes. A token, a session id and the headers of browsers need a tenth of 32
    /// KiB.
    pub header_limit: usize,
    /// Timeout of a request header; also the idle timeout of a connection.
    pub header_timeout: Duration,
    /// Timeout of a request body.
    pub body_timeout: Duration,
    /// Timeout of a write that the client does not read. Its connection is then closed.
    pub write_timeout: Duration,
    /// Interval of keep-alive comments on an idle stream, which let both sides detect a broken connection.
    pub keep_alive: Duration,
    /// Maximum number of connections. Further ones get a 503 response and are closed.
    pub max_connections: usize,
    /// Maximum number of sessions, streamable and SSE together. Further ones get a 429 response.
    pub max_sessions: usize,
    /// Idle timeout of a streamable session without a stream or request.
    pub session_idle_timeout: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            port: PortChoice::Default,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            require_token: true,
            body_limit: 4 * 1024 * 1024,
            header_limit: 32 * 1024,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            max_connections: 8192,
            max_sessions: 6000,
            session_idle_timeout: Duration::from_mins(10),
        }
    }
}
