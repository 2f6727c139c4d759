//! What Codex does in a turn, item by item.

use std::collections::HashMap;

use serde_json::Value;

use super::super::rpc::{tail, text};
use super::super::{Happening, Report};
use crate::wire::event::Change;

/// How much of a command's output is told.
const OUTPUT: usize = 16 << 10;

/// The items of a turn, as far as they are asked for again.
#[derive(Debug, Default)]
pub(super) struct Items {
    changes: HashMap<String, Vec<Change>>,
    has_final: bool,
}

impl Items {
    /// The changes of an item that was begun.
    pub(super) fn changes(&self, item: &str) -> Vec<Change> {
        self.changes.get(item).cloned().unwrap_or_default()
    }

    /// What an item that begins or ends means.
    pub(super) fn take(&mut self, params: &Value, is_over: bool) -> Option<Report> {
        let item = params.get("item")?;
        let item_id = text(item, "/id").unwrap_or_default();
        match item.get("type").and_then(Value::as_str)? {
            "agentMessage" if is_over => {
                let is_final = text(item, "/phase").as_deref() == Some("final_answer");
                // A remark on the way does not take the place of the answer.
                if self.has_final && !is_final {
                    return None;
                }
                self.has_final |= is_final;
                text(item, "/text").map(Report::Answer)
            }
            "commandExecution" => {
                let command = text(item, "/command").unwrap_or_default();
                Some(Report::Happened(if is_over {
                    Happening::CommandCompleted {
                        item_id,
                        command,
                        status: text(item, "/status").unwrap_or_else(|| "completed".to_owned()),
                        exit_code: item.get("exitCode").and_then(Value::as_i64),
                        output: text(item, "/aggregatedOutput").map(|output| tail(&output, OUTPUT)),
                    }
                } else {
                    Happening::CommandStarted { item_id, command, cwd: text(item, "/cwd") }
                }))
            }
            "fileChange" => {
                let changes: Vec<Change> =
                    item.get("changes").and_then(Value::as_array)?.iter().map(change).collect();
                self.changes.insert(item_id.clone(), changes.clone());
                let status = text(item, "/status").unwrap_or_else(|| "inProgress".to_owned());
                Some(Report::Happened(Happening::FileChange { item_id, status, changes }))
            }
            _ => None,
        }
    }
}

fn change(change: &Value) -> Change {
    Change {
        path: text(change, "/path").unwrap_or_default(),
        kind: text(change, "/kind/type").or_else(|| text(change, "/kind")).unwrap_or_default(),
        diff: text(change, "/diff"),
    }
}
