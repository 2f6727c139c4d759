//! Items of a Codex turn: commands, file changes and answers.

use std::collections::HashMap;

use serde_json::Value;

use super::super::rpc::{string_at, tail};
use super::super::{AgentActivity, Report};
use crate::wire::event::Change;

/// Maximum size of a command's output in a report, in bytes.
const MAX_OUTPUT: usize = 16 << 10;

/// Items of a turn that later messages of Codex refer to.
#[derive(Debug, Default)]
pub(super) struct Items {
    changes: HashMap<String, Vec<Change>>,
    has_final: bool,
}

impl Items {
    /// Returns the file changes of an item.
    pub(super) fn changes(&self, item: &str) -> Vec<Change> {
        self.changes.get(item).cloned().unwrap_or_default()
    }

    /// Returns the report for an item that has started or completed.
    pub(super) fn handle_item(&mut self, params: &Value, is_over: bool) -> Option<Report> {
        let item = params.get("item")?;
        let item_id = string_at(item, "/id").unwrap_or_default();
        match item.get("type").and_then(Value::as_str)? {
            "agentMessage" if is_over => {
                let is_final = string_at(item, "/phase").as_deref() == Some("final_answer");
                // A remark during the turn must not replace the final answer.
                if self.has_final && !is_final {
                    return None;
                }
                self.has_final |= is_final;
                string_at(item, "/text").map(Report::Answer)
            }
            "commandExecution" => {
                let command = string_at(item, "/command").unwrap_or_default();
                Some(Report::Activity(if is_over {
                    AgentActivity::CommandCompleted {
                        item_id,
                        command,
                        status: string_at(item, "/status").unwrap_or_else(|| "completed".to_owned()),
                        exit_code: item.get("exitCode").and_then(Value::as_i64),
                        output: string_at(item, "/aggregatedOutput").map(|output| tail(&output, MAX_OUTPUT)),
                    }
                } else {
                    AgentActivity::CommandStarted { item_id, command, cwd: string_at(item, "/cwd") }
                }))
            }
            "fileChange" => {
                let changes: Vec<Change> =
                    item.get("changes").and_then(Value::as_array)?.iter().map(change).collect();
                self.changes.insert(item_id.clone(), changes.clone());
                let status = string_at(item, "/status").unwrap_or_else(|| "inProgress".to_owned());
                Some(Report::Activity(AgentActivity::FileChange { item_id, status, changes }))
            }
            _ => None,
        }
    }
}

fn change(change: &Value) -> Change {
    Change {
        path: string_at(change, "/path").unwrap_or_default(),
        kind: string_at(change, "/kind/type").or_else(|| string_at(change, "/kind")).unwrap_or_default(),
        diff: string_at(change, "/diff"),
    }
}
