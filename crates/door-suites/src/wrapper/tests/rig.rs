//! A workspace with a wrapped child, and a client.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    ProgressNotificationParam,
};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use switchboard_sys::files::{Dir, Durability};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::config::Config;
use crate::discovery::discover;
use crate::paths::SuitePaths;
use crate::trust::TrustStore;
use crate::wrapper::server::TOOL;
use crate::wrapper::{Wrapper, wrap_child};

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A workspace with the wrapped child `notes`.
pub(in crate::wrapper) struct Rig {
    temp: TempDir,
    pub(in crate::wrapper) config: Config,
    pub(in crate::wrapper) paths: SuitePaths,
    variables: BTreeMap<String, String>,
}

/// A session with the wrapper.
pub(super) struct Client {
    service: RunningService<RoleClient, Listener>,
    /// Progress messages with their numbers; they may be recorded in another order.
    pub(super) steps: mpsc::Receiver<(f64, String)>,
    wrapper: Wrapper,
}

#[derive(Clone)]
pub(super) struct Listener(mpsc::Sender<(f64, String)>);

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let mut info =
            ClientConfig::new(ClientCapabilities::default(), Implementation::new("test-client", "1"));
        info.protocol_version = rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE;
        info
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let _ = self.0.try_send((progress.progress, progress.message.unwrap_or_default()));
    }
}

impl Rig {
    /// Creates the rig with these wrapper settings and variables.
    pub(super) fn new(wrapper: Value, variables: &[(&str, &str)]) -> Self {
        let rig = Self::unwrapped(wrapper, variables);
        rig.trust();
        rig.wrap();
        rig
    }

    /// Creates the rig with a child that is neither wrapped nor trusted.
    pub(in crate::wrapper) fn unwrapped(wrapper: Value, variables: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().expect("a folder");
        let root = temp.path().canonicalize().expect("a path");
        let config = json!({ "suites": { "notes": { "wrapper": wrapper, "expose": { "deny": ["hid*"] } } } });
        let config: Config = serde_json::from_value(config).expect("settings");
        let paths = SuitePaths {
            workspace: root.join("repo"),
            config: root.join("config"),
            cache: root.join("cache"),
        };
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/children/notes.py");
        let file = json!({
            "description": "Keeps notes",
            "command": { "cmd": "python3", "args": [fixture], "env": { "NOTES_TRACE": root.join("trace") } },
        });
        let folder = Dir::open_root(&root).expect("a root");
        for name in ["repo", ".switchboard", "mcps", "notes"].iter().scan(folder, |folder, name| {
            *folder = folder.ensure_subdir(name).expect("a folder");
            Some(folder.clone())
        }) {
            if name.path().ends_with("notes") {
                let text = format!("{file:#}");
                name.create_new(".mcp.json", text.as_bytes(), Durability::Unsynced).expect("a file");
            }
        }
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { temp, config, paths, variables }
    }

    /// Returns the child's folder.
    pub(in crate::wrapper) fn folder(&self) -> PathBuf {
        self.paths.workspace.join(".switchboard/mcps/notes")
    }

    pub(in crate::wrapper) fn trust(&self) {
        let found = discover(&self.config, &self.paths);
        TrustStore::load(&self.paths).grant(found.find_child("notes").expect("the child")).expect("trust");
    }

    pub(super) fn wrap(&self) {
        wrap_child("notes", Path::new("/opt/switchboard"), &self.config, &self.paths, &|name| {
            self.lookup(name)
        })
        .expect("wrapped");
    }

    pub(in crate::wrapper) fn lookup(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// Returns what the child received, line by line.
    pub(super) fn trace(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.temp.path().join("trace")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the child has received this line.
    pub(super) async fn traced(&self, line: &str) {
        let seen = async {
            while !self.trace().iter().any(|seen| seen == line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("the child was not told '{line}'"));
    }

    pub(super) async fn client(&self) -> Client {
        let wrapper = Wrapper::open("notes", &self.config, &self.paths, None, &|name| self.lookup(name))
            .expect("a wrapper");
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = wrapper.clone();
        tokio::spawn(async move {
            if let Ok(running) = server.serve(ours).await {
                let _ = running.waiting().await;
            }
        });
        let (sender, steps) = mpsc::channel(64);
        let service = Listener(sender).serve(theirs).await.expect("a session");
        Client { service, steps, wrapper }
    }

    /// Asks one question and returns the outcome.
    pub(super) async fn ask(&self, query: &str) -> Outcome {
        let client = self.client().await;
        let outcome = client.ask(json!({ "query": query })).await;
        client.wrapper.close().await;
        outcome
    }
}

/// Outcome of a question.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) is_error: bool,
    pub(super) data: Value,
}

impl Outcome {
    /// Returns the called tools, and whether each succeeded.
    pub(super) fn calls(&self) -> Vec<(String, bool)> {
        let calls = self.data["calls"].as_array().expect("calls");
        calls
            .iter()
            .map(|call| (call["tool"].as_str().expect("a name").to_owned(), call["ok"] == json!(true)))
            .collect()
    }
}

impl Client {
    pub(super) fn service(&self) -> &RunningService<RoleClient, Listener> {
        &self.service
    }

    pub(super) async fn ask(&self, arguments: Value) -> Outcome {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let request = CallToolRequestParams::new(TOOL).with_arguments(arguments);
        let result = timeout(PATIENCE, self.service.call_tool(request)).await;
        outcome(&result.expect("in time").expect("an answer"))
    }
}

pub(super) fn outcome(result: &CallToolResult) -> Outcome {
    let value = serde_json::to_value(result).expect("JSON");
    Outcome {
        text: value["content"][0]["text"].as_str().expect("a text").to_owned(),
        is_error: value["isError"] == json!(true),
        data: value["structuredContent"].clone(),
    }
}
