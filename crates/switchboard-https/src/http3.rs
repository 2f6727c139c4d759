//! HTTP/3 listener, on the UDP port with the same number as the TCP port.

mod metered;

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::server::RequestStream;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use switchboard_http::{ActivityTracker, Server, log_panic};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::metered::{Metered, MeteredStream, Meters};
use crate::error::Error;
use crate::settings::ListenLimits;

/// ALPN protocol of HTTP/3.
pub(crate) const H3: &[u8] = b"h3";

/// Maximum number of concurrent unidirectional streams. HTTP/3 needs three, and clients open one more as GREASE.
const MAX_UNI_STREAMS: u8 = 8;

/// Receive window of a stream: enough for a request without a stall.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Receive window of a connection.
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Send window of a connection: small enough to be delivered within [`DRAIN_TIME`].
const SEND_WINDOW: u64 = 256 * 1024;

/// How long the last responses of a connection have to reach the client.
const DRAIN_TIME: Duration = Duration::from_millis(250);

type Stream = RequestStream<MeteredStream, Bytes>;

/// Binds the UDP port.
pub(crate) fn bind(
    address: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    limits: &ListenLimits,
) -> Result<Endpoint, Error> {
    let failed = |source| Error::Bind { address, protocol: "UDP", source };
    let crypto = QuicServerConfig::try_from(tls).map_err(io::Error::other).map_err(failed)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.requests_per_connection.into())
        .max_concurrent_uni_streams(MAX_UNI_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .send_window(SEND_WINDOW)
        .max_idle_timeout(limits.idle_timeout.try_into().ok())
        .datagram_receive_buffer_size(None);
    config.transport_config(Arc::new(transport)).max_incoming(limits.connections);
    let socket = UdpSocket::bind(address).map_err(failed)?;
    Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime)).map_err(failed)
}

/// Returns the `Alt-Svc` value that announces HTTP/3 to clients of HTTP/1.1 and HTTP/2.
pub(crate) fn alt_svc(port: u16) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("h3=\":{port}\"; ma=86400")).ok()
}

/// Serves connections until the server closes, then shuts the remaining ones down.
pub(crate) async fn serve(server: Arc<Server>, limits: ListenLimits, endpoint: Endpoint) {
    let limits = Arc::new(limits);
    let mut connections = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            () = server.closing.cancelled() => break,
            Some(joined) = connections.join_next() => {
                log_panic(joined);
                continue;
            }
            incoming = endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        // The source address of a UDP packet can be spoofed, so permits are only for clients that have proved that they
        // receive packets at their address.
        if !incoming.remote_address_validated() {
            if let Err(error) = incoming.retry() {
                error.into_incoming().refuse();
            }
            continue;
        }
        let Some(permit) = server.permits.acquire(incoming.remote_address().ip()) else {
            incoming.refuse();
            continue;
        };
        let (server, limits) = (Arc::clone(&server), Arc::clone(&limits));
        connections.spawn(async move {
            if let Err(error) = connection(server, limits, incoming).await {
                tracing::debug!(error, "an HTTP/3 connection ended early");
            }
            drop(permit);
        });
    }
    let all_ended = async {
        while let Some(joined) = connections.join_next().await {
            log_panic(joined);
        }
    };
    if timeout(limits.shutdown_grace, all_ended).await.is_err() {
        tracing::debug!(remaining = connections.len(), "closed HTTP/3 connections with answers in flight");
    }
    connections.shutdown().await;
    endpoint.close(VarInt::from_u32(0), b"");
    // The endpoint sends the close to its clients, but does not wait for unreachable ones.
    let _ = timeout(DRAIN_TIME, endpoint.wait_idle()).await;
}

