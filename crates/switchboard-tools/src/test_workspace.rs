//! A workspace in a temporary folder, with helpers that change its files like a careless program.

use std::path::{Path, PathBuf};

use door_workspace::{Config, FOLDER, OutgoingMessage, Tree, Workspace};
use serde_json::{Value, json};
use switchboard_core::{Address, AgentId, Kind};
use switchboard_hub::HubConfig;
use switchboard_sys::clock::Clock;
use tempfile::TempDir;

/// A workspace whose clock is fixed at its creation, so that every folder counts as just changed.
pub(crate) struct TestWorkspace {
    pub(crate) workspace: Workspace,
    pub(crate) clock: Clock,
    folder: TempDir,
}

pub(crate) fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

pub(crate) fn outgoing(from: &str, to: &str, body: &str) -> OutgoingMessage {
    OutgoingMessage::new(agent(from), to.parse::<Address>().unwrap(), Kind::delegate_task(), body)
}

/// Builds a message file as another program writes it.
pub(crate) fn message(id: &str, sender: &str, recipient: &str, payload: &str) -> Value {
    json!({
        "id": id, "action": "delegate_task", "sender": sender, "recipient": recipient, "payload": payload,
        "createdAt": "2025-01-01T00:00:00.000Z",
    })
}

/// Writes like a careless program: in place, over existing files, through symbolic links.
#[expect(clippy::disallowed_methods, reason = "stands for a program that takes no care")]
pub(crate) fn write_carelessly(path: &Path, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

impl TestWorkspace {
    /// Creates a workspace without agents.
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Tree::create(folder.path()).unwrap();
        let clock = Clock::manual(Clock::system().now());
        let workspace = open(folder.path(), &clock).await;
        Self { workspace, clock, folder }
    }

    /// Opens a second handle on the workspace, like another process.
    pub(crate) async fn open_another(&self) -> Workspace {
        open(self.folder.path(), &self.clock).await
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(FOLDER).join(below)
    }

    pub(crate) fn json(&self, below: &str) -> Value {
        let bytes = std::fs::read(self.path(below)).unwrap_or_else(|error| panic!("{below}: {error}"));
        serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{below}: {error}"))
    }

    pub(crate) fn write(&self, below: &str, bytes: impl AsRef<[u8]>) {
        write_carelessly(&self.path(below), bytes);
    }

    /// Writes a message file into a mailbox, under the name of its id.
    pub(crate) fn put(&self, folder: &str, message: &Value) {
        let below = format!("inbox/{folder}/{}.json", message["id"].as_str().unwrap());
        self.write(&below, message.to_string());
    }
}

async fn open(folder: &Path, clock: &Clock) -> Workspace {
    let configure = |hub: &mut HubConfig| hub.clock = clock.clone();
    Workspace::open(folder, Config::default(), configure).await.unwrap()
}
