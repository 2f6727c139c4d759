//! What a request carries in `_meta`, by the revision that is spoken.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::object::{Object, raw};
use super::server_requests::capability;
use crate::host::Caller;

/// The revision without sessions, in which every request says by itself what it needs.
pub(super) const MODERN: &str = "2026-07-28";

/// The newest revision that begins with `initialize`.
pub(super) const LEGACY: &str = "2025-11-25";

/// The revisions that begin with `initialize`, newest first.
pub(super) const LEGACY_KNOWN: &[&str] = &[LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
/// Where a result of 2026-07-28 says whose it is.
pub(super) const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Which of the two eras of MCP a child belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Meta {
    /// Sessions: what the client can do was said once.
    #[default]
    Legacy,
    /// No sessions: every request says it.
    Modern,
}

impl Meta {
    /// The parameters as they are to be sent.
    ///
    /// A progress token is always ours, the number of the request: two clients may well use the same, and a
    /// client's own token that came along in the parameters must not reach the child.
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
        let empty = Object::default().to_raw();
        let params = params.unwrap_or(&empty);
        // What is no object is sent as it is: the child says better than we could what is wrong with it.
        let Some(mut object) = Object::parse(params) else { return Some(params.to_owned()) };
        let old_meta = object.get("_meta").map(RawValue::to_owned);
        let mut meta = old_meta.as_deref().and_then(Object::parse).unwrap_or_default();
        meta.remove("progressToken");
        if let Some(id) = progress {
            meta.set("progressToken", raw(&id));
        }
        if self == Self::Modern {
            meta.set(VERSION_KEY, raw(&MODERN));
            meta.set(CAPABILITIES_KEY, raw(&capabilities(caller)));
            meta.set(CLIENT_KEY, raw(&client_info()));
        }
        if meta.is_empty() {
            object.remove("_meta");
        } else {
            object.set("_meta", meta.to_raw());
        }
        Some(object.to_raw())
    }
}

/// Who we are.
pub(super) fn client_info() -> Value {
    json!({"name": "switchboard", "version": env!("CARGO_PKG_VERSION")})
}

/// What the caller's client declared, as far as it is passed on: answers to questions of a child.
pub(super) fn capabilities(caller: &Caller) -> Value {
    let Some(Value::Object(declared)) = caller.host.as_ref().map(|host| host.capabilities()) else {
        return Value::Object(Map::new());
    };
    let passed_on = ["roots/list", "sampling/createMessage", "elicitation/create"].map(capability);
    Value::Object(declared.into_iter().filter(|(name, _)| passed_on.contains(&Some(name.as_str()))).collect())
}
