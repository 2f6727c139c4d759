//! Accepting TCP connections, shaking hands, and ending them.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use switchboard_sys::patient::Patient;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::busy::Busy;
use crate::front::Front;
use crate::places::Places;
use crate::settings::ListenLimits;
use crate::source::ACME_TLS;

/// How long to wait when the system has no more sockets for us.
const OUT_OF_SOCKETS: Duration = Duration::from_millis(100);

/// The name of HTTP/2 in a handshake.
const H2: &[u8] = b"h2";

/// How an HTTP/2 client is tried that does not answer, and how long it may take; one that is gone is then forgotten.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// Everything that a connection needs.
pub(crate) struct Server {
    pub(crate) front: Arc<Front>,
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: ListenLimits,
    pub(crate) places: Places,
    pub(crate) closing: CancellationToken,
}

/// How hands are shaken.
pub(crate) struct Tls {
    /// With clients.
    pub(crate) config: Arc<ServerConfig>,
    /// With an ACME server that wants to see that a name is ours.
    pub(crate) challenge: Option<Arc<ServerConfig>>,
}

impl Server {
    /// Serves connections until `closing`, then ends those that are left.
    pub(crate) async fn serve(self: Arc<Self>, socket: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = self.closing.cancelled() => break,
                Some(joined) = connections.join_next() => {
                    note_panic(joined);
                    continue;
                }
                accepted = socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(OUT_OF_SOCKETS).await;
                    continue;
                }
            };
            // Before the handshake there is nothing that could be said to a client, and afterwards it would cost what
            // the limit is to save.
            let Some(place) = self.places.take(peer.ip()) else {
                tracing::debug!(client = %peer.ip(), "too many connections: closed one");
                continue;
            };
            // Without this, a small answer waits for the client's acknowledgement of the one before it.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot switch Nagle's algorithm off");
            }
            let server = Arc::clone(&self);
            connections.spawn(async move {
                server.connection(stream, peer.ip()).await;
                drop(place);
            });
        }
        drop(socket);
        let all_ended = async {
            while let Some(joined) = connections.join_next().await {
                note_panic(joined);
            }
        };
        if timeout(self.limits.grace, all_ended).await.is_err() {
            tracing::debug!(left = connections.len(), "closed connections with answers in flight");
        }
        connections.shutdown().await;
    }

    async fn connection(&self, stream: TcpStream, peer: IpAddr) {
        let stream = Patient::new(stream, self.limits.write_time);
        let Some(tls) = &self.tls else { return self.http(stream, peer, false).await };
        let shaken = tokio::select! {
            () = self.closing.cancelled() => return,
            shaken = timeout(self.limits.handshake_time, tls.shake_hands(stream)) => shaken,
        };
        match shaken {
            Ok(Ok(Some(stream))) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                self.http(stream, peer, is_http2).await;
            }
            Ok(Ok(None)) => tracing::info!("an ACME server asked for a proof"),
            Ok(Err(error)) => tracing::debug!(%error, client = %peer, "a handshake failed"),
            Err(_) => tracing::debug!(client = %peer, "a handshake took too long"),
        }
    }

    /// Serves requests until the client goes, is idle for too long, or we are to stop.
    async fn http<S>(&self, stream: S, peer: IpAddr, is_http2: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let busy = Busy::new();
        let service = service_fn(|request| {
            let (front, busy) = (Arc::clone(&self.front), busy.clone());
            async move { Ok::<_, Infallible>(front.answer(request, peer, &busy).await) }
        });
        let http = self.builder(is_http2);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = busy.overdue(self.limits.request_time) => {
                tracing::debug!(client = %peer, "a request took too long: closed its connection");
                return;
            }
            () = busy.idle_for(self.limits.idle_time) => {
                connection.as_mut().graceful_shutdown();
                timeout(self.limits.grace, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, client = %peer, "a connection ended early");
        }
    }

    /// The version was settled in the handshake, so that nobody has to guess it from the first bytes.
    fn builder(&self, is_http2: bool) -> Builder<TokioExecutor> {
        let limits = &self.limits;
        let mut http = Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_time)
            .max_buf_size(limits.head.max(MIN_BUFFER));
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.requests_per_connection)
            .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        if is_http2 { http.http2_only() } else { http.http1_only() }
    }
}

/// Tells of a task that ended by a panic: a fault of ours or of a handler, which cost one connection.
pub(crate) fn note_panic(joined: Result<(), JoinError>) {
    if let Err(error) = joined
        && error.is_panic()
    {
        tracing::error!(%error, "a request's handling panicked");
    }
}

/// The smallest buffer that the HTTP library works with.
const MIN_BUFFER: usize = 8192;

impl Tls {
    /// Shakes hands with a client; nothing where it was an ACME server that has now seen what it wanted.
    async fn shake_hands(&self, stream: Patient) -> std::io::Result<Option<TlsStream<Patient>>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let asks_for_proof = is_challenge(&hello.client_hello());
        match &self.challenge {
            Some(challenge) if asks_for_proof => {
                let mut stream = hello.into_stream(Arc::clone(challenge)).await?;
                stream.shutdown().await?;
                Ok(None)
            }
            _ => hello.into_stream(Arc::clone(&self.config)).await.map(Some),
        }
    }
}

/// Whether this is the handshake of RFC 8737, which offers that one protocol and nothing else.
fn is_challenge(hello: &rustls::server::ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_TLS.as_slice()) && offered.next().is_none())
}
