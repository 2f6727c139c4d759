//! MCP handshake: negotiates the protocol revision and the capabilities.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::json::{RawObject, to_raw};

use super::connection::Connection;
use super::envelope::code;
use super::error::ChildError;
use super::meta::{self, LEGACY, LEGACY_KNOWN, MODERN, Meta};
use super::status::InitializeResult;
use crate::host::{Caller, RpcError};

/// Opens a session with `initialize`, which all current programs support.
///
/// Falls back to `server/discover` if the child requires the sessionless revision.
pub(super) async fn initialize(
    connection: &Arc<Connection>,
    caller: &Caller,
    limit: Duration,
) -> Result<(), ChildError> {
    let caller = without_progress(caller);
    let answer = match request_initialize(connection, &caller, LEGACY, limit).await {
        Err(ChildError::Rpc(error)) => match supported_version(&error) {
            Some(MODERN) => return discover(connection, &caller, limit).await,
            Some(version) => request_initialize(connection, &caller, version, limit).await?,
            None => return Err(refused(connection, &error)),
        },
        answer => answer?,
    };
    let opened = parse_initialize_result(&answer).ok_or_else(|| {
        connection.shared.cannot_start(
            "its answer to `initialize` has no `protocolVersion`",
            "check that it is an MCP server",
        )
    })?;
    if !LEGACY_KNOWN.contains(&opened.protocol_version.as_str()) {
        // Continue with an unknown revision: content is passed through without being interpreted, so most requests
        // still work.
        let (child, version) = (connection.shared.name(), &opened.protocol_version);
        tracing::warn!(child, version, "a child uses an unknown revision of MCP");
    }
    connection.set_initialized(opened, Meta::Legacy);
    connection.notify("notifications/initialized", None);
    Ok(())
}

/// Opens a connection without a session, using `server/discover` of the newest revision.
pub(super) async fn discover(
    connection: &Arc<Connection>,
    caller: &Caller,
    limit: Duration,
) -> Result<(), ChildError> {
    let caller = without_progress(caller);
    let params = Meta::Modern.apply(None, &caller, None);
    let answer = connection.call("server/discover", params.as_deref(), &caller, limit).await?;
    let opened = parse_discover_result(&answer).ok_or_else(|| {
        let cause = format!("its answer to `server/discover` does not offer the revision {MODERN}");
        connection.shared.cannot_start(cause, "update it, or Switchboard")
    })?;
    connection.set_initialized(opened, Meta::Modern);
    Ok(())
}

async fn request_initialize(
    connection: &Arc<Connection>,
    caller: &Caller,
    version: &str,
    limit: Duration,
) -> Result<Box<RawValue>, ChildError> {
    let params = json!({
        "protocolVersion": version,
        "capabilities": meta::capabilities(caller),
        "clientInfo": meta::client_info(),
    });
    connection.call("initialize", Some(&to_raw(&params)), caller, limit).await
}

/// Returns true if an error lists the sessionless revision as supported.
pub(super) fn offers_modern(error: &RpcError) -> bool {
    let data = error.data.as_ref().filter(|_| error.code == code::UNSUPPORTED_VERSION);
    let data: Option<Value> = data.and_then(|data| serde_json::from_str(data.get()).ok());
    let supported = data.as_ref().and_then(|data| data.get("supported")?.as_array());
    supported.is_some_and(|versions| versions.iter().any(|version| version == MODERN))
}

/// Returns the first known revision that an error lists as supported.
fn supported_version(error: &RpcError) -> Option<&'static str> {
    if !matches!(error.code, code::UNSUPPORTED_VERSION | code::INVALID_PARAMS) {
        return None;
    }
    let data: Value = serde_json::from_str(error.data.as_ref()?.get()).ok()?;
    let supported = data.get("supported")?.as_array()?;
    let is_supported =
        |version: &&&str| supported.iter().any(|candidate| candidate.as_str() == Some(**version));
    LEGACY_KNOWN
        .iter()
        .find(is_supported)
        .or_else(|| [MODERN].iter().find(is_supported).map(|_| &MODERN))
        .copied()
}

fn refused(connection: &Connection, error: &RpcError) -> ChildError {
    connection.shared.cannot_start(
        format!("it refused `initialize`: {error}"),
        "check that it is an MCP server and that its settings are complete",
    )
}

fn parse_initialize_result(answer: &RawValue) -> Option<InitializeResult> {
    let answer: Value = serde_json::from_str(answer.get()).ok()?;
    Some(InitializeResult {
        protocol_version: answer.get("protocolVersion")?.as_str()?.to_owned(),
        capabilities: answer.get("capabilities").cloned().unwrap_or_default(),
        server_info: answer.get("serverInfo").cloned().unwrap_or_default(),
        instructions: answer.get("instructions").and_then(Value::as_str).map(str::to_owned),
    })
}

fn parse_discover_result(answer: &RawValue) -> Option<InitializeResult> {
    let answer: Value = serde_json::from_str(answer.get()).ok()?;
    let versions = answer.get("supportedVersions")?.as_array()?;
    versions.iter().any(|version| version.as_str() == Some(MODERN)).then(|| InitializeResult {
        protocol_version: MODERN.to_owned(),
        capabilities: answer.get("capabilities").cloned().unwrap_or_default(),
        server_info: answer
            .get("serverInfo")
            .or_else(|| answer.get("_meta")?.get(meta::SERVER_KEY))
            .cloned()
            .unwrap_or_default(),
        instructions: answer.get("instructions").and_then(Value::as_str).map(str::to_owned),
    })
}

/// Returns the caller without progress token and cancellation.
///
/// The handshake reports no progress, and one of several waiting callers must not cancel it.
fn without_progress(caller: &Caller) -> Caller {
    Caller { host: caller.host.clone(), ..Caller::default() }
}

/// Parses one page of a list into its items and the next cursor.
pub(super) fn parse_page(page: &RawValue, member: &str) -> Option<(Vec<Box<RawValue>>, Option<String>)> {
    let page = RawObject::parse(page)?;
    let items = serde_json::from_str(page.get(member)?.get()).ok()?;
    Some((items, page.text("nextCursor")))
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
