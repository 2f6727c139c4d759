//! Who asks, and what a child may ask of them in return.

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// The client at the other end of a session.
///
/// A child's own requests and notifications go to it as they are; it is never answered for.
pub trait Host: Send + Sync + 'static {
    /// The capabilities that the client declared, as JSON.
    fn capabilities(&self) -> serde_json::Value;

    /// Passes a notification on. What cannot be passed on is dropped.
    fn notify(&self, method: &str, params: Option<Box<RawValue>>) -> BoxFuture<'_, ()>;

    /// Passes a request on and waits for the answer. `child` is its's name, for the person to see.
    fn request(
        &self,
        child: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, RpcError>>;
}

/// A client, as it can be told from others.
#[derive(Clone)]
pub struct ClientRef(Weak<dyn Host>);

impl ClientRef {
    /// That of a client.
    pub fn of(host: &Arc<dyn Host>) -> Self {
        Self(Arc::downgrade(host))
    }

    /// Whether it is this client's.
    pub fn is(&self, host: &Arc<dyn Host>) -> bool {
        std::ptr::addr_eq(self.0.as_ptr(), Arc::as_ptr(host))
    }
}

impl fmt::Debug for ClientRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientRef").field(&self.0.as_ptr()).finish()
    }
}

/// Who makes a call, and how it can be called off.
#[derive(Clone, Default)]
pub struct Caller {
    /// The client, where there is one that can be asked back. A person's command line is none.
    pub host: Option<Arc<dyn Host>>,
    /// The token by which the client wants to hear of progress.
    pub progress_token: Option<Box<RawValue>>,
    /// Fires when the client no longer wants the answer.
    pub cancelled: CancellationToken,
    /// What the client said about the request, for the child to see: its `_meta`.
    pub meta: Option<Box<RawValue>>,
    /// The client's answers to what the child asked for when the same call was made before.
    pub input_responses: Option<Box<RawValue>>,
    /// What the child wants to have back with them.
    pub request_state: Option<Box<RawValue>>,
}

impl Caller {
    /// The parameters of a call of a tool, with all that the client said beside it.
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

/// An error as JSON-RPC has it.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Its number.
    pub code: i64,
    /// What it says.
    pub message: String,
    /// What it adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}
