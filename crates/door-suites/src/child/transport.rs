//! The transports to a child, behind one type.

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
    /// Stdin of a program.
    Pipe(PipeWriter),
    /// Streamable HTTP.
    Http(Arc<HttpTransport>),
    /// POSTs beside an SSE stream.
    Sse(Arc<SseTransport>),
    /// A WebSocket.
    Ws(WsTransport),
}

/// An outgoing message.
pub(super) struct Outgoing<'a> {
    /// JSON text.
    pub(super) body: Vec<u8>,
    /// Request id, if it is a request.
    pub(super) id: Option<u64>,
    /// Method; empty for an answer.
    pub(super) method: &'a str,
    /// Parameters, if it is a request.
    pub(super) params: Option<&'a RawValue>,
}

/// A send in progress. If it completes without an answer, the answer may still arrive on another stream.
pub(super) type SendFuture = BoxFuture<'static, Result<(), ChildError>>;

/// Result of sending a message.
pub(super) enum SendOutcome {
    /// Sent, or queued for as long as the connection lasts.
    Done,
    /// Could not be sent.
    Failed(ChildError),
    /// Sent while the future is polled; dropping it abandons the message and its answer.
    InFlight(SendFuture),
}

impl Transport {
    /// Sends a message.
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

/// The send queue is full.
#[derive(Debug)]
pub(super) struct Full;
