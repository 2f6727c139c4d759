//! Requests of servers behind us to the client, such as sampling or elicitation.

use door_suites::{Host, RpcError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{ProtocolVersion, ServerRequest};
use rmcp::service::{Peer, RequestContext};
use rmcp::{RoleServer, ServiceError};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::convert;

/// Key in `_meta` that tells the client which server behind us sent a request.
const SERVER_KEY: &str = "switchboard/server";

/// JSON-RPC code of an internal error.
const INTERNAL: i64 = -32603;

/// Returns true if a request belongs to no session, so that its client cannot be queried during a call.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// A client with a session, which can be queried at any time.
pub(super) struct PeerHost {
    peer: Peer<RoleServer>,
    capabilities: Value,
}

impl PeerHost {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let capabilities = context.client_capabilities().map(|declared| json!(declared)).unwrap_or_default();
        Self { peer: context.peer.clone(), capabilities }
    }

    pub(super) fn session(peer: &Peer<RoleServer>) -> Self {
        let capabilities = peer.peer_info().map(|info| json!(info.capabilities)).unwrap_or_default();
        Self { peer: peer.clone(), capabilities }
    }
}

impl Host for PeerHost {
    fn capabilities(&self) -> Value {
        self.capabilities.clone()
    }

    fn notify(&self, method: &str, params: Option<Box<RawValue>>) -> BoxFuture<'_, ()> {
        let notification = convert::notification(method, params.as_deref());
        async move {
            if let Some(notification) = notification {
                // Ignore the error: the client has disconnected.
                let _ = self.peer.send_notification(notification).await;
            }
        }
        .boxed()
    }

    fn request(
        &self,
        child: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, RpcError>> {
        let request = read_request(child, method, params.as_deref());
        async move {
            let answer = self.peer.send_request(request?).await.map_err(|error| match error {
                ServiceError::McpError(error) => RpcError {
                    code: error.code.0.into(),
                    message: error.message.into_owned(),
                    data: error.data.and_then(|data| to_raw_value(&data).ok()),
                },
                other => failed(other.to_string()),
            })?;
            to_raw_value(&answer).map_err(|error| failed(error.to_string()))
        }
        .boxed()
    }
}

/// Deserializes a server's request into the types of `rmcp`, and adds the name of the server.
fn read_request(child: &str, method: &str, params: Option<&RawValue>) -> Result<ServerRequest, RpcError> {
    let mut params = match params {
        Some(params) => serde_json::from_str(params.get()).map_err(|error| failed(error.to_string()))?,
        None => json!({}),
    };
    if let Some(object) = params.as_object_mut() {
        let meta = object.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(SERVER_KEY.to_owned(), json!(child));
        }
    }
    serde_json::from_value(json!({ "method": method, "params": params })).map_err(|error| RpcError {
        code: -32602,
        message: error.to_string(),
        data: None,
    })
}

fn failed(message: String) -> RpcError {
    RpcError { code: INTERNAL, message, data: None }
}

/// A server's request to a client without a session, and the channel for the answer.
pub(super) struct PendingRequest {
    pub(super) request: Value,
    pub(super) answer: oneshot::Sender<Value>,
}

/// Maximum number of queued requests of one call. When the queue is full, the server's next request blocks.
const WAITING: usize = 8;

/// A client without a session. Requests to it are queued until it calls again.
pub(super) struct StatelessHost {
    client: PeerHost,
    questions: mpsc::Sender<PendingRequest>,
}

impl StatelessHost {
    pub(super) fn new(context: &RequestContext<RoleServer>) -> (Self, mpsc::Receiver<PendingRequest>) {
        let (questions, requests) = mpsc::channel(WAITING);
        (Self { client: PeerHost::of(context), questions }, requests)
    }
}

impl Host for StatelessHost {
    fn capabilities(&self) -> Value {
        self.client.capabilities()
    }

    /// Forwards a notification to the client. If the call has been paused since, its progress notifications have no
    /// receiver.
    fn notify(&self, method: &str, params: Option<Box<RawValue>>) -> BoxFuture<'_, ()> {
        self.client.notify(method, params)
    }

    fn request(
        &self,
        child: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, RpcError>> {
        let request = read_request(child, method, params.as_deref());
        async move {
            let request = serde_json::to_value(request?).map_err(|error| failed(error.to_string()))?;
            let (answer, answered) = oneshot::channel();
            let gone = || failed("the client did not come back with an answer".to_owned());
            self.questions.send(PendingRequest { request, answer }).await.map_err(|_| gone())?;
            let answer = answered.await.map_err(|_| gone())?;
            to_raw_value(&answer).map_err(|error| failed(error.to_string()))
        }
        .boxed()
    }
}
