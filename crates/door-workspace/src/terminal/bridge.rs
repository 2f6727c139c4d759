//! `bridge.json`: input for terminals that another program owns, an editor for instance.
//!
//! The protocol names the file and not its shape. Ours: `requests`, which the host of a terminal takes out
//! and types, and `responses`, `{id, status, error?}`, which it puts in. Changed under the same kind of lock
//! as `state.json`, replaced as a whole; fields that we do not know are kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use switchboard_core::AgentId;
use switchboard_sys::files::Dir;
use switchboard_sys::lock::{DirLock, LockOptions};

use super::executor::ExecuteRequest;
use crate::error::WorkspaceError;
use crate::ids;
use crate::translate::iso;
use crate::workspace::{Workspace, blocking};

const FILE: &str = "bridge.json";

/// More than the file can hold with [`MOST`] requests of the largest kind.
const LIMIT: u64 = 64 << 20;

/// Most requests at a time. A further one fails: a host that leaves so many lie is not there.
const MOST: usize = 64;

/// How long a host has to answer: the protocol's number.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to look for the answer. It is a file of others, on any file system, so looking is what works.
const LOOK: Duration = Duration::from_millis(100);

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

/// Takes out requests from before this process: nobody waits for their answers, and who knows who wrote them. A file
/// that came with somebody else's repository must not have its host type anything.
pub(crate) async fn clear(workspace: &Workspace) -> Result<(), String> {
    let root = workspace.tree().root().clone();
    let has_any = blocking(move || Ok(!load(&root)?.requests.is_empty()));
    if !has_any.await.map_err(|error| crate::delivery::describe(&error))? {
        return Ok(());
    }
    tracing::warn!("{FILE} had requests from before; they are not typed");
    change(workspace, |file| {
        file.requests.clear();
        Ok(())
    })
    .await
}

/// Hands one line to the host of a terminal and waits for its answer; says why where that failed.
pub(crate) async fn type_line(
    workspace: &Workspace,
    agent: &AgentId,
    execute: &ExecuteRequest,
    line: &str,
) -> Result<(), String> {
    type_line_within(workspace, agent, execute, line, PATIENCE).await
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
        if file.requests.len() >= MOST {
            return Err(format!("{MOST} requests wait in {FILE} and no host takes them"));
        }
        file.requests.push(request);
        Ok(())
    })
    .await?;
    let root = workspace.tree().root().clone();
    let answered = tokio::time::timeout(patience, answer(root, id.clone())).await;
    // Whatever came of it, nothing of it stays; the last look may find the answer that came too late.
    change(workspace, move |file| {
        let was_there = remove(&mut file.requests, &id).is_some();
        let late = remove(&mut file.responses, &id);
        match answered.ok().or(late) {
            Some(response) => outcome(&response),
            None if was_there => Err(format!("no host took it from {FILE} within {} s", patience.as_secs())),
            None => {
                Err("its host took it and did not say what came of it: it may have been typed".to_owned())
            }
        }
    })
    .await
}

/// Looks for the answer to a request, without a lock: the file is always replaced as a whole.
async fn answer(root: Dir, id: String) -> Map<String, Value> {
    loop {
        let (root, wanted) = (root.clone(), id.clone());
        let found = tokio::task::spawn_blocking(move || {
            load(&root).ok().and_then(|mut file| remove(&mut file.responses, &wanted))
        });
        if let Ok(Some(response)) = found.await {
            return response;
        }
        tokio::time::sleep(LOOK).await;
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

/// Changes the file under its lock; says why where that failed or `change` said no.
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
    changed.await.map_err(|error| crate::delivery::describe(&error))?
}

/// The file; a new one where there is none. One that is something else is left alone.
fn load(root: &Dir) -> Result<BridgeFile, WorkspaceError> {
    let bytes = root.read(FILE, LIMIT)?.map_or_else(|| b"{}".to_vec(), |found| found.bytes);
    serde_json::from_slice(&bytes)
        .map_err(|error| WorkspaceError::DamagedBridge { problem: error.to_string() })
}

#[cfg(test)]
#[path = "bridge_tests.rs"]
mod tests;
