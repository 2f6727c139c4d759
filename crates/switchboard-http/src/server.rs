//! Accept loop and connection lifecycle for TCP.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use switchboard_sys::socket::accept_with_retry;
use switchboard_sys::write_timeout::WriteTimeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::activity::ActivityTracker;
use crate::middleware::Middleware;
use crate::permits::ConnectionPermits;

/// Interval of HTTP/2 keep-alive pings.
///
/// The connection of a dead client is closed after [`PING_TIMEOUT`] without an answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of the read buffer of an HTTP/1.1 connection, unless a header may be larger.
///
/// The buffer holds a pipelined request while the previous one is answered. Bodies are streamed.
const READ_BUFFER: usize = 64 * 1024;

/// HTTP version of a connection, as negotiated in its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Handshake at the start of a connection: [`Plain`] or TLS.
pub trait Handshake: Send + Sync + 'static {
    /// Stream after the handshake.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Performs the handshake. Returns `None` if no requests follow.
    fn accept(
        &self,
        stream: WriteTimeout,
    ) -> impl Future<Output = io::Result<Option<(Self::Stream, HttpVersion)>>> + Send;
}

/// Plain HTTP/1.1, without a handshake.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Handshake for Plain {
    type Stream = WriteTimeout;

    async fn accept(&self, stream: WriteTimeout) -> io::Result<Option<(WriteTimeout, HttpVersion)>> {
        Ok(Some((stream, HttpVersion::Http1)))
    }
}

/// Limits and timeouts of each connection.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Maximum size of a request header in bytes.
    pub header_bytes: usize,
    /// Maximum number of concurrent requests per connection. HTTP/1.1 always has one.
    pub requests_per_connection: u32,
    /// Timeout of the handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a request header; also the idle timeout of HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// Timeout of a write that is blocked because the client does not read.
    pub write_timeout: Duration,
    /// Timeout of a request, from its header to the last byte of the response. `None` for servers with event streams.
    pub request_timeout: Option<Duration>,
    /// Idle timeout of HTTP/2 connections.
    pub idle_timeout: Option<Duration>,
    /// Grace period for responses in flight after the shutdown has started.
    pub shutdown_grace: Duration,
}

/// Shared state of all connections of a listener.
#[derive(Debug)]
pub struct Server {
    /// Middleware and router.
    pub middleware: Arc<Middleware>,
    /// Limits and timeouts of each connection.
    pub limits: ConnectionLimits,
    /// Permits that enforce the connection limit.
    pub permits: ConnectionPermits,
    /// Complete response to a plain HTTP connection beyond the limit. Without one, the connection is just closed.
    pub rejection: Option<Bytes>,
    /// Token whose cancellation starts the shutdown.
    pub closing: CancellationToken,
}

impl Server {
    /// Serves connections until `closing` is cancelled, then shuts the remaining ones down.
    pub async fn serve<H: Handshake>(self: Arc<Self>, handshake: H, socket: TcpListener) {
        let handshake = Arc::new(handshake);
        let mut connections = JoinSet::new();
        loop {
            let (stream, peer) = tokio::select! {
                () = self.closing.cancelled() => break,
                Some(joined) = connections.join_next() => {
                    log_panic(joined);
                    continue;
                }
                accepted = accept_with_retry("http", || socket.accept()) => accepted,
            };
            let Some(permit) = self.permits.acquire(peer.ip()) else {
                self.reject(&stream, peer.ip());
                continue;
            };
            // Without `TCP_NODELAY`, a small response waits until the client acknowledges the previous one.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
            let (server, handshake) = (Arc::clone(&self), Arc::clone(&handshake));
            connections.spawn(async move {
                server.serve_connection(&*handshake, stream, peer.ip()).await;
                drop(permit);
            });
        }
        drop(socket);
        let all_ended = async {
            while let Some(joined) = connections.join_next().await {
                log_panic(joined);
            }
        };
        if timeout(self.limits.shutdown_grace, all_ended).await.is_err() {
            tracing::debug!(remaining = connections.len(), "closed connections with responses in flight");
        }
        connections.shutdown().await;
    }

