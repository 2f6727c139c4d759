//! Request `_meta`, which depends on the protocol revision.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use switchboard_core::json::{RawObject, to_raw};

use super::server_requests::capability;
use crate::host::Caller;

/// The sessionless revision: every request carries its own context in `_meta`.
pub(super) const MODERN: &str = "2026-07-28";

/// The newest revision with `initialize`.
pub(super) const LEGACY: &str = "2025-11-25";

/// Known revisions with `initialize`, newest first.
pub(super) const LEGACY_KNOWN: &[&str] = &[LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
/// Key of the server info in results of 2026-07-28.
pub(super) const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// `_meta` format, by whether the revision has sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Meta {
    /// Revisions with sessions: capabilities are declared once, in the handshake.
    #[default]
    Legacy,
    /// The sessionless revision: every request declares the capabilities.
    Modern,
}

impl Meta {
    /// Builds the parameters to send, with `_meta` in this format.
    ///
    /// The progress token is always Switchboard's own request id. Two clients may use the same token, and a client's
    /// token must not reach the child.
    pub(super) fn apply(
        self,
        params: Option<&RawValue>,
        caller: &Caller,
        progress: Option<u64>,
    ) -> Option<Box<RawValue>> {
        let needs_change = self == Self::Modern
            || progress.is_some()
            || params.is_some_and(|params| params.get().contains("progressToken"));
        if !needs_change {
            return params.map(RawValue::to_owned);
        }
        let empty = RawObject::default().to_raw();
        let params = params.unwrap_or(&empty);
        // Send non-object parameters unchanged: the child reports the error better than Switchboard could.
        let Some(mut object) = RawObject::parse(params) else { return Some(params.to_owned()) };
        let old_meta = object.get("_meta").map(RawValue::to_owned);
        let mut meta = old_meta.as_deref().and_then(RawObject::parse).unwrap_or_default();
        meta.remove("progressToken");
        if let Some(id) = progress {
            meta.set("progressToken", to_raw(&id));
        }
        if self == Self::Modern {
            meta.set(VERSION_KEY, to_raw(&MODERN));
            meta.set(CAPABILITIES_KEY, to_raw(&capabilities(caller)));
            meta.set(CLIENT_KEY, to_raw(&client_info()));
        }
        if meta.is_empty() {
            object.remove("_meta");
        } else {
            object.set("_meta", meta.to_raw());
        }
        Some(object.to_raw())
    }
}

/// Returns Switchboard's client info for the handshake.
pub(super) fn client_info() -> Value {
    json!({"name": "switchboard", "version": env!("CARGO_PKG_VERSION")})
}

/// Returns the capabilities that Switchboard declares to the child on behalf of the client.
pub(super) fn capabilities(caller: &Caller) -> Value {
    let Some(Value::Object(declared)) = caller.host.as_ref().map(|host| host.capabilities()) else {
        return Value::Object(Map::new());
    };
    let passed_on = ["roots/list", "sampling/createMessage", "elicitation/create"].map(capability);
    Value::Object(declared.into_iter().filter(|(name, _)| passed_on.contains(&Some(name.as_str()))).collect())
}
