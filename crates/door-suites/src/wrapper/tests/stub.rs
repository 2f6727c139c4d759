//! Stub of a model API with scripted replies; records requests.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Reply to one request.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    status: u16,
    body: Value,
    retry_after: Option<&'static str>,
    hangs: bool,
}

impl Reply {
    pub(super) fn ok(body: Value) -> Self {
        Self { status: 200, body, retry_after: None, hangs: false }
    }

    pub(super) fn status(status: u16, body: Value) -> Self {
        Self { status, ..Self::ok(body) }
    }

    /// Sets the `Retry-After` header, in seconds.
    pub(super) fn retry_after(self, seconds: &'static str) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Creates a reply that is never sent.
    pub(super) fn hanging() -> Self {
        Self { hangs: true, ..Self::ok(Value::Null) }
    }
}

/// A recorded request.
#[derive(Debug, Clone)]
pub(super) struct RecordedRequest {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

/// The stub server. The last reply repeats.
pub(super) struct Stub {
    pub(super) base: String,
    state: Arc<Script>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<RecordedRequest>>,
}

impl Stub {
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let state =
            Arc::new(Script { replies: Mutex::new(replies.into_iter().collect()), ..Script::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(state.clone());
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { base, state, server }
    }

    /// Returns the recorded requests.
    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.state.asked.lock().clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(script): State<Arc<Script>>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    let body = serde_json::from_str(&body).expect("a JSON body");
    script.asked.lock().push(RecordedRequest { path: uri.path().to_owned(), headers, body });
    let reply = {
        let mut replies = script.replies.lock();
        if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }
    };
    let Some(reply) = reply else { return StatusCode::NOT_IMPLEMENTED.into_response() };
    if reply.hangs {
        return std::future::pending().await;
    }
    let status = StatusCode::from_u16(reply.status).expect("a status");
    let mut response = (status, reply.body.to_string()).into_response();
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().insert("retry-after", HeaderValue::from_static(seconds));
    }
    response
}