    /// Rejects a connection beyond the limit.
    ///
    /// Before a TLS handshake a client cannot read a response. A handshake would cost what the limit is meant to save.
    fn reject(&self, stream: &TcpStream, client: IpAddr) {
        tracing::debug!(%client, "too many connections: closed one");
        if let Some(response) = &self.rejection {
            // The call writes as much as fits without blocking, which on a new connection is all of it.
            let _ = stream.try_write(response);
        }
    }

    async fn serve_connection(&self, handshake: &impl Handshake, stream: TcpStream, peer: IpAddr) {
        let stream = WriteTimeout::new(stream, self.limits.write_timeout);
        let shaken = tokio::select! {
            () = self.closing.cancelled() => return,
            shaken = timeout(self.limits.handshake_timeout, handshake.accept(stream)) => shaken,
        };
        match shaken {
            Ok(Ok(Some((stream, version)))) => self.serve_http(stream, peer, version).await,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, client = %peer, "a handshake failed"),
            Err(_) => tracing::debug!(client = %peer, "a handshake timed out"),
        }
    }

    /// Serves requests until the client disconnects, a timeout expires or the listener shuts down.
    async fn serve_http<S>(&self, stream: S, peer: IpAddr, version: HttpVersion)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = &self.limits;
        let has_timeouts = limits.request_timeout.is_some() || limits.idle_timeout.is_some();
        let activity = has_timeouts.then(ActivityTracker::new);
        let service = service_fn(|request| {
            let (middleware, activity) = (Arc::clone(&self.middleware), activity.clone());
            async move { Ok::<_, Infallible>(middleware.handle(request, peer, activity.as_ref()).await) }
        });
        let stream = TokioIo::new(stream);
        match version {
            HttpVersion::Http1 => {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new())
                    .header_read_timeout(limits.header_timeout)
                    .max_header_size(limits.header_bytes)
                    .max_buf_size(limits.header_bytes.max(READ_BUFFER));
                self.run(http.serve_connection(stream, service), peer, activity.as_ref()).await;
            }
            HttpVersion::Http2 => {
                let mut http = http2::Builder::new(TokioExecutor::new());
                http.timer(TokioTimer::new())
                    .max_concurrent_streams(limits.requests_per_connection)
                    .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
                    .keep_alive_interval(PING_INTERVAL)
                    .keep_alive_timeout(PING_TIMEOUT);
                self.run(http.serve_connection(stream, service), peer, activity.as_ref()).await;
            }
        }
    }

    async fn run<C>(&self, connection: C, peer: IpAddr, activity: Option<&ActivityTracker>)
    where
        C: GracefulConnection,
        C::Error: std::fmt::Display,
    {
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = expiry(activity, self.limits.request_timeout, ActivityTracker::request_overdue) => {
                tracing::debug!(client = %peer, "a request timed out; closed its connection");
                return;
            }
            () = expiry(activity, self.limits.idle_timeout, ActivityTracker::idle_for) => {
                connection.as_mut().graceful_shutdown();
                timeout(self.limits.shutdown_grace, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, client = %peer, "a connection ended early");
        }
    }
}

/// Waits until a timeout of a connection expires. Waits for ever if there is no timeout.
async fn expiry<'a, F: Future<Output = ()>>(
    activity: Option<&'a ActivityTracker>,
    limit: Option<Duration>,
    wait: impl FnOnce(&'a ActivityTracker, Duration) -> F,
) {
    match activity.zip(limit) {
        Some((activity, limit)) => wait(activity, limit).await,
        None => pending().await,
    }
}

/// Logs a task that panicked. The panic is a bug of ours or of a handler, and closed one connection.
pub fn log_panic(joined: Result<(), JoinError>) {
    if let Err(error) = joined
        && error.is_panic()
    {
        tracing::error!(%error, "a request's handling panicked");
    }
}
