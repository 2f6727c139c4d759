//! MCP over HTTP on the loopback address.

mod admission;
mod auth_rate_limit;
mod batch;
mod deferred_response;
mod error;
mod replay;
mod sessions;
mod sse;
mod streamable;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Router, middleware};
use http::StatusCode;
use rmcp::ServerHandler;
use serde_json::{Map, Value, json};
use switchboard_http::{ConnectionLimits, ConnectionPermits, Middleware, Plain, Server};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::admission::{Admission, HEALTH, MESSAGES, SSE};
use self::error::{HttpError, json_response};
use self::sessions::Sessions;
use self::sse::{Sse, Streams};
use self::streamable::Streamable;
use crate::config::HttpConfig;
use crate::error::McpError;
use crate::listener::Listener;
use crate::panics::Isolated;
use crate::token::Token;

/// Grace period for responses in flight after the shutdown. It is less than the two seconds within which the shutdown
/// completes.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(1500);

/// Factory that creates the handler of a session.
type HandlerFactory = Arc<dyn Fn() -> Isolated + Send + Sync>;

/// Function that returns the fields which the server's owner adds to `/health`.
type HealthFields = Arc<dyn Fn() -> Value + Send + Sync>;

/// Serves MCP, `/health` and the `extra` routes on `listener` until `shutdown`.
///
/// `factory` creates the handler of each session and of each stateless request; it is also called whenever only a
/// tool's schema is needed. It must therefore be cheap and free of side effects. `health` adds fields to the response
/// of `/health`. The `extra` routes are behind the same admission checks, and their handlers get a complete JSON body
/// of bounded size.
///
/// Returns within two seconds of `shutdown`, with all connections closed.
pub async fn serve_http<H: ServerHandler>(
    listener: Listener,
    config: HttpConfig,
    token: Token,
    health: impl Fn() -> Value + Send + Sync + 'static,
    extra: Router,
    factory: impl Fn() -> H + Send + Sync + 'static,
    shutdown: CancellationToken,
) -> Result<(), McpError> {
    let factory: HandlerFactory = Arc::new(move || Isolated::new(factory()));
    serve_handlers(listener, config, token, Arc::new(health), extra, factory, shutdown).await
}

async fn serve_handlers(
    listener: Listener,
    config: HttpConfig,
    token: Token,
    health: HealthFields,
    extra: Router,
    factory: HandlerFactory,
    shutdown: CancellationToken,
) -> Result<(), McpError> {
    let admission = Arc::new(Admission::new(&config, listener.port(), token.clone())?);
    let closing = shutdown.child_token();
    // Background tasks end with this function, even if its future is dropped.
    let _closing = closing.clone().drop_guard();
    let permits = Arc::new(Semaphore::new(config.max_sessions));
    let sessions = Sessions::default();

    let sse = Sse {
        factory: factory.clone(),
        streams: Streams::default(),
        permits: permits.clone(),
        max_sessions: config.max_sessions,
        keep_alive: config.keep_alive,
        token,
        closing: closing.clone(),
    };
    let streamable = Streamable::new(&config, factory, sessions.clone(), permits.clone(), closing.clone());
    let state = HealthState { permits, max_sessions: config.max_sessions, started: Instant::now(), health };
    let router = Router::new()
        .route(HEALTH, get(health_response).with_state(state))
        .route("/mcp", any(streamable::serve).with_state(streamable))
        .route(SSE, get(sse::open).with_state(sse.clone()))
        .route(MESSAGES, post(sse::post).with_state(sse))
        .merge(extra)
        .fallback(|| async { HttpError::NoSuchPath })
        .method_not_allowed_fallback(|| async { HttpError::WrongMethod })
        .layer(middleware::from_fn_with_state(admission, admission::admit_request));

    tokio::spawn(end_idle_sessions(sessions.clone(), config.session_idle_timeout, closing.clone()));
    let server = Server {
        middleware: Arc::new(Middleware::plain(router)),
        limits: connection_limits(&config),
        permits: ConnectionPermits::new(config.max_connections, None),
        rejection: Some(
            HttpError::TooManyConnections { limit: config.max_connections }.into_raw_response().into(),
        ),
        closing,
    };
    Arc::new(server).serve(Plain, listener.into_socket()).await;
    sessions.end_all().await;
    Ok(())
}

/// Returns the limits of a connection. Requests have no timeout, because event streams and waiting calls may last for
/// hours.
fn connection_limits(config: &HttpConfig) -> ConnectionLimits {
    ConnectionLimits {
        header_bytes: config.header_limit,
        requests_per_connection: 1,
        handshake_timeout: config.header_timeout,
        header_timeout: config.header_timeout,
        write_timeout: config.write_timeout,
        request_timeout: None,
        idle_timeout: None,
        shutdown_grace: SHUTDOWN_GRACE,
    }
}

/// State of the health endpoint.
#[derive(Clone)]
struct HealthState {
    permits: Arc<Semaphore>,
    max_sessions: usize,
    started: Instant,
    health: HealthFields,
}

/// Serves `GET /health`: status and load of the server. Contains no secrets and never blocks.
async fn health_response(State(state): State<HealthState>) -> Response {
    let mut body = match (state.health)() {
        Value::Object(body) => body,
        _ => Map::new(),
    };
    let ours = json!({
        "status": "ok",
        "name": "switchboard",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime": state.started.elapsed().as_secs(),
        "transport": "sse",
        "sessions": state.max_sessions - state.permits.available_permits(),
    });
    if let Value::Object(ours) = ours {
        body.extend(ours);
    }
    json_response(StatusCode::OK, Value::Object(body).to_string()).into_response()
}

/// Ends sessions whose clients disconnected without closing them.
async fn end_idle_sessions(sessions: Sessions, limit: Duration, closing: CancellationToken) {
    // The interval is short enough that a session ends shortly after its timeout.
    let mut ticks = interval((limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(30)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = ticks.tick() => sessions.end_idle(limit).await,
        }
    }
}
