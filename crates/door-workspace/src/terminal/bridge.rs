//! `bridge.json`: input for terminals that another program owns, such as an editor.
//!
//! The protocol defines the file's name but not its format. Switchboard's format has two lists. The host of a terminal
//! removes an entry from `requests`, types it, and adds an entry `{id, status, error?}` to `responses`. Writers take
//! the same kind of lock as for `state.json` and replace the whole file. Unknown fields are retained.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use switchboard_core::{AgentId, describe_json_error};
use switchboard_sys::files::Dir;
use switchboard_sys::lock::{DirLock, LockOptions};

use super::executor::ExecuteRequest;
use crate::error::WorkspaceError;
use crate::ids;
use crate::translate::iso;
use crate::workspace::{Workspace, blocking};

const FILE: &str = "bridge.json";

/// Maximum size of the file in bytes.
///
/// This is more than [`MAX_REQUESTS`] requests of maximum size need.
const LIMIT: u64 = 64 << 20;

/// Maximum number of pending requests; a further request fails.
///
/// A host that leaves so many requests pending is not running.
const MAX_REQUESTS: usize = 64;

/// Timeout for a host's answer, as defined by the protocol.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval for a host's answer.
///
/// The file may be on any file system and is written by another program, so only polling is reliable.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize, Deserialize)]
struct BridgeFile {
    #[serde(default = "version")]
    version: u32,
    #[serde(default)]
    requests: Vec<Map<String, Value>>,
    #[serde(default)]
    responses: Vec<Map<String, Value>>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

fn version() -> u32 {
    1
}

/// Removes the requests that existed before this process started.
///
/// No process waits for their answers, and their writer is unknown: a file that came with a repository must not make
/// the host type anything.
pub(crate) async fn clear(workspace: &Workspace) -> Result<(), String> {
    let root = workspace.tree().root().clone();
    let has_any = blocking(move || Ok(!load(&root)?.requests.is_empty()));
    if !has_any.await.map_err(|error| switchboard_core::error_chain(&error))? {
        return Ok(());
    }
    tracing::warn!("{FILE} had requests of an earlier process; they were removed");
    change(workspace, |file| {
        file.requests.clear();
        Ok(())
    })
    .await
}

/// Sends one line to the host of a terminal and waits for the answer.
///
/// Returns the reason of a failure as the error.
pub(crate) async fn type_line(
    workspace: &Workspace,
    agent: &AgentId,
    execute: &ExecuteRequest,
    line: &str,
) -> Result<(), String> {
    type_line_within(workspace, agent, execute, line, HOST_TIMEOUT).await
}

pub(crate) async fn type_line_within(
    workspace: &Workspace,
    agent: &AgentId,
    execute: &ExecuteRequest,
    line: &str,
    patience: Duration,
) -> Result<(), String> {
    let id = ids::native_id(&execute.message);
    let now = iso(workspace.hub().now());
    let request = json!({
        "id": id, "terminal": agent.to_string(), "input": line, "paced": true,
        "source": {
            "actor": execute.message.from.to_string(), "tool": "run_in_terminal", "pid": std::process::id(),
            "createdAt": now, "allowBroadcast": false, "messageId": id, "action": execute.message.kind.as_str(),
            "workflow": null,
        },
        "createdAt": now,
    });
    let Value::Object(request) = request else { return Err("the request is no object".to_owned()) };
    change(workspace, move |file| {
        if file.requests.len() >= MAX_REQUESTS {
            return Err(format!("{MAX_REQUESTS} requests wait in {FILE} and no host takes them"));
        }
        file.requests.push(request);
        Ok(())
    })
    .await?;
    let root = workspace.tree().root().clone();
    let answered = tokio::time::timeout(patience, wait_for_response(root, id.clone())).await;
    // Remove the request and the response in any case. This last read may find an answer that arrived too late.
    change(workspace, move |file| {
        let was_there = remove(&mut file.requests, &id).is_some();
        let too_late = remove(&mut file.responses, &id);
        match answered.ok().or(too_late) {
            Some(response) => outcome(&response),
            None if was_there => Err(format!("no host took it from {FILE} within {} s", patience.as_secs())),
            None => Err("its host took it and did not report a result: it may have been typed".to_owned()),
        }
    })
    .await
}

/// Polls for the answer to a request.
///
/// Needs no lock, because the file is always replaced as a whole.
async fn wait_for_response(root: Dir, id: String) -> Map<String, Value> {
    loop {
        let (root, wanted) = (root.clone(), id.clone());
        let found = tokio::task::spawn_blocking(move || {
            load(&root).ok().and_then(|mut file| remove(&mut file.responses, &wanted))
        });
        if let Ok(Some(response)) = found.await {
            return response;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn outcome(response: &Map<String, Value>) -> Result<(), String> {
    match response.get("status").and_then(Value::as_str) {
        Some("executed") => Ok(()),
        status => {
            let error = response.get("error").and_then(Value::as_str);
            Err(format!("its host said '{}': {}", status.unwrap_or("?"), error.unwrap_or("no reason given")))
        }
    }
}

fn remove(entries: &mut Vec<Map<String, Value>>, id: &str) -> Option<Map<String, Value>> {
    let at = entries.iter().position(|entry| entry.get("id").and_then(Value::as_str) == Some(id))?;
    Some(entries.remove(at))
}

/// Changes the file under its lock.
///
/// Returns the reason if the change failed or `change` rejected it.
async fn change<F>(workspace: &Workspace, change: F) -> Result<(), String>
where
    F: FnOnce(&mut BridgeFile) -> Result<(), String> + Send + 'static,
{
    let root = workspace.tree().root().clone();
    let changed = blocking(move || {
        let _lock = DirLock::acquire(&root, FILE, LockOptions::default())?;
        let mut file = load(&root)?;
        let answer = change(&mut file);
        root.replace(FILE, &crate::wire::pretty(&file), 0o600)?;
        Ok(answer)
    });
    changed.await.map_err(|error| switchboard_core::error_chain(&error))?
}

/// Reads the file, or creates an empty one.
///
/// A file in another format causes an error and stays unchanged.
fn load(root: &Dir) -> Result<BridgeFile, WorkspaceError> {
    let bytes = root.read(FILE, LIMIT)?.map_or_else(|| b"{}".to_vec(), |found| found.bytes);
    serde_json::from_slice(&bytes)
        .map_err(|error| WorkspaceError::DamagedBridge { problem: describe_json_error(&error) })
}

#[cfg(test)]
#[path = "bridge_tests.rs"]
mod tests;
