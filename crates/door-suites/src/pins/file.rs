//! The pin file of one child, in the user's own folder.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_core::describe_json_error;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::{Dir, FileStat};

use crate::content_hash::hash_content;
use crate::error::SuiteError;

/// Maximum size of a pin file, in bytes: enough for thousands of tools with their schemas.
const LIMIT: u64 = 64 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PinFile {
    /// Path of the workspace, stored for people who open the file.
    pub(super) workspace: String,
    pub(super) child: String,
    pub(super) tools: BTreeMap<String, Pin>,
    /// Changed tools that are pending approval, as last listed.
    pub(super) waiting: BTreeMap<String, Value>,
    #[serde(skip)]
    pub(super) stamp: Option<FileStat>,
}

/// Pin of one tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pin {
    pub(super) hash: String,
    pub(super) at: String,
    pub(super) tool: Value,
}

impl Pin {
    pub(super) fn of(tool: &Value) -> Self {
        Self { hash: hash_content(tool), at: Clock::system().now().to_string(), tool: tool.clone() }
    }
}

/// Returns the name of a child's pin file.
pub(super) fn name(child: &str) -> String {
    format!("{}.json", child.to_ascii_lowercase())
}

impl PinFile {
    pub(super) fn read(dir: &Dir, child: &str) -> Result<Self, SuiteError> {
        let Some(found) = dir.read(&name(child), LIMIT)? else { return Ok(Self::default()) };
        let file: Self = serde_json::from_slice(&found.bytes).map_err(|error| SuiteError::BadFile {
            file: dir.path().join(name(child)),
            problem: format!(
                "cannot be read: {}; move it aside to pin the tools again",
                describe_json_error(&error)
            ),
        })?;
        Ok(Self { stamp: Some(found.stat), ..file })
    }

    pub(super) fn write(&mut self, dir: &Dir) -> Result<(), SuiteError> {
        let name = name(&self.child);
        let text = serde_json::to_vec_pretty(self).map_err(|error| SuiteError::BadFile {
            file: dir.path().join(&name),
            problem: error.to_string(),
        })?;
        dir.replace(&name, &text, 0o600)?;
        self.stamp = dir.stat(&name)?;
        Ok(())
    }
}
