//! How the HTTP side is set up.

use std::time::Duration;

/// Which port to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortChoice {
    /// 3100, or where that is taken the first free one of the four after it, as clients of the workspace
    /// protocol expect; where all five are taken, any free one.
    #[default]
    Default,
    /// This port or none; 0 lets the system choose.
    Exactly(u16),
}

/// What the HTTP side allows. The defaults suit one developer's machine.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// The port to listen on.
    pub port: PortChoice,
    /// Values of `Host` that are accepted beside the loopback names, as `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are accepted beside our own, as `scheme://host[:port]`. A page of any other
    /// origin is refused, whatever it knows.
    pub allowed_origins: Vec<String>,
    /// Whether every route but `/health` asks for the token. Only programs that test a server switch it off.
    pub require_token: bool,
    /// The largest request body. 4 MiB is what the SDKs of MCP take.
    pub body_limit: usize,
    /// The largest request head. A token, a session id and what browsers add fit in a tenth of 32 KiB.
    pub header_limit: usize,
    /// How long a client may take for a request head; also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long a client may take for a request body.
    pub body_timeout: Duration,
    /// How long a client may leave a response unread before its connection is closed.
    pub write_timeout: Duration,
    /// How often an idle stream gets a comment, so that both sides notice when the other is gone.
    pub keep_alive: Duration,
    /// How many connections there may be. One more is answered with 503 and closed.
    pub max_connections: usize,
    /// How many sessions there may be, streamable and SSE together. One more is answered with 429.
    pub max_sessions: usize,
    /// How long a streamable session lives on without any stream or request.
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
