//! Who is at the other end of a session.

use ::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::Extensions;
use rmcp::service::RequestContext;
use tokio_util::sync::CancellationToken;

/// The request header by which a client names the agent that it speaks for.
pub const AGENT_HEADER: &str = "switchboard-agent";

/// Who is at the other end, as far as the transport knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The way the request came.
    pub transport: Transport,
    /// The session that the request belongs to; stdio and stateless requests have none.
    pub session: Option<String>,
    /// The agent that the client says it speaks for, a valid name. A session keeps the one it began with.
    pub agent: Option<String>,
}

/// The ways a request can come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The program that started us, over our standard streams.
    Stdio,
    /// A session over `/mcp`, as in the revisions up to 2025-11-25.
    StreamableHttp,
    /// A request over `/mcp` that belongs to no session, as in 2026-07-28.
    Stateless,
    /// A session over `/sse` and `/messages`, as in 2024-11-05.
    Sse,
}

impl Caller {
    /// The program that started us.
    pub const STDIO: Self = Self { transport: Transport::Stdio, session: None, agent: None };

    /// The caller of a request. Where no transport has left a note, it is stdio: only there is none needed.
    pub fn of(context: &RequestContext<RoleServer>) -> Self {
        Self::of_extensions(&context.extensions)
    }

    /// The caller of a notification or a request, from the extensions of its context.
    pub fn of_extensions(extensions: &Extensions) -> Self {
        // Our own transports leave the caller itself. `rmcp`'s hands the HTTP request through, and there it
        // is among that request's extensions.
        let noted = extensions
            .get::<Self>()
            .or_else(|| extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Self>()));
        noted.cloned().unwrap_or(Self::STDIO)
    }
}

/// In the extensions of a request of a session over `/mcp`: its answer has nobody to go to any more.
///
/// By MCP such a request is not cancelled: its client may come back for the answer.
#[derive(Debug, Clone)]
pub(crate) struct ResponseClosed(pub(crate) CancellationToken);

/// Fires when the response that a request is to be answered by was closed. What a tool shows then reaches nobody,
/// unless the client comes back for it.
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
