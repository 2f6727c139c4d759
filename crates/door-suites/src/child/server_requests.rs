//! Requests from a child to its client.
//!
//! Only `ping` is answered here. Other requests are relayed to the client or refused.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::envelope::{answer, code};
use super::status::count;
use crate::host::{Host, RpcError};

/// Maximum number of open requests per child; further requests are refused with an error.
const OPEN: usize = 64;

/// Requests of the child that are waiting for a client's answer, keyed by the child's request id.
#[derive(Default)]
pub(super) struct ServerRequests(Mutex<HashMap<String, CancellationToken>>);

impl ServerRequests {
    /// Returns true if any request is open.
    pub(super) fn has_open(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Cancels the request named by the child's `notifications/cancelled`.
    pub(super) fn cancel(&self, params: &RawValue) {
        let Some(params) = RawObject::parse(params) else { return };
        if let Some(cancel) = params.get("requestId").and_then(|id| self.0.lock().remove(id.get())) {
            cancel.cancel();
        }
    }

    /// Cancels all open requests.
    pub(super) fn cancel_all(&self) {
        for cancel in std::mem::take(&mut *self.0.lock()).into_values() {
            cancel.cancel();
        }
    }
}

impl Connection {
    /// Handles a request sent by the child.
    pub(super) fn handle_request(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        via: Option<u64>,
    ) {
        if method == "ping" {
            self.send("", answer(id, &Ok(to_raw(&RawObject::default()))));
            return;
        }
        let host = match self.host_with_capability(method, via) {
            Ok(host) => host,
            Err(refusal) => return self.refuse(id, refusal),
        };
        let cancel = CancellationToken::new();
        {
            let mut open = self.server_requests.0.lock();
            if open.len() >= OPEN {
                drop(open);
                let reason = format!("{OPEN} requests are open already; wait until some are answered");
                return self.refuse(id, refusal(code::INTERNAL, reason));
            }
            open.insert(id.get().to_owned(), cancel.clone());
        }
        let (connection, id) = (Arc::clone(self), id.to_owned());
        let (method, params) = (method.to_owned(), params.map(RawValue::to_owned));
        tokio::spawn(async move {
            let name = connection.shared.name();
            tokio::select! {
                outcome = host.request(name, &method, params) => {
                    if connection.server_requests.0.lock().remove(id.get()).is_some() {
                        connection.send("", answer(&id, &outcome));
                    }
                }
                () = cancel.cancelled() => {}
            }
        });
    }

    /// Returns the client that should receive a request, if the client declared the required capability.
    pub(super) fn host_with_capability(
        &self,
        method: &str,
        via: Option<u64>,
    ) -> Result<Arc<dyn Host>, RpcError> {
        let Some(capability) = capability(method) else {
            return Err(refusal(
                code::METHOD_NOT_FOUND,
                format!("clients do not support the method `{method}`"),
            ));
        };
        let host = self.host_for(via).map_err(|count| {
            if count == 0 {
                let reason = format!("no client is connected that can answer `{method}`");
                return refusal(code::METHOD_NOT_FOUND, reason);
            }
            let reason =
                format!("{count} clients use this server, and `{method}` does not say which one it is for");
            refusal(code::INTERNAL, reason)
        })?;
        check_capability(&host, method, capability)?;
        Ok(host)
    }

    fn refuse(self: &Arc<Self>, id: &RawValue, refusal: RpcError) {
        count(&self.shared.counters.refused_requests);
        self.send("", answer(id, &Err(refusal)));
    }
}

/// Returns the client capability that a method requires.
pub(super) fn capability(method: &str) -> Option<&'static str> {
    match method {
        "roots/list" => Some("roots"),
        "sampling/createMessage" => Some("sampling"),
        "elicitation/create" => Some("elicitation"),
        _ => None,
    }
}

/// Returns an error if the client did not declare the capability.
pub(super) fn check_capability(host: &Arc<dyn Host>, method: &str, capability: &str) -> Result<(), RpcError> {
    if host.capabilities().get(capability).is_some_and(|declared| !declared.is_null()) {
        return Ok(());
    }
    let reason = format!("the client did not declare `{capability}`, which `{method}` needs");
    Err(refusal(code::METHOD_NOT_FOUND, reason))
}

fn refusal(code: i64, message: String) -> RpcError {
    RpcError { code, message, data: None }
}

#[cfg(test)]
#[path = "server_requests_tests.rs"]
mod tests;
