//! Caller of a request, with its transport, session and agent.

use ::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::Extensions;
use rmcp::service::RequestContext;
use tokio_util::sync::CancellationToken;

/// Request header with the name of the agent that the client speaks for.
pub const AGENT_HEADER: &str = "switchboard-agent";

/// Origin of a request, as far as the transport knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Transport over which the request arrived.
    pub transport: Transport,
    /// Session id; `None` for stdio and stateless requests.
    pub session: Option<String>,
    /// Name of the agent that the client claims to speak for, validated. It is fixed when the session opens.
    pub agent: Option<String>,
}

/// Transport over which a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Standard streams of this process.
    Stdio,
    /// A session over `/mcp`, for protocol versions up to 2025-11-25.
    StreamableHttp,
    /// A request without a session over `/mcp`, as of 2026-07-28.
    Stateless,
    /// A session over `/sse` and `/messages`, as of 2024-11-05.
    Sse,
}

impl Caller {
    /// The parent process, over stdio.
    pub const STDIO: Self = Self { transport: Transport::Stdio, session: None, agent: None };

    /// Returns the caller of a request. Only stdio requests have no entry in their extensions.
    pub fn of(context: &RequestContext<RoleServer>) -> Self {
        Self::of_extensions(&context.extensions)
    }

    /// Returns the caller of a notification or a request, from the extensions of its context.
    pub fn of_extensions(extensions: &Extensions) -> Self {
        // Our own transports insert the caller directly. `rmcp`'s HTTP transport inserts the HTTP request, whose
        // extensions contain it.
        let noted = extensions
            .get::<Self>()
            .or_else(|| extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Self>()));
        noted.cloned().unwrap_or(Self::STDIO)
    }
}

/// Request extension: fires when the response of a request in a session over `/mcp` is closed.
///
/// MCP does not cancel such a request: its client may resume the response.
#[derive(Debug, Clone)]
pub(crate) struct ResponseClosed(pub(crate) CancellationToken);

/// Returns a token that fires when the response to this request is closed. Tool output after that is lost unless the
/// client resumes the response.
pub fn response_closed(context: &RequestContext<RoleServer>) -> CancellationToken {
    context
        .extensions
        .get::<ResponseClosed>()
        .map(|ResponseClosed(closed)| closed.clone())
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "caller_tests.rs"]
mod tests;
