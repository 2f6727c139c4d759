//! What a child asks of us. Only `ping` is answered here: everything else is for the client to answer, or refused.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::envelope::{answer, code};
use super::object::{Object, raw};
use super::status::count;
use crate::host::{Host, RpcError};

/// How many questions a child may have open. One more is refused, with the reason.
const OPEN: usize = 64;

/// The questions that wait for a client's answer, by the child's own ids.
#[derive(Default)]
pub(super) struct ServerRequests(Mutex<HashMap<String, CancellationToken>>);

impl ServerRequests {
    /// Whether one is open.
    pub(super) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Calls off the question that a `notifications/cancelled` of the child names.
    pub(super) fn call_off(&self, params: &RawValue) {
        let Some(params) = Object::parse(params) else { return };
        if let Some(off) = params.get("requestId").and_then(|id| self.0.lock().remove(id.get())) {
            off.cancel();
        }
    }

    /// Calls off all of them.
    pub(super) fn call_off_all(&self) {
        for off in std::mem::take(&mut *self.0.lock()).into_values() {
            off.cancel();
        }
    }
}

impl Connection {
    /// Takes a question of the child.
    pub(super) fn asked(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        via: Option<u64>,
    ) {
        if method == "ping" {
            self.send("", answer(id, &Ok(raw(&Object::default()))));
            return;
        }
        let host = match self.willing_host(method, via) {
            Ok(host) => host,
            Err(refusal) => return self.refuse(id, refusal),
        };
        let off = CancellationToken::new();
        {
            let mut open = self.asks.0.lock();
            if open.len() >= OPEN {
                drop(open);
                let why = format!("{OPEN} questions are open already; wait until some are answered");
                return self.refuse(id, refusal(code::INTERNAL, why));
            }
            open.insert(id.get().to_owned(), off.clone());
        }
        let (connection, id) = (Arc::clone(self), id.to_owned());
        let (method, params) = (method.to_owned(), params.map(RawValue::to_owned));
        tokio::spawn(async move {
            let name = connection.shared.name();
            tokio::select! {
                outcome = host.request(name, &method, params) => {
                    if connection.asks.0.lock().remove(id.get()).is_some() {
                        connection.send("", answer(&id, &outcome));
                    }
                }
                () = off.cancelled() => {}
            }
        });
    }

    /// The client that a question is for, if it said that it answers such questions.
    pub(super) fn willing_host(&self, method: &str, via: Option<u64>) -> Result<Arc<dyn Host>, RpcError> {
        let Some(capability) = capability(method) else {
            return Err(refusal(
                code::METHOD_NOT_FOUND,
                format!("clients do not know the method `{method}`"),
            ));
        };
        let host = self.host_for(via).map_err(|count| {
            if count == 0 {
                let why = format!("no client is there that could answer `{method}`");
                return refusal(code::METHOD_NOT_FOUND, why);
            }
            let why =
                format!("{count} clients use this server, and `{method}` does not say which one it is for");
            refusal(code::INTERNAL, why)
        })?;
        willing(&host, method, capability)?;
        Ok(host)
    }

    fn refuse(self: &Arc<Self>, id: &RawValue, refusal: RpcError) {
        count(&self.shared.counters.refused_requests);
        self.send("", answer(id, &Err(refusal)));
    }
}

/// The client's capability without which a method is not asked of it.
pub(super) fn capability(method: &str) -> Option<&'static str> {
    match method {
        "roots/list" => Some("roots"),
        "sampling/createMessage" => Some("sampling"),
        "elicitation/create" => Some("elicitation"),
        _ => None,
    }
}

/// Refuses where the client did not declare the capability.
pub(super) fn willing(host: &Arc<dyn Host>, method: &str, capability: &str) -> Result<(), RpcError> {
    if host.capabilities().get(capability).is_some_and(|declared| !declared.is_null()) {
        return Ok(());
    }
    let why = format!("the client did not declare `{capability}`, so that `{method}` is not asked of it");
    Err(refusal(code::METHOD_NOT_FOUND, why))
}

fn refusal(code: i64, message: String) -> RpcError {
    RpcError { code, message, data: None }
}

#[cfg(test)]
#[path = "server_requests_tests.rs"]
mod tests;