/// Serves the requests of one HTTP/3 connection.
async fn connection(
    server: Arc<Server>,
    limits: Arc<ListenLimits>,
    incoming: Incoming,
) -> Result<(), axum::BoxError> {
    let quic = timeout(limits.handshake_timeout, incoming).await??;
    let meters = Meters::new(limits.head);
    let metered = Metered::new(quic.clone(), meters.clone());
    let mut http =
        h3::server::builder().max_field_section_size(limits.head as u64).build::<_, Bytes>(metered).await?;
    let activity = ActivityTracker::new();
    // The set is bounded, because the transport limits the number of streams.
    let mut requests = JoinSet::new();
    loop {
        let resolver = tokio::select! {
            resolver = http.accept() => resolver?,
            Some(joined) = requests.join_next() => {
                log_panic(joined);
                continue;
            }
            () = server.closing.cancelled() => None,
            () = activity.idle_for(limits.idle_timeout) => None,
        };
        let Some(resolver) = resolver else { break };
        let (server, limits) = (Arc::clone(&server), Arc::clone(&limits));
        let (activity, meters) = (activity.clone(), meters.clone());
        // QUIC connections can migrate, so each request has its own peer address.
        let peer = quic.remote_address().ip();
        requests.spawn(async move {
            // The request counts as active while its header is received, because that phase has a timeout of its own.
            let _active = activity.track_request();
            let answering = async {
                let (request, stream) = timeout(limits.header_timeout, resolver.resolve_request()).await??;
                respond(&server, request, stream, peer, &activity, &meters).await
            };
            let answered = timeout(limits.request_timeout, answering).await;
            if let Err(error) = answered.unwrap_or_else(|late| Err(late.into())) {
                tracing::debug!(error, client = %peer, "an HTTP/3 request ended early");
            }
        });
    }
    let has_answers = !requests.is_empty();
    http.shutdown(0).await?;
    // The connection makes progress only while `accept` is polled, and the responses in flight need it.
    while !requests.is_empty() {
        tokio::select! {
            Some(joined) = requests.join_next() => log_panic(joined),
            more = http.accept() => if !matches!(more, Ok(Some(_))) { break },
        }
    }
    while let Some(joined) = requests.join_next().await {
        log_panic(joined);
    }
    if has_answers {
        // The last frames may not have been sent yet, and would be lost if the connection were dropped now.
        let _ = timeout(DRAIN_TIME, quic.closed()).await;
    }
    Ok(())
}

/// Serves one HTTP/3 request.
async fn respond(
    server: &Server,
    request: Request<()>,
    stream: Stream,
    peer: std::net::IpAddr,
    activity: &ActivityTracker,
    meters: &Meters,
) -> Result<(), axum::BoxError> {
    let meter = meters.for_stream(stream.id());
    let (to_client, from_client) = stream.split();
    let mut out = ResponseStream { stream: to_client, is_complete: false };
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = RequestBody { stream: from_client, meter, remaining: length, is_finished: false };
    let response = server.middleware.handle(request.map(|()| body), peer, Some(activity)).await;
    let (head, body) = response.into_parts();
    let limit = server.limits.write_timeout;
    timeout(limit, out.stream.send_response(http::Response::from_parts(head, ()))).await??;
    let mut body = pin!(body);
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) => timeout(limit, out.stream.send_data(data)).await??,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    timeout(limit, out.stream.send_trailers(trailers)).await??;
                }
            }
        }
    }
    timeout(limit, out.stream.finish()).await??;
    out.is_complete = true;
    Ok(())
}

/// Stream of a response, reset on drop unless it is complete.
struct ResponseStream {
    stream: RequestStream<h3_quinn::SendStream<Bytes>, Bytes>,
    is_complete: bool,
}

impl Drop for ResponseStream {
    /// Resets an incomplete stream.
    ///
    /// A dropped stream looks finished to the client, which would accept a truncated response as complete.
    fn drop(&mut self) {
        if !self.is_complete {
            self.stream.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
}

/// Streaming body of a request.
struct RequestBody {
    stream: RequestStream<metered::MeteredRecv, Bytes>,
    meter: Arc<metered::Meter>,
    /// Number of body bytes that `Content-Length` still announces, if there is one.
    ///
    /// RFC 9114 section 4.1.2 requires a check of this header, which h3 does not perform.
    remaining: Option<u64>,
    is_finished: bool,
}

impl RequestBody {
    /// Counts received data. Fails if the body is longer or shorter than `Content-Length`.
    fn check_length(&mut self, data: Option<&Bytes>) -> Result<(), axum::BoxError> {
        let (Some(remaining), came) = (self.remaining, data.map_or(0, Bytes::len) as u64) else {
            return Ok(());
        };
        match remaining.checked_sub(came) {
            Some(rest) if data.is_some() || rest == 0 => {
                self.remaining = Some(rest);
                Ok(())
            }
            _ => Err("the length of the request body differs from Content-Length".into()),
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.is_finished {
            return Poll::Ready(None);
        }
        let received = match ready!(self.stream.poll_recv_data(context)) {
            Ok(Some(mut data)) => Ok(Some(data.copy_to_bytes(data.remaining()))),
            // Trailers are not read: no request handler uses them.
            Ok(None) => Ok(None),
            Err(error) => Err(error.into()),
        };
        let received = received.and_then(|data| self.check_length(data.as_ref()).map(|()| data));
        self.is_finished = !matches!(received, Ok(Some(_)));
        Poll::Ready(received.transpose().map(|data| {
            data.map(|data| {
                self.meter.release(data.len());
                Frame::data(data)
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.is_finished
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
