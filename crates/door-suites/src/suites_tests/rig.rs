//! Test rig: a workspace whose children are real programs.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_sys::clock::Clock;
use tempfile::TempDir;

use crate::config::Config;
use crate::discovery::discover;
use crate::host::{Caller, RpcError};
use crate::paths::SuitePaths;
use crate::suites::Suites;
use crate::test_files::write;
use crate::trust::TrustStore;

/// A temporary workspace with user folders.
pub(super) struct Rig {
    folder: TempDir,
    pub(super) config: Config,
    pub(super) clock: Clock,
}

impl Rig {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "config", "cache"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        Self { folder, config: Config::default(), clock: Clock::manual(start) }
    }

    /// Sets the settings in the form in which a person writes them.
    pub(super) fn with(mut self, settings: Value) -> Self {
        self.config = Config::from_file(&settings).unwrap();
        self
    }

    pub(super) fn paths(&self) -> SuitePaths {
        let path = |name: &str| self.folder.path().join(name);
        SuitePaths { workspace: path("work"), config: path("config"), cache: path("cache") }
    }

    /// Adds a child whose server lists the given tools.
    pub(super) fn child(&self, name: &str, lists: &Value) {
        self.lists(name, lists);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/children/toolbox.py");
        let file = json!({
            "name": name,
            "switchboardDescription": format!("Tests with {name}"),
            "command": { "cmd": "python3", "args": [script, self.list_file(name)] },
        });
        self.describe(name, &file);
    }

    /// Adds a child with the given `.mcp.json`.
    pub(super) fn describe(&self, name: &str, file: &Value) {
        write(
            &self.paths().workspace.join(".switchboard/mcps").join(name).join(".mcp.json"),
            &file.to_string(),
        );
    }

    /// Replaces the tools that a child's server lists.
    pub(super) fn lists(&self, name: &str, lists: &Value) {
        write(&self.list_file(name), &lists.to_string());
    }

    fn list_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}-lists.json"))
    }

    /// Trusts all children in their current state.
    pub(super) fn trust(&self) {
        let trust = TrustStore::load(&self.paths());
        for spec in discover(&self.config, &self.paths()).children {
            trust.grant(&spec).unwrap();
        }
    }

    pub(super) fn open(&self) -> Suites {
        self.open_via("")
    }

    pub(super) fn open_via(&self, path: &str) -> Suites {
        Suites::open_via(self.config.clone(), self.paths(), None, path, self.clock.clone()).unwrap()
    }

    /// Opens the suites with every child trusted.
    pub(super) fn open_trusted(&self) -> Suites {
        self.trust();
        self.open()
    }
}

/// Returns a tool list with a few tools.
pub(super) fn tools() -> Value {
    json!({
        "instructions": "A box of tools.",
        "tools": [
            {
                "name": "echo", "description": "Says it again. Nothing more.", "x-kept": 1.50,
                "inputSchema": { "type": "object", "properties": { "message": { "type": "string" } }, "required": ["message"] },
                "annotations": { "readOnlyHint": true },
            },
            { "name": "count", "description": "Counts.", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } },
            { "name": "write", "description": "Writes.", "inputSchema": { "type": "object" } },
            { "name": "fails", "inputSchema": { "type": "object" } },
            { "name": "refuses", "inputSchema": { "type": "object" } },
            { "name": "big", "inputSchema": { "type": "object" } },
            { "name": "via", "inputSchema": { "type": "object" } },
            { "name": "announce", "inputSchema": { "type": "object" } },
        ],
    })
}

/// Calls a tool and returns the raw answer.
pub(super) async fn call(suites: &Suites, tool: &str, arguments: Value) -> Result<Box<RawValue>, RpcError> {
    let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
    suites.call(tool, Some(&arguments), &Caller::default()).await
}

/// Calls a tool, and returns the text of the answer and whether it is an error.
pub(super) async fn call_text(suites: &Suites, tool: &str, arguments: Value) -> (String, bool) {
    let result = call(suites, tool, arguments).await.unwrap();
    let value: Value = serde_json::from_str(result.get()).unwrap();
    (value["content"][0]["text"].as_str().unwrap_or_default().to_owned(), value["isError"] == true)
}

/// Returns the names of the tools in a list.
pub(super) fn names(list: &[Box<RawValue>]) -> Vec<String> {
    let name = |item: &RawValue| {
        serde_json::from_str::<Value>(item.get()).unwrap()["name"].as_str().unwrap().to_owned()
    };
    list.iter().map(|item| name(item)).collect()
}
