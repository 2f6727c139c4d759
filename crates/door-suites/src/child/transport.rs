//! Transports to a child, combined in one enum.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::error::ChildError;
use super::http::HttpTransport;
use super::pipe::PipeWriter;
use super::sse::SseTransport;
use super::ws::WsTransport;

/// Transport to a child.
pub(super) enum Transport {
    /// The stdio transport: messages are written to the stdin of a local program.
    Pipe(PipeWriter),
    /// The Streamable HTTP transport.
    Http(Arc<HttpTransport>),
    /// The SSE transport: messages are POSTed, answers arrive on an SSE stream.
    Sse(Arc<SseTransport>),
    /// The WebSocket transport.
    Ws(WsTransport),
}

/// An outgoing message.
pub(super) struct Outgoing<'a> {
    /// The message as JSON text.
    pub(super) body: Vec<u8>,
    /// Id of the request; `None` for other messages.
    pub(super) id: Option<u64>,
    /// Method of the message; empty for an answer.
    pub(super) method: &'a str,
    /// Parameters of the request; `None` for other messages.
    pub(super) params: Option<&'a RawValue>,
}

/// Future of a message being sent. If it completes without an answer, the answer may still arrive on another stream.
pub(super) type SendFuture = BoxFuture<'static, Result<(), ChildError>>;

/// Outcome of sending a message.
pub(super) enum SendOutcome {
    /// The message was sent or queued. It is lost only if the connection ends.
    Done,
    /// The message could not be sent.
    Failed(ChildError),
    /// The message is sent while the future is polled. Dropping the future abandons the message and its answer.
    InFlight(SendFuture),
}

impl Transport {
    /// Sends a message over this transport.
    pub(super) fn send(&self, connection: &Arc<Connection>, message: Outgoing<'_>) -> SendOutcome {
        let taken = match self {
            Self::Pipe(pipe) => pipe.send(message.body),
            Self::Ws(ws) => ws.send(message.body),
            Self::Http(http) => return SendOutcome::InFlight(http.post(connection, message)),
            Self::Sse(sse) => return SendOutcome::InFlight(sse.post(connection, message.body)),
        };
        match taken {
            Ok(()) => SendOutcome::Done,
            Err(Full) => SendOutcome::Failed(ChildError::Busy {
                child: connection.shared.name().to_owned(),
                waiting: connection.in_use(),
            }),
        }
    }
}

/// Error: the send queue is full.
#[derive(Debug)]
pub(super) struct Full;
