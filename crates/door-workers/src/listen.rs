//! Listener on a loopback port with a token, or on a Unix socket protected by file permissions.

use std::net::SocketAddr;
use std::time::Duration;

use switchboard_sys::platform::tcp_peer;
use switchboard_sys::socket::{SameUserListener, accept_with_retry};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::RouterError;
use crate::router::Router;
use crate::session::{Access, Transport, serve};
use crate::wire::event::{CutOff, EventBody};
use crate::wire::format_event;

/// Maximum number of clients; the listener refuses further ones with a reason.
const MAX_CLIENTS: usize = 256;

/// Time limit for sending a refusal, whose single line fits into an empty socket buffer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Endpoint that clients connect to.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port on a loopback address.
    Tcp(TcpListener),
    /// A Unix socket that only its owner can open.
    Unix(SameUserListener),
}

impl Listener {
    /// Binds `127.0.0.1:PORT` or `unix:PATH`. Must be called within a Tokio runtime.
    pub async fn bind(address: &str) -> Result<Self, RouterError> {
        let failed = |source| RouterError::Listen { address: address.to_owned(), source };
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Self::Unix(SameUserListener::bind(path).await.map_err(failed)?));
        }
        let parsed: Result<SocketAddr, _> = address.parse();
        let parsed = parsed.map_err(|_| RouterError::InvalidAddress { address: address.to_owned() })?;
        if !parsed.ip().is_loopback() {
            return Err(RouterError::NotLoopback { address: address.to_owned() });
        }
        Ok(Self::Tcp(TcpListener::bind(parsed).await.map_err(failed)?))
    }

    /// Returns the address in the form that a client uses.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or_else(|_| String::new(), |at| at.to_string()),
            Self::Unix(listener) => format!("unix:{}", listener.path().display()),
        }
    }
}

/// Serves clients until `done` fires. Connected clients first receive all remaining events.
pub async fn listen(router: &Router, listener: Listener, access: Access, done: CancellationToken) {
    let clients = TaskTracker::new();
    loop {
        let connection = tokio::select! {
            accepted = accept_with_retry("router", || accept(&listener)) => accepted,
            () = done.cancelled() => break,
        };
        if clients.len() >= MAX_CLIENTS {
            tracing::warn!(most = MAX_CLIENTS, "too many clients of the router");
            let reason = format!("{MAX_CLIENTS} clients are connected already; try again later");
            refuse_connection(router, connection, reason).await;
            continue;
        }
        let (router, done) = (router.clone(), done.clone());
        let access = access.clone();
        clients.spawn(async move {
            let eof = CancellationToken::new();
            let Some(access) = resolve_access(&connection, access).await else {
                let reason = "only processes of the router's own user are served here".to_owned();
                return refuse_connection(&router, connection, reason).await;
            };
            let served = match connection {
                Connection::Tcp(stream) => {
                    let (reader, writer) = stream.into_split();
                    Box::pin(serve(&router, reader, writer, Transport::Socket, &access, eof, done)).await
                }
                Connection::Unix(stream) => {
                    let (reader, writer) = stream.into_split();
                    Box::pin(serve(&router, reader, writer, Transport::Socket, &access, eof, done)).await
                }
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a client of the router disconnected");
            }
        });
    }
    drop(listener);
    clients.close();
    clients.wait().await;
}

/// Returns the access of a connection, or `None` to refuse it.
///
/// Any user of this machine can connect to a local port. Where the system reports the peer, only processes of the
/// same user are served without a token.
async fn resolve_access(connection: &Connection, access: Access) -> Option<Access> {
    let stream = match connection {
        Connection::Unix(stream) => {
            let client_pid = stream.peer_cred().ok().and_then(|peer| peer.pid()?.try_into().ok());
            return Some(Access { client_pid, ..access });
        }
        Connection::Tcp(stream) => stream,
    };
    let (local, client) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    let found = tokio::task::spawn_blocking(move || tcp_peer(local, client)).await.ok()?;
    let is_own = match &found {
        Ok(Some(peer)) => peer.uid == rustix::process::geteuid().as_raw(),
        // Without a report from the system, the peer counts as the same user.
        Ok(None) => true,
        Err(_) => false,
    };
    let access = Access { peer: found.as_ref().ok().copied().flatten(), ..access };
    if !access.legacy || is_own {
        return Some(access);
    }
    match found {
        Ok(peer) => {
            let uid = peer.map(|peer| peer.uid);
            tracing::warn!(uid, "refused a process of another user: it sent no token");
        }
        // Connecting without sending a token is normal: clients do so to probe for a router.
        Err(error) => tracing::debug!(%error, "refused a process: it sent no token"),
    }
    // With a token, a process of any user is served.
    (!access.tokens.is_empty()).then_some(Access { legacy: false, ..access })
}

/// Sends the reason and closes the connection.
async fn refuse_connection(router: &Router, connection: Connection, reason: String) {
    let newest = router.log().newest();
    let body = EventBody::CutOff(CutOff { reason, resume_from: newest });
    let line = format_event(newest, router.hub().now(), &body);
    let writing = async {
        match connection {
            Connection::Tcp(mut stream) => stream.write_all(&line).await,
            Connection::Unix(mut stream) => stream.write_all(&line).await,
        }
    };
    if !matches!(timeout(REFUSAL_TIMEOUT, writing).await, Ok(Ok(()))) {
        tracing::debug!("cannot send the reason to a refused client");
    }
}

enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

async fn accept(listener: &Listener) -> std::io::Result<Connection> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Connection::Tcp(stream))
        }
        Listener::Unix(listener) => Ok(Connection::Unix(listener.accept().await?)),
    }
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
