//! The ways to a child, and what they have in common.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::error::ChildError;
use super::http::HttpTransport;
use super::pipe::PipeWriter;
use super::sse::SseTransport;
use super::ws::WsTransport;

/// A way to a child.
pub(super) enum Transport {
    /// The stdin of a program.
    Pipe(PipeWriter),
    /// Streamable HTTP.
    Http(Arc<HttpTransport>),
    /// Posts beside an event stream.
    Sse(Arc<SseTransport>),
    /// A WebSocket.
    Ws(WsTransport),
}

/// A message on its way out.
pub(super) struct Outgoing<'a> {
    /// It, as JSON.
    pub(super) body: Vec<u8>,
    /// Its number, when it is a request.
    pub(super) id: Option<u64>,
    /// Its method; empty for an answer.
    pub(super) method: &'a str,
    /// Its parameters, when it is a request.
    pub(super) params: Option<&'a RawValue>,
}

/// What is under way. When it is done without an answer having come, more may still come by another way.
pub(super) type Carrying = BoxFuture<'static, Result<(), ChildError>>;

/// How far a message got.
pub(super) enum SendOutcome {
    /// It is sent, or sure to be while the connection lasts.
    Done,
    /// It cannot be sent.
    Failed(ChildError),
    /// It is sent while this is polled; dropping it lets go of the message and of its answer.
    UnderWay(Carrying),
}

impl Transport {
    /// Takes a message on its way.
    pub(super) fn carry(&self, connection: &Arc<Connection>, message: Outgoing<'_>) -> SendOutcome {
        let taken = match self {
            Self::Pipe(pipe) => pipe.send(message.body),
            Self::Ws(ws) => ws.send(message.body),
            Self::Http(http) => return SendOutcome::UnderWay(http.carry(connection, message)),
            Self::Sse(sse) => return SendOutcome::UnderWay(sse.carry(connection, message.body)),
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

/// More waits to be sent than may.
#[derive(Debug)]
pub(super) struct Full;
