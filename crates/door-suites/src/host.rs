//! The caller of a request, and the interface through which a child reaches its client.

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// The MCP client (host) at the other end of a session.
///
/// Requests and notifications of a child are relayed to the client unchanged; Switchboard never answers for it.
pub trait Host: Send + Sync + 'static {
    /// Returns the capabilities that the client declared, as JSON.
    fn capabilities(&self) -> serde_json::Value;

    /// Relays a notification to the client. The notification is dropped if it cannot be delivered.
    fn notify(&self, method: &str, params: Option<Box<RawValue>>) -> BoxFuture<'_, ()>;

    /// Relays a request to the client and waits for the answer. `child` is the child's name, which is shown to the
    /// user.
    fn request(
        &self,
        child: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, RpcError>>;
}

/// Weak reference that identifies a client.
#[derive(Clone)]
pub struct ClientRef(Weak<dyn Host>);

impl ClientRef {
    /// Creates a reference to a client.
    pub fn of(host: &Arc<dyn Host>) -> Self {
        Self(Arc::downgrade(host))
    }

    /// Returns true if this reference identifies the given client.
    pub fn is(&self, host: &Arc<dyn Host>) -> bool {
        std::ptr::addr_eq(self.0.as_ptr(), Arc::as_ptr(host))
    }
}

impl fmt::Debug for ClientRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientRef").field(&self.0.as_ptr()).finish()
    }
}

/// The caller of a request, with its cancellation token.
#[derive(Clone, Default)]
pub struct Caller {
    /// The client, if it can receive requests. `None` for a call from the command line.
    pub host: Option<Arc<dyn Host>>,
    /// Token under which the client expects progress notifications.
    pub progress_token: Option<Box<RawValue>>,
    /// Fires when the client cancels the request.
    pub cancelled: CancellationToken,
    /// The client's `_meta` for the request, relayed to the child.
    pub meta: Option<Box<RawValue>>,
    /// Answers of the client to the child's input requests from an earlier round of the same call.
    pub input_responses: Option<Box<RawValue>>,
    /// Opaque state of the child, which must be sent back together with `input_responses`.
    pub request_state: Option<Box<RawValue>>,
}

impl Caller {
    /// Builds the `tools/call` parameters, including the fields that the client sent with its request.
    pub(crate) fn call_params(&self, tool: &str, arguments: &RawValue) -> Option<Box<RawValue>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            name: &'a str,
            arguments: &'a RawValue,
            #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
            meta: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            input_responses: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            request_state: Option<&'a RawValue>,
        }
        let params = Params {
            name: tool,
            arguments,
            meta: self.meta.as_deref(),
            input_responses: self.input_responses.as_deref(),
            request_state: self.request_state.as_deref(),
        };
        serde_json::value::to_raw_value(&params).ok()
    }
}

/// A JSON-RPC error.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Error code.
    pub code: i64,
    /// Error message.
    pub message: String,
    /// Additional data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}
