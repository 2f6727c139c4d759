//! Accept loop and connection lifecycle for TCP.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use switchboard_sys::write_timeout::WriteTimeout;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::activity::ActivityTracker;
use crate::certificate_source::ACME_TLS;
use crate::middleware::Middleware;
use crate::permits::ConnectionPermits;
use crate::settings::ListenLimits;

/// Delay after `accept` failed, usually because the process has too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// ALPN protocol of HTTP/2.
const H2: &[u8] = b"h2";

/// HTTP/2 keep-alive interval and timeout, after which a dead client's connection is closed.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Shared state of all connections of a listener.
pub(crate) struct Server {
    pub(crate) middleware: Arc<Middleware>,
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: ListenLimits,
    pub(crate) permits: ConnectionPermits,
    pub(crate) closing: CancellationToken,
}

/// TLS handshake configuration.
pub(crate) struct Tls {
    /// For clients.
    pub(crate) config: Arc<ServerConfig>,
    /// For ACME servers that validate a TLS-ALPN-01 challenge.
    pub(crate) challenge: Option<Arc<ServerConfig>>,
}

impl Server {
    /// Serves connections until `closing`, then shuts the remaining ones down.
    pub(crate) async fn serve(self: Arc<Self>, socket: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = self.closing.cancelled() => break,
                Some(joined) = connections.join_next() => {
                    log_panic(joined);
                    continue;
                }
                accepted = socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            // Closed without a response: before the handshake a client cannot read one, and a handshake would cost what
            // the limit is meant to save.
            let Some(permit) = self.permits.acquire(peer.ip()) else {
                tracing::debug!(client = %peer.ip(), "too many connections: closed one");
                continue;
            };
            // Without `TCP_NODELAY`, a small response waits until the client acknowledges the previous one.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
            let server = Arc::clone(&self);
            connections.spawn(async move {
                server.serve_connection(stream, peer.ip()).await;
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
            tracing::debug!(remaining = connections.len(), "closed connections with answers in flight");
        }
        connections.shutdown().await;
    }

    async fn serve_connection(&self, stream: TcpStream, peer: IpAddr) {
        let stream = WriteTimeout::new(stream, self.limits.write_timeout);
        let Some(tls) = &self.tls else { return self.serve_http(stream, peer, false).await };
        let handshaken = tokio::select! {
            () = self.closing.cancelled() => return,
            handshaken = timeout(self.limits.handshake_timeout, tls.handshake(stream)) => handshaken,
        };
        match handshaken {
            Ok(Ok(Some(stream))) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                self.serve_http(stream, peer, is_http2).await;
            }
            Ok(Ok(None)) => tracing::info!("an ACME server validated a challenge"),
            Ok(Err(error)) => tracing::debug!(%error, client = %peer, "a handshake failed"),
            Err(_) => tracing::debug!(client = %peer, "a handshake timed out"),
        }
    }

    /// Serves requests until the client disconnects, a timeout expires or the listener shuts down.
    async fn serve_http<S>(&self, stream: S, peer: IpAddr, is_http2: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let busy = ActivityTracker::new();
        let service = service_fn(|request| {
            let (middleware, busy) = (Arc::clone(&self.middleware), busy.clone());
            async move { Ok::<_, Infallible>(middleware.handle(request, peer, &busy).await) }
        });
        let http = self.http_builder(is_http2);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = busy.request_overdue(self.limits.request_timeout) => {
                tracing::debug!(client = %peer, "a request timed out; closed its connection");
                return;
            }
            () = busy.idle_for(self.limits.idle_timeout) => {
                connection.as_mut().graceful_shutdown();
                timeout(self.limits.shutdown_grace, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, client = %peer, "a connection ended early");
        }
    }

    /// Builds the server for the version that ALPN negotiated, so that hyper need not detect it from the first bytes.
    fn http_builder(&self, is_http2: bool) -> Builder<TokioExecutor> {
        let limits = &self.limits;
        let mut http = Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.head.max(MIN_BUFFER));
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.requests_per_connection)
            .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        if is_http2 { http.http2_only() } else { http.http1_only() }
    }
}

/// Logs a task that panicked: a bug of ours or of a handler, which closed one connection.
pub(crate) fn log_panic(joined: Result<(), JoinError>) {
    if let Err(error) = joined
        && error.is_panic()
    {
        tracing::error!(%error, "a request's handling panicked");
    }
}

/// Smallest buffer that hyper accepts.
const MIN_BUFFER: usize = 8192;

impl Tls {
    /// Performs the TLS handshake with a client; `None` if an ACME server has completed its challenge.
    async fn handshake(&self, stream: WriteTimeout) -> std::io::Result<Option<TlsStream<WriteTimeout>>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let is_challenge = is_challenge(&hello.client_hello());
        match &self.challenge {
            Some(challenge) if is_challenge => {
                let mut stream = hello.into_stream(Arc::clone(challenge)).await?;
                stream.shutdown().await?;
                Ok(None)
            }
            _ => hello.into_stream(Arc::clone(&self.config)).await.map(Some),
        }
    }
}

/// True if this is a TLS-ALPN-01 handshake (RFC 8737), which offers that protocol and no other.
fn is_challenge(hello: &rustls::server::ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_TLS.as_slice()) && offered.next().is_none())
}
