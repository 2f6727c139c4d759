//! Accept loop and connection lifecycle.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use switchboard_sys::write_timeout::WriteTimeout;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::error::HttpError;
use crate::config::HttpConfig;

/// How long responses in flight may take after the shutdown. Less than the two seconds of a complete shutdown.
const GRACE: Duration = Duration::from_millis(1500);

/// Delay after `accept` failed, usually because the process has too many open files.
const OUT_OF_SOCKETS: Duration = Duration::from_millis(100);

/// Serves connections until `closing`, then shuts the remaining ones down.
pub(super) async fn serve(
    socket: TcpListener,
    router: Router,
    config: &HttpConfig,
    closing: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_header_size(config.header_limit)
        // Holds a pipelined request while the previous one is answered; bodies are streamed.
        .max_buf_size(config.header_limit.max(64 * 1024));
    let permits = Arc::new(Semaphore::new(config.max_connections));
    let full = HttpError::TooManyConnections { limit: config.max_connections }.into_raw_response();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = socket.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(OUT_OF_SOCKETS).await;
                continue;
            }
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            // Writes as much as fits without blocking, which on a new connection is all of it.
            let _ = stream.try_write(full.as_bytes());
            continue;
        };
        // Without `TCP_NODELAY`, a small event waits until the client acknowledges the previous one.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let (http, router, closing) = (http.clone(), router.clone(), closing.clone());
        let stream = WriteTimeout::new(stream, config.write_timeout);
        connections.spawn(async move {
            connection(&http, stream, router, closing).await;
            drop(permit);
        });
    }
    drop(socket);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, all_ended).await.is_err() {
        tracing::debug!(left = connections.len(), "closed connections with responses in flight");
    }
    connections.shutdown().await;
}

async fn connection(http: &http1::Builder, stream: WriteTimeout, router: Router, closing: CancellationToken) {
    let service = service_fn(move |request| {
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
